//! The messages of a conversation and the rows that the engine keeps for them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow, bail};
use minfer::Loaded;
use minfer::engine::event::Usage;
use minfer::engine::{Engine, EngineError, EngineStats, Request, SessionId};
use minfer::text::{ChatTemplate, Message, Tokenizer};
use serde_json::{Value, json};

use crate::args::AnswerArgs;
use crate::commands::answer::{self, Answer};
use crate::commands::prompt;
use crate::output;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Done,
    Interrupted,
}

/// A conversation.
pub(super) struct Conversation<'a> {
    args: &'a AnswerArgs,
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    messages: Vec<Message>,
    session: SessionId,
    /// Answers drawn so far, those that were replaced included: each has draws of its own under one seed.
    draws: u64,
}

impl<'a> Conversation<'a> {
    /// A new one, or the one in the session file.
    pub(super) fn new(args: &'a AnswerArgs, mut loaded: Loaded) -> Result<Conversation<'a>> {
        let template = loaded.template.take().ok_or_else(|| anyhow!("the model has no chat template"))?;
        let tokenizer = Arc::clone(&loaded.tokenizer);
        let engine = loaded.into_engine()?;
        let session = engine.open_session()?;
        let messages = Vec::new();
        let mut conversation =
            Conversation { args, engine, tokenizer, template, messages, session, draws: 0 };
        match &args.session {
            Some(path) if path.try_exists()? => {
                conversation.load(path)?;
                conversation.check_system(path)?;
            }
            _ => conversation
                .messages
                .extend(args.system.iter().map(|text| Message::new("system", text.as_str()))),
        }
        Ok(conversation)
    }

    /// A system message that was given must be the one that was saved.
    fn check_system(&self, path: &Path) -> Result<()> {
        let Some(given) = &self.args.system else { return Ok(()) };
        let saved = self.messages.first().filter(|message| message.role == "system");
        if saved.is_some_and(|message| message.content.as_str() == Some(given)) {
            return Ok(());
        }
        bail!(
            "--system: the conversation in {} has another system message; leave the flag out, or type /system",
            path.display()
        )
    }

    /// Adds a message and answers it. Where that fails the message was not said.
    pub(super) fn say(&mut self, text: &str, interrupted: &AtomicBool) -> Result<Turn> {
        self.messages.push(Message::new("user", text));
        self.answer(interrupted).inspect_err(|_| {
            self.messages.pop();
        })
    }

    /// Answers the last message anew.
    pub(super) fn answer_again(&mut self, interrupted: &AtomicBool) -> Result<Turn> {
        let Some(before) = self.messages.pop_if(|message| message.role == "assistant") else {
            bail!("there is no answer to make again");
        };
        self.answer(interrupted).inspect_err(|_| self.messages.push(before))
    }

    fn answer(&mut self, interrupted: &AtomicBool) -> Result<Turn> {
        let answer = loop {
            match self.try_answer(interrupted) {
                // Rows that were made before a shift are of no use once the template prints their text in another way.
                Err(error) if self.args.context_shift && exceeds_context(&error) => {
                    if !self.forget_oldest() {
                        return Err(error);
                    }
                }
                answer => break answer?,
            }
        };
        self.draws += 1;
        self.messages.push(Message::new("assistant", answer.text()));
        let Some(finished) = &answer.finished else { return Ok(Turn::Interrupted) };
        if self.args.facts {
            output::note(&self.turn_facts(&finished.usage).to_string());
        }
        if output::stderr_is_terminal() {
            output::note(&answer::speeds(finished));
        }
        Ok(Turn::Done)
    }

    fn try_answer(&self, interrupted: &AtomicBool) -> Result<Answer> {
        let ids = prompt::chat_ids(self.args, &self.tokenizer, &self.template, &self.messages)?;
        let own = || prompt::system_tokens(self.args, &self.tokenizer, &self.template, &self.messages, &ids);
        let keep = prompt::keep(self.args, own);
        let request = prompt::request(self.args, ids, keep);
        let seed = request.seed.map(|seed| seed.wrapping_add(self.draws));
        let (id, events) = self.engine.submit(Request { seed, session: Some(self.session), ..request })?;
        let mut cancelled = false;
        Answer::read(&events, true, || {
            if interrupted.load(Ordering::Relaxed) && !std::mem::replace(&mut cancelled, true) {
                self.engine.cancel(id);
            }
            false
        })
    }

    /// Leaves the oldest message out, and the answer to it.
    fn forget_oldest(&mut self) -> bool {
        let first = self.messages.iter().take_while(|message| message.role == "system").count();
        if self.messages.len() < first + 3 {
            return false;
        }
        let answered = self.messages[first + 1].role == "assistant";
        self.messages.drain(first..first + 1 + usize::from(answered));
        output::note("note: the conversation has outgrown the context; its oldest message is left out");
        true
    }

    fn turn_facts(&self, usage: &Usage) -> Value {
        let known = self.engine.session(self.session).unwrap_or_default();
        json!({
            "turn": self.messages.iter().filter(|message| message.role == "assistant").count(),
            "prompt_tokens": usage.prompt,
            "reused_tokens": usage.cached,
            "fed_tokens": usage.prompt - usage.cached,
            "completion_tokens": usage.completion,
            "removed_tokens": known.removed,
            "cache_tokens": known.rows,
        })
    }

    /// Forgets everything but the system message.
    pub(super) fn clear(&mut self) -> Result<()> {
        let session = self.engine.open_session()?;
        self.engine.close_session(std::mem::replace(&mut self.session, session));
        self.messages.retain(|message| message.role == "system");
        Ok(())
    }

    /// Sets the system message; an empty text takes it away.
    pub(super) fn set_system(&mut self, text: &str) {
        self.messages.retain(|message| message.role != "system");
        if !text.is_empty() {
            self.messages.insert(0, Message::new("system", text));
        }
    }

    /// Saves messages and rows; returns the file's length.
    pub(super) fn save(&self, path: &Path) -> Result<u64> {
        let messages: Vec<Value> = self
            .messages
            .iter()
            .map(|message| json!({"role": message.role, "content": message.content}))
            .collect();
        let host = json!({"by": "chat", "messages": messages, "draws": self.draws});
        prompt::save(&self.engine, self.session, path, &host)
    }

    /// Goes on with a saved conversation in place of this one.
    pub(super) fn load(&mut self, path: &Path) -> Result<()> {
        let Some((session, host)) = prompt::open(&self.engine, path)? else {
            bail!("{}: there is no such file", path.display());
        };
        let messages = host["messages"].as_array().map(|messages| Message::list_from_json(messages));
        let Some(Ok(messages)) = messages.filter(|_| host["by"] == "chat") else {
            self.engine.close_session(session);
            bail!("{} holds no conversation: it was saved by `minfer run`", path.display());
        };
        self.engine.close_session(std::mem::replace(&mut self.session, session));
        self.messages = messages;
        self.draws = host["draws"].as_u64().unwrap_or(0);
        Ok(())
    }

    /// What is known of it, in a few words.
    pub(super) fn described(&self) -> String {
        let known = self.engine.session(self.session).unwrap_or_default();
        let stats = self.engine.stats();
        format!(
            "{} messages, {} tokens: {} in the cache, {} forgotten; KV cache {} of {}; {} tokens fed, {} reused",
            self.messages.len(),
            known.tokens.len(),
            known.rows,
            known.removed,
            output::bytes(stats.kv_committed_bytes),
            output::bytes(stats.kv_reserved_bytes),
            stats.tokens_fed,
            stats.reused_tokens,
        )
    }

    pub(super) fn stats(&self) -> EngineStats {
        self.engine.stats()
    }

    pub(super) fn engine_has_stopped(&self) -> bool {
        self.engine.has_stopped()
    }
}

fn exceeds_context(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<EngineError>(), Some(EngineError::ExceedsContext { .. }))
}
