//! Packing against the decoders of `minfer_tensor`.

use minfer_tensor::DType;
use minfer_tensor::blocks::decode_row;

use super::*;
use crate::Isa;
use crate::memory::Mapping;

const TYPES: [DType; 27] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
    DType::NVFP4,
    DType::IQ3_XXS,
    DType::IQ3_S,
    DType::IQ2_XXS,
    DType::IQ2_XS,
    DType::IQ2_S,
    DType::IQ1_S,
    DType::IQ1_M,
    DType::Q8_K,
    DType::TQ1_0,
    DType::TQ2_0,
];

/// Bytes that look random; every bit pattern of a block is some block.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 1u64;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(step).collect()
}

fn file_bytes(dtype: DType, rows: usize, columns: usize) -> usize {
    rows * dtype.row_bytes(columns as u64).unwrap() as usize
}

#[test]
fn every_row_comes_back_as_the_decoder_gives_it() {
    for dtype in TYPES {
        for (rows, columns) in [(1, 256), (16, 512), (37, 768), (48, 256)] {
            let bytes = bytes(file_bytes(dtype, rows, columns));
            let matrix = PackedMatrix::pack(dtype, rows, columns, &bytes).unwrap();
            let (mut expected, mut found) = (vec![0.0; columns], vec![0.0; columns]);
            for (row, bytes) in bytes.chunks_exact(bytes.len() / rows).enumerate() {
                decode_row(dtype, bytes, &mut expected).unwrap();
                for isa in Isa::available() {
                    matrix.gather_row(isa, row, &mut found);
                    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                    assert!(
                        found.iter().zip(&expected).all(same),
                        "{dtype} {rows} x {columns}, row {row}, {isa}"
                    );
                }
            }
        }
    }
}

#[test]
fn panels_packed_apart_are_the_panels_packed_at_once() {
    for dtype in TYPES {
        let (rows, columns) = (75, 256);
        let bytes = bytes(file_bytes(dtype, rows, columns));
        let whole = PackedMatrix::pack(dtype, rows, columns, &bytes).unwrap();
        let mut memory = Mapping::new(PackedMatrix::footprint(dtype, rows, columns).unwrap()).unwrap();
        let mut parts = PackedMatrix::allocate(&mut memory, dtype, rows, columns).unwrap();
        let mut runs: Vec<_> = parts.parts(2).collect();
        assert_eq!(runs.iter().map(|run| run.count()).collect::<Vec<_>>(), [2, 2, 1]);
        for index in [2, 0, 1] {
            let stored = &bytes[runs[index].stored()];
            runs[index].pack(stored).unwrap();
        }
        for panel in 0..5 {
            assert_eq!(parts.panel::<u8>(panel), whole.panel::<u8>(panel), "{dtype}");
        }
    }
}

#[test]
fn memory_is_at_most_three_percent_more_than_the_file() {
    for dtype in TYPES.into_iter().filter(|dtype| !has_codebook(*dtype)) {
        let ratio = bits_of_weight(dtype) / (8.0 * file_bytes(dtype, 64, 1024) as f64 / (64.0 * 1024.0));
        let wanted = match dtype {
            // Without the file's sums.
            DType::Q8_K => 0.89..=0.9,
            // Two bits for each weight instead of a fifth of a byte.
            DType::TQ1_0 => 1.22..=1.23,
            _ => 1.0..=1.03,
        };
        assert!(wanted.contains(&ratio), "{dtype}: {ratio}");
    }
}

#[test]
fn types_with_a_codebook_take_four_and_a_half_bits() {
    for dtype in TYPES.into_iter().filter(|dtype| has_codebook(*dtype)) {
        let alone = matches!(dtype, DType::IQ4_NL | DType::MXFP4 | DType::NVFP4);
        assert_eq!(bits_of_weight(dtype), if alone { 4.5 } else { 4.5625 }, "{dtype}");
    }
}

fn has_codebook(dtype: DType) -> bool {
    dtype.name().starts_with("IQ") || dtype.name().ends_with("FP4")
}

fn bits_of_weight(dtype: DType) -> f64 {
    let matrix = PackedMatrix::pack(dtype, 64, 1024, &vec![0; file_bytes(dtype, 64, 1024)]).unwrap();
    8.0 * matrix.resident_bytes() as f64 / (64.0 * 1024.0)
}

#[test]
fn what_cannot_be_packed_is_an_error() {
    let pack =
        |dtype, rows, columns, bytes: &[u8]| PackedMatrix::pack(dtype, rows, columns, bytes).unwrap_err();
    assert!(matches!(pack(DType::I32, 1, 32, &[0; 128]), PackError::Type(DType::I32)));
    assert!(matches!(pack(DType::Q4_0, 1, 33, &[0; 18]), PackError::Layout(_)));
    assert!(matches!(pack(DType::Q4_0, 2, 32, &[0; 35]), PackError::Size { wanted: 36, found: 35, .. }));
    assert!(matches!(pack(DType::F32, usize::MAX / 8, 32, &[]), PackError::TooLarge { .. }));
    assert!(matches!(pack(DType::F32, 1 << 44, 32, &[]), PackError::Memory(_)));
    let mut memory = Mapping::new(100).unwrap();
    let full = PackedMatrix::allocate(&mut memory, DType::F32, 16, 32).unwrap_err();
    assert!(matches!(full, PackError::MemoryFull { bytes: 2048 }));
}

#[test]
fn nothing_can_be_packed() {
    let empty = PackedMatrix::pack(DType::Q8_0, 0, 64, &[]).unwrap();
    assert_eq!((empty.panels(), empty.resident_bytes()), (0, 0));
    assert_eq!(PackedMatrix::pack(DType::Q8_0, 20, 0, &[]).unwrap().panels(), 2);
}
