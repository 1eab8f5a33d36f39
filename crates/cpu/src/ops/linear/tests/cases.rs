//! Weights, activations and what the formula makes of them.

use std::fmt;

use half::f16;
use minfer_tensor::DType;
use minfer_tensor::blocks::{
    decode_row, encode_row, iq1_m, mxfp4, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, q8_k,
    tq1_0, tq2_0,
};

use super::reference::{dot, parts, plain_dot, quantise};

/// Types that can be packed.
pub(super) fn types() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|dtype| dtype.is_real())
}

/// A matrix, inputs and the exact bits of the outputs, token after token.
pub(super) struct Case {
    pub(super) dtype: DType,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) weights: Vec<u8>,
    pub(super) input: Vec<f32>,
    pub(super) bias: Option<Vec<f32>>,
    pub(super) expected: Vec<f32>,
}

impl fmt::Debug for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} x {}", self.dtype, self.rows, self.columns)
    }
}

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// In -1 .. 1.
    fn unit(&mut self) -> f32 {
        self.word() as i32 as f32 / 2_147_483_648.0
    }
}

/// Where a block of the file holds f16 numbers.
fn scales_at(dtype: DType) -> &'static [usize] {
    match dtype {
        DType::Q4_0 => &[q4_0::SCALE_AT],
        DType::Q4_1 => &[q4_1::SCALE_AT, q4_1::MIN_AT],
        DType::Q5_0 => &[q5_0::SCALE_AT],
        DType::Q5_1 => &[q5_1::SCALE_AT, q5_1::MIN_AT],
        DType::Q8_0 => &[q8_0::SCALE_AT],
        DType::Q2_K => &[q2_k::SCALE_AT, q2_k::MIN_AT],
        DType::Q3_K => &[q3_k::SCALE_AT],
        DType::Q4_K => &[q4_k::SCALE_AT, q4_k::MIN_AT],
        DType::Q5_K => &[q5_k::SCALE_AT, q5_k::MIN_AT],
        DType::Q6_K => &[q6_k::SCALE_AT],
        DType::TQ1_0 => &[tq1_0::SCALE_AT],
        DType::TQ2_0 => &[tq2_0::SCALE_AT],
        // Numbers of other kinds; see `put_scale`.
        DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::U32 => &[],
        DType::MXFP4 | DType::NVFP4 | DType::IQ1_M | DType::Q8_K => &[],
        // Codebook types begin with their scale.
        _ => &[0],
    }
}

/// Puts a scale where a block has one.
fn put_scale(dtype: DType, block: &mut [u8], mut scale: impl FnMut() -> f32) {
    for &at in scales_at(dtype) {
        block[at..at + 2].copy_from_slice(&f16::from_f32(scale()).to_le_bytes());
    }
    match dtype {
        DType::IQ1_M => iq1_m::put_scale(block, f16::from_f32(scale()).to_bits()),
        // The exponent of a number of about this size.
        DType::MXFP4 => block[mxfp4::EXPONENT_AT] = (scale().to_bits() >> 23) as u8,
        DType::Q8_K => block[q8_k::SCALE_AT..q8_k::QUANTS_AT].copy_from_slice(&scale().to_le_bytes()),
        _ => {}
    }
}

/// Blocks of the given bytes and scales.
fn blocks(
    dtype: DType,
    count: usize,
    mut byte: impl FnMut() -> u8,
    mut scale: impl FnMut() -> f32,
) -> Vec<u8> {
    let mut weights: Vec<u8> = (0..count * dtype.block_bytes()).map(|_| byte()).collect();
    for block in weights.chunks_exact_mut(dtype.block_bytes()) {
        put_scale(dtype, block, &mut scale);
    }
    weights
}

impl Case {
    pub(super) fn random(dtype: DType, rows: usize, columns: usize, tokens: usize) -> Case {
        let mut bits = Numbers((rows * 31 + columns) as u64 + 7);
        let mut numbers = Numbers((rows * 37 + columns) as u64 + 11);
        let weights = if dtype.is_quantised() {
            let count = rows * columns / dtype.block_len();
            blocks(dtype, count, || (bits.word() >> 24) as u8, || numbers.unit())
        } else {
            let values: Vec<f32> = (0..rows * columns).map(|_| numbers.unit()).collect();
            let mut bytes = vec![0; values.len() * dtype.block_bytes()];
            encode_row(dtype, &values, &mut bytes).unwrap();
            bytes
        };
        let input = (0..tokens * columns).map(|i| numbers.unit() * [1.0, 30.0, 1e-3][i / 32 % 3]).collect();
        Case::new(dtype, rows, columns, weights, input)
    }

    fn new(dtype: DType, rows: usize, columns: usize, weights: Vec<u8>, input: Vec<f32>) -> Case {
        let mut case = Case { dtype, rows, columns, weights, input, bias: None, expected: vec![] };
        case.compute();
        case
    }

    pub(super) fn with_bias(mut self) -> Case {
        let mut numbers = Numbers(99);
        self.bias = Some((0..self.rows).map(|_| numbers.unit()).collect());
        self.compute();
        self
    }

    /// Quants at both ends with activations at both ends, and scales at both ends of f16.
    pub(super) fn extremes(dtype: DType) -> Vec<Case> {
        let (rows, columns, tokens) = (17, 512, 18);
        let inputs: [fn(usize) -> f32; 5] = [
            |_| 127.0,
            |_| -127.0,
            |i| if i % 2 == 0 { 127.0 } else { -127.0 },
            |i| if i / 512 % 2 == 0 { 1e30 } else { -1e-38 },
            |i| if i % 64 < 32 { 0.0 } else { -3.0 },
        ];
        let scales = [1.0, -1.0, 65504.0, 6e-8, 0.0];
        let mut cases = vec![];
        for byte in [0xff, 0x00, 0x80, 0x7f, 0x0f, 0xf0] {
            for (input, scale) in
                inputs.into_iter().zip(scales).chain([(inputs[2], 65504.0), (inputs[0], 6e-8)])
            {
                let weights = blocks(dtype, rows * columns / dtype.block_len(), || byte, || scale);
                cases.push(Case::new(
                    dtype,
                    rows,
                    columns,
                    weights,
                    (0..tokens * columns).map(input).collect(),
                ));
            }
        }
        cases
    }

    /// Computes `expected` anew.
    pub(super) fn compute(&mut self) {
        let dots = if self.dtype.is_quantised() { self.quantised() } else { self.plain() };
        let bias = self.bias.as_ref();
        self.expected = dots
            .into_iter()
            .enumerate()
            .map(|(i, dot)| bias.map_or(dot, |bias| dot + bias[i % self.rows]))
            .collect();
    }

    fn file_rows(&self) -> std::slice::ChunksExact<'_, u8> {
        self.weights.chunks_exact(self.weights.len() / self.rows)
    }

    fn quantised(&self) -> Vec<f32> {
        let weights: Vec<_> = self.file_rows().map(|row| parts(self.dtype, row)).collect();
        let input = self.input.chunks_exact(self.columns).map(quantise);
        input.flat_map(|x| weights.iter().map(move |row| dot(row, &x)).collect::<Vec<_>>()).collect()
    }

    fn plain(&self) -> Vec<f32> {
        let weights: Vec<_> = self.file_rows().map(|row| self.decoded(row)).collect();
        let input = self.input.chunks_exact(self.columns);
        input.flat_map(|x| weights.iter().map(move |row| plain_dot(row, x))).collect()
    }

    fn decoded(&self, row: &[u8]) -> Vec<f32> {
        let mut values = vec![0.0; self.columns];
        decode_row(self.dtype, row, &mut values).unwrap();
        values
    }

    /// Compares `expected` with exact arithmetic on decoded weights and activations: each of the
    /// few roundings of a run costs at most 2^-24 of the sum of magnitudes.
    pub(super) fn check_against_f64(&self) {
        let steps = if self.dtype.is_quantised() { 3 * self.columns / 32 + 4 } else { self.columns };
        for (token, x) in self.input.chunks_exact(self.columns).enumerate() {
            let x: Vec<f64> = if self.dtype.is_quantised() {
                let values =
                    |q: super::reference::Quants| q.values.map(|v| f64::from(v) * f64::from(q.scale));
                quantise(x).into_iter().flat_map(values).collect()
            } else {
                x.iter().map(|&x| f64::from(x)).collect()
            };
            for (index, row) in self.file_rows().enumerate() {
                let weights = self.decoded(row);
                let exact: f64 = weights.iter().zip(&x).map(|(&w, x)| f64::from(w) * x).sum();
                let size: f64 = self.magnitudes(row).iter().zip(&x).map(|(w, x)| w * x.abs()).sum();
                let found = f64::from(self.expected[token * self.rows + index]);
                let bound = steps as f64 * size * f64::from(f32::EPSILON) / 2.0;
                assert!((found - exact).abs() <= bound, "{self:?}: {found} is not {exact} within {bound}");
            }
        }
    }

    /// What each weight can be at most before its minimum is taken off.
    fn magnitudes(&self, row: &[u8]) -> Vec<f64> {
        if !self.dtype.is_quantised() {
            return self.decoded(row).into_iter().map(|w| f64::from(w).abs()).collect();
        }
        let of = |part: super::reference::Part| -> [f64; 32] {
            std::array::from_fn(|i| {
                let weight = f64::from(part.weights[i]) * f64::from(part.factors[i / 16]);
                let minimum = part.minimum.map_or(0.0, |minimum| f64::from(minimum.of_column(i)));
                (f64::from(part.scale) * weight).abs() + minimum.abs()
            })
        };
        parts(self.dtype, row).into_iter().flat_map(of).collect()
    }
}
