//! Matrix times activations: `output[t][r] = sum over columns of weight[r][c] * input[t][c]`, then
//! the bias.
//!
//! A lane is an output row, and every lane walks its columns in file order, so an output has the
//! same bits whatever the number of tokens, the split into panels or the instruction set. Up to 16
//! tokens read the packed weights directly ([`gemv`]); more share weights that were unpacked into
//! the first-level cache ([`gemm`]). Weights that are not quantised meet f32 activations, one fused
//! multiply-add for each column ([`plain`]).

mod gemm;
mod gemv;
mod plain;
mod rule;
mod split;
mod tile;

use std::ops::Range;

use minfer_tensor::DType;

use crate::arch::{Isa, LANES, Simd};
use crate::pack::{Format, PackedMatrix, with_format};
use crate::quantise::{BLOCK, QuantisedRows, TermSet};
use crate::threads::Rows;
use rule::Ruled;
pub(crate) use split::{Chunks, Piece};

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes ahead of the weights in use that are asked for. Panels follow each other, so the end of
/// one reaches into the next.
const AHEAD: usize = 8192;

/// The right-hand side of a product. Quantised weights take quantised rows, the others f32.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// Rows of signed bytes.
    Quantised(QuantisedRows<'a>),
    /// Rows of f32.
    Plain(Rows<'a>),
}

/// Outputs of some panels for some tokens. Token `t` is row `t` of both the input and the output;
/// row `r` of the matrix is column `column_offset + r` of the output. The bias has one value for
/// each row of the matrix.
///
/// # Panics
/// Shapes that do not fit together, or the kind of input that the weights do not take.
pub(crate) fn linear(
    isa: Isa,
    matrix: &PackedMatrix,
    panels: Range<usize>,
    input: Input<'_>,
    tokens: Range<usize>,
    bias: Option<&[f32]>,
    output: &Rows<'_>,
    column_offset: usize,
) {
    assert!(panels.end <= matrix.panels(), "panels {panels:?} of {}", matrix.panels());
    assert!(bias.is_none_or(|bias| bias.len() == matrix.rows()), "one bias for each row");
    if panels.is_empty() || tokens.is_empty() {
        return;
    }
    let target = Target { rows: matrix.rows(), bias, output, column_offset };
    with_format!(
        matrix.dtype(),
        F => {
            let Input::Quantised(input) = input else { panic!("{} weights take quantised rows", matrix.dtype()) };
            assert_eq!(input.columns(), matrix.columns(), "columns of the input");
            assert!(tokens.end <= input.rows(), "tokens {tokens:?} of {}", input.rows());
            quantised::<<F as Format>::Kernels>(isa, Job { matrix, input, panels, tokens, target });
        },
        P => {
            let Input::Plain(input) = input else { panic!("{} weights take f32 rows", matrix.dtype()) };
            assert_eq!(input.columns(), matrix.columns(), "columns of the input");
            assert!(tokens.end <= input.rows(), "tokens {tokens:?} of {}", input.rows());
            isa.run(plain::Kernel::<P>::new(Job { matrix, input, panels, tokens, target }));
        },
        _ => unreachable!("matrices of other types do not exist")
    );
}

/// What the product with a matrix of this type reads of quantised rows.
pub(crate) fn terms_read(dtype: DType) -> TermSet {
    with_format!(
        dtype,
        F => {
            let [first, second] = <<F as Format>::Kernels as Ruled>::ACTIVATIONS;
            TermSet::SCALE.with(first).with(second)
        },
        P => {
            let _ = std::marker::PhantomData::<P>;
            TermSet::SCALE
        },
        _ => TermSet::SCALE
    )
}

/// Chooses how weights are unpacked; it makes no difference to the bits.
fn quantised<F: Ruled>(isa: Isa, job: Job<'_, QuantisedRows<'_>>) {
    if job.tokens.len() <= gemv::TOKENS {
        isa.run(gemv::Kernel::<F>::new(job));
    } else {
        isa.run(gemm::Kernel::<F>::new(job));
    }
}

/// A call of [`linear`], checked.
struct Job<'a, I> {
    matrix: &'a PackedMatrix,
    input: I,
    panels: Range<usize>,
    tokens: Range<usize>,
    target: Target<'a>,
}

/// Where outputs go.
#[derive(Clone, Copy)]
struct Target<'a> {
    rows: usize,
    bias: Option<&'a [f32]>,
    output: &'a Rows<'a>,
    column_offset: usize,
}

impl<'a> Target<'a> {
    /// The outputs of some panels.
    #[inline(always)]
    fn of(&self, panels: Range<usize>) -> Outputs<'a> {
        let rows = panels.start * LANES..self.rows.min(panels.end * LANES);
        let columns = self.column_offset + rows.start..self.column_offset + rows.end;
        Outputs { output: self.output, columns, bias: self.bias.map(|bias| &bias[rows]) }
    }
}

/// Columns of the output that some panels fill.
#[derive(Clone)]
struct Outputs<'a> {
    output: &'a Rows<'a>,
    columns: Range<usize>,
    bias: Option<&'a [f32]>,
}

impl Outputs<'_> {
    /// Asks for the memory of a token's outputs, which are often on a page of their own.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, simd: S, token: usize) {
        for line in self.output.row_mut(token, self.columns.clone()).chunks(LANES) {
            simd.prefetch(line.as_ptr().cast());
        }
    }

    /// Adds the bias to the sums of a token and writes those of real rows.
    #[inline(always)]
    fn write<S: Simd, const P: usize>(&self, simd: S, token: usize, sums: &[S::F32; P]) {
        let output = self.output.row_mut(token, self.columns.clone());
        let (panels, rest) = output.as_chunks_mut::<LANES>();
        match self.bias {
            None => {
                for (panel, sum) in panels.iter_mut().zip(sums) {
                    simd.store(*sum, panel);
                }
            }
            Some(bias) => {
                for ((panel, sum), bias) in panels.iter_mut().zip(sums).zip(bias.as_chunks().0) {
                    simd.store(simd.add(*sum, simd.load(bias)), panel);
                }
            }
        }
        if !rest.is_empty() {
            let mut last = [0.0; LANES];
            simd.store(sums[panels.len()], &mut last);
            let bias = self.bias.map(|bias| bias.as_chunks::<LANES>().1);
            for (lane, value) in rest.iter_mut().enumerate() {
                *value = bias.map_or(last[lane], |bias| last[lane] + bias[lane]);
            }
        }
    }
}

/// Asks for the memory that lies `ahead` bytes after what run `run` of a block of `runs` runs
/// reads, give or take a line.
#[inline(always)]
fn prefetch<S: Simd, B>(simd: S, block: &B, run: usize, runs: usize, ahead: usize) {
    let start = std::ptr::from_ref(block).cast::<u8>().wrapping_add(ahead + size_of::<B>() / runs * run);
    for line in 0..(size_of::<B>() / runs).div_ceil(LINE) {
        simd.prefetch(start.wrapping_add(line * LINE));
    }
}

/// Tokens whose activations take three quarters of a second-level cache of 2 MiB. Where that is
/// smaller, some come from the third level, and a product needs only a few bytes of them for each
/// cycle.
fn tokens_in_cache(bytes_of_token: usize) -> usize {
    (3 << 19) / bytes_of_token.max(1)
}

/// Bytes of a quantised token that a kernel touches.
fn quantised_bytes(columns: usize) -> usize {
    columns + columns / BLOCK * 12
}

#[cfg(test)]
mod tests;
