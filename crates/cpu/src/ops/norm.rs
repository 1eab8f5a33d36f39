//! Normalisation of rows, or of the equal groups of a row, and its fusion with the residual sum.
//!
//! Sums run over sixteen lanes, element `i` of a group in lane `i % 16`, and are joined by the
//! fixed tree. Root mean square: `x * (1 / sqrt(sum(x^2) / n + eps))` with a fused sum. Layer: the
//! same on `x - sum(x) / n`. Then `* weight`, then `+ bias`, fused where there are both.

use std::ops::Range;

use minfer_graph::{NormKind, NormSpec};

use super::elementwise::chunks;
use crate::arch::{Isa, Kernel, Simd};
use crate::math::{load_padded, store_part};
use crate::threads::Rows;

/// A normalisation with its weights, each as long as a group, for all groups, or as a row.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a> {
    /// Formula.
    pub(crate) spec: &'a NormSpec,
    /// The norm's weight.
    pub(crate) weight: Option<&'a [f32]>,
    /// The norm's bias.
    pub(crate) bias: Option<&'a [f32]>,
}

/// output = norm(input) for the rows of a range. The output may be the input.
pub(crate) fn norm(isa: Isa, rows: Range<usize>, norm: &Norm<'_>, input: &Rows<'_>, output: &Rows<'_>) {
    norm.check(input, output);
    isa.run(Run { rows, norm, sum: None, input, output });
}

/// sum = a + b, output = norm(sum), for the rows of a range. `sum` may be `a` or `b`; the output
/// lies apart.
pub(crate) fn add_norm(
    isa: Isa,
    rows: Range<usize>,
    norm: &Norm<'_>,
    a: &Rows<'_>,
    b: &Rows<'_>,
    sum: &Rows<'_>,
    output: &Rows<'_>,
) {
    norm.check(sum, output);
    assert!(a.columns() == sum.columns() && b.columns() == sum.columns(), "operands of as many columns");
    isa.run(Run { rows, norm, sum: Some((a, b)), input: sum, output });
}

impl Norm<'_> {
    fn check(&self, input: &Rows<'_>, output: &Rows<'_>) {
        let groups = self.spec.groups as usize;
        assert_eq!(input.columns(), output.columns(), "columns of a norm");
        assert!(
            groups > 0 && input.columns().is_multiple_of(groups),
            "{groups} groups of {}",
            input.columns()
        );
        let size = input.columns() / groups;
        let fits = |values: Option<&[f32]>| {
            values.is_none_or(|values| values.len() == size || values.len() == input.columns())
        };
        assert!(fits(self.weight) && fits(self.bias), "weights of a norm over {size}");
    }
}

struct Run<'a> {
    rows: Range<usize>,
    norm: &'a Norm<'a>,
    /// Summands of the input, which is then written first.
    sum: Option<(&'a Rows<'a>, &'a Rows<'a>)>,
    input: &'a Rows<'a>,
    output: &'a Rows<'a>,
}

impl Kernel for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let size = self.input.columns() / self.norm.spec.groups as usize;
        for row in self.rows.clone() {
            if let Some((a, b)) = self.sum {
                add_row(simd, row, a, b, self.input);
            }
            for start in (0..self.input.columns()).step_by(size) {
                norm_group(simd, self.norm, row, start..start + size, self.input, self.output);
            }
        }
    }
}

#[inline(always)]
fn add_row<S: Simd>(simd: S, row: usize, a: &Rows<'_>, b: &Rows<'_>, sum: &Rows<'_>) {
    for columns in chunks(sum.columns()) {
        let left = load_padded(simd, &a.row(row)[columns.clone()]);
        let right = load_padded(simd, &b.row(row)[columns.clone()]);
        store_part(simd, simd.add(left, right), sum.row_mut(row, columns));
    }
}

#[inline(always)]
fn norm_group<S: Simd>(
    simd: S,
    norm: &Norm<'_>,
    row: usize,
    columns: Range<usize>,
    input: &Rows<'_>,
    output: &Rows<'_>,
) {
    // Two passes over the row: the factor is known only when all of it was read. The second pass
    // finds it in the first-level cache.
    let (mean, scale) = statistics(simd, norm.spec, &input.row(row)[columns.clone()]);
    let (mean, scale) = (simd.splat(mean), simd.splat(scale));
    let own = |values: &'_ [f32]| if values.len() > columns.len() { columns.start } else { 0 };
    for part in chunks(columns.len()) {
        let place = columns.start + part.start..columns.start + part.end;
        let x = load_padded(simd, &input.row(row)[place.clone()]);
        let x = if norm.spec.kind == NormKind::Layer { simd.sub(x, mean) } else { x };
        let x = simd.mul(x, scale);
        let weight = norm.weight.map(|weight| load_padded(simd, &weight[own(weight)..][part.clone()]));
        let bias = norm.bias.map(|bias| load_padded(simd, &bias[own(bias)..][part.clone()]));
        let y = match (weight, bias) {
            (None, None) => x,
            (Some(weight), None) => simd.mul(x, weight),
            (None, Some(bias)) => simd.add(x, bias),
            (Some(weight), Some(bias)) => simd.fma(x, weight, bias),
        };
        store_part(simd, y, output.row_mut(row, place));
    }
}

/// The mean that is taken away (0 for root mean square) and the factor.
#[inline(always)]
fn statistics<S: Simd>(simd: S, spec: &NormSpec, x: &[f32]) -> (f32, f32) {
    let n = x.len() as f32;
    let mean = match spec.kind {
        NormKind::Rms => 0.0,
        NormKind::Layer => {
            let mut sum = simd.splat(0.0);
            for part in chunks(x.len()) {
                sum = simd.add(sum, load_padded(simd, &x[part]));
            }
            simd.reduce_add(sum) / n
        }
    };
    let mut sum = simd.splat(0.0);
    for part in chunks(x.len()) {
        let lanes = load_padded(simd, &x[part.clone()]);
        let lanes = if spec.kind == NormKind::Layer { centred(simd, lanes, mean, part.len()) } else { lanes };
        sum = simd.fma(lanes, lanes, sum);
    }
    let variance = simd.reduce_add(sum) / n;
    (mean, 1.0 / (variance + spec.eps.get()).sqrt())
}

/// x - mean in the first lanes, zero in the others.
#[inline(always)]
fn centred<S: Simd>(simd: S, x: S::F32, mean: f32, lanes: usize) -> S::F32 {
    let mut means = [0.0; crate::arch::LANES];
    means[..lanes].fill(mean);
    simd.sub(x, simd.load(&means))
}

#[cfg(test)]
mod tests {
    use minfer_graph::WeightId;

    use super::*;
    use crate::math::testing::Numbers;
    use crate::threads::Worker;

    fn spec(kind: NormKind, groups: u32, eps: f32) -> NormSpec {
        NormSpec { kind, weight: Some(WeightId(0)), bias: None, eps: eps.into(), groups }
    }

    fn truth(norm: &Norm<'_>, x: &[f32]) -> Vec<f64> {
        let size = x.len() / norm.spec.groups as usize;
        x.chunks(size)
            .enumerate()
            .flat_map(|(group, x)| {
                let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
                let mean = match norm.spec.kind {
                    NormKind::Rms => 0.0,
                    NormKind::Layer => x.iter().sum::<f64>() / size as f64,
                };
                let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / size as f64;
                let scale = 1.0 / (variance + f64::from(norm.spec.eps.get())).sqrt();
                let weight = |i: usize| {
                    norm.weight.map_or(1.0, |weight| f64::from(weight[(group * size + i) % weight.len()]))
                };
                let bias =
                    |i: usize| norm.bias.map_or(0.0, |bias| f64::from(bias[(group * size + i) % bias.len()]));
                (0..size).map(|i| (x[i] - mean) * scale * weight(i) + bias(i)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// (input, sum, output) for some rows split between workers.
    fn run(isa: Isa, workers: usize, norm_of: &Norm<'_>, width: usize, fused: bool) -> [Vec<f32>; 3] {
        let rows = 5;
        // Small numbers, so that a forgotten epsilon shows.
        let mut a = Numbers(1).vec(rows * width, 0.01);
        let mut b = Numbers(2).vec(rows * width, 0.01);
        let mut sum: Vec<f32> = if fused { vec![0.0; rows * width] } else { a.clone() };
        let mut out = vec![0.0; rows * width];
        {
            let view = |memory| Rows::from_slice(memory, width, width);
            let (a, b, sum, out) = (view(&mut a), view(&mut b), view(&mut sum), view(&mut out));
            for index in 0..workers {
                let share = Worker { index, count: workers }.share(rows);
                if fused {
                    add_norm(isa, share, norm_of, &a, &b, &sum, &out);
                } else {
                    norm(isa, share, norm_of, &sum, &out);
                }
            }
        }
        let input: Vec<f32> = if fused { a.iter().zip(&b).map(|(a, b)| a + b).collect() } else { a };
        [input, sum, out]
    }

    #[test]
    fn norms_are_near_the_f64_reference_and_equal_in_bits() {
        for (width, groups) in [(72, 1), (80, 1), (576, 1), (896, 1), (24, 3), (576, 9), (1024, 4), (60, 3)] {
            for kind in [NormKind::Rms, NormKind::Layer] {
                let spec = spec(kind, groups, 1e-5);
                let size = width / groups as usize;
                let (weight, bias) = (Numbers(5).vec(size, 2.0), Numbers(6).vec(size, 0.5));
                let each = Numbers(7).vec(width, 2.0);
                for (weight, bias) in [
                    (Some(&weight), None),
                    (Some(&weight), Some(&bias)),
                    (None, Some(&bias)),
                    (None, None),
                    (Some(&each), None),
                    (Some(&each), Some(&bias)),
                    (None, Some(&each)),
                ] {
                    let norm = Norm {
                        spec: &spec,
                        weight: weight.map(|weight| &weight[..]),
                        bias: bias.map(|bias| &bias[..]),
                    };
                    let first = run(Isa::Scalar, 1, &norm, width, false);
                    for row in 0..5 {
                        let row = row * width..(row + 1) * width;
                        let exact = truth(&norm, &first[0][row.clone()]);
                        for (got, exact) in first[2][row].iter().zip(exact) {
                            let error = (f64::from(*got) - exact).abs();
                            assert!(
                                error <= 4e-6 * (1.0 + exact.abs()),
                                "{spec:?} {width}: {got} != {exact}"
                            );
                        }
                    }
                    for isa in Isa::available() {
                        for workers in 1..=3 {
                            assert_eq!(
                                run(isa, workers, &norm, width, false),
                                first,
                                "{spec:?} {isa} {workers}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_fused_form_gives_the_bits_of_a_sum_and_a_norm() {
        for width in [72, 576] {
            let spec = spec(NormKind::Rms, 1, 1e-6);
            let weight = Numbers(5).vec(width, 2.0);
            let norm_of = Norm { spec: &spec, weight: Some(&weight), bias: None };
            for isa in Isa::available() {
                let [input, sum, out] = run(isa, 2, &norm_of, width, true);
                assert_eq!(sum, input, "{isa}");
                let mut again = input.clone();
                let view = Rows::from_slice(&mut again, width, width);
                norm(isa, 0..5, &norm_of, &view, &view);
                assert_eq!(again, out, "{isa}");
            }
        }
    }
}
