//! An answer: its events are read, its text is written as it comes, its JSON report is made.

use std::io::{self, Write};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Result, bail};
use minfer::engine::event::{FinishReason, Finished, Progress, StopCause, Token, TokenKind};
use minfer::engine::{Event, Events};
use serde_json::{Value, json};

use crate::counted::counted;
use crate::output;
use crate::progress_line::ProgressLine;

/// How often to look for an interrupt.
const POLL: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Answer {
    text: String,
    ids: Vec<u32>,
    /// Absent where the run was interrupted.
    pub(super) finished: Option<Finished>,
}

impl Answer {
    /// Reads events until the request ends or `leave` returns true; with `show` the text is written
    /// to stdout as it comes.
    ///
    /// # Errors
    /// The engine failed, or the text could not be written.
    pub(super) fn read(events: &Events, show: bool, mut leave: impl FnMut() -> bool) -> Result<Answer> {
        let mut answer = Answer::default();
        let mut progress_line = ProgressLine::begin("reading the prompt");
        let mut state = None;
        while !leave() {
            let event = events.recv_timeout(POLL);
            if !matches!(event, Ok(Event::Progress(_)) | Err(RecvTimeoutError::Timeout)) {
                progress_line.end();
            }
            match event {
                Ok(Event::Progress(progress)) => state = Some(progress),
                Ok(Event::Token(Token { id, text, kind, .. })) => {
                    answer.ids.extend((kind != TokenKind::End).then_some(id));
                    answer.add(&text, show)?;
                }
                Ok(Event::Finished(finished)) => {
                    answer.add(&finished.tail, show)?;
                    answer.finished = Some(finished);
                    break;
                }
                Ok(Event::Failed(error)) => return Err(error.into()),
                Ok(Event::Cancelled) => break,
                Ok(Event::PromptLogprobs(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("the engine stopped"),
            }
            progress_line.show(|| {
                state.map(|Progress { done, total }| format!("{done} of {}", counted(total, "token")))
            });
        }
        if show && !answer.text.is_empty() && !answer.text.ends_with('\n') {
            write_out("\n")?;
        }
        Ok(answer)
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn add(&mut self, text: &str, show: bool) -> Result<()> {
        self.text.push_str(text);
        if show && !text.is_empty() {
            write_out(text)?;
        }
        Ok(())
    }
}

fn write_out(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| output::of_stdout(error.into()))
}

/// The whole answer as JSON.
pub(super) fn report(answer: &Answer, finished: &Finished) -> Value {
    let (reason, detail) = match &finished.reason {
        FinishReason::Length => ("length", Value::Null),
        FinishReason::Stop(StopCause::EndToken(id)) => ("stop", json!({"end_token": id})),
        FinishReason::Stop(StopCause::Complete) => ("stop", Value::Null),
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
            "completion_tokens_details": {
                "accepted_prediction_tokens": timings.right_guesses,
                "rejected_prediction_tokens": timings.guessed - timings.right_guesses,
            },
            "removed_tokens": usage.removed,
        },
        "timings": {
            "cache_n": usage.cached,
            "prompt_n": usage.prompt - usage.cached,
            "prompt_ms": timings.prompt_ms(),
            "prompt_per_second": finished.prompt_speed(),
            "predicted_n": usage.completion,
            "predicted_ms": timings.predicted_ms(),
            "predicted_per_second": finished.decode_speed(),
        },
    })
}

/// Counts and speeds in one line; a speed that was not timed is left out.
pub(super) fn speeds(finished: &Finished) -> String {
    let (prompt, completion) = (finished.usage.prompt, finished.usage.completion);
    let at = |speed: Option<f64>| speed.map_or(String::new(), |speed| format!(" at {speed:.1}/s"));
    format!(
        "{}{}, {}{}, seed {}",
        counted(prompt, "prompt token"),
        at(finished.prompt_speed()),
        counted(completion, "token"),
        at(finished.decode_speed()),
        finished.seed
    )
}
