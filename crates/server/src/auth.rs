//! API keys: who may call, and whose cached rows a request may reuse.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::{ApiError, ErrorKind};
use crate::state::App;

/// The keys that are let in, as digests: comparing them takes the same time whatever a client
/// sends.
pub(crate) struct Keys {
    digests: Vec<[u8; 32]>,
    /// Makes salts that only who has all keys can compute; the same keys have the same salts in the
    /// next process, so that rows which were saved meet the clients that they came from.
    secret: [u8; 32],
}

/// The salt of the key that a request came with: requests of different keys never share cached KV
/// rows, so nobody can find out by timing what another one asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Salt(pub(crate) Option<u64>);

impl Keys {
    pub(crate) fn new(keys: &[String]) -> Keys {
        let digests: Vec<[u8; 32]> = keys.iter().map(|key| digest(&[key.as_bytes()])).collect();
        let mut sorted = digests.clone();
        sorted.sort_unstable();
        let parts: Vec<&[u8]> = sorted.iter().map(<[u8; 32]>::as_slice).collect();
        Keys { secret: digest(&parts), digests }
    }

    /// The salt of a request; `None` where it has to be refused.
    fn salt(&self, headers: &HeaderMap) -> Option<Salt> {
        if self.digests.is_empty() {
            return Some(Salt(None));
        }
        let key = key_of(headers)?;
        let sent = digest(&[key]);
        let known = self.digests.iter().fold(0, |known, digest| known | digest.ct_eq(&sent).unwrap_u8());
        let salt = digest(&[&self.secret, key]);
        let [a, b, c, d, e, f, g, h, ..] = salt;
        (known == 1).then_some(Salt(Some(u64::from_le_bytes([a, b, c, d, e, f, g, h]))))
    }
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// The key as OpenAI's clients send it, or as Anthropic's do.
fn key_of(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked("bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes().trim_ascii()))
}

/// Lets a request with a key in, with its salt. `/health` needs none.
pub(crate) async fn require_key(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let open = matches!(request.uri().path(), "/health" | "/v1/health");
    match app.keys.salt(request.headers()).or(open.then_some(Salt(None))) {
        Some(salt) => {
            request.extensions_mut().insert(salt);
            next.run(request).await
        }
        None => {
            let message = "no API key, or an unknown one: send `Authorization: Bearer KEY`";
            ApiError::new(ErrorKind::Authentication, message).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn keys_are_found_and_have_salts_of_their_own() {
        let keys = Keys::new(&["one".to_owned(), "two".to_owned()]);
        let salt = |name, value: &str| keys.salt(&headers(name, value)).map(|Salt(salt)| salt.unwrap());
        let one = salt("authorization", "Bearer one").unwrap();
        assert_eq!(salt("authorization", "bearer  one "), Some(one));
        assert_eq!(salt("x-api-key", "one"), Some(one));
        assert_ne!(salt("x-api-key", "two").unwrap(), one);
        for (name, value) in [
            ("authorization", "Bearer three"),
            ("authorization", "Bearer "),
            ("authorization", "Basic one"),
            ("authorization", "one"),
            ("x-api-key", "on"),
            ("cookie", "one"),
        ] {
            assert!(salt(name, value).is_none(), "{name}: {value}");
        }
        assert!(Keys::new(&[]).salt(&HeaderMap::new()).is_some_and(|Salt(salt)| salt.is_none()));
        let salt_of = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
            Keys::new(&keys).salt(&headers("x-api-key", "one")).unwrap().0
        };
        assert_eq!(salt_of(&["two", "one"]), Some(one), "whatever the order");
        assert_ne!(salt_of(&["one"]), Some(one), "salts of another server are others");
    }
}
