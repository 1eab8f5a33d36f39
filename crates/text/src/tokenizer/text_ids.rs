//! A hash table from token bytes to ids. It stores ids only and compares with the bytes in the
//! vocabulary.

use super::bpe::NO_TOKEN;
use super::vocabulary::Vocabulary;

/// An open-addressed table from token bytes to ids; at least half of its
/// slots are free, so that a search always ends.
#[derive(Debug)]
pub(super) struct TextIds {
    slots: Vec<Slot>,
}

/// A token, and a part of its hash, so that the vocabulary is read for texts
/// that are tokens only. A free slot has [`NO_TOKEN`].
#[derive(Debug, Clone, Copy)]
struct Slot {
    id: u32,
    tag: u32,
}

impl TextIds {
    /// The table of the tokens `ids`; of several with one text the first stays.
    pub(super) fn new(vocabulary: &Vocabulary, ids: impl Iterator<Item = u32> + Clone) -> Self {
        let size = (2 * ids.clone().count()).next_power_of_two().max(2);
        let mut table = Self { slots: vec![Slot { id: NO_TOKEN, tag: 0 }; size] };
        for id in ids {
            let text = vocabulary.bytes(id);
            let slot = table.slot(vocabulary, text);
            if table.slots[slot].id == NO_TOKEN {
                table.slots[slot] = Slot { id, tag: tag(hash(text)) };
            }
        }
        table
    }

    /// The token whose bytes are `text`.
    #[inline]
    pub(super) fn get(&self, vocabulary: &Vocabulary, text: &[u8]) -> Option<u32> {
        Some(self.slots[self.slot(vocabulary, text)].id).filter(|&id| id != NO_TOKEN)
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    /// The slot that holds `text`, or the free one where it would go.
    #[inline]
    fn slot(&self, vocabulary: &Vocabulary, text: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let hash = hash(text);
        let mut slot = hash as usize & mask;
        loop {
            let Slot { id, tag: found } = self.slots[slot];
            if id == NO_TOKEN || found == tag(hash) && vocabulary.bytes(id) == text {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }
}

/// The upper half of a hash; the lower one chooses the slot.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Eight bytes at a time through one multiplication each, as in the hash of
/// Firefox and rustc.
#[inline]
fn hash(text: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| (state.rotate_left(26) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = text.as_chunks::<8>();
    let mut state = words.iter().fold(text.len() as u64, |state, word| mix(state, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    state = mix(state, u64::from_le_bytes(last));
    state ^ (state >> 32)
}
