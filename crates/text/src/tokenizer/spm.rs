//! SentencePiece's byte-pair encoding: merging characters by the score of
//! what they become.
//!
//! Kudo and Richardson, "SentencePiece: A simple and language independent
//! subword tokenizer" (2018), with the byte fallback of LLaMA's vocabulary:
//! the pair of neighbours whose joined text is the token with the highest
//! score becomes that token, leftmost first among equals, until no pair joins
//! to a token. What is left and no token is spelled byte by byte.
//!
//! There is no list of merges: the joined text is looked up. Vocabularies
//! write a space as U+2581; here the tokens' bytes hold the space itself.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::bpe::NO_TOKEN;
use super::encode_error::{EncodeError, check_word};
use super::text_ids::TextIds;
use super::vocabulary::{Vocabulary, byte_tokens};
use super::{TokenType, TokenizerSpec};

/// What a vocabulary writes in place of a space.
const SPACE_MARK: char = '\u{2581}';

/// The tables of one vocabulary.
#[derive(Debug)]
pub(super) struct Spm {
    ids: TextIds,
    /// The place of each token when tokens are sorted by score, highest first; tokens of one score
    /// share it.
    ranks: Vec<u32>,
    /// The token of each single byte, [`NO_TOKEN`] where there is none.
    byte_tokens: Box<[u32; 256]>,
    /// The bytes of the longest token.
    longest: usize,
    /// The bytes after which a space stands inside some token. After others text falls apart before
    /// a space.
    glued: Box<[bool; 256]>,
    /// Whether a space is put before text that begins or follows a special token.
    adds_prefix: bool,
    unk: Option<u32>,
}

impl Spm {
    /// Tabulates the scores of `spec`, whose tokens are `vocabulary`.
    pub(super) fn new(spec: &TokenizerSpec, vocabulary: &Vocabulary) -> Self {
        let merged = |id: u32| is_merged(&spec.tokens[id as usize], vocabulary.token_type(id));
        let tokens = || (0..vocabulary.len() as u32).filter(|&id| merged(id));
        Self {
            ids: TextIds::new(vocabulary, tokens()),
            ranks: ranks(&spec.scores),
            byte_tokens: byte_tokens(vocabulary, [TokenType::Byte, TokenType::Normal]),
            longest: tokens().map(|id| vocabulary.bytes(id).len()).max().unwrap_or(0),
            glued: glued(tokens().map(|id| vocabulary.bytes(id))),
            adds_prefix: spec.add_space_prefix.unwrap_or(true),
            unk: spec.unk,
        }
    }

    /// Whether a space is put before text that begins or follows a special token.
    pub(super) fn adds_prefix(&self) -> bool {
        self.adds_prefix
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.ids.memory_bytes()
            + self.ranks.capacity() * size_of::<u32>()
            + size_of_val(&*self.byte_tokens)
            + size_of_val(&*self.glued)
    }
}

/// Merges text; holds the buffers that are reused from text to text.
pub(super) struct SpmMerger<'a> {
    spm: &'a Spm,
    vocabulary: &'a Vocabulary,
    text: String,
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Reverse<Candidate>>,
    failure: Option<EncodeError>,
}

/// A stretch of the text that is one token, or one character. `end` of a
/// symbol that has been merged into the one before it is its `start`.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: u32,
    end: u32,
    previous: u32,
    next: u32,
    /// Its token, or [`NO_TOKEN`].
    id: u32,
}

/// Two neighbours that may merge; the order is that of merging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    end: u32,
    id: u32,
}

/// No symbol, at either end of the list.
const NOWHERE: u32 = u32::MAX;

impl<'a> SpmMerger<'a> {
    /// A merger over the tables of `spm`.
    pub(super) fn new(spm: &'a Spm, vocabulary: &'a Vocabulary) -> Self {
        let (symbols, heap) = (Vec::new(), BinaryHeap::new());
        Self { spm, vocabulary, text: String::new(), symbols, heap, failure: None }
    }

    /// Appends the tokens of `text`; `prefixed` says that it begins or
    /// follows a special token.
    pub(super) fn text(&mut self, text: &str, prefixed: bool, out: &mut Vec<u32>) {
        let mut whole = std::mem::take(&mut self.text);
        whole.clear();
        if prefixed && self.spm.adds_prefix {
            whole.push(' ');
        }
        push_with_spaces(&mut whole, text);
        let mut rest = whole.as_str();
        while !rest.is_empty() {
            let (word, after) = rest.split_at(self.word_end(rest));
            self.word(word, out);
            rest = after;
        }
        self.text = whole;
    }

    /// Why some of what was seen has no tokens.
    pub(super) fn failure(self) -> Option<EncodeError> {
        self.failure
    }

    /// Appends the tokens of single bytes, which are no text.
    pub(super) fn bytes(&self, bytes: &[u8], out: &mut Vec<u32>) {
        for &byte in bytes {
            let id = self.spm.byte_tokens[usize::from(byte)];
            out.extend(Some(id).filter(|&id| id != NO_TOKEN).or(self.spm.unk));
        }
    }

    /// Where the first stretch of `text` ends that no token reaches out of.
    fn word_end(&self, text: &str) -> usize {
        let cut = |pair: &[u8]| pair[1] == b' ' && !self.spm.glued[usize::from(pair[0])];
        text.as_bytes().windows(2).position(cut).map_or(text.len(), |before| before + 1)
    }

    fn word(&mut self, word: &str, out: &mut Vec<u32>) {
        if let Some(id) = self.whole(word) {
            out.push(id);
            return;
        }
        if let Err(error) = check_word(word.len()) {
            self.failure = Some(error);
            return;
        }
        self.fill(word);
        for left in 1..self.symbols.len() as u32 {
            self.consider(word, left - 1);
        }
        while let Some(Reverse(candidate)) = self.heap.pop() {
            self.merge(word, candidate);
        }
        let mut at = 0;
        while let Some(symbol) = self.symbols.get(at as usize).copied() {
            match symbol.id {
                NO_TOKEN => self.bytes(&word.as_bytes()[symbol.start as usize..symbol.end as usize], out),
                id => out.push(id),
            }
            at = symbol.next;
        }
    }

    /// The token that `word` of one character is.
    fn whole(&self, word: &str) -> Option<u32> {
        let one = word.chars().nth(1).is_none();
        one.then(|| self.spm.ids.get(self.vocabulary, word.as_bytes()))?
    }

    /// One symbol for each character.
    fn fill(&mut self, word: &str) {
        self.symbols.clear();
        self.heap.clear();
        for (start, character) in word.char_indices() {
            let index = self.symbols.len() as u32;
            let end = start + character.len_utf8();
            let id = self.spm.ids.get(self.vocabulary, &word.as_bytes()[start..end]).unwrap_or(NO_TOKEN);
            let (start, end) = (start as u32, end as u32);
            self.symbols.push(Symbol { start, end, previous: index.wrapping_sub(1), next: index + 1, id });
        }
        if let Some(last) = self.symbols.last_mut() {
            last.next = NOWHERE;
        }
    }

    /// Makes a candidate of the symbol at `left` and its right neighbour, if
    /// their joined text is a token.
    fn consider(&mut self, word: &str, left: u32) {
        let Symbol { start, next, .. } = self.symbols[left as usize];
        let Some(right) = self.symbols.get(next as usize) else { return };
        let (start, end) = (start as usize, right.end as usize);
        if end - start > self.spm.longest {
            return;
        }
        if let Some(id) = self.spm.ids.get(self.vocabulary, &word.as_bytes()[start..end]) {
            let rank = self.spm.ranks[id as usize];
            self.heap.push(Reverse(Candidate { rank, left, end: end as u32, id }));
        }
    }

    /// Merges a candidate, unless one of its two symbols is another by now.
    fn merge(&mut self, word: &str, candidate: Candidate) {
        let left = self.symbols[candidate.left as usize];
        let Some(right) = self.symbols.get(left.next as usize).copied() else { return };
        if left.start == left.end || right.end != candidate.end {
            return;
        }
        self.symbols[left.next as usize].end = right.start;
        let merged = &mut self.symbols[candidate.left as usize];
        (merged.end, merged.next, merged.id) = (right.end, right.next, candidate.id);
        if let Some(after) = self.symbols.get_mut(right.next as usize) {
            after.previous = candidate.left;
        }
        self.consider(word, candidate.left);
        if left.previous != NOWHERE {
            self.consider(word, left.previous);
        }
    }
}

/// The bytes of a token as this kind of vocabulary spells it, appended.
pub(super) fn append_piece(text: &str, out: &mut Vec<u8>) {
    let mut parts = text.split(SPACE_MARK);
    out.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        out.push(b' ');
        out.extend(part.bytes());
    }
}

/// Appends `text`, in which U+2581 counts as a space as it does in the
/// vocabulary.
fn push_with_spaces(whole: &mut String, text: &str) {
    let mut parts = text.split(SPACE_MARK);
    whole.push_str(parts.next().unwrap_or_default());
    for part in parts {
        whole.push(' ');
        whole.push_str(part);
    }
}

/// Whether text may merge into a token. A user-defined token is matched before
/// anything merges, unless it is spelled with U+2581, which text never has.
fn is_merged(text: &str, kind: TokenType) -> bool {
    let spelled = match kind {
        TokenType::Normal => true,
        TokenType::UserDefined => text.contains(SPACE_MARK),
        _ => false,
    };
    spelled && !text.is_empty() && !text.contains(' ')
}

/// The bytes that stand before a space in one of `tokens`; a space always
/// counts as one.
fn glued<'t>(tokens: impl Iterator<Item = &'t [u8]>) -> Box<[bool; 256]> {
    let mut glued = Box::new([false; 256]);
    glued[usize::from(b' ')] = true;
    for token in tokens {
        for pair in token.windows(2).filter(|pair| pair[1] == b' ') {
            glued[usize::from(pair[0])] = true;
        }
    }
    glued
}

/// A rank for each score, 0 for the highest.
fn ranks(scores: &[f32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    let score = |id: u32| scores[id as usize];
    order.sort_unstable_by(|&a, &b| score(b).total_cmp(&score(a)));
    let mut ranks = vec![0; scores.len()];
    let mut rank = 0;
    for (place, &id) in order.iter().enumerate() {
        if place > 0 && score(id) != score(order[place - 1]) {
            rank = place as u32;
        }
        ranks[id as usize] = rank;
    }
    ranks
}

#[cfg(test)]
mod tests;
