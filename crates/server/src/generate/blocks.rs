//! An answer as a row of blocks, for APIs whose answers are lists: reasoning, text, calls.

use super::output::Delta;

/// What a block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Reasoning,
    Call { id: String, name: String },
}

/// A block so far: its text, or the arguments of its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

/// What happened to the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// The next block begins.
    Begins(usize, &'a Block),
    /// The last block goes on.
    GoesOn(usize, &'a Block, &'a str),
    /// The last block is complete.
    Ends(usize, &'a Block),
}

/// The blocks of one answer.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    blocks: Vec<Block>,
    is_open: bool,
}

impl Blocks {
    /// All blocks so far.
    pub(crate) fn all(&self) -> &[Block] {
        &self.blocks
    }

    /// Adds new content; `tell` hears what happens, in order.
    pub(crate) fn add<T>(&mut self, delta: Delta, mut tell: impl FnMut(Change<'_>) -> Vec<T>) -> Vec<T> {
        let (kind, text) = match delta {
            Delta::Text(text) => (Some(Kind::Text), text),
            Delta::Reasoning(text) => (Some(Kind::Reasoning), text),
            Delta::ToolCall { id, name, .. } => (Some(Kind::Call { id, name }), String::new()),
            Delta::ToolArguments { fragment, .. } => (None, fragment),
        };
        let mut told = Vec::new();
        if let Some(kind) = kind
            && !(self.is_open && self.blocks.last().is_some_and(|block| block.kind == kind))
        {
            told.extend(self.end(&mut tell));
            self.blocks.push(Block { kind, text: String::new() });
            self.is_open = true;
            told.extend(tell(Change::Begins(self.blocks.len() - 1, &self.blocks[self.blocks.len() - 1])));
        }
        let index = self.blocks.len().saturating_sub(1);
        if let Some(block) = self.blocks.last_mut().filter(|_| !text.is_empty()) {
            block.text.push_str(&text);
            told.extend(tell(Change::GoesOn(index, block, &text)));
        }
        told
    }

    /// Nothing more comes.
    pub(crate) fn end<T>(&mut self, mut tell: impl FnMut(Change<'_>) -> Vec<T>) -> Vec<T> {
        match self.blocks.last().filter(|_| std::mem::take(&mut self.is_open)) {
            Some(block) => tell(Change::Ends(self.blocks.len() - 1, block)),
            None => Vec::new(),
        }
    }
}
