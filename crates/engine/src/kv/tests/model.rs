//! What sequences would hold if each kept rows of its own.

use std::collections::BTreeMap;

use super::arena::Cell;
use crate::kv::SequenceId;

/// One sequence: a row for each published token.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rows {
    pub(super) tokens: Vec<u32>,
    pub(super) rows: Vec<Cell>,
    /// Tokens whose cells are taken.
    pub(super) prepared: Vec<u32>,
    pub(super) salt: Option<u64>,
    pub(super) shifted: bool,
}

pub(super) type Model = BTreeMap<SequenceId, Rows>;

/// Everything that the rows of a sequence say, folded.
#[derive(Debug, Clone, Copy)]
pub(super) struct State(u64);

impl State {
    /// Before the first row. Rows of different salts differ here, so that any confusion of them
    /// shows.
    pub(super) fn new(salt: Option<u64>) -> State {
        State(salt.map_or(0, |salt| mix(salt + 1)))
    }

    /// What the next token's row would be: it depends on all rows before it and its position.
    pub(super) fn row(self, token: u32, position: u32) -> Cell {
        let value = mix(self.0 ^ (u64::from(token) << 32 | u64::from(position)));
        Cell { value, rotated_at: position }
    }

    pub(super) fn then(self, row: Cell) -> State {
        State(mix(self.0.rotate_left(7) ^ row.value))
    }
}

impl Rows {
    pub(super) fn new(salt: Option<u64>) -> Rows {
        Rows { tokens: Vec::new(), rows: Vec::new(), prepared: Vec::new(), salt, shifted: false }
    }

    pub(super) fn length(&self) -> u32 {
        self.rows.len() as u32
    }

    /// The rows of further tokens.
    pub(super) fn next(&self, tokens: &[u32]) -> Vec<Cell> {
        let mut state = self.rows.iter().fold(State::new(self.salt), |state, &row| state.then(row));
        let row = |(index, &token): (usize, &u32)| {
            let row = state.row(token, self.length() + index as u32);
            state = state.then(row);
            row
        };
        tokens.iter().enumerate().map(row).collect()
    }

    /// Adds tokens with their rows.
    pub(super) fn append(&mut self, tokens: &[u32]) {
        let rows = self.next(tokens);
        self.rows.extend(rows);
        self.tokens.extend_from_slice(tokens);
    }

    pub(super) fn truncate(&mut self, length: u32) {
        self.rows.truncate(length as usize);
        self.tokens.truncate(length as usize);
        self.shifted &= length > 0;
    }

    pub(super) fn remove(&mut self, range: std::ops::Range<u32>) {
        self.shifted |= !range.is_empty() && range.end < self.length();
        self.rows.drain(range.start as usize..range.end as usize);
        self.tokens.drain(range.start as usize..range.end as usize);
        self.shifted &= !self.rows.is_empty();
    }
}

/// A group's form of a row.
pub(super) fn in_group(cell: Cell, group: usize) -> Cell {
    Cell { value: cell.value.wrapping_add(group as u64), ..cell }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^ (bits >> 29)
}
