//! A client of running servers.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::output;

/// Chunks that may wait for whoever reads them.
const WAITING: usize = 64;
/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A running server with OpenAI's API.
#[derive(Clone)]
pub(crate) struct Remote {
    url: String,
    key: Option<String>,
    agent: ureq::Agent,
}

impl Remote {
    /// `url` is the address with or without `/v1`. The key is that of `MINFER_API_KEY`.
    pub(crate) fn new(url: &str) -> Remote {
        let url = url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_connect(Some(CONNECT));
        let key = std::env::var("MINFER_API_KEY").ok().filter(|key| !key.is_empty());
        Remote { url, key, agent: config.build().into() }
    }

    /// The name of the first model.
    pub(crate) fn model(&self) -> Result<String> {
        let mut request = self.agent.get(format!("{}/v1/models", self.url));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let response = request.call().with_context(|| self.url.clone())?;
        let list = json_of(&self.url, response)?;
        Ok(list["data"][0]["id"].as_str().unwrap_or("default").to_owned())
    }

    /// The chunks of a streamed answer, as they come. Dropping the receiver ends the request.
    ///
    /// # Errors
    /// The server cannot be reached or refuses the request.
    pub(crate) fn stream(&self, path: &str, body: &Value) -> Result<Receiver<Result<Value>>> {
        let mut request = self.agent.post(format!("{}{path}", self.url)).content_type("application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let response = request.send(body.to_string()).with_context(|| self.url.clone())?;
        if !response.status().is_success() {
            let refused = json_of(&self.url, response).map(drop);
            return Err(refused.err().unwrap_or_else(|| anyhow!("{}: no answer", self.url)));
        }
        let (sender, chunks) = sync_channel(WAITING);
        let reader = response.into_body().into_reader();
        std::thread::Builder::new()
            .name("response".to_owned())
            .spawn(move || {
                for line in BufReader::new(reader).lines() {
                    let Some(chunk) = chunk(line).transpose() else { continue };
                    if sender.send(chunk).is_err() {
                        return;
                    }
                }
            })
            .map_err(output::no_thread)?;
        Ok(chunks)
    }
}

/// The chunk in a line of server-sent events, if it has one.
fn chunk(line: std::io::Result<String>) -> Result<Option<Value>> {
    let line = line.context("the answer broke off")?;
    let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else { return Ok(None) };
    let chunk: Value = serde_json::from_str(data).context("the server sent a chunk that is not JSON")?;
    match chunk["error"]["message"].as_str() {
        Some(message) => bail!("{message}"),
        None => Ok(Some(chunk)),
    }
}

/// A whole response as JSON.
fn json_of(url: &str, response: ureq::http::Response<ureq::Body>) -> Result<Value> {
    let status = response.status();
    let mut text = String::new();
    response.into_body().into_reader().take(1 << 20).read_to_string(&mut text)?;
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    if status.is_success() {
        return Ok(json);
    }
    match json["error"]["message"].as_str() {
        Some(message) => bail!("{url}: {message} ({status})"),
        None => bail!("{url}: {status}"),
    }
}
