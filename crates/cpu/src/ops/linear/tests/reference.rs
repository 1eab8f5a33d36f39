//! The formula, computed from the file's bytes one column after the other.

use minfer_tensor::DType;
use minfer_tensor::blocks::{
    codebook, iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs, mxfp4, nvfp4, q2_k, q3_k,
    q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, q8_k, tq1_0, tq2_0,
};

/// 32 columns of a row: signed weights, the factor of each half, the scale and the minimum.
pub(super) struct Part {
    pub(super) weights: [i32; 32],
    pub(super) factors: [f32; 2],
    pub(super) scale: f32,
    pub(super) minimum: Option<Minimum>,
}

/// What is added to every weight of a run.
#[derive(Clone, Copy)]
pub(super) enum Minimum {
    Whole(f32),
    Halves([f32; 2]),
}

impl Minimum {
    pub(super) fn of_column(self, column: usize) -> f32 {
        match self {
            Minimum::Whole(minimum) => minimum,
            Minimum::Halves(minimums) => minimums[column / 16],
        }
    }
}

/// A row of a quantised type, taken apart by its decoder's own crate.
pub(super) fn parts(dtype: DType, row: &[u8]) -> Vec<Part> {
    row.chunks_exact(dtype.block_bytes()).flat_map(|block| parts_of_block(dtype, block)).collect()
}

fn parts_of_block(dtype: DType, block: &[u8]) -> Vec<Part> {
    let simple = |weights, scale, minimum| vec![Part { weights, factors: [1.0, 1.0], scale, minimum }];
    match dtype {
        DType::Q4_0 => {
            let block = q4_0::unpack(block.try_into().unwrap());
            simple(block.quants.map(|q| i32::from(q) - 8), block.d(), None)
        }
        DType::Q4_1 => {
            let block = q4_1::unpack(block.try_into().unwrap());
            simple(block.quants.map(i32::from), block.d(), Some(Minimum::Whole(block.m())))
        }
        DType::Q5_0 => {
            let block = q5_0::unpack(block.try_into().unwrap());
            simple(block.quants.map(|q| i32::from(q) - 16), block.d(), None)
        }
        DType::Q5_1 => {
            let block = q5_1::unpack(block.try_into().unwrap());
            simple(block.quants.map(i32::from), block.d(), Some(Minimum::Whole(block.m())))
        }
        DType::Q8_0 => {
            let block = q8_0::unpack(block.try_into().unwrap());
            simple(block.quants.map(i32::from), block.d(), None)
        }
        DType::Q4_K => {
            let block = q4_k::unpack(block.try_into().unwrap());
            let part = |(sub, quants): (usize, &[u8; 32])| Part {
                weights: quants.map(i32::from),
                factors: [1.0, 1.0],
                scale: block.d() * f32::from(block.scales[sub]),
                minimum: Some(Minimum::Whole(-(block.dmin() * f32::from(block.mins[sub])))),
            };
            block.quants.as_chunks().0.iter().enumerate().map(part).collect()
        }
        DType::Q2_K => {
            let block = q2_k::unpack(block.try_into().unwrap());
            let part = |(run, quants): (usize, &[u8; 32])| Part {
                weights: quants.map(i32::from),
                factors: [0, 1].map(|half| f32::from(block.scales[2 * run + half])),
                scale: block.d(),
                minimum: Some(Minimum::Halves(
                    [0, 1].map(|half| -(block.dmin() * f32::from(block.mins[2 * run + half]))),
                )),
            };
            block.quants.as_chunks().0.iter().enumerate().map(part).collect()
        }
        DType::Q3_K => {
            let block = q3_k::unpack(block.try_into().unwrap());
            let part = |(run, quants): (usize, &[u8; 32])| Part {
                weights: quants.map(|q| i32::from(q) - 4),
                factors: [0, 1].map(|half| f32::from(block.scales[2 * run + half])),
                scale: block.d(),
                minimum: None,
            };
            block.quants.as_chunks().0.iter().enumerate().map(part).collect()
        }
        DType::Q5_K => {
            let block = q5_k::unpack(block.try_into().unwrap());
            let part = |(sub, quants): (usize, &[u8; 32])| Part {
                weights: quants.map(i32::from),
                factors: [1.0, 1.0],
                scale: block.d() * f32::from(block.scales[sub]),
                minimum: Some(Minimum::Whole(-(block.dmin() * f32::from(block.mins[sub])))),
            };
            block.quants.as_chunks().0.iter().enumerate().map(part).collect()
        }
        DType::Q8_K => {
            let block = q8_k::unpack(block.try_into().unwrap());
            let part = |quants: &[i8; 32]| Part {
                weights: quants.map(i32::from),
                factors: [1.0, 1.0],
                scale: block.d(),
                minimum: None,
            };
            block.quants.as_chunks().0.iter().map(part).collect()
        }
        DType::TQ1_0 => {
            let block = tq1_0::unpack(block.try_into().unwrap());
            ternary(block.quants, block.d())
        }
        DType::TQ2_0 => {
            let block = tq2_0::unpack(block.try_into().unwrap());
            ternary(block.quants, block.d())
        }
        DType::Q6_K => {
            let block = q6_k::unpack(block.try_into().unwrap());
            let part = |(run, quants): (usize, &[u8; 32])| Part {
                weights: quants.map(|q| i32::from(q) - 32),
                factors: [0, 1].map(|half| f32::from(block.scales[2 * run + half])),
                scale: block.d(),
                minimum: None,
            };
            block.quants.as_chunks().0.iter().enumerate().map(part).collect()
        }
        DType::IQ4_NL => {
            let block = iq4_nl::unpack(block.try_into().unwrap());
            simple(block.quants.map(|q| i32::from(iq4_nl::VALUES[usize::from(q)])), block.d(), None)
        }
        DType::MXFP4 => {
            let block = mxfp4::unpack(block.try_into().unwrap());
            simple(block.quants.map(|q| i32::from(mxfp4::VALUES[usize::from(q)])), block.d(), None)
        }
        DType::NVFP4 => {
            let block = nvfp4::unpack(block.try_into().unwrap());
            let part = |(run, quants): (usize, &[u8; 32])| Part {
                weights: quants.map(|q| i32::from(nvfp4::VALUES[usize::from(q)])),
                factors: [0, 1].map(|half| nvfp4::scale(block.scales[2 * run + half])),
                scale: 1.0,
                minimum: None,
            };
            block.quants.as_chunks().0.iter().enumerate().map(part).collect()
        }
        DType::IQ4_XS => superblock(&iq4_xs::unpack(block.try_into().unwrap()), &iq4_xs::CODEBOOK),
        DType::IQ3_XXS => superblock(&iq3_xxs::unpack(block.try_into().unwrap()), &iq3_xxs::CODEBOOK),
        DType::IQ3_S => superblock(&iq3_s::unpack(block.try_into().unwrap()), &iq3_s::CODEBOOK),
        DType::IQ2_XXS => superblock(&iq2_xxs::unpack(block.try_into().unwrap()), &iq2_xxs::CODEBOOK),
        DType::IQ2_XS => superblock(&iq2_xs::unpack(block.try_into().unwrap()), &iq2_xs::CODEBOOK),
        DType::IQ2_S => superblock(&iq2_s::unpack(block.try_into().unwrap()), &iq2_s::CODEBOOK),
        DType::IQ1_S => superblock(&iq1_s::unpack(block.try_into().unwrap()), &iq1_s::CODEBOOK),
        DType::IQ1_M => superblock(&iq1_m::unpack(block.try_into().unwrap()), &iq1_m::CODEBOOK),
        _ => unreachable!("not quantised"),
    }
}

fn superblock(block: &codebook::Unpacked, codebook: &codebook::Codebook) -> Vec<Part> {
    let part = |(run, indices): (usize, &[u8; 32])| Part {
        weights: indices.map(|index| i32::from(codebook.values[usize::from(index)])),
        factors: [0, 1].map(|half| f32::from(block.scales[2 * run + half])),
        scale: block.d() * codebook.unit,
        minimum: None,
    };
    block.indices.as_chunks().0.iter().enumerate().map(part).collect()
}

/// Ternary quants, sixteenfold.
fn ternary(quants: [u8; 256], d: f32) -> Vec<Part> {
    let part = |quants: &[u8; 32]| Part {
        weights: quants.map(|q| 16 * (i32::from(q) - 1)),
        factors: [1.0, 1.0],
        scale: d / 16.0,
        minimum: None,
    };
    quants.as_chunks().0.iter().map(part).collect()
}

/// 32 columns of activations, quantised.
pub(super) struct Quants {
    pub(super) values: [i32; 32],
    pub(super) scale: f32,
}

pub(super) fn quantise(row: &[f32]) -> Vec<Quants> {
    let block = |values: &[f32; 32]| {
        let amax = values.iter().fold(0.0f32, |a, x| a.max(x.abs()));
        let inverse = if amax == 0.0 { 0.0 } else { 127.0 / amax };
        let values = values.map(|x| (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i32);
        Quants { values, scale: amax / 127.0 }
    };
    row.as_chunks().0.iter().map(block).collect()
}

/// One output before the bias.
pub(super) fn dot(weights: &[Part], x: &[Quants]) -> f32 {
    let mut sum = 0.0f32;
    for (w, x) in weights.iter().zip(x) {
        let half = |range: std::ops::Range<usize>| range.map(|i| w.weights[i] * x.values[i]).sum::<i32>();
        let high = w.factors[1] * half(16..32) as f32;
        let dot = w.factors[0].mul_add(half(0..16) as f32, high);
        sum = dot.mul_add(w.scale * x.scale, sum);
        let scaled_sum = |values: &[i32]| values.iter().sum::<i32>() as f32 * x.scale;
        match w.minimum {
            None => {}
            Some(Minimum::Whole(minimum)) => sum = minimum.mul_add(scaled_sum(&x.values), sum),
            Some(Minimum::Halves([low, high])) => {
                sum = low.mul_add(scaled_sum(&x.values[..16]), sum);
                sum = high.mul_add(scaled_sum(&x.values[16..]), sum);
            }
        }
    }
    sum
}

/// One output before the bias, for weights that stand alone.
pub(super) fn plain_dot(weights: &[f32], x: &[f32]) -> f32 {
    weights.iter().zip(x).fold(0.0, |sum, (w, x)| w.mul_add(*x, sum))
}
