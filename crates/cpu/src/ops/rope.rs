//! Rotary position embedding: a table of cosines and sines for the rows of a step, and the rotation
//! of heads.
//!
//! A pair (a, b) becomes `(fma(a, c, -(b * s)), fma(b, c, a * s))`, where c and s are the cosine
//! and sine of `position * frequency` in f64, rounded once to f32 and then multiplied by the
//! magnitude.

use std::ops::Range;

use minfer_graph::{RopePairs, RopeSpec};

use super::elementwise::chunks;
use crate::arch::{Isa, Kernel, LANES, Simd};
use crate::math::{load_padded, sin_cos, store_part};
use crate::threads::{Rows, SharedSlice};

/// Floats of the table for a number of rows.
pub(crate) fn table_floats(spec: &RopeSpec, rows: usize) -> usize {
    rows * spec.rotated_dims() as usize
}

/// Fills the table's rows of a range: for each the cosines of all pairs, then their sines.
pub(crate) fn fill_table(
    rows: Range<usize>,
    spec: &RopeSpec,
    positions: &[u32],
    table: &SharedSlice<'_, f32>,
) {
    let floats = 2 * spec.frequencies.len();
    for row in rows {
        fill_row(spec, positions[row], table.get_mut(floats * row..floats * (row + 1)));
    }
}

/// Fills the row of a table for one position.
pub(crate) fn fill_row(spec: &RopeSpec, position: u32, row: &mut [f32]) {
    let (cosines, sines) = row.split_at_mut(spec.frequencies.len());
    let magnitude = spec.magnitude.get();
    for (pair, frequency) in spec.frequencies.iter().enumerate() {
        let (sine, cosine) = sin_cos(f64::from(position) * frequency.get());
        cosines[pair] = cosine as f32 * magnitude;
        sines[pair] = sine as f32 * magnitude;
    }
}

/// A rotation with its filled table.
#[derive(Clone, Copy)]
pub(crate) struct Rotation<'a> {
    /// Which elements form pairs.
    pub(crate) spec: &'a RopeSpec,
    /// As [`fill_table`] leaves it.
    pub(crate) table: SharedSlice<'a, f32>,
}

/// Rotates each head of the rows of a range. The output lies apart from the input.
pub(crate) fn rope(
    isa: Isa,
    rows: Range<usize>,
    rotation: &Rotation<'_>,
    heads: usize,
    head_dim: usize,
    input: &Rows<'_>,
    output: &Rows<'_>,
) {
    assert!(rotation.spec.rotated_dims() as usize <= head_dim, "more rotated elements than {head_dim}");
    assert!(
        input.columns() == heads * head_dim && output.columns() == input.columns(),
        "{heads} heads of {head_dim}"
    );
    isa.run(RotateRows { rows, rotation, head_dim, input, output });
}

struct RotateRows<'a> {
    rows: Range<usize>,
    rotation: &'a Rotation<'a>,
    head_dim: usize,
    input: &'a Rows<'a>,
    output: &'a Rows<'a>,
}

impl Kernel for RotateRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for row in self.rows {
            let output = self.output.row_mut(row, 0..self.output.columns());
            output.copy_from_slice(self.input.row(row));
            for head in output.chunks_exact_mut(self.head_dim) {
                self.rotation.rotate(simd, row, head);
            }
        }
    }
}

impl Rotation<'_> {
    /// Rotates one head of a row of the step in place.
    #[inline(always)]
    pub(in crate::ops) fn rotate<S: Simd>(&self, simd: S, row: usize, head: &mut [f32]) {
        let dims = self.spec.rotated_dims() as usize;
        let (cosines, sines) = self.table.get(dims * row..dims * (row + 1)).split_at(dims / 2);
        let rotated = &mut head[..dims];
        match self.spec.pairs {
            RopePairs::Halves => rotate_halves(simd, cosines, sines, rotated),
            RopePairs::Adjacent => rotate_adjacent(simd, cosines, sines, rotated),
        }
    }
}

/// Sixteen pairs rotated.
#[inline(always)]
fn rotate_pairs<S: Simd>(simd: S, a: S::F32, b: S::F32, cosine: S::F32, sine: S::F32) -> (S::F32, S::F32) {
    let negative = simd.mul(simd.mul(b, sine), simd.splat(-1.0));
    (simd.fma(a, cosine, negative), simd.fma(b, cosine, simd.mul(a, sine)))
}

#[inline(always)]
fn rotate_halves<S: Simd>(simd: S, cosines: &[f32], sines: &[f32], rotated: &mut [f32]) {
    let (first, second) = rotated.split_at_mut(cosines.len());
    for part in chunks(cosines.len()) {
        let (a, b) = (load_padded(simd, &first[part.clone()]), load_padded(simd, &second[part.clone()]));
        let (cosine, sine) =
            (load_padded(simd, &cosines[part.clone()]), load_padded(simd, &sines[part.clone()]));
        let (a, b) = rotate_pairs(simd, a, b, cosine, sine);
        store_part(simd, a, &mut first[part.clone()]);
        store_part(simd, b, &mut second[part]);
    }
}

#[inline(always)]
fn rotate_adjacent<S: Simd>(simd: S, cosines: &[f32], sines: &[f32], rotated: &mut [f32]) {
    for part in chunks(cosines.len()) {
        let pairs = rotated[2 * part.start..2 * part.end].as_chunks_mut::<2>().0;
        let (mut first, mut second) = ([0.0; LANES], [0.0; LANES]);
        for (lane, pair) in pairs.iter().enumerate() {
            [first[lane], second[lane]] = *pair;
        }
        let (cosine, sine) = (load_padded(simd, &cosines[part.clone()]), load_padded(simd, &sines[part]));
        let (a, b) = rotate_pairs(simd, simd.load(&first), simd.load(&second), cosine, sine);
        simd.store(a, &mut first);
        simd.store(b, &mut second);
        for (lane, pair) in pairs.iter_mut().enumerate() {
            *pair = [first[lane], second[lane]];
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::math::testing::Numbers;
    use crate::threads::Worker;

    pub(crate) fn spec(pairs: RopePairs, dims: usize, magnitude: f32) -> RopeSpec {
        let frequencies: Vec<_> =
            (0..dims / 2).map(|pair| (10_000f64.powf(-2.0 * pair as f64 / dims as f64)).into()).collect();
        RopeSpec { pairs, frequencies: frequencies.into(), magnitude: magnitude.into() }
    }

    /// One head rotated in f64.
    pub(crate) fn truth(spec: &RopeSpec, position: u32, head: &[f32]) -> Vec<f64> {
        let mut out: Vec<f64> = head.iter().map(|&x| f64::from(x)).collect();
        let pairs = spec.frequencies.len();
        for (pair, frequency) in spec.frequencies.iter().enumerate() {
            let (first, second) = match spec.pairs {
                RopePairs::Adjacent => (2 * pair, 2 * pair + 1),
                RopePairs::Halves => (pair, pair + pairs),
            };
            let angle = f64::from(position) * frequency.get();
            let (a, b) = (f64::from(head[first]), f64::from(head[second]));
            let magnitude = f64::from(spec.magnitude.get());
            out[first] = magnitude * (a * angle.cos() - b * angle.sin());
            out[second] = magnitude * (b * angle.cos() + a * angle.sin());
        }
        out
    }

    #[test]
    fn rotations_are_near_the_f64_reference_and_equal_in_bits() {
        let positions = [0, 1, 63, 300, 4095, 131_071, 1_000_000];
        for pairs in [RopePairs::Adjacent, RopePairs::Halves] {
            for (head_dim, dims) in [(16, 16), (24, 24), (64, 64), (80, 32), (96, 72), (128, 128), (256, 64)]
            {
                for magnitude in [1.0, 1.19] {
                    let spec = spec(pairs, dims, magnitude);
                    let (heads, rows) = (3, positions.len());
                    let width = heads * head_dim;
                    let mut input = Numbers(4).vec(rows * width, 2.0);
                    let mut first: Option<Vec<f32>> = None;
                    for isa in Isa::available() {
                        for count in 1..=3 {
                            let mut table = vec![0.0; table_floats(&spec, rows)];
                            let mut out = vec![0.0; rows * width];
                            let table = SharedSlice::from_slice(&mut table);
                            for index in 0..count {
                                let share = Worker { index, count }.share(rows);
                                fill_table(share.clone(), &spec, &positions, &table);
                                let input = Rows::from_slice(&mut input, width, width);
                                let out = Rows::from_slice(&mut out, width, width);
                                rope(
                                    isa,
                                    share,
                                    &Rotation { spec: &spec, table },
                                    heads,
                                    head_dim,
                                    &input,
                                    &out,
                                );
                            }
                            assert_eq!(
                                first.get_or_insert_with(|| out.clone()),
                                &out,
                                "{spec:?} {isa} {count}"
                            );
                        }
                    }
                    let out = first.unwrap();
                    for (index, head) in input.chunks_exact(head_dim).enumerate() {
                        let exact = truth(&spec, positions[index / heads], head);
                        for (got, exact) in out[index * head_dim..].iter().zip(exact) {
                            assert!(
                                (f64::from(*got) - exact).abs() < 6e-7 * 2.0,
                                "{spec:?}: {got} != {exact}"
                            );
                        }
                    }
                }
            }
        }
    }
}
