//! What a generation gives back, before an API writes it in its own shape.

use minfer::engine::event::TokenLogprobs;
use minfer::{Timings, Usage};

/// A piece of one of a request's answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Which answer: prompts in order, the answers of each in order.
    pub choice: u32,
    /// The piece.
    pub piece: Piece,
}

/// New content, or the ending. Each answer ends with exactly one [`Piece::Finished`].
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// New content.
    Delta(Delta),
    /// Log-probabilities of a generated token, in order. The token's text may come later, while a
    /// character or the beginning of a stop string is held back.
    Logprobs(TokenLogprobs),
    /// The answer is complete.
    Finished(Finish),
}

/// New content of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Text of the answer.
    Text(String),
    /// Text of the model's reasoning.
    Reasoning(String),
    /// A tool call begins.
    ToolCall {
        /// Counts the calls of one answer from 0.
        index: u32,
        /// Names the call; unique.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// The next part of a call's arguments: the parts, joined, are JSON text.
    ToolArguments {
        /// The call.
        index: u32,
        /// The part.
        fragment: String,
    },
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// Counts of tokens.
    pub usage: Usage,
    /// Time taken.
    pub timings: Timings,
    /// The seed that was given or drawn.
    pub seed: u64,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or its form is complete.
    Stop,
    /// One of the request's stop strings came.
    StopString(String),
    /// The most tokens were generated, or the context is full.
    Length,
    /// The model called tools.
    ToolCalls,
}
