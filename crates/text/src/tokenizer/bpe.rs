//! Byte-pair encoding: merging the bytes of one word by rank.
//!
//! Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016). Merges
//! are stored as pairs of token ids, so that merging never compares text. The `tokenizers` crate is
//! not used: it stores every token and merge as a string, and needs a thread pool.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// The id of a byte that the vocabulary cannot spell. It takes part in no
/// merge and is left out of the result.
pub(super) const NO_TOKEN: u32 = u32::MAX;

/// Words up to this length are merged by scanning, longer ones with a heap.
const SCAN_LIMIT: usize = 48;

/// Which two tokens merge, at what rank, into which token.
#[derive(Debug, Default)]
pub(super) struct Merges {
    by_pair: HashMap<(u32, u32), Merge, BuildHasherDefault<PairHasher>>,
}

/// One entry of [`Merges`]; the derived order is by rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Merge {
    rank: u32,
    id: u32,
}

impl Merges {
    /// An empty table with room for `count` merges.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { by_pair: HashMap::with_capacity_and_hasher(count, BuildHasherDefault::default()) }
    }

    /// Adds the merge of `left` and `right` into `id`; the first rank of a
    /// repeated pair stays.
    pub(super) fn insert(&mut self, left: u32, right: u32, rank: u32, id: u32) {
        let merge = Merge { rank, id };
        self.by_pair.entry((left, right)).or_insert(merge);
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        // One control byte per slot, and seven slots in eight may be filled.
        let slots = (self.by_pair.capacity() * 8 / 7).next_power_of_two();
        slots * (size_of::<((u32, u32), Merge)>() + 1)
    }

    #[inline]
    fn get(&self, left: u32, right: u32) -> Option<Merge> {
        self.by_pair.get(&(left, right)).copied()
    }
}

/// Merges words; holds the buffers that are reused from word to word.
pub(super) struct Merger<'a> {
    merges: &'a Merges,
    ids: Vec<u32>,
    pairs: Vec<Option<Merge>>,
}

impl<'a> Merger<'a> {
    /// A merger over `merges`.
    pub(super) fn new(merges: &'a Merges) -> Self {
        Self { merges, ids: Vec::new(), pairs: Vec::new() }
    }

    /// Appends to `out` the tokens of a word whose single bytes are `bytes`.
    pub(super) fn merge(&mut self, bytes: impl Iterator<Item = u32>, out: &mut Vec<u32>) {
        self.ids.clear();
        self.ids.extend(bytes);
        if self.ids.len() <= SCAN_LIMIT {
            self.merge_by_scan();
        } else {
            merge_by_heap(self.merges, &mut self.ids);
        }
        out.extend(self.ids.iter().filter(|&&id| id != NO_TOKEN));
    }

    /// Takes the lowest rank, leftmost first, until nothing merges. Quadratic
    /// in the length of the word, which is short.
    fn merge_by_scan(&mut self) {
        let Self { merges, ids, pairs } = self;
        pairs.clear();
        pairs.extend(ids.windows(2).map(|pair| merges.get(pair[0], pair[1])));
        while let Some((at, merge)) = lowest(pairs) {
            ids[at] = merge.id;
            ids.remove(at + 1);
            pairs.remove(at);
            if at < pairs.len() {
                pairs[at] = merges.get(ids[at], ids[at + 1]);
            }
            if at > 0 {
                pairs[at - 1] = merges.get(ids[at - 1], ids[at]);
            }
        }
    }
}

fn lowest(pairs: &[Option<Merge>]) -> Option<(usize, Merge)> {
    let found = pairs.iter().enumerate();
    found.filter_map(|(at, merge)| merge.map(|merge| (at, merge))).min_by_key(|(at, merge)| (merge.rank, *at))
}

/// The same merges in the same order for words of any length, in
/// `n log n` steps: a heap of candidate pairs over tokens that know their
/// neighbours.
fn merge_by_heap(merges: &Merges, ids: &mut Vec<u32>) {
    let mut line = Line::new(ids);
    let pair_at = |line: &Line<'_>, left: u32| {
        let right = line.next(left)?;
        merges.get(line.id(left)?, line.id(right)?)
    };
    let candidate = |line: &Line<'_>, left: u32| {
        let merge = pair_at(line, left)?;
        Some(Reverse(u64::from(merge.rank) << 32 | u64::from(left)))
    };
    let mut heap = BinaryHeap::with_capacity(line.len() as usize);
    heap.extend((0..line.len()).filter_map(|left| candidate(&line, left)));
    while let Some(Reverse(entry)) = heap.pop() {
        let (rank, left) = ((entry >> 32) as u32, entry as u32);
        // An entry is stale when another pair stands at its place by now; then
        // another entry stands for that pair.
        let Some(merge) = pair_at(&line, left).filter(|merge| merge.rank == rank) else {
            continue;
        };
        line.merge(left, merge.id);
        heap.extend(line.previous(left).and_then(|before| candidate(&line, before)));
        heap.extend(candidate(&line, left));
    }
    ids.retain(|&id| id != NO_TOKEN);
}

/// Tokens that can be joined with their right neighbour in constant time. A
/// token stands where its first byte stood, and the places of its other bytes
/// have [`NO_TOKEN`].
struct Line<'a> {
    ids: &'a mut [u32],
    /// How many places a token takes, at its first and at its last place.
    lengths: Vec<u32>,
}

impl<'a> Line<'a> {
    /// Tokens of one place each, fewer than 2^32.
    fn new(ids: &'a mut [u32]) -> Self {
        let lengths = vec![1; ids.len()];
        Self { ids, lengths }
    }

    fn len(&self) -> u32 {
        self.lengths.len() as u32
    }

    /// The token that begins at a place, unless none does or it is unspellable.
    fn id(&self, at: u32) -> Option<u32> {
        Some(self.ids[at as usize]).filter(|&id| id != NO_TOKEN)
    }

    /// Where the token after that at `at` begins.
    fn next(&self, at: u32) -> Option<u32> {
        Some(at + self.lengths[at as usize]).filter(|&next| next < self.len())
    }

    /// Where the token before that at `at` begins.
    fn previous(&self, at: u32) -> Option<u32> {
        let last = at.checked_sub(1)?;
        Some(at - self.lengths[last as usize])
    }

    /// Replaces the token at `left` and its right neighbour by `id`.
    fn merge(&mut self, left: u32, id: u32) {
        let Some(right) = self.next(left) else { return };
        let length = self.lengths[left as usize] + self.lengths[right as usize];
        (self.ids[left as usize], self.ids[right as usize]) = (id, NO_TOKEN);
        self.lengths[left as usize] = length;
        self.lengths[(left + length - 1) as usize] = length;
    }
}

/// Mixes the one pair of ids that a table is asked for. Ids are dense small
/// numbers, so one multiplication spreads them well enough.
#[derive(Debug, Default)]
struct PairHasher {
    state: u64,
}

impl Hasher for PairHasher {
    fn write_u32(&mut self, value: u32) {
        self.state = self.state.rotate_left(32) ^ u64::from(value);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn finish(&self) -> u64 {
        let product = u128::from(self.state ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
        (product as u64) ^ ((product >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Three letters and a few overlapping merges with gaps in rank.
    fn small_merges() -> Merges {
        let mut merges = Merges::with_capacity(8);
        for (left, right, rank, id) in
            [(0, 1, 5, 3), (1, 0, 2, 4), (0, 0, 7, 5), (5, 5, 9, 6), (3, 2, 1, 7), (4, 4, 3, 8), (1, 1, 4, 9)]
        {
            merges.insert(left, right, rank, id);
        }
        merges
    }

    fn by_scan(merges: &Merges, ids: &[u32]) -> Vec<u32> {
        let mut merger = Merger::new(merges);
        merger.ids = ids.to_vec();
        merger.merge_by_scan();
        merger.ids
    }

    fn by_heap(merges: &Merges, ids: &[u32]) -> Vec<u32> {
        let mut ids = ids.to_vec();
        merge_by_heap(merges, &mut ids);
        ids
    }

    #[test]
    fn equal_ranks_merge_from_the_left() {
        let merges = small_merges();
        assert_eq!(by_scan(&merges, &[0, 0, 0]), [5, 0]);
        assert_eq!(by_heap(&merges, &[0, 0, 0]), [5, 0]);
    }

    #[test]
    fn lower_ranks_merge_first() {
        let merges = small_merges();
        assert_eq!(by_scan(&merges, &[0, 1, 0]), [0, 4]);
        assert_eq!(by_heap(&merges, &[0, 1, 0]), [0, 4]);
    }

    #[test]
    fn the_first_rank_of_a_repeated_merge_stays() {
        let mut merges = small_merges();
        merges.insert(0, 1, 0, 9);
        assert_eq!(by_scan(&merges, &[0, 1]), [3]);
    }

    #[test]
    fn unspellable_bytes_block_merges_and_vanish() {
        let merges = small_merges();
        let mut out = Vec::new();
        Merger::new(&merges).merge([0, NO_TOKEN, 1].into_iter(), &mut out);
        assert_eq!(out, [0, 1]);
    }

    #[test]
    fn a_very_long_word_ends_soon() {
        let merges = small_merges();
        assert_eq!(by_heap(&merges, &vec![0; 1 << 20]).len(), 1 << 18);
    }

    /// Merges of any earlier tokens, at ranks that are no order of making.
    fn any_merges() -> impl Strategy<Value = Merges> {
        let pairs = prop::collection::vec(any::<[prop::sample::Index; 2]>(), 1..20);
        pairs.prop_flat_map(|pairs| {
            let ranks = (0..pairs.len() as u32).collect::<Vec<_>>();
            (Just(pairs), Just(ranks).prop_shuffle()).prop_map(|(pairs, ranks)| {
                let mut merges = Merges::with_capacity(pairs.len());
                for ((id, pair), rank) in (3u32..).zip(pairs).zip(ranks) {
                    let [left, right] = pair.map(|index| index.index(id as usize) as u32);
                    merges.insert(left, right, rank, id);
                }
                merges
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn scan_and_heap_agree(
            merges in any_merges(),
            ids in prop::collection::vec(prop_oneof![20 => 0u32..3, 1 => Just(NO_TOKEN)], 0..60),
        ) {
            let mut scanned = by_scan(&merges, &ids);
            scanned.retain(|&id| id != NO_TOKEN);
            prop_assert_eq!(scanned, by_heap(&merges, &ids));
        }
    }
}
