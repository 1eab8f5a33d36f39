//! Conversations: messages whose rows stay in the KV cache.

use std::iter::FusedIterator;
use std::path::Path;

use minfer_engine::{Request, SessionId};
use minfer_text::Message;
use serde_json::{Map, Value};

use super::generation::generation_setters;
use super::saved::Saved;
use super::{Answer, CancelHandle, Chunk, Chunks, Error, GenerationOptions, Model};

/// A conversation with a model, made by [`Model::conversation`].
///
/// It keeps the messages, and the engine keeps their rows in the KV cache: each turn feeds only new
/// tokens ([`Usage::cached`](crate::Usage) counts the others). Rows that had to leave the cache are
/// computed again. With a seed, each turn has random draws of its own.
///
/// ```
/// # use minfer::{ModelBuilder, ModelFile};
/// # use minfer_testkit::synthetic::{Family, file};
/// # fn main() -> Result<(), minfer::Error> {
/// # let file = ModelFile::from_bytes(file(Family::Llama))?;
/// # let model = ModelBuilder::from_file(file).chat_template_name("chatml").load()?;
/// let mut conversation = model.conversation().system("Be brief.").max_tokens(16);
/// println!("{}", conversation.say("Who wrote Faust?")?);
/// println!("{}", conversation.say("When?")?);
/// assert_eq!(conversation.messages().len(), 5);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Conversation {
    model: Model,
    messages: Vec<Message>,
    variables: Map<String, Value>,
    options: GenerationOptions,
    /// Opened by the first turn.
    session: Option<SessionId>,
    /// Answers drawn so far, those that were replaced included.
    draws: u64,
    /// Answers that `minfer chat` has left out of the messages.
    left_out: u64,
}

impl Conversation {
    pub(super) fn new(model: Model) -> Conversation {
        Conversation {
            model,
            messages: Vec::new(),
            variables: Map::new(),
            options: GenerationOptions::default(),
            session: None,
            draws: 0,
            left_out: 0,
        }
    }

    pub(super) fn load(model: Model, path: &Path) -> Result<Conversation, Error> {
        let failed = |error| Error::session(path, error);
        let (session, host) = model.engine().load_session(path).map_err(failed)?;
        // Dropped on an error, the conversation closes the session.
        let mut conversation = Conversation::new(model);
        conversation.session = Some(session);
        let saved = Saved::from_bytes(&host).map_err(failed)?;
        conversation.messages = saved.messages;
        conversation.draws = saved.draws;
        conversation.left_out = saved.left_out;
        Ok(conversation)
    }

    /// Sets the system message, in place of an earlier one.
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.messages.retain(|message| message.role != "system");
        self.messages.insert(0, Message::new("system", text));
        self
    }

    /// Adds earlier messages, oldest first.
    pub fn with_messages(mut self, messages: impl IntoIterator<Item = Message>) -> Self {
        self.messages.extend(messages);
        self
    }

    /// Sets a variable of the chat template, such as `enable_thinking`.
    pub fn template_variable(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    generation_setters!();

    /// Says something and waits for the answer.
    ///
    /// # Errors
    /// As [`stream`](Self::stream), or the generation failed. The conversation is then as before.
    pub fn say(&mut self, text: impl Into<String>) -> Result<Answer, Error> {
        self.stream(text)?.answer()
    }

    /// Says something and returns the answer's chunks as they come.
    ///
    /// A stream that is dropped or cancelled before its end leaves in the conversation what was
    /// read of the answer; where nothing was read, nothing was said.
    ///
    /// # Errors
    /// The chat template refuses the messages, an option is out of its range, or the queue is
    /// full. The conversation is then as before.
    pub fn stream(&mut self, text: impl Into<String>) -> Result<ConversationChunks<'_>, Error> {
        let (turn, request) = self.begin(text.into())?;
        let chunks = turn.model().submit(request)?;
        Ok(ConversationChunks { chunks, turn })
    }

    /// Replaces the last answer by another one. With a seed its draws are new ones.
    ///
    /// # Errors
    /// There is no answer, or those of [`say`](Self::say). The conversation is then as before.
    pub fn regenerate(&mut self) -> Result<Answer, Error> {
        let is_answer = |message: &mut Message| message.role == "assistant";
        let before = self.messages.pop_if(is_answer).ok_or_else(Error::nothing_to_regenerate)?;
        let turn = Turn::new(self, before);
        let request = turn.conversation.request()?;
        let chunks = turn.model().submit(request)?;
        ConversationChunks { chunks, turn }.answer()
    }

    /// Takes back the last message of the user and its answer. Tells whether there was one.
    pub fn undo(&mut self) -> bool {
        let last = self.messages.iter().rposition(|message| message.role == "user");
        last.inspect(|&index| self.messages.truncate(index)).is_some()
    }

    /// All messages, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Writes the messages and their rows to a session file, for [`Model::load_conversation`] and
    /// `minfer chat --session`; returns its length in bytes. The file appears whole or not at
    /// all. Options are not saved.
    ///
    /// # Errors
    /// The path is that of another kind of file, or the file cannot be written.
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<u64, Error> {
        let path = path.as_ref();
        let session = self.session()?;
        let saved = Saved { messages: self.messages.clone(), draws: self.draws, left_out: self.left_out };
        let written = self.model.engine().save_session(session, path, saved.to_bytes());
        written.map_err(|error| Error::session(path, error))
    }

    pub(super) fn begin(&mut self, text: String) -> Result<(Turn<'_>, Request), Error> {
        self.messages.push(Message::new("user", text));
        let said = Turn { conversation: self, undo: Undo::Said, text: String::new(), open: true };
        let request = said.conversation.request()?;
        Ok((said, request))
    }

    fn request(&mut self) -> Result<Request, Error> {
        let prompt = self.model.encode_chat(&self.messages, &self.variables)?;
        let session = self.session()?;
        let mut request = self.options.request(prompt, Some(session));
        request.seed = request.seed.map(|seed| seed.wrapping_add(self.draws));
        Ok(request)
    }

    fn session(&mut self) -> Result<SessionId, Error> {
        match self.session {
            Some(session) => Ok(session),
            None => Ok(*self.session.insert(self.model.engine().open_session()?)),
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            self.model.engine().close_session(session);
        }
    }
}

/// A turn whose answer is not complete. Dropped, it leaves in the conversation what was read.
#[derive(Debug)]
pub(super) struct Turn<'c> {
    conversation: &'c mut Conversation,
    undo: Undo,
    text: String,
    /// The conversation has neither the answer nor its old state yet.
    open: bool,
}

/// What a turn without an answer puts back.
#[derive(Debug)]
enum Undo {
    /// The user's message goes.
    Said,
    /// The answer that was to be replaced comes back.
    Replaced(Message),
}

impl<'c> Turn<'c> {
    fn new(conversation: &'c mut Conversation, before: Message) -> Turn<'c> {
        Turn { conversation, undo: Undo::Replaced(before), text: String::new(), open: true }
    }

    pub(super) fn model(&self) -> Model {
        self.conversation.model.clone()
    }

    /// Takes notice of a chunk that the reader gets.
    pub(super) fn note(&mut self, chunk: &Result<Chunk, Error>) {
        match chunk {
            Ok(chunk) => {
                self.text.push_str(&chunk.text);
                if chunk.finish.is_some() {
                    self.keep();
                }
            }
            Err(error) if error.kind() == super::ErrorKind::Cancelled => self.end(),
            Err(_) => self.take_back(),
        }
    }

    /// The answer is what was read, if anything was.
    fn end(&mut self) {
        if self.text.is_empty() { self.take_back() } else { self.keep() }
    }

    fn keep(&mut self) {
        if std::mem::take(&mut self.open) {
            let text = std::mem::take(&mut self.text);
            self.conversation.messages.push(Message::new("assistant", text));
            self.conversation.draws += 1;
        }
    }

    fn take_back(&mut self) {
        if std::mem::take(&mut self.open) {
            match std::mem::replace(&mut self.undo, Undo::Said) {
                Undo::Said => drop(self.conversation.messages.pop()),
                Undo::Replaced(before) => self.conversation.messages.push(before),
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The chunks of a conversation's answer as they are generated, made by
/// [`Conversation::stream`].
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub struct ConversationChunks<'c> {
    // Dropped first, so that the request is cancelled before the turn ends.
    chunks: Chunks,
    turn: Turn<'c>,
}

impl ConversationChunks<'_> {
    /// Waits for the answer. Chunks that were read before are not part of it.
    ///
    /// # Errors
    /// The generation failed or was cancelled.
    pub fn answer(mut self) -> Result<Answer, Error> {
        super::answer::collect(&mut self)
    }

    /// A handle that cancels the request from anywhere, such as a handler of Ctrl-C.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.chunks.cancel_handle()
    }
}

impl Iterator for ConversationChunks<'_> {
    type Item = Result<Chunk, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let chunk = self.chunks.next()?;
        self.turn.note(&chunk);
        Some(chunk)
    }
}

impl FusedIterator for ConversationChunks<'_> {}
