//! A request for the answer to a few messages.

use minfer_text::Message;
use serde_json::{Map, Value};

use super::generation::generation_setters;
use super::{Answer, Chunks, Error, GenerationOptions, Model};

/// Messages to answer, made by [`Model::chat`]. The model's chat template turns them into the
/// prompt; what they spell never becomes a control token.
///
/// ```
/// # use minfer::{ModelBuilder, ModelFile};
/// # use minfer_testkit::synthetic::{Family, file};
/// # fn main() -> Result<(), minfer::Error> {
/// # let file = ModelFile::from_bytes(file(Family::Llama))?;
/// # let model = ModelBuilder::from_file(file).chat_template_name("chatml").load()?;
/// let answer = model
///     .chat()
///     .system("Answer in one sentence.")
///     .user("Why is the sky blue?")
///     .temperature(0.0)
///     .max_tokens(16)
///     .answer()?;
/// println!("{answer} ({} tokens)", answer.finish.usage.completion);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing runs before `text`, `answer` or `stream`"]
pub struct Chat {
    model: Model,
    messages: Vec<Message>,
    variables: Map<String, Value>,
    options: GenerationOptions,
}

impl Chat {
    pub(super) fn new(model: Model) -> Chat {
        Chat { model, messages: Vec::new(), variables: Map::new(), options: GenerationOptions::default() }
    }

    /// Adds a system message.
    pub fn system(self, text: impl Into<String>) -> Self {
        self.message(Message::new("system", text))
    }

    /// Adds a user's message.
    pub fn user(self, text: impl Into<String>) -> Self {
        self.message(Message::new("user", text))
    }

    /// Adds an earlier answer of the model.
    pub fn assistant(self, text: impl Into<String>) -> Self {
        self.message(Message::new("assistant", text))
    }

    /// Adds a message of any role.
    pub fn message(mut self, message: Message) -> Self {
        self.messages.push(message);
        self
    }

    /// Adds messages, oldest first.
    pub fn messages(mut self, messages: impl IntoIterator<Item = Message>) -> Self {
        self.messages.extend(messages);
        self
    }

    /// Sets a variable of the chat template, such as `enable_thinking`.
    pub fn template_variable(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    generation_setters!();

    /// The prompt that the chat template makes, as token ids.
    ///
    /// # Errors
    /// There is no chat template, it refuses the messages, or their text cannot be encoded.
    pub fn prompt_tokens(&self) -> Result<Vec<u32>, Error> {
        self.model.encode_chat(&self.messages, &self.variables)
    }

    /// Waits for the whole answer and returns its text.
    ///
    /// # Errors
    /// As [`stream`](Self::stream), or the generation failed.
    pub fn text(&self) -> Result<String, Error> {
        self.answer().map(String::from)
    }

    /// Waits for the whole answer.
    ///
    /// # Errors
    /// As [`stream`](Self::stream), or the generation failed.
    pub fn answer(&self) -> Result<Answer, Error> {
        self.stream()?.answer()
    }

    /// Starts the generation and returns its chunks as they come.
    ///
    /// # Errors
    /// Those of [`prompt_tokens`](Self::prompt_tokens), an option is out of its range, the prompt
    /// is too long, or the queue is full.
    pub fn stream(&self) -> Result<Chunks, Error> {
        self.model.submit(self.options.request(self.prompt_tokens()?, None))
    }

    /// As [`stream`](Self::stream), for async code. Encoding the messages runs in this call, the
    /// generation on the engine's thread.
    ///
    /// # Errors
    /// As [`stream`](Self::stream).
    #[cfg(feature = "stream")]
    pub fn stream_async(&self) -> Result<super::ChunkStream, Error> {
        self.model.submit_async(self.options.request(self.prompt_tokens()?, None))
    }
}
