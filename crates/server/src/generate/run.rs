//! Runs requests on the engine: several answers at once, as one stream of outputs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use minfer::StopCause;
use minfer::engine::event::TokenKind;
use minfer::engine::{Event, EventSink, PromptLogprobs, Request, RequestId, Submission};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::grammar::Grammar;
use super::options::Options;
use super::output::{Delta, Finish, FinishReason, Output, Piece, TokenScores};
use super::split::Splitter;
use crate::error::ApiError;
use crate::metrics::OutcomeName;
use crate::state::{App, Served};

/// How long the headers of an answer wait for its first event: errors until then have an HTTP
/// status of their own.
const FIRST_EVENT: Duration = Duration::from_secs(10);

/// Answers that are being generated. Dropping it cancels them.
pub(crate) struct Generation {
    app: Arc<App>,
    served: Served,
    answers: Vec<Running>,
    events: UnboundedReceiver<(u32, Event)>,
    /// An event that was waited for before the headers.
    first: Option<(u32, Event)>,
    unfinished: usize,
    prompt_tokens: usize,
    started: Instant,
}

/// One answer.
struct Running {
    id: RequestId,
    finished: bool,
    last_token: Option<Instant>,
    text: TextOf,
}

/// How generated text becomes content.
pub(crate) enum TextOf {
    /// All of it is text.
    Plain,
    /// Reasoning and tool calls are split from it.
    Split(Splitter),
}

/// What every answer of a generation has in common.
pub(crate) struct Terms<'a> {
    pub(crate) options: &'a Options,
    /// Requests of other salts never share cached rows.
    pub(crate) salt: Option<u64>,
    /// Report predictions at the prompt's positions, with this many alternatives.
    pub(crate) prompt_logprobs: Option<u32>,
    /// The form of each answer.
    pub(crate) grammar: Option<&'a Grammar>,
}

impl Generation {
    /// Starts `options.n` answers to each prompt: all or none.
    ///
    /// # Errors
    /// A request cannot be carried out, or there is no place for all.
    pub(crate) fn start(
        app: &Arc<App>,
        served: &Served,
        prompts: Vec<Vec<u32>>,
        terms: &Terms<'_>,
        text: impl Fn() -> TextOf,
    ) -> Result<Generation, ApiError> {
        let (sender, events) = unbounded_channel();
        let started = Instant::now();
        let shared_seed = seed_of_all(terms.options);
        let prompt_tokens = prompts.first().map_or(0, Vec::len);
        let mut submissions = Vec::new();
        for prompt in prompts {
            for choice in 0..terms.options.n {
                let sink = Sink { answer: submissions.len() as u32, events: sender.clone() };
                let submission = Submission::new(request(prompt.clone(), choice, shared_seed, terms), sink);
                submissions.push(match terms.grammar {
                    Some(grammar) => submission.constraint(Box::new(grammar.copy())),
                    None => submission,
                });
            }
        }
        let ids = served
            .model
            .engine()
            .submit_many(submissions)
            .inspect_err(|_| app.metrics.ended(OutcomeName::Refused))?;
        let running = |id| Running { id, finished: false, last_token: None, text: text() };
        let answers: Vec<Running> = ids.into_iter().map(running).collect();
        let unfinished = answers.len();
        let (app, served) = (Arc::clone(app), served.clone());
        app.answering.fetch_add(1, Ordering::AcqRel);
        Ok(Generation { app, served, answers, events, first: None, unfinished, prompt_tokens, started })
    }

    /// Tokens of the first prompt.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Waits for the first event, but not for long: where it is a failure, it is returned.
    ///
    /// # Errors
    /// The first thing that happened was a failure.
    pub(crate) async fn begin(&mut self) -> Result<(), ApiError> {
        let first = tokio::time::timeout(FIRST_EVENT, self.events.recv()).await;
        self.first = first.unwrap_or_default();
        match self.first.take() {
            Some((answer, event @ (Event::Failed(_) | Event::Cancelled))) => {
                self.output(answer, event).map_or(Ok(()), |output| output.map(drop))
            }
            first => {
                self.first = first;
                Ok(())
            }
        }
    }

    /// The next piece of some answer; `None` after the last one.
    ///
    /// # Errors
    /// An answer failed or was cancelled. The others are dropped with the generation.
    pub(crate) async fn next(&mut self) -> Option<Result<Output, ApiError>> {
        while self.unfinished > 0 {
            let (answer, event) = match self.first.take() {
                Some(event) => event,
                // The engine sends every request's ending before it drops the sink.
                None => self.events.recv().await?,
            };
            if let Some(output) = self.output(answer, event) {
                return Some(output);
            }
        }
        None
    }

    fn output(&mut self, choice: u32, event: Event) -> Option<Result<Output, ApiError>> {
        if event.is_terminal() {
            self.unfinished -= 1;
            self.answers[choice as usize].finished = true;
            self.served.slots_changed();
        }
        let piece = match event {
            Event::Progress(_) => return None,
            Event::PromptLogprobs(rows) => Piece::Prompt(rows),
            Event::Token(token) => {
                self.measure_token(choice);
                let scores = token.logprobs.map(|logprobs| TokenScores { id: token.id, logprobs });
                let text = &mut self.answers[choice as usize].text;
                let mut deltas = text.push(&token.text);
                if token.kind == TokenKind::Control {
                    deltas.extend(text.push_control(&self.served.model.tokenizer().piece(token.id)));
                }
                if deltas.is_empty() && scores.is_none() {
                    return None;
                }
                Piece::Token { deltas, logprobs: scores }
            }
            Event::Finished(finished) => {
                let text = &mut self.answers[choice as usize].text;
                let mut deltas = text.push(&finished.tail);
                deltas.extend(text.finish());
                let finish = self.finish(choice, finished);
                let finish = Finish { deltas, ..finish };
                Piece::Finished(finish)
            }
            Event::Failed(error) => {
                self.app.metrics.ended(OutcomeName::Error);
                return Some(Err(error.into()));
            }
            Event::Cancelled => {
                self.app.metrics.ended(OutcomeName::Cancelled);
                let message = "the request was cancelled: the server is about to end";
                return Some(Err(ApiError::new(crate::error::ErrorKind::Unavailable, message)));
            }
        };
        Some(Ok(Output { choice, piece }))
    }

    fn finish(&self, choice: u32, finished: minfer::engine::event::Finished) -> Finish {
        let minfer::engine::event::Finished { reason, usage, timings, seed, .. } = finished;
        let called = self.answers[choice as usize].text.has_calls();
        let reason = match reason {
            minfer::FinishReason::Length => FinishReason::Length,
            minfer::FinishReason::Stop(StopCause::StopString(text)) => FinishReason::StopString(text),
            minfer::FinishReason::Stop(_) if called => FinishReason::ToolCalls,
            minfer::FinishReason::Stop(_) => FinishReason::Stop,
        };
        self.app.metrics.ended(match reason {
            FinishReason::Length => OutcomeName::Length,
            FinishReason::ToolCalls => OutcomeName::ToolCalls,
            FinishReason::Stop | FinishReason::StopString(_) => OutcomeName::Stop,
        });
        self.app.metrics.finished(usage);
        Finish { deltas: Vec::new(), reason, usage, timings, seed }
    }

    fn measure_token(&mut self, choice: u32) {
        let now = Instant::now();
        match self.answers[choice as usize].last_token.replace(now) {
            Some(before) => self.app.metrics.next_token(now - before),
            None => self.app.metrics.first_token(now - self.started),
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        for answer in self.answers.iter().filter(|answer| !answer.finished) {
            self.served.model.engine().cancel(answer.id);
            self.app.metrics.ended(OutcomeName::Cancelled);
        }
        self.app.answering.fetch_sub(1, Ordering::AcqRel);
    }
}

impl TextOf {
    fn push(&mut self, text: &str) -> Vec<Delta> {
        match self {
            _ if text.is_empty() => Vec::new(),
            TextOf::Plain => vec![Delta::Text(text.to_owned())],
            TextOf::Split(splitter) => splitter.push(text),
        }
    }

    fn push_control(&mut self, spelling: &str) -> Vec<Delta> {
        match self {
            TextOf::Plain => Vec::new(),
            TextOf::Split(splitter) => splitter.push_control(spelling),
        }
    }

    fn finish(&mut self) -> Vec<Delta> {
        match self {
            TextOf::Plain => Vec::new(),
            TextOf::Split(splitter) => splitter.finish(),
        }
    }

    fn has_calls(&self) -> bool {
        matches!(self, TextOf::Split(splitter) if splitter.has_calls())
    }
}

/// Several answers without a seed draw one together, so that it can be reported and repeated.
fn seed_of_all(options: &Options) -> Option<u64> {
    if options.seed.is_some() || options.n == 1 {
        return options.seed;
    }
    getrandom::u64().ok()
}

fn request(prompt: Vec<u32>, choice: u32, seed: Option<u64>, terms: &Terms<'_>) -> Request {
    let options = terms.options;
    Request {
        max_tokens: options.max_tokens,
        min_tokens: options.min_tokens,
        sampling: options.sampling.clone(),
        seed,
        choice,
        stop: options.stop.clone(),
        ignore_eos: options.ignore_eos,
        logprobs: options.logprobs,
        prompt_logprobs: terms.prompt_logprobs.map(|top| PromptLogprobs { top }),
        reuse: options.cache_prompt,
        salt: terms.salt,
        ..Request::new(prompt)
    }
}

/// Passes events to the HTTP runtime. It never blocks the engine; what a slow reader leaves unread
/// is bounded by the tokens of a context.
struct Sink {
    answer: u32,
    events: UnboundedSender<(u32, Event)>,
}

impl EventSink for Sink {
    fn send(&mut self, event: Event) -> bool {
        self.events.send((self.answer, event)).is_ok()
    }

    fn is_closed(&self) -> bool {
        self.events.is_closed()
    }
}
