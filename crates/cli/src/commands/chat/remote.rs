//! `minfer chat --url`: a conversation with a model that a server has loaded.

use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Result, bail};
use minfer::engine::SamplingParams;
use serde_json::{Map, Value, json};

use super::line::{Lines, Next};
use super::typed::{self, Typed};
use crate::args::AnswerArgs;
use crate::http::Remote;
use crate::output;
use crate::signals::Interrupts;

/// How often to look for an interrupt.
const POLL: Duration = Duration::from_millis(50);

pub(super) fn chat(url: &str, args: &AnswerArgs) -> Result<ExitCode> {
    let remote = Remote::new(url);
    let model = remote.model()?;
    let mut lines = Lines::new()?;
    if lines.is_terminal() {
        output::note(&format!("{model} at {url}; /help lists commands"));
    }
    let mut conversation =
        Conversation { remote, model, args, system: args.system.clone(), messages: Vec::new() };
    let mut interrupts = Interrupts::listen().map_err(output::no_signals)?;
    while let Next::Input(input) = lines.next(&mut interrupts)? {
        let done = match Typed::parse(input) {
            Ok(Typed::Exit) => break,
            Ok(typed) => conversation.carry_out(typed, &interrupts),
            Err(error) => Err(error),
        };
        match done {
            // In a terminal Ctrl-C stops one answer; in a script it ends the command.
            Ok(()) if interrupts.code().is_some() && lines.is_terminal() && interrupts.take_ctrl_c() => {
                output::note("(stopped)");
            }
            Ok(()) if interrupts.code().is_some() => break,
            Ok(()) => {}
            Err(error) if lines.is_terminal() => {
                output::failure(&error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(interrupts.code().map_or(ExitCode::SUCCESS, ExitCode::from))
}

struct Conversation<'a> {
    remote: Remote,
    model: String,
    args: &'a AnswerArgs,
    system: Option<String>,
    /// The user's and the model's in turns.
    messages: Vec<Value>,
}

impl Conversation<'_> {
    fn carry_out(&mut self, typed: Typed, interrupts: &Interrupts) -> Result<()> {
        match typed {
            Typed::Message(text) => self.messages.push(json!({"role": "user", "content": text})),
            Typed::Again if self.messages.is_empty() => bail!("there is no message to answer again"),
            Typed::Again => {
                self.messages.pop_if(|last| last["role"] == "assistant");
            }
            Typed::Clear => {
                self.messages.clear();
                return Ok(());
            }
            Typed::System(text) => {
                self.system = Some(text).filter(|text| !text.is_empty());
                return Ok(());
            }
            Typed::Help => {
                output::note(typed::HELP);
                return Ok(());
            }
            Typed::Save(_) | Typed::Load(_) | Typed::Stats => {
                bail!("a server keeps no files of conversations: /save, /load and /stats need a model")
            }
            Typed::Nothing | Typed::Exit => return Ok(()),
        }
        let answered = self.answer(interrupts);
        if answered.is_err() {
            // The message can be sent again.
            self.messages.pop_if(|last| last["role"] == "user");
        }
        answered
    }

    /// Writes the answer as it comes, up to an interrupt.
    fn answer(&mut self, interrupts: &Interrupts) -> Result<()> {
        let chunks = self.remote.stream("/v1/chat/completions", &self.body())?;
        let mut answer = String::new();
        while interrupts.code().is_none() {
            let chunk = match chunks.recv_timeout(POLL) {
                Ok(chunk) => chunk?,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if let Some(text) = chunk["choices"][0]["delta"]["content"].as_str() {
                answer.push_str(text);
                output::answer(|out| Ok(write!(out, "{text}").and_then(|()| out.flush())?))?;
            }
        }
        output::answer(|out| Ok(writeln!(out)?))?;
        self.messages.push(json!({"role": "assistant", "content": answer}));
        Ok(())
    }

    fn body(&self) -> Value {
        let SamplingParams {
            temperature,
            top_k,
            top_p,
            min_p,
            repeat_penalty,
            repeat_last_n,
            presence_penalty,
            frequency_penalty,
            logit_bias,
            order,
        } = self.args.sampling.params();
        let system = self.system.iter().map(|text| json!({"role": "system", "content": text}));
        let messages: Vec<Value> = system.chain(self.messages.iter().cloned()).collect();
        let stages: Vec<String> = order.iter().map(ToString::to_string).collect();
        let mut body = Map::new();
        let fields = [
            ("model", json!(self.model)),
            ("messages", messages.into()),
            ("stream", true.into()),
            ("max_tokens", self.args.n_predict.unwrap_or(-1).into()),
            ("stop", json!(self.args.stop)),
            ("seed", json!(self.args.sampling.seed())),
            ("temperature", json!(temperature)),
            ("top_k", json!(top_k)),
            ("top_p", json!(top_p)),
            ("min_p", json!(min_p)),
            ("repeat_penalty", json!(repeat_penalty)),
            ("repeat_last_n", json!(repeat_last_n)),
            ("presence_penalty", json!(presence_penalty)),
            ("frequency_penalty", json!(frequency_penalty)),
            ("logit_bias", json!(logit_bias)),
            ("samplers", json!(stages)),
            ("chat_template_kwargs", json!(self.args.chat_template_kwargs)),
        ];
        fields.into_iter().for_each(|(name, value)| drop(body.insert(name.to_owned(), value)));
        body.into()
    }
}
