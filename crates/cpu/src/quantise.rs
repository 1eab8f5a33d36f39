//! Activations as signed bytes with one scale for every 32 columns of a row.
//!
//! `scale = amax / 127`, `q = round(x * (127 / amax))` to nearest even inside -127..=127, both in
//! f32; all zero where `amax` is 0. Nothing depends on another row, so a row gives the same bytes
//! in any company.
//!
//! A block that holds an infinity has an infinite scale, and one with a NaN has a NaN scale:
//! outputs computed from it are infinite or NaN. Its bytes are some values in range. The same holds
//! for bytes where `127 / amax` overflows (`amax` below 3.8e-37): they are at most 127 times a
//! scale that is below the normal numbers.

use crate::arch::{Isa, Kernel, LANES, Simd};
use crate::threads::SharedSlice;

/// Columns that share a scale.
pub(crate) const BLOCK: usize = 32;
/// Words of the quants of a block, four columns each.
pub(crate) const WORDS: usize = BLOCK / 4;
/// Rows that are stored together, block by block.
pub(crate) const GROUP: usize = 16;

/// What is stored for every block of a row beside its quants. Offsets repay weights that are stored
/// unsigned: they are where integer sums start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Term {
    /// f32: the value of quant 1.
    Scale,
    /// f32: the sum of the quants times the scale, rounded once.
    ScaledSum,
    /// i32: -8 times the sum of the quants.
    Offset8,
    /// i32: -16 times the sum of the quants.
    Offset16,
    /// i32: -128 times the sum of the quants.
    Offset128,
    /// i32: -32 times the sum of quants 0..16.
    LowHalf32,
    /// i32: -32 times the sum of quants 16..32, added to the bits of [`WHOLE`].
    WholeHighHalf32,
    /// f32: the sum of quants 0..16 times the scale, rounded once.
    ScaledLowSum,
    /// f32: the sum of quants 16..32 times the scale, rounded once.
    ScaledHighSum,
}

/// 1.5 * 2^23: a whole number below 2^22 in magnitude, added to the bits of this, gives the bits of
/// their sum.
pub(crate) const WHOLE: f32 = 12_582_912.0;

/// Variants of [`Term`].
const TERMS: usize = 9;

/// The terms that rows hold: the scale, and what is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TermSet(u16);

impl TermSet {
    /// The scale alone.
    pub(crate) const SCALE: TermSet = TermSet(1 << Term::Scale as u16);

    /// With another term.
    pub(crate) const fn with(self, term: Term) -> TermSet {
        TermSet(self.0 | 1 << term as u16)
    }

    /// All of both.
    pub(crate) const fn union(self, other: TermSet) -> TermSet {
        TermSet(self.0 | other.0)
    }

    fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// How many terms of the set stand before one of its own.
    fn place(self, term: Term) -> usize {
        assert!(self.0 >> term as u16 & 1 == 1, "rows without {term:?}");
        (self.0 & ((1 << term as u16) - 1)).count_ones() as usize
    }
}

/// Quantised rows in memory of the caller.
///
/// Rows are stored in groups of up to [`GROUP`]. In a group, block `b` of all rows lies together,
/// row after row, so a tile of tokens is reached from one address. Terms lie in arrays of their own
/// in the same order.
#[derive(Clone, Copy)]
pub(crate) struct QuantisedRows<'a> {
    memory: SharedSlice<'a, u32>,
    rows: usize,
    blocks: usize,
    group: usize,
    /// Blocks of all groups, of which the last may be partly used.
    stored: usize,
    terms: TermSet,
}

impl<'a> QuantisedRows<'a> {
    /// Words of memory for `rows` rows of `columns` columns.
    pub(crate) fn words(rows: usize, columns: usize, terms: TermSet) -> usize {
        let group = rows.clamp(1, GROUP);
        rows.next_multiple_of(group) * columns.div_ceil(BLOCK) * (WORDS + terms.len())
    }

    /// A view of `memory`, whose contents are the rows written through a view of the same shape
    /// before.
    ///
    /// # Panics
    /// The columns are no whole number of blocks, or the memory has less than
    /// [`words`](QuantisedRows::words).
    pub(crate) fn new(
        memory: SharedSlice<'a, u32>,
        rows: usize,
        columns: usize,
        terms: TermSet,
    ) -> QuantisedRows<'a> {
        assert!(columns.is_multiple_of(BLOCK), "{columns} columns are no whole number of blocks of {BLOCK}");
        assert!(
            memory.len() >= Self::words(rows, columns, terms),
            "too little memory for {rows} x {columns}"
        );
        let (blocks, group) = (columns / BLOCK, rows.clamp(1, GROUP));
        QuantisedRows { memory, rows, blocks, group, stored: rows.next_multiple_of(group) * blocks, terms }
    }

    /// Rows of the view.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of a row.
    pub(crate) fn columns(&self) -> usize {
        self.blocks * BLOCK
    }

    /// Rows of a group: between one block of a row and its next one lie this many blocks.
    #[inline(always)]
    pub(crate) fn group(&self) -> usize {
        self.group
    }

    /// Quantises one row.
    ///
    /// Rows of one group share cache lines, so workers that write at once should take whole groups
    /// of [`GROUP`] rows.
    ///
    /// # Panics
    /// `values` is not as long as a row, or there is no such row.
    pub(crate) fn quantise_row(&self, isa: Isa, row: usize, values: &[f32]) {
        assert_eq!(values.len(), self.columns(), "length of a row");
        isa.run(QuantiseRow { rows: *self, row, values });
    }

    /// Quantises columns `32 * block ..` of a row from two vectors, for producers that hold them in
    /// registers.
    #[inline(always)]
    pub(crate) fn write_block<S: Simd>(&self, simd: S, row: usize, block: usize, low: S::F32, high: S::F32) {
        assert!(row < self.rows && block < self.blocks, "row {row}, block {block}");
        let quantised = quantise_block(simd, low, high);
        let at = self.index(row, block);
        self.memory.get_mut(at * WORDS..(at + 1) * WORDS).copy_from_slice(&quantised.quants);
        let mut place = self.stored * WORDS + at;
        for (term, value) in quantised.terms.into_iter().enumerate() {
            if self.terms.0 >> term & 1 == 1 {
                self.memory.get_mut(place..place + 1)[0] = value;
                place += self.stored;
            }
        }
    }

    /// The quants of all blocks; [`index`](QuantisedRows::index) says which.
    pub(crate) fn quants(&self) -> &'a [[u32; WORDS]] {
        self.memory.get(0..self.stored * WORDS).as_chunks().0
    }

    /// A term of all blocks, in the order of [`quants`](QuantisedRows::quants).
    ///
    /// # Panics
    /// The rows do not hold this term.
    pub(crate) fn terms(&self, term: Term) -> &'a [u32] {
        let base = self.stored * (WORDS + self.terms.place(term));
        self.memory.get(base..base + self.stored)
    }

    /// Where a block of a row is, or, of a row without blocks, where a walk over them begins and
    /// ends. Rows of one group follow each other, and blocks of a row are
    /// [`group`](QuantisedRows::group) apart.
    #[inline(always)]
    pub(crate) fn index(&self, row: usize, block: usize) -> usize {
        debug_assert!(row < self.rows && block < self.blocks.max(1), "row {row}, block {block}");
        (row / self.group * self.blocks + block) * self.group + row % self.group
    }
}

struct QuantiseRow<'a> {
    rows: QuantisedRows<'a>,
    row: usize,
    values: &'a [f32],
}

impl Kernel for QuantiseRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (block, halves) in self.values.as_chunks::<LANES>().0.as_chunks::<2>().0.iter().enumerate() {
            self.rows.write_block(simd, self.row, block, simd.load(&halves[0]), simd.load(&halves[1]));
        }
    }
}

/// A block as it is stored.
pub(crate) struct Quantised {
    /// Four columns a word.
    pub(crate) quants: [u32; WORDS],
    terms: [u32; TERMS],
}

impl Quantised {
    /// A term's bits.
    pub(crate) fn term(&self, term: Term) -> u32 {
        self.terms[term as usize]
    }
}

/// Quantises 32 columns.
#[inline(always)]
pub(crate) fn quantise_block<S: Simd>(simd: S, low: S::F32, high: S::F32) -> Quantised {
    // A division for each block, not for each value: values are multiplied with its inverse.
    let largest = simd.largest_magnitude(low, high);
    let scale = largest / 127.0;
    let inverse = simd.splat(if largest == 0.0 { 0.0 } else { 127.0 / largest });
    let low = round(simd, simd.mul(low, inverse));
    let high = round(simd, simd.mul(high, inverse));
    let mut bytes = [[0i8; LANES]; 2];
    simd.store_i8(low, &mut bytes[0]);
    simd.store_i8(high, &mut bytes[1]);
    let mut quants = [0; WORDS];
    for (word, four) in quants.iter_mut().zip(bytes.as_flattened().as_chunks::<4>().0) {
        *word = u32::from_le_bytes(four.map(|byte| byte as u8));
    }
    let (low_sum, high_sum) = (simd.sum_i32(low), simd.sum_i32(high));
    let sum = low_sum + high_sum;
    let offset = |value: i32| value as u32;
    let terms = [
        scale.to_bits(),
        (sum as f32 * scale).to_bits(),
        offset(-8 * sum),
        offset(-16 * sum),
        offset(-128 * sum),
        offset(-32 * low_sum),
        offset(WHOLE.to_bits() as i32 - 32 * high_sum),
        (low_sum as f32 * scale).to_bits(),
        (high_sum as f32 * scale).to_bits(),
    ];
    Quantised { quants, terms }
}

/// Nearest integers inside -127..=127; what is no number gives 127.
#[inline(always)]
fn round<S: Simd>(simd: S, value: S::F32) -> S::I32 {
    let below = simd.min(value, simd.splat(127.0));
    simd.round_to_i32(simd.max(below, simd.splat(-127.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: TermSet = TermSet((1 << TERMS) - 1);

    /// The definition, value by value.
    fn reference(values: &[f32; BLOCK]) -> ([i8; BLOCK], f32) {
        let amax = values.iter().fold(0.0f32, |a, x| a.max(x.abs()));
        let inverse = if amax == 0.0 { 0.0 } else { 127.0 / amax };
        (values.map(|x| (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i8), amax / 127.0)
    }

    fn rows_of(rows: usize, columns: usize, isa: Isa, value: impl Fn(usize, usize) -> f32) -> Vec<u32> {
        let mut memory = vec![0; QuantisedRows::words(rows, columns, ALL)];
        let view = QuantisedRows::new(SharedSlice::from_slice(&mut memory), rows, columns, ALL);
        for row in 0..rows {
            let values: Vec<f32> = (0..columns).map(|column| value(row, column)).collect();
            view.quantise_row(isa, row, &values);
        }
        memory
    }

    fn value(row: usize, column: usize) -> f32 {
        let mixed = (row * 7919 + column * 104_729 + 13).wrapping_mul(2_654_435_761) >> 7;
        let unit = (mixed % 20_011) as f32 / 10_000.0 - 1.0;
        unit * [1.0, 3e-20, 7e12, 0.0, 1e-3][(row + column / BLOCK) % 5]
    }

    #[test]
    fn every_instruction_set_follows_the_definition() {
        for (rows, columns) in [(1, 32), (3, 96), (16, 64), (17, 160), (40, 32)] {
            let first = rows_of(rows, columns, Isa::Scalar, value);
            for isa in Isa::available() {
                let mut memory = rows_of(rows, columns, isa, value);
                assert_eq!(memory, first, "{isa} {rows} x {columns}");
                let view = QuantisedRows::new(SharedSlice::from_slice(&mut memory), rows, columns, ALL);
                for (row, block) in (0..rows).flat_map(|row| (0..columns / BLOCK).map(move |b| (row, b))) {
                    check_block(&view, row, block);
                }
            }
        }
    }

    fn check_block(view: &QuantisedRows<'_>, row: usize, block: usize) {
        let values = std::array::from_fn(|i| value(row, block * BLOCK + i));
        let (quants, scale) = reference(&values);
        let at = view.index(row, block);
        let stored = view.quants()[at].map(|word| word.to_le_bytes().map(|byte| byte as i8));
        assert_eq!(stored.as_flattened(), quants);
        let sum = |range: std::ops::Range<usize>| quants[range].iter().map(|&q| i32::from(q)).sum::<i32>();
        let term = |term| view.terms(term)[at];
        assert_eq!(f32::from_bits(term(Term::Scale)), scale);
        assert_eq!(f32::from_bits(term(Term::ScaledSum)), sum(0..32) as f32 * scale);
        for (name, factor, range) in [
            (Term::Offset8, -8, 0..32),
            (Term::Offset16, -16, 0..32),
            (Term::Offset128, -128, 0..32),
            (Term::LowHalf32, -32, 0..16),
        ] {
            assert_eq!(term(name) as i32, factor * sum(range), "{name:?}");
        }
        let whole = f32::from_bits(term(Term::WholeHighHalf32));
        assert_eq!(whole, WHOLE - 32.0 * sum(16..32) as f32);
    }

    #[test]
    fn ties_go_to_even() {
        // A largest magnitude of 127 makes every quant its own value.
        let values: Vec<f32> =
            (0..BLOCK).map(|i| [127.0, 0.5, 1.5, -0.5, -1.5, 2.5, -2.5, 126.5][i % 8]).collect();
        for isa in Isa::available() {
            let mut memory = vec![0; QuantisedRows::words(1, BLOCK, ALL)];
            let view = QuantisedRows::new(SharedSlice::from_slice(&mut memory), 1, BLOCK, ALL);
            view.quantise_row(isa, 0, &values);
            let first = view.quants()[0][..2].iter().flat_map(|word| word.to_le_bytes()).map(|b| b as i8);
            assert!(first.eq([127, 0, 2, 0, -2, 2, -2, 126]), "{isa}");
        }
    }

    #[test]
    fn what_is_no_number_shows_in_the_scale() {
        for isa in Isa::available() {
            for (bad, at) in [(f32::NAN, 0), (f32::NAN, 31), (f32::INFINITY, 16), (f32::NEG_INFINITY, 3)] {
                let mut memory = rows_of(1, 64, isa, |_, column| if column == at { bad } else { 1.0 });
                let view = QuantisedRows::new(SharedSlice::from_slice(&mut memory), 1, 64, ALL);
                let scales = view.terms(Term::Scale);
                assert!(!f32::from_bits(scales[0]).is_finite(), "{isa} {bad} at {at}");
                assert_eq!(f32::from_bits(scales[0]).is_nan(), bad.is_nan());
                assert_eq!(f32::from_bits(scales[1]), 1.0 / 127.0);
            }
        }
    }

    #[test]
    fn values_below_the_normal_numbers_stay_in_range() {
        let first = rows_of(1, 32, Isa::Scalar, |_, column| 1e-40 * column as f32);
        for isa in Isa::available() {
            assert_eq!(rows_of(1, 32, isa, |_, column| 1e-40 * column as f32), first, "{isa}");
        }
    }

    /// Rows that hold some of the terms hold the same.
    #[test]
    fn terms_that_nobody_asks_for_are_left_out() {
        let (rows, columns) = (17, 96);
        let mut memory = rows_of(rows, columns, Isa::best(), value);
        let whole = QuantisedRows::new(SharedSlice::from_slice(&mut memory), rows, columns, ALL);
        let terms = TermSet::SCALE.with(Term::Offset16).with(Term::ScaledHighSum);
        let mut few = vec![0; QuantisedRows::words(rows, columns, terms)];
        let few = QuantisedRows::new(SharedSlice::from_slice(&mut few), rows, columns, terms);
        for row in 0..rows {
            let values: Vec<f32> = (0..columns).map(|column| value(row, column)).collect();
            few.quantise_row(Isa::best(), row, &values);
        }
        assert_eq!(few.quants(), whole.quants());
        for term in [Term::Scale, Term::Offset16, Term::ScaledHighSum] {
            assert_eq!(few.terms(term), whole.terms(term), "{term:?}");
        }
    }
}
