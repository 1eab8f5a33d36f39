//! One worker's memory for attention.

use minfer_graph::{AttentionSpec, KvFormat, KvGroupSpec};

use super::TILE;
use super::plan::SHARED_ROWS;
use super::quantised::QuantisedQuery;
use crate::arch::LANES;
use crate::ops::kv_store::MOST_DIMS;
use crate::quantise::BLOCK;

/// Distance of the rows of queries: a constant that kernels can fold into addresses, a cache line
/// over a power of two so that neighbouring rows lie in different sets of the cache.
pub(super) const QUERY: usize = MOST_DIMS + LANES;

/// Plain values that start on a cache line.
#[derive(Debug, Default)]
pub(super) struct Aligned<T> {
    memory: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy + Default> Aligned<T> {
    fn new(len: usize) -> Aligned<T> {
        let memory = vec![T::default(); len + 64 / size_of::<T>()];
        let start = memory.as_ptr().align_offset(64).min(64 / size_of::<T>());
        Aligned { memory, start, len }
    }

    /// The values.
    pub(super) fn get(&self) -> &[T] {
        &self.memory[self.start..self.start + self.len]
    }

    /// The values.
    pub(super) fn get_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Positions of a tile, counted from its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Seen {
    /// As a range.
    pub(super) fn range(self) -> std::ops::Range<usize> {
        self.start..self.end
    }
}

/// Maxima, sums and accumulators of some rows.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) max: Aligned<f32>,
    pub(super) sum: Aligned<f32>,
    pub(super) acc: Aligned<f32>,
}

impl Store {
    fn new(rows: usize, v_dims: usize) -> Store {
        Store { max: Aligned::new(rows), sum: Aligned::new(rows), acc: Aligned::new(rows * v_dims) }
    }
}

/// The queries of an item, rotated by a rope offset.
#[derive(Debug, Default)]
pub(super) struct QueryRows {
    /// [virtual row][QUERY].
    pub(super) floats: Aligned<f32>,
    /// As pairs of bf16 where K is bf16, [virtual row][QUERY / 2].
    pub(super) pairs: Aligned<u32>,
    /// As blocks of bytes where K is quantised, [virtual row].
    pub(super) quantised: Vec<QuantisedQuery>,
    /// The offset by which they are rotated.
    pub(super) rope_offset: u32,
}

/// A tile of K that could not be read in place.
#[derive(Debug, Default)]
pub(super) struct KeyTile {
    /// [dim][TILE].
    pub(super) floats: Aligned<f32>,
    /// As pairs of bf16, [dim / 2][TILE].
    pub(super) pairs: Aligned<u32>,
    /// Words of four bytes of quantised blocks, [word][TILE][4].
    pub(super) words: Aligned<u8>,
    /// Scales of quantised blocks, [block][TILE].
    pub(super) scales: Aligned<u16>,
}

/// One worker's memory for attention, taken once for all layers.
#[derive(Debug, Default)]
pub(crate) struct AttentionScratch {
    pub(super) q: QueryRows,
    /// What each virtual row sees of the tile.
    pub(super) seen: Vec<Seen>,
    /// Scores, then probabilities, [virtual row][TILE].
    pub(super) scores: Aligned<f32>,
    /// Scores of which some columns are wanted, [virtual row][TILE].
    pub(super) part: Aligned<f32>,
    /// Probabilities as pairs of bf16, [virtual row][TILE / 2].
    pub(super) pairs: Aligned<u32>,
    /// A tile of K, in the form that its format asks for.
    pub(super) k: KeyTile,
    /// A tile of V as [TILE][v_dims].
    pub(super) v: Aligned<f32>,
    /// A tile of V as pairs of bf16, [TILE / 2][v_dims].
    pub(super) v_pairs: Aligned<u32>,
    /// A row of pairs of which one half is hidden, [v_dims].
    pub(super) edge: Aligned<u32>,
    /// State of one tile, of one span, of the whole.
    pub(super) tile: Store,
    pub(super) span: Store,
    pub(super) total: Store,
    /// Factors of a fold: of what is there, of what comes.
    pub(super) factors: [Aligned<f32>; 2],
}

impl AttentionScratch {
    /// Enough for every one of some operations, each with the geometry of its KV group.
    pub(crate) fn new<'a>(
        operations: impl IntoIterator<Item = (&'a AttentionSpec, &'a KvGroupSpec)>,
    ) -> AttentionScratch {
        let (mut rows, mut k_dim, mut v_dims) = (0, 0, 0);
        let (mut k_pairs, mut v_pairs, mut k_quantised) = (0, 0, 0);
        for (spec, group) in operations {
            let wide = (spec.v_dim as usize).next_multiple_of(LANES);
            rows = rows.max(SHARED_ROWS.max((spec.heads / spec.kv_heads) as usize)).next_multiple_of(LANES);
            k_dim = k_dim.max(spec.k_dim as usize);
            v_dims = v_dims.max(wide);
            if group.k_format == KvFormat::BF16 {
                k_pairs = k_pairs.max(spec.k_dim as usize / 2);
            }
            if group.k_format.is_quantised() {
                k_quantised = k_quantised.max(spec.k_dim as usize);
            }
            if group.v_format == KvFormat::BF16 {
                v_pairs = v_pairs.max(wide);
            }
        }
        AttentionScratch {
            q: QueryRows {
                floats: Aligned::new(rows * QUERY),
                pairs: Aligned::new(if k_pairs > 0 { rows * QUERY / 2 } else { 0 }),
                quantised: vec![QuantisedQuery::ZERO; if k_quantised > 0 { rows } else { 0 }],
                rope_offset: 0,
            },
            seen: vec![Seen::default(); rows],
            scores: Aligned::new(rows * TILE),
            part: Aligned::new(rows * TILE),
            pairs: Aligned::new(rows * TILE / 2),
            k: KeyTile {
                floats: Aligned::new(k_dim * TILE),
                pairs: Aligned::new(k_pairs * TILE),
                words: Aligned::new(k_quantised * TILE),
                scales: Aligned::new(k_quantised / BLOCK * TILE),
            },
            v: Aligned::new(TILE * v_dims),
            v_pairs: Aligned::new(TILE / 2 * v_pairs),
            edge: Aligned::new(v_pairs),
            tile: Store::new(rows, v_dims),
            span: Store::new(rows, v_dims),
            total: Store::new(rows, v_dims),
            factors: [Aligned::new(rows), Aligned::new(rows)],
        }
    }

    /// Bytes of memory, for the workspace's account.
    pub(crate) fn bytes(&self) -> u64 {
        let stores = [&self.tile, &self.span, &self.total];
        let states: usize = stores.iter().map(|store| store.max.len + store.sum.len + store.acc.len).sum();
        let floats = self.q.floats.len
            + self.scores.len
            + self.part.len
            + self.k.floats.len
            + self.v.len
            + 2 * self.factors[0].len;
        let words = self.q.pairs.len + self.pairs.len + self.k.pairs.len + self.v_pairs.len + self.edge.len;
        let others = self.seen.len() * size_of::<Seen>()
            + self.q.quantised.len() * size_of::<QuantisedQuery>()
            + self.k.words.len
            + 2 * self.k.scales.len;
        (4 * (states + floats + words) + others) as u64
    }
}
