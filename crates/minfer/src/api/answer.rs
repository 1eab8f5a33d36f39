//! Generated text, whole and in pieces.

use std::fmt;

use minfer_engine::Event;
use minfer_engine::event::{FinishReason, Finished, Timings, Usage};

use super::Error;

/// A whole answer. Displays as its text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The generated text, without the prompt.
    pub text: String,
    /// How the generation ended.
    pub finish: Finish,
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.text)
    }
}

impl From<Answer> for String {
    fn from(answer: Answer) -> String {
        answer.text
    }
}

/// A piece of an answer. The texts of all chunks, joined, are the answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Chunk {
    /// New text: whole characters, often one token. May be empty in the last chunk.
    pub text: String,
    /// How the generation ended; only in the last chunk.
    pub finish: Option<Finish>,
}

/// How a generation ended, and what it took.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Finish {
    /// Why it ended.
    pub reason: FinishReason,
    /// Counts of tokens.
    pub usage: Usage,
    /// Time in the queue, for the prompt and for the answer.
    pub timings: Timings,
    /// The seed that was given or drawn. The same prompt, options and seed give the same answer.
    pub seed: u64,
}

impl Chunk {
    /// The chunk that an event is for its reader; `None` for an event without news for it.
    pub(super) fn of(event: Event) -> Option<Result<Chunk, Error>> {
        match event {
            Event::Token(token) if token.text.is_empty() => None,
            Event::Token(token) => Some(Ok(Chunk { text: token.text, finish: None })),
            Event::Finished(Finished { reason, tail, usage, timings, seed }) => {
                let finish = Finish { reason, usage, timings, seed };
                Some(Ok(Chunk { text: tail, finish: Some(finish) }))
            }
            Event::Failed(error) => Some(Err(error.into())),
            Event::Cancelled => Some(Err(Error::cancelled())),
            Event::Progress(_) | Event::PromptLogprobs(_) => None,
        }
    }
}

/// An answer that is put together from its chunks.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    text: String,
}

impl Assembly {
    /// Adds a chunk; returns the answer when it was the last one.
    pub(super) fn add(&mut self, chunk: Chunk) -> Option<Answer> {
        self.text.push_str(&chunk.text);
        let finish = chunk.finish?;
        Some(Answer { text: std::mem::take(&mut self.text), finish })
    }
}

/// The answer that chunks make.
pub(super) fn collect(chunks: impl Iterator<Item = Result<Chunk, Error>>) -> Result<Answer, Error> {
    let mut assembly = Assembly::default();
    for chunk in chunks {
        if let Some(answer) = assembly.add(chunk?) {
            return Ok(answer);
        }
    }
    Err(Error::stopped())
}
