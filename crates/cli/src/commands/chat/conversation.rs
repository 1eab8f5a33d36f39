//! A conversation: its messages, and the session whose KV rows the engine keeps.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use minfer::Loaded;
use minfer::engine::event::{FinishReason, Finished, Usage};
use minfer::engine::{Engine, EngineError, EngineStats, Request, SessionId};
use minfer::text::{ChatTemplate, Message, Tokenizer};
use serde_json::{Value, json};

use crate::args::AnswerArgs;
use crate::commands::answer::{self, Answer};
use crate::commands::context::Longer;
use crate::commands::prompt;
use crate::commands::session::{self, Meanwhile, SessionFile};
use crate::counted::counted;
use crate::output;
use crate::signals::Interrupts;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Done,
    Interrupted,
}

pub(super) struct Conversation<'a> {
    args: &'a AnswerArgs,
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    messages: Vec<Message>,
    session: SessionId,
    /// The session file, saved at the end.
    file: Option<SessionFile>,
    longer: Longer,
    /// Answers sampled so far, with those that /regen replaced. Each adds one to the seed.
    draws: u64,
    /// Answers that were left out with the oldest messages when the conversation outgrew the
    /// context.
    left_out: u64,
}

impl<'a> Conversation<'a> {
    /// A new conversation, or the one in the session file.
    pub(super) fn new(
        args: &'a AnswerArgs,
        mut loaded: Loaded,
        mut file: Option<SessionFile>,
    ) -> Result<Conversation<'a>> {
        let template = loaded.template.take().ok_or_else(|| anyhow!("the model has no chat template"))?;
        let tokenizer = Arc::clone(&loaded.tokenizer);
        let longer = Longer::of(&loaded, args);
        let engine = loaded.into_engine()?;
        let saved = file.as_mut().map(|file| file.open(&engine)).transpose()?.flatten();
        let session = engine.open_session()?;
        let mut conversation = Conversation {
            args,
            engine,
            tokenizer,
            template,
            messages: Vec::new(),
            session,
            file,
            longer,
            draws: 0,
            left_out: 0,
        };
        match (saved, args.session.as_deref()) {
            (Some(saved), Some(path)) => {
                conversation.go_on_from(saved, path)?;
                conversation.check_system(path)?;
            }
            _ => conversation
                .messages
                .extend(args.system.iter().map(|text| Message::new("system", text.as_str()))),
        }
        Ok(conversation)
    }

    /// `--system` must be the system message that was saved.
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

    /// Adds a message and answers it. After an error the message is removed.
    pub(super) fn say(&mut self, text: &str, is_terminal: bool, interrupts: &mut Interrupts) -> Result<Turn> {
        prompt::check_length(&self.tokenizer, &self.longer, "message", text)?;
        self.messages.push(Message::new("user", text));
        self.answer(is_terminal, interrupts).inspect_err(|_| {
            self.messages.pop();
        })
    }

    /// Answers the last message again.
    pub(super) fn answer_again(&mut self, is_terminal: bool, interrupts: &mut Interrupts) -> Result<Turn> {
        let Some(before) = self.messages.pop_if(|message| message.role == "assistant") else {
            bail!("there is no answer to make again");
        };
        self.answer(is_terminal, interrupts).inspect_err(|_| self.messages.push(before))
    }

    fn answer(&mut self, is_terminal: bool, interrupts: &mut Interrupts) -> Result<Turn> {
        let answer = loop {
            match self.try_answer(is_terminal, interrupts) {
                // A template may print old messages differently, so that the rows after a shift do
                // not match.
                Err(error) if self.args.context_shift && exceeds_context(&error) => {
                    if !self.forget_oldest() {
                        return Err(self.longer.explain(error));
                    }
                }
                answer => break answer.map_err(|error| self.longer.explain(error))?,
            }
        };
        self.draws += 1;
        self.messages.push(Message::new("assistant", answer.text()));
        let Some(finished) = &answer.finished else { return Ok(Turn::Interrupted) };
        if self.args.facts {
            output::note(&self.turn_stats(&finished.usage).to_string());
        }
        if output::stderr_is_terminal() {
            output::note(&answer::speeds(finished));
        }
        self.say_if_full(finished);
        Ok(Turn::Done)
    }

    fn try_answer(&self, is_terminal: bool, interrupts: &mut Interrupts) -> Result<Answer> {
        let ids = prompt::chat_ids(self.args, &self.tokenizer, &self.template, &self.messages)?;
        let own = || prompt::system_tokens(self.args, &self.tokenizer, &self.template, &self.messages, &ids);
        let keep = prompt::keep(self.args, own);
        let request = prompt::request(self.args, ids, keep);
        let seed = request.seed.map(|seed| seed.wrapping_add(self.draws));
        let (id, events) = self.engine.submit(Request { seed, session: Some(self.session), ..request })?;
        // A terminal goes on after the answer, and a session file needs its rows, so both wait for
        // the engine.
        let mut patient = is_terminal || self.file.is_some();
        let answer = Answer::read(&events, true, || {
            let overdue = interrupts.overdue(|| self.engine.cancel(id));
            if overdue && std::mem::take(&mut patient) && is_terminal {
                output::note("(stopping; Ctrl-C again ends at once, without saving)");
                return false;
            }
            overdue && !is_terminal && self.file.is_none()
        });
        if answer.is_err() {
            self.engine.cancel(id);
        }
        answer
    }

    /// Notes that the context is full: the next message would be an error.
    fn say_if_full(&self, finished: &Finished) {
        let wanted = self.args.n_predict.and_then(|most| u32::try_from(most).ok());
        let as_many = wanted.is_some_and(|most| finished.usage.completion >= most);
        if finished.reason != FinishReason::Length || as_many || self.args.context_shift {
            return;
        }
        output::note(&format!(
            "note: the answer ends here because the context of {} is full{}; --context-shift forgets the oldest part, \
             /clear begins anew",
            counted(self.longer.n_ctx, "token"),
            self.longer.clause(self.longer.n_ctx as usize + 1)
        ));
    }

    /// Leaves out the oldest message and the answer to it; false if there is none.
    fn forget_oldest(&mut self) -> bool {
        let first = self.messages.iter().take_while(|message| message.role == "system").count();
        if self.messages.len() < first + 3 {
            return false;
        }
        let answered = self.messages[first + 1].role == "assistant";
        self.messages.drain(first..first + 1 + usize::from(answered));
        self.left_out += u64::from(answered);
        output::note("note: the conversation has outgrown the context; its oldest message is left out");
        true
    }

    fn turn_stats(&self, usage: &Usage) -> Value {
        let known = self.engine.session(self.session).unwrap_or_default();
        let answers = self.messages.iter().filter(|message| message.role == "assistant").count() as u64;
        json!({
            "turn": self.left_out.saturating_add(answers),
            "prompt_tokens": usage.prompt,
            "reused_tokens": usage.reused,
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
        self.left_out = 0;
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
    pub(super) fn save(&mut self, path: &Path) -> Result<u64> {
        if self.file.as_ref().is_some_and(|file| file.is_at(path)) {
            return self.save_own();
        }
        session::save(&self.engine, self.session, path, &self.host())
    }

    /// Saves messages and rows to the session file, if there is one; returns the file's length.
    pub(super) fn save_own(&mut self) -> Result<u64> {
        let host = self.host();
        let Some(file) = &mut self.file else { return Ok(0) };
        file.save(&self.engine, self.session, &host, Meanwhile::Beside)
    }

    fn host(&self) -> Value {
        let messages: Vec<Value> = self
            .messages
            .iter()
            .map(|message| json!({"role": message.role, "content": message.content}))
            .collect();
        json!({"by": "chat", "messages": messages, "draws": self.draws, "left_out": self.left_out})
    }

    /// Replaces this conversation by a saved one. With a session file this one is saved first, and
    /// the other file takes its place.
    pub(super) fn load(&mut self, path: &Path) -> Result<()> {
        if !path.try_exists()? {
            bail!("{}: there is no such file", path.display());
        }
        let Some(file) = &self.file else {
            let saved = session::open(&self.engine, "", path)?;
            return self.go_on_from(saved, path);
        };
        let (before, is_same) = (file.path().display().to_string(), file.is_at(path));
        let mut file = SessionFile::new(path, "")?;
        let Some(saved) = file.open(&self.engine)? else {
            bail!("{}: there is no such file", path.display())
        };
        let (session, _) = saved;
        if !is_same && let Err(error) = self.save_own() {
            self.engine.close_session(session);
            return Err(error);
        }
        self.go_on_from(saved, path)?;
        self.file = Some(file);
        if !is_same {
            output::note(&format!(
                "the conversation before is saved to {before}; this one is saved to {} at the end",
                path.display()
            ));
        }
        Ok(())
    }

    fn go_on_from(&mut self, (session, host): (SessionId, Value), path: &Path) -> Result<()> {
        let messages = host["messages"].as_array().map(|messages| Message::list_from_json(messages));
        let Some(Ok(messages)) = messages.filter(|_| host["by"] == "chat") else {
            self.engine.close_session(session);
            bail!("{} holds no conversation: it was saved by `minfer run`", path.display());
        };
        self.engine.close_session(std::mem::replace(&mut self.session, session));
        self.messages = messages;
        self.draws = host["draws"].as_u64().unwrap_or(0);
        self.left_out = host["left_out"].as_u64().unwrap_or(0);
        Ok(())
    }

    /// Sizes of the conversation and of the cache, in one line.
    pub(super) fn described(&self) -> String {
        let known = self.engine.session(self.session).unwrap_or_default();
        let stats = self.engine.stats();
        format!(
            "{}, {}: {} in the cache, {} forgotten; KV cache {} of {}; {} fed, {} reused",
            counted(self.messages.len(), "message"),
            counted(known.tokens.len(), "token"),
            known.rows,
            known.removed,
            output::bytes(stats.kv_committed_bytes),
            output::bytes(stats.kv_reserved_bytes),
            counted(stats.tokens_fed, "token"),
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
