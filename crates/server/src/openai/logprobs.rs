//! Log-probabilities in OpenAI's two shapes.

use minfer::Model;
use serde_json::{Map, Value as Json, json};

use crate::generate::output::TokenScores;
use crate::json::number;

/// A token's text; bytes that are no text become U+FFFD.
pub(super) fn text(model: &Model, id: u32) -> String {
    String::from_utf8_lossy(model.tokenizer().token_bytes(id)).into_owned()
}

fn entry(model: &Model, id: u32, logprob: f32) -> Json {
    json!({"token": text(model, id), "logprob": number(logprob), "bytes": model.tokenizer().token_bytes(id)})
}

/// One item of a chat's `logprobs.content`.
pub(super) fn chat_entry(model: &Model, scores: &TokenScores) -> Json {
    let mut item = entry(model, scores.id, scores.logprobs.logprob);
    let top = scores.logprobs.top.iter().map(|token| entry(model, token.id, token.logprob));
    item["top_logprobs"] = top.collect();
    item
}

/// `logprobs` of a completion: four lists of the same length.
#[derive(Debug, Clone, Default)]
pub(super) struct Legacy {
    tokens: Vec<Json>,
    token_logprobs: Vec<Json>,
    top_logprobs: Vec<Json>,
    text_offset: Vec<usize>,
    offset: usize,
}

impl Legacy {
    /// Adds a token. The first one of a prompt has no log-probability.
    pub(super) fn push(&mut self, model: &Model, id: u32, logprob: Option<f32>, top: &[(u32, f32)]) {
        let text = text(model, id);
        self.text_offset.push(self.offset);
        self.offset += text.chars().count();
        self.tokens.push(text.into());
        self.token_logprobs.push(logprob.map_or(Json::Null, number));
        let names = top.iter().map(|&(id, logprob)| (self::text(model, id), number(logprob)));
        self.top_logprobs.push(match logprob {
            None => Json::Null,
            Some(_) => Json::Object(names.collect::<Map<String, Json>>()),
        });
    }

    pub(super) fn push_scores(&mut self, model: &Model, scores: &TokenScores) {
        let top: Vec<(u32, f32)> =
            scores.logprobs.top.iter().map(|token| (token.id, token.logprob)).collect();
        self.push(model, scores.id, Some(scores.logprobs.logprob), &top);
    }

    /// The lists, which are empty afterwards; offsets go on.
    pub(super) fn take(&mut self) -> Json {
        let Legacy { tokens, token_logprobs, top_logprobs, text_offset, offset } = std::mem::take(self);
        self.offset = offset;
        json!({
            "tokens": tokens,
            "token_logprobs": token_logprobs,
            "top_logprobs": top_logprobs,
            "text_offset": text_offset,
        })
    }
}
