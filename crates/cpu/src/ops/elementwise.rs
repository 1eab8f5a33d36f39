//! Add, multiply, scale, soft cap and gather: one function over the elements of rows.
//!
//! Every function here computes the rows of a range, usually a worker's share. Outputs may lie
//! where an operand lies, element for element.

use std::ops::Range;

use crate::arch::{Isa, Kernel, LANES, Simd};
use crate::math::{load_padded, store_part, tanh};
use crate::threads::Rows;

/// output = a + b.
pub(crate) fn add(isa: Isa, rows: Range<usize>, a: &Rows<'_>, b: &Rows<'_>, output: &Rows<'_>) {
    map(isa, rows, Add, a, b, output);
}

/// output = a * b, element by element.
pub(crate) fn mul(isa: Isa, rows: Range<usize>, a: &Rows<'_>, b: &Rows<'_>, output: &Rows<'_>) {
    map(isa, rows, Mul, a, b, output);
}

/// output = input * factor.
pub(crate) fn scale(isa: Isa, rows: Range<usize>, factor: f32, input: &Rows<'_>, output: &Rows<'_>) {
    map(isa, rows, Scale(factor), input, input, output);
}

/// output = cap * tanh(input / cap).
pub(crate) fn soft_cap(isa: Isa, rows: Range<usize>, cap: f32, input: &Rows<'_>, output: &Rows<'_>) {
    map(isa, rows, SoftCap(cap), input, input, output);
}

/// Row `r` of the output is row `indices[r]` of the input. The two lie apart.
pub(crate) fn gather_rows(rows: Range<usize>, indices: &[u32], input: &Rows<'_>, output: &Rows<'_>) {
    assert_eq!(input.columns(), output.columns(), "columns of gathered rows");
    for row in rows {
        output.row_mut(row, 0..output.columns()).copy_from_slice(input.row(indices[row] as usize));
    }
}

/// A function of the lanes of two operands; one that takes a single operand is given it twice.
pub(super) trait Lanes: Copy {
    /// The function.
    fn apply<S: Simd>(self, simd: S, a: S::F32, b: S::F32) -> S::F32;
}

/// Applies a function to the rows of a range.
pub(super) fn map<F: Lanes>(
    isa: Isa,
    rows: Range<usize>,
    function: F,
    a: &Rows<'_>,
    b: &Rows<'_>,
    output: &Rows<'_>,
) {
    assert!(a.columns() == b.columns() && a.columns() == output.columns(), "operands of as many columns");
    isa.run(Map { rows, function, a, b, output });
}

struct Map<'a, F> {
    rows: Range<usize>,
    function: F,
    a: &'a Rows<'a>,
    b: &'a Rows<'a>,
    output: &'a Rows<'a>,
}

impl<F: Lanes> Kernel for Map<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for row in self.rows {
            for columns in chunks(self.output.columns()) {
                // The operands are read before the output is borrowed, since it may be one of them.
                let a = load_padded(simd, &self.a.row(row)[columns.clone()]);
                let b = load_padded(simd, &self.b.row(row)[columns.clone()]);
                let result = self.function.apply(simd, a, b);
                store_part(simd, result, self.output.row_mut(row, columns));
            }
        }
    }
}

/// The columns of a row, sixteen at a time.
#[inline(always)]
pub(super) fn chunks(columns: usize) -> impl Iterator<Item = Range<usize>> {
    (0..columns).step_by(LANES).map(move |start| start..columns.min(start + LANES))
}

#[derive(Clone, Copy)]
struct Add;

impl Lanes for Add {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, a: S::F32, b: S::F32) -> S::F32 {
        simd.add(a, b)
    }
}

#[derive(Clone, Copy)]
struct Mul;

impl Lanes for Mul {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, a: S::F32, b: S::F32) -> S::F32 {
        simd.mul(a, b)
    }
}

#[derive(Clone, Copy)]
struct Scale(f32);

impl Lanes for Scale {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, a: S::F32, _b: S::F32) -> S::F32 {
        simd.mul(a, simd.splat(self.0))
    }
}

#[derive(Clone, Copy)]
struct SoftCap(f32);

impl Lanes for SoftCap {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, a: S::F32, _b: S::F32) -> S::F32 {
        let cap = simd.splat(self.0);
        simd.mul(cap, tanh(simd, simd.div(a, cap)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::Numbers;
    use crate::ops::activate;
    use crate::threads::Worker;
    use minfer_graph::Activation;

    /// One elementwise operation on two operands, written to a third place or over an operand.
    #[derive(Debug, Clone, Copy)]
    enum Op {
        Add,
        Mul,
        Scale(f32),
        SoftCap(f32),
        Activate(Activation),
        Gated(Activation),
    }

    impl Op {
        fn run(self, isa: Isa, rows: Range<usize>, a: &Rows<'_>, b: &Rows<'_>, out: &Rows<'_>) {
            match self {
                Op::Add => add(isa, rows, a, b, out),
                Op::Mul => mul(isa, rows, a, b, out),
                Op::Scale(factor) => scale(isa, rows, factor, a, out),
                Op::SoftCap(cap) => soft_cap(isa, rows, cap, a, out),
                Op::Activate(kind) => activate::activate(isa, rows, kind, a, out),
                Op::Gated(kind) => activate::gated_activate(isa, rows, kind, a, b, out),
            }
        }

        fn truth(self, a: f64, b: f64) -> f64 {
            let activation = |kind, x: f64| match kind {
                Activation::Silu => x / (1.0 + (-x).exp()),
                Activation::GeluTanh | Activation::GeluHalf => {
                    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                    0.5 * x * (1.0 + u.tanh())
                }
            };
            match self {
                Op::Add => a + b,
                Op::Mul => a * b,
                Op::Scale(factor) => a * f64::from(factor),
                Op::SoftCap(cap) => f64::from(cap) * (a / f64::from(cap)).tanh(),
                Op::Activate(kind) => activation(kind, a),
                Op::Gated(kind) => activation(kind, a) * b,
            }
        }
    }

    const OPS: [Op; 8] = [
        Op::Add,
        Op::Mul,
        Op::Scale(0.3),
        Op::SoftCap(2.5),
        Op::Activate(Activation::Silu),
        Op::Activate(Activation::GeluTanh),
        Op::Gated(Activation::Silu),
        Op::Gated(Activation::GeluTanh),
    ];

    #[test]
    fn elements_are_near_the_f64_reference_and_equal_in_bits() {
        for width in [1, 15, 16, 72, 80, 576] {
            let (rows, stride) = (7, width + 5);
            let (mut a, mut b) = (Numbers(1).vec(rows * stride, 6.0), Numbers(2).vec(rows * stride, 6.0));
            for op in OPS {
                let mut first: Option<Vec<f32>> = None;
                for isa in Isa::available() {
                    for count in 1..=3 {
                        let mut out = vec![0.0; rows * stride];
                        let (view_a, view_b) = (
                            Rows::from_slice(&mut a, stride, width),
                            Rows::from_slice(&mut b, stride, width),
                        );
                        for index in 0..count {
                            let share = Worker { index, count }.share(rows);
                            let out = Rows::from_slice(&mut out, stride, width);
                            op.run(isa, share, &view_a, &view_b, &out);
                        }
                        assert_eq!(first.get_or_insert_with(|| out.clone()), &out, "{op:?} {isa} {count}");
                    }
                    let mut over = a.clone();
                    {
                        let view = Rows::from_slice(&mut over, stride, width);
                        op.run(isa, 0..rows, &view, &Rows::from_slice(&mut b, stride, width), &view);
                    }
                    for row in 0..rows {
                        let columns = row * stride..row * stride + width;
                        assert_eq!(
                            over[columns.clone()],
                            first.as_ref().unwrap()[columns],
                            "{op:?} in place"
                        );
                    }
                }
                let out = first.unwrap();
                for row in 0..rows {
                    for index in row * stride..row * stride + width {
                        let exact = op.truth(f64::from(a[index]), f64::from(b[index]));
                        let error = (f64::from(out[index]) - exact).abs();
                        assert!(
                            error <= 1e-6 * exact.abs() + 1e-6,
                            "{op:?} {} {} {exact}",
                            a[index],
                            out[index]
                        );
                    }
                    let gap = row * stride + width..(row + 1) * stride;
                    assert!(out[gap].iter().all(|&value| value == 0.0), "{op:?} wrote between rows");
                }
            }
        }
    }

    #[test]
    fn rows_are_gathered() {
        let mut input = Numbers(3).vec(5 * 9, 1.0);
        let mut output = vec![0.0; 3 * 9];
        let expected: Vec<f32> =
            [4, 0, 4].iter().flat_map(|&row| input[row * 9..(row + 1) * 9].to_vec()).collect();
        gather_rows(
            0..3,
            &[4, 0, 4],
            &Rows::from_slice(&mut input, 9, 9),
            &Rows::from_slice(&mut output, 9, 9),
        );
        assert_eq!(output, expected);
    }
}
