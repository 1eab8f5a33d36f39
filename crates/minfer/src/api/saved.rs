//! What a session file holds beside tokens and rows: the messages, in the form of `minfer chat`.

use minfer_engine::kv::session::SessionError;
use minfer_text::Message;
use serde_json::{Value, json};

/// The messages of a conversation and what goes on with them.
#[derive(Debug, Default)]
pub(super) struct Saved {
    pub(super) messages: Vec<Message>,
    /// Answers drawn so far.
    pub(super) draws: u64,
    /// Answers that are no longer among the messages.
    pub(super) left_out: u64,
}

impl Saved {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let messages: Vec<Value> = self.messages.iter().map(message_json).collect();
        let saved = json!({
            "by": "chat",
            "messages": messages,
            "draws": self.draws,
            "left_out": self.left_out,
        });
        saved.to_string().into_bytes()
    }

    /// # Errors
    /// The bytes are not a conversation's.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Saved, SessionError> {
        let foreign = || SessionError::Contradiction("it holds no conversation".to_owned());
        let saved: Value = serde_json::from_slice(bytes).map_err(|_| foreign())?;
        let messages = saved["messages"].as_array().filter(|_| saved["by"] == "chat");
        let messages = Message::list_from_json(messages.ok_or_else(foreign)?).map_err(|_| foreign())?;
        let count = |name: &str| saved[name].as_u64().unwrap_or(0);
        Ok(Saved { messages, draws: count("draws"), left_out: count("left_out") })
    }
}

/// A message in the shape of OpenAI's chat API.
fn message_json(message: &Message) -> Value {
    let mut json = message.fields.clone();
    json.insert("role".to_owned(), message.role.clone().into());
    json.insert("content".to_owned(), message.content.clone());
    json.into()
}
