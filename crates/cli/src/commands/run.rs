//! `minfer run`.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use minfer::engine::event::{FinishReason, Finished, StopCause, Token};
use minfer::engine::{Engine, Event, Events, Request};
use minfer::text::{EncodeOptions, Message, RenderInput, encode_chat};
use minfer::{Loaded, Machine};
use serde_json::{Value, json};

use super::facts::Facts;
use super::input;
use crate::args::RunArgs;
use crate::{loading, output};

/// Exit code after an interrupt, as shells count it.
const INTERRUPTED: u8 = 130;
/// How often an interrupt is looked for.
const POLL: Duration = Duration::from_millis(50);

/// Answers one prompt.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode> {
    let prompt = prompt(args)?;
    let interrupted = on_interrupt()?;
    let (machine, loaded) = loading::load(&args.model, &args.model_args, &args.context)?;
    let facts = Facts::new(&machine, &loaded);
    let request = request(args, &loaded, &prompt)?;
    introduce(args, &machine, &loaded);
    let engine = loaded.into_engine()?;
    let (id, events) = engine.submit(request)?;
    let answer = Answer::read(&events, !args.json, || {
        if interrupted.try_recv().is_ok() {
            engine.cancel(id);
        }
    })?;
    finish(args, &engine, &facts, &answer)?;
    Ok(if answer.finished.is_some() { ExitCode::SUCCESS } else { ExitCode::from(INTERRUPTED) })
}

/// The prompt from the argument, a file or stdin.
fn prompt(args: &RunArgs) -> Result<String> {
    let text = match (&args.prompt, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => std::fs::read_to_string(file).with_context(|| file.display().to_string())?,
        (None, None) if std::io::stdin().is_terminal() => {
            bail!("no prompt: give one as an argument, with -f FILE, or on stdin")
        }
        (None, None) => input::stdin_text()?,
    };
    if text.is_empty() {
        bail!("the prompt is empty");
    }
    Ok(text)
}

/// The prompt as ids: through the chat template, or as it is.
fn request(args: &RunArgs, loaded: &Loaded, prompt: &str) -> Result<Request> {
    let ids = match &loaded.template {
        Some(template) if !args.raw => {
            let system = args.system.iter().map(|text| Message::new("system", text.as_str()));
            let messages = system.chain([Message::new("user", prompt)]).collect();
            let variables = args.chat_template_kwargs.as_deref().map(serde_json::from_str).transpose();
            let variables =
                variables.context("--chat-template-kwargs is not a JSON object")?.unwrap_or_default();
            let input =
                RenderInput { messages, add_generation_prompt: true, variables, ..RenderInput::default() };
            encode_chat(&loaded.tokenizer, template, &input)
                .context("the chat template refuses the conversation")?
        }
        template => {
            if template.is_none() && !args.raw {
                output::note(
                    "this model has no chat template; the prompt is fed as it is (--raw does so without asking)",
                );
            }
            loaded.tokenizer.encode(prompt, EncodeOptions { add_special: true, parse_special: true })
        }
    };
    Ok(Request {
        max_tokens: u32::try_from(args.n_predict).ok(),
        sampling: args.sampling.params(),
        seed: args.sampling.seed,
        stop: args.stop.clone(),
        ignore_eos: args.ignore_eos,
        ..Request::new(ids)
    })
}

fn introduce(args: &RunArgs, machine: &Machine, loaded: &Loaded) {
    if output::stderr_is_terminal() && !args.json {
        output::note(&format!(
            "{}: {} positions, {} threads, {}",
            loaded.model.name,
            loaded.n_ctx,
            machine.threads(),
            machine.isa()
        ));
    }
}

/// A channel that hears of Ctrl-C and SIGTERM. The second one ends the process at once.
fn on_interrupt() -> Result<std::sync::mpsc::Receiver<()>> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    ctrlc::set_handler(move || {
        if sender.try_send(()).is_err() {
            std::process::exit(i32::from(INTERRUPTED));
        }
    })?;
    Ok(receiver)
}

/// What came back.
#[derive(Default)]
struct Answer {
    text: String,
    ids: Vec<u32>,
    /// Absent where the run was interrupted.
    finished: Option<Finished>,
}

impl Answer {
    /// Reads events to the end, writing text to stdout as it comes.
    fn read(events: &Events, show: bool, mut look: impl FnMut()) -> Result<Answer> {
        let mut answer = Answer::default();
        loop {
            look();
            match events.recv_timeout(POLL) {
                Ok(Event::Token(Token { id, text, is_end, .. })) => {
                    if !is_end {
                        answer.ids.push(id);
                    }
                    answer.add(&text, show)?;
                }
                Ok(Event::Finished(finished)) => {
                    answer.add(&finished.tail, show)?;
                    answer.finished = Some(finished);
                    break;
                }
                Ok(Event::Failed(error)) => return Err(error.into()),
                Ok(Event::Cancelled) => break,
                Ok(Event::Progress(_) | Event::PromptLogprobs(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("the engine stopped"),
            }
        }
        if show && !answer.text.is_empty() && !answer.text.ends_with('\n') {
            writeln!(std::io::stdout())?;
        }
        Ok(answer)
    }

    fn add(&mut self, text: &str, show: bool) -> Result<()> {
        self.text.push_str(text);
        if show && !text.is_empty() {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }
}

fn finish(args: &RunArgs, engine: &Engine, facts: &Facts, answer: &Answer) -> Result<()> {
    if let Some(finished) = &answer.finished {
        if args.json {
            writeln!(std::io::stdout(), "{}", report(answer, finished))?;
        } else if output::stderr_is_terminal() {
            output::note(&speeds(finished));
        }
    }
    if args.facts {
        output::note(&facts.line(&engine.stats()).to_string());
    }
    Ok(())
}

fn report(answer: &Answer, finished: &Finished) -> Value {
    let (reason, detail) = match &finished.reason {
        FinishReason::Length => ("length", Value::Null),
        FinishReason::Stop(StopCause::EndToken(id)) => ("stop", json!({"end_token": id})),
        FinishReason::Stop(StopCause::StopString(text)) => ("stop", json!({"stop_string": text})),
    };
    let (usage, timings) = (&finished.usage, &finished.timings);
    json!({
        "text": answer.text,
        "ids": answer.ids,
        "finish_reason": reason,
        "stopped_by": detail,
        "seed": finished.seed,
        "usage": {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt + usage.completion,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
        },
        "timings": {
            "cache_n": usage.cached,
            "prompt_n": usage.prompt - usage.cached,
            "prompt_ms": timings.prompt_ms(),
            "prompt_per_second": rate(usage.prompt - usage.cached, timings.prompt_ms()),
            "predicted_n": usage.completion,
            "predicted_ms": timings.predicted_ms(),
            "predicted_per_second": rate(usage.completion, timings.predicted_ms()),
        },
    })
}

fn speeds(finished: &Finished) -> String {
    let (usage, timings) = (&finished.usage, &finished.timings);
    format!(
        "{} prompt tokens at {:.1}/s, {} tokens at {:.1}/s, seed {}",
        usage.prompt,
        rate(usage.prompt - usage.cached, timings.prompt_ms()),
        usage.completion,
        rate(usage.completion, timings.predicted_ms()),
        finished.seed
    )
}

/// Tokens per second; 0 where no time passed.
fn rate(tokens: u32, milliseconds: f64) -> f64 {
    if milliseconds > 0.0 { f64::from(tokens) / milliseconds * 1e3 } else { 0.0 }
}
