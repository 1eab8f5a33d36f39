//! Every type, instruction set, shape and number of tokens against the formula computed literally,
//! in bits, and against f64.

mod cases;
mod reference;
mod speed;

use std::ops::Range;

use minfer_tensor::DType;

use super::*;
use crate::threads::SharedSlice;
use cases::{Case, types};

/// A column that no kernel may write.
const UNTOUCHED: f32 = 12_345.0;

impl Case {
    /// The outputs for the first `tokens` tokens, with rows at `offset` of wider output rows.
    fn run(
        &self,
        isa: Isa,
        tokens: usize,
        pieces: &[(Range<usize>, Range<usize>)],
        offset: usize,
    ) -> Vec<f32> {
        let matrix = PackedMatrix::pack(self.dtype, self.rows, self.columns, &self.weights).unwrap();
        let width = offset + self.rows + 3;
        let mut output = vec![UNTOUCHED; tokens * width];
        let rows = Rows::from_slice(&mut output, width, width);
        let mut plain = self.input[..tokens * self.columns].to_vec();
        let mut memory = vec![u32::MAX; QuantisedRows::words(tokens, self.columns, terms_read(self.dtype))];
        let input = if self.dtype.is_quantised() {
            let terms = terms_read(self.dtype);
            let view = QuantisedRows::new(SharedSlice::from_slice(&mut memory), tokens, self.columns, terms);
            for (row, values) in plain.chunks_exact(self.columns).enumerate() {
                view.quantise_row(isa, row, values);
            }
            Input::Quantised(view)
        } else {
            Input::Plain(Rows::from_slice(&mut plain, self.columns, self.columns))
        };
        for (panels, tokens) in pieces {
            linear(isa, &matrix, panels.clone(), input, tokens.clone(), self.bias.as_deref(), &rows, offset);
        }
        output
    }

    /// Compares bits with the reference, and the columns around the matrix with what was there.
    #[track_caller]
    fn check(&self, isa: Isa, tokens: usize, pieces: &[(Range<usize>, Range<usize>)], offset: usize) {
        let width = offset + self.rows + 3;
        let output = self.run(isa, tokens, pieces, offset);
        for (token, row) in output.chunks_exact(width).enumerate() {
            let expected = &self.expected[token * self.rows..][..self.rows];
            let (before, rest) = row.split_at(offset);
            let (found, after) = rest.split_at(self.rows);
            assert!(before.iter().chain(after).all(|&x| x == UNTOUCHED), "{self:?} {isa} writes aside");
            for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
                assert!(
                    found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
                    "{self:?} {isa}, {tokens} tokens: output {index} of token {token} is {found}, not {expected}"
                );
            }
        }
    }

    fn whole(&self, tokens: usize) -> [(Range<usize>, Range<usize>); 1] {
        [(0..self.rows.div_ceil(LANES), 0..tokens)]
    }
}

fn columns_of(dtype: DType) -> &'static [usize] {
    match dtype.block_len() {
        1 => &[24, 64, 72, 80],
        32 => &[32, 64, 256, 544],
        _ => &[256, 512, 1024],
    }
}

#[test]
fn every_kernel_follows_the_formula() {
    for dtype in types() {
        for rows in [1, 15, 16, 17, 48, 80] {
            for &columns in columns_of(dtype) {
                let case = Case::random(dtype, rows, columns, 64);
                for isa in Isa::available() {
                    for tokens in (1..=17).chain([33, 64]) {
                        case.check(isa, tokens, &case.whole(tokens), 0);
                    }
                }
            }
        }
    }
}

#[test]
fn the_formula_is_close_to_exact_arithmetic() {
    for dtype in types() {
        for &columns in columns_of(dtype) {
            Case::random(dtype, 33, columns, 5).check_against_f64();
        }
    }
}

#[test]
fn pieces_give_the_bits_of_the_whole() {
    for dtype in types() {
        let case = Case::random(dtype, 75, 512, 150).with_bias();
        for isa in Isa::available() {
            case.check(isa, 150, &[(0..2, 0..150), (4..5, 0..150), (2..4, 0..7), (2..4, 7..150)], 0);
            case.check(
                isa,
                40,
                &[(0..5, 0..1), (0..1, 1..3), (1..5, 1..3), (0..5, 3..21), (0..5, 21..40)],
                5,
            );
            case.check(isa, 20, &[(0..5, 0..13), (0..5, 13..17), (0..5, 17..20)], 16);
        }
    }
}

#[test]
fn blocks_of_tokens_that_end_inside_a_call_change_nothing() {
    // Enough columns that the activations of one call do not fit in the second-level cache.
    for dtype in [DType::Q4_0, DType::F16] {
        let case = Case::random(dtype, 18, 14_336, 90);
        for isa in Isa::available().filter(|&isa| isa != Isa::Scalar) {
            case.check(isa, 90, &case.whole(90), 0);
            case.check(isa, 90, &[(0..2, 0..3), (0..2, 3..90)], 0);
        }
    }
}

#[test]
fn extremes_neither_saturate_nor_overflow() {
    for dtype in types().filter(|dtype| dtype.is_quantised()) {
        for case in Case::extremes(dtype) {
            for isa in Isa::available() {
                for tokens in [1, 4, 18] {
                    case.check(isa, tokens, &case.whole(tokens), 0);
                }
            }
        }
    }
}

#[test]
fn zeros_give_the_bias() {
    for dtype in types() {
        let mut case = Case::random(dtype, 17, 256, 18).with_bias();
        case.input.fill(0.0);
        case.compute();
        let bias = case.bias.clone().unwrap();
        assert!(case.expected.chunks_exact(17).all(|row| row == bias));
        for isa in Isa::available() {
            case.check(isa, 18, &case.whole(18), 0);
        }
    }
}

#[test]
fn no_columns_give_the_bias() {
    let bias: Vec<f32> = (0..80).map(|row| row as f32).collect();
    for dtype in types().filter(|dtype| dtype.is_quantised()) {
        let matrix = PackedMatrix::pack(dtype, bias.len(), 0, &[]).unwrap();
        for (isa, tokens) in Isa::available().flat_map(|isa| [1, 40].map(|tokens| (isa, tokens))) {
            let input = QuantisedRows::new(SharedSlice::from_slice(&mut []), tokens, 0, terms_read(dtype));
            let mut output = vec![UNTOUCHED; tokens * bias.len()];
            let rows = Rows::from_slice(&mut output, bias.len(), bias.len());
            let panels = 0..matrix.panels();
            linear(isa, &matrix, panels, Input::Quantised(input), 0..tokens, Some(&bias), &rows, 0);
            assert!(output.chunks(bias.len()).all(|row| row == bias), "{dtype} {isa}, {tokens} tokens");
        }
    }
}

#[test]
#[should_panic(expected = "quantised rows")]
fn the_wrong_kind_of_input_is_refused() {
    let matrix = PackedMatrix::pack(DType::Q4_0, 1, 32, &[0; 18]).unwrap();
    let (mut input, mut output) = ([0.0; 32], [0.0; 1]);
    let (input, output) = (Rows::from_slice(&mut input, 32, 32), Rows::from_slice(&mut output, 1, 1));
    linear(Isa::Scalar, &matrix, 0..1, Input::Plain(input), 0..1, None, &output, 0);
}
