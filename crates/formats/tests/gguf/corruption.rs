//! Truncated and mutated files: an error or a valid parse, never a panic, a hang or unbounded
//! memory.

use minfer_formats::gguf::{File, Writer};
use minfer_tensor::DType;
use proptest::prelude::*;

use super::allocations::bytes_of;
use super::raw::valid;
use super::walk::walk;

#[test]
fn every_bit_flip_of_a_small_header() {
    let good = valid();
    let header = header_len(&good);
    let mut accepted = 0;
    for bit in 0..header * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        accepted += u32::from(try_file(bytes));
    }
    assert!(accepted > 0, "flips of plain values leave a readable file");
}

#[test]
fn every_byte_set_to_its_extremes() {
    let good = valid();
    for at in 0..header_len(&good) {
        for extreme in [0x00, 0x7f, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = extreme;
            try_file(bytes);
        }
    }
}

#[test]
fn every_truncation() {
    let good = valid();
    // The padding after the last tensor may be missing; nothing else may.
    let needed =
        File::parse(good.clone()).unwrap().tensors().iter().map(|t| t.range().end).max().unwrap() as usize;
    for length in 0..good.len() {
        let result = File::parse(&good[..length]);
        assert_eq!(result.is_ok(), length >= needed, "cut to {length} of {} bytes", good.len());
    }
}

#[test]
fn trailing_garbage_is_ignored() {
    let mut bytes = valid();
    bytes.extend_from_slice(&[0xff; 1000]);
    assert!(File::parse(bytes).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_to_a_larger_file(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = larger();
        let header = header_len(&bytes);
        for (at, value) in damage {
            bytes[at.index(header)] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(header + 1));
        }
        try_file(bytes);
    }

    #[test]
    fn noise_after_a_header(noise in prop::collection::vec(any::<u8>(), 0..300), tensors in 0u64..4, entries in 0u64..4) {
        let raw = super::raw::Raw::new(tensors, entries).bytes(&noise);
        try_file(raw.0);
    }
}

/// Reads everything of a file that parses; whether it did.
fn try_file(bytes: Vec<u8>) -> bool {
    let size = bytes.len();
    let (result, requested) = bytes_of(|| File::parse(bytes));
    assert!(requested <= 4096 + 16 * size, "{requested} bytes requested for a file of {size}");
    match result {
        Ok(file) => walk(&file) > 0,
        Err(error) => {
            assert!(!error.to_string().contains('\n'));
            false
        }
    }
}

fn header_len(bytes: &[u8]) -> usize {
    File::parse(bytes).unwrap().data_start() as usize
}

fn larger() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.align(64).unwrap();
    let tokens: Vec<String> = (0..300).map(|i| format!("token{i}")).collect();
    writer.put("tokenizer.ggml.tokens", &tokens).unwrap();
    writer.put("tokenizer.ggml.scores", &vec![0.5f32; 300]).unwrap();
    writer.put("nested", &vec![vec![vec![1u8, 2], vec![]], vec![]]).unwrap();
    let names: Vec<String> = (0..40).map(|i| format!("blk.{i}.weight")).collect();
    for name in &names {
        writer.announce(name, DType::Q8_0, &[64, 2]).unwrap();
    }
    let mut sink = writer.start(Vec::new()).unwrap();
    for name in &names {
        sink.tensor(name, &[1; 136]).unwrap();
    }
    sink.finish().unwrap()
}
