//! What a generation gives back, before an API writes it in its own shape.

use minfer::engine::event::{PromptRow, TokenLogprobs};
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
    /// Predictions at positions of the prompt, in order.
    Prompt(Vec<PromptRow>),
    /// A generated token. Its text may come with a later one, while a character or the beginning of
    /// a stop string is held back.
    Token {
        /// New content.
        deltas: Vec<Delta>,
        /// The token with its log-probabilities, if they were asked for.
        logprobs: Option<TokenScores>,
    },
    /// The answer is complete.
    Finished(Finish),
}

/// A generated token with its log-probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenScores {
    /// The token.
    pub id: u32,
    /// Its log-probability and the most probable tokens.
    pub logprobs: TokenLogprobs,
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
    /// Content that was held back until the end.
    pub deltas: Vec<Delta>,
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
