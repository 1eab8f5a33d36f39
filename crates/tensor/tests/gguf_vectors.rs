//! Decoders and encoders against what the `gguf` Python package gives
//! (`tools/vectors/make_block_vectors.py`).
//!
//! Every decoded value is exact in real numbers or rounded once, so bits must be equal.

use minfer_tensor::DType;
use minfer_tensor::blocks::{decode_row, encode_row};

const VECTORS: [(DType, &str); 26] = [
    (DType::F32, include_str!("vectors/f32.txt")),
    (DType::F16, include_str!("vectors/f16.txt")),
    (DType::BF16, include_str!("vectors/bf16.txt")),
    (DType::Q4_0, include_str!("vectors/q4_0.txt")),
    (DType::Q4_1, include_str!("vectors/q4_1.txt")),
    (DType::Q5_0, include_str!("vectors/q5_0.txt")),
    (DType::Q5_1, include_str!("vectors/q5_1.txt")),
    (DType::Q8_0, include_str!("vectors/q8_0.txt")),
    (DType::Q2_K, include_str!("vectors/q2_k.txt")),
    (DType::Q3_K, include_str!("vectors/q3_k.txt")),
    (DType::Q4_K, include_str!("vectors/q4_k.txt")),
    (DType::Q5_K, include_str!("vectors/q5_k.txt")),
    (DType::Q6_K, include_str!("vectors/q6_k.txt")),
    (DType::IQ4_NL, include_str!("vectors/iq4_nl.txt")),
    (DType::IQ4_XS, include_str!("vectors/iq4_xs.txt")),
    (DType::MXFP4, include_str!("vectors/mxfp4.txt")),
    (DType::NVFP4, include_str!("vectors/nvfp4.txt")),
    (DType::IQ3_XXS, include_str!("vectors/iq3_xxs.txt")),
    (DType::IQ3_S, include_str!("vectors/iq3_s.txt")),
    (DType::IQ2_XXS, include_str!("vectors/iq2_xxs.txt")),
    (DType::IQ2_XS, include_str!("vectors/iq2_xs.txt")),
    (DType::IQ2_S, include_str!("vectors/iq2_s.txt")),
    (DType::IQ1_S, include_str!("vectors/iq1_s.txt")),
    (DType::IQ1_M, include_str!("vectors/iq1_m.txt")),
    (DType::TQ1_0, include_str!("vectors/tq1_0.txt")),
    (DType::TQ2_0, include_str!("vectors/tq2_0.txt")),
];

#[test]
fn decoded_bits_are_those_of_the_gguf_package() {
    for (dtype, text) in VECTORS {
        let mut lines = 0;
        for (stored, wanted) in recorded(text, "decode") {
            let mut values = vec![0.0; wanted.len() / 8];
            decode_row(dtype, &bytes(stored), &mut values).unwrap();
            for (i, (value, wanted)) in values.iter().zip(words(wanted)).enumerate() {
                let found = if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() };
                assert_eq!(found, wanted, "{dtype}, decode line {lines}, element {i}: {value}");
            }
            lines += 1;
        }
        assert!(lines >= 2, "{dtype} has no recorded blocks");
    }
}

#[test]
fn encoded_bytes_are_those_of_the_gguf_package() {
    let encoders = [DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::MXFP4];
    for (dtype, text) in VECTORS.into_iter().filter(|(dtype, _)| encoders.contains(dtype)) {
        let mut lines = 0;
        for (values, wanted) in recorded(text, "encode") {
            let values: Vec<f32> = words(values).into_iter().map(f32::from_bits).collect();
            let wanted = bytes(wanted);
            let mut stored = vec![0; wanted.len()];
            encode_row(dtype, &values, &mut stored).unwrap();
            assert_eq!(stored, wanted, "{dtype}, encode line {lines}: {values:?}");
            lines += 1;
        }
        assert!(lines >= 1, "{dtype} has no recorded rows");
    }
}

#[test]
fn encoding_decoded_values_loses_at_most_half_a_step() {
    let values: Vec<f32> = (0..256).map(|i| ((i * 7919 % 509) as f32 - 254.0) / 97.0).collect();
    for (dtype, levels) in [(DType::Q8_0, 127.0), (DType::Q4_0, 8.0)] {
        let mut stored = vec![0; dtype.row_bytes(256).unwrap() as usize];
        encode_row(dtype, &values, &mut stored).unwrap();
        let mut back = vec![0.0; 256];
        decode_row(dtype, &stored, &mut back).unwrap();
        for (block, back) in values.chunks(32).zip(back.chunks(32)) {
            let step = block.iter().fold(0.0f32, |peak, x| peak.max(x.abs())) / levels;
            for (x, y) in block.iter().zip(back) {
                // Q4_0 has no quant for the positive end when the peak is negative, and so may be a
                // whole step off.
                let bound = if dtype == DType::Q4_0 { 1.001 } else { 0.53 };
                assert!((x - y).abs() <= bound * step, "{dtype}: {x} came back as {y}, step {step}");
            }
        }
    }
}

fn recorded<'a>(text: &'a str, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    text.lines().filter_map(move |line| {
        let (found, rest) = line.split_once(' ').expect("a line has three fields");
        (found == kind).then(|| rest.split_once(' ').expect("a line has three fields"))
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2));
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex digits")).collect()
}

fn words(hex: &str) -> Vec<u32> {
    assert!(hex.len().is_multiple_of(8));
    (0..hex.len() / 8).map(|i| u32::from_str_radix(&hex[8 * i..8 * i + 8], 16).expect("hex digits")).collect()
}
