//! How close encoded rows come to their values, against llama.cpp's quantisers on the same rows
//! (`tools/vectors/make_encoder_errors.py`).

use minfer_tensor::DType;
use minfer_tensor::blocks::{decode_row, encode_row};

const ROWS: usize = 64;
const COLUMNS: usize = 1024;

/// Type, and the root mean square errors that llama.cpp's quantiser makes on normal and on
/// heavy-tailed rows.
const RECORDED: [(DType, f64, f64); 11] = [
    (DType::Q4_0, 1.688338e-3, 8.152440e-3),
    (DType::Q4_1, 1.547865e-3, 8.428611e-3),
    (DType::Q5_0, 8.394281e-4, 4.444875e-3),
    (DType::Q5_1, 7.471303e-4, 4.043022e-3),
    (DType::Q8_0, 1.050343e-4, 6.355031e-4),
    (DType::Q2_K, 5.870450e-3, 2.958321e-2),
    (DType::Q3_K, 2.985764e-3, 1.156587e-2),
    (DType::Q4_K, 1.407805e-3, 6.661865e-3),
    (DType::Q5_K, 7.139761e-4, 3.695071e-3),
    (DType::Q6_K, 3.498065e-4, 1.807718e-3),
    (DType::Q8_K, 1.346815e-4, 1.129472e-3),
];

/// Sums of twelve uniform numbers, given a shape; `make_encoder_errors.py` makes the same ones.
fn rows(seed: u64, shape: impl Fn(f64) -> f64) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 40
    };
    let mut value = || {
        let total: u64 = (0..12).map(|_| uniform()).sum();
        (shape(total as f64 / f64::from(1 << 24) - 6.0) * 0.02) as f32
    };
    (0..ROWS * COLUMNS).map(|_| value()).collect()
}

/// The values after their way through the stored form.
fn there_and_back(dtype: DType, values: &[f32]) -> Vec<f32> {
    let mut stored = vec![0xa5; dtype.row_bytes(values.len() as u64).unwrap() as usize];
    encode_row(dtype, values, &mut stored).unwrap();
    let mut back = vec![0.0; values.len()];
    decode_row(dtype, &stored, &mut back).unwrap();
    back
}

fn error(values: &[f32], back: &[f32]) -> f64 {
    let square = |(x, y): (&f32, &f32)| (f64::from(*x) - f64::from(*y)).powi(2);
    (values.iter().zip(back).map(square).sum::<f64>() / values.len() as f64).sqrt()
}

#[test]
fn errors_are_no_larger_than_those_of_llama_cpp() {
    let (normal, heavy) = (rows(1, |x| x), rows(2, |x| x * x * x));
    for (dtype, recorded_normal, recorded_heavy) in RECORDED {
        for (name, values, recorded) in
            [("normal", &normal, recorded_normal), ("heavy-tailed", &heavy, recorded_heavy)]
        {
            let found = error(values, &there_and_back(dtype, values));
            println!("{dtype} {name}: {found:.4e}, {:.4} of the recorded error", found / recorded);
            assert!(found <= 1.0001 * recorded, "{dtype} {name}: {found:e} is more than {recorded:e}");
        }
    }
}

#[test]
fn stored_values_come_back_almost_as_they_were() {
    let values = rows(3, |x| x);
    for (dtype, ..) in RECORDED {
        let once = there_and_back(dtype, &values);
        let again = error(&once, &there_and_back(dtype, &once));
        let first = error(&values, &once);
        println!("{dtype}: {:.3} of the first error", again / first);
        assert!(again <= 0.5 * first, "{dtype}: {again:e} after {first:e}");
    }
}

#[test]
fn every_block_is_encoded_apart() {
    let values = rows(4, |x| x * x * x);
    for (dtype, ..) in RECORDED {
        let whole = there_and_back(dtype, &values[..4 * 256]);
        for (values, whole) in values.chunks(256).zip(whole.chunks(256)) {
            assert_eq!(there_and_back(dtype, values), whole, "{dtype}");
        }
    }
}

#[test]
fn zeros_and_extremes_stay_finite() {
    for (dtype, ..) in RECORDED {
        assert!(there_and_back(dtype, &[0.0; 256]).iter().all(|&x| x == 0.0), "{dtype}");
        for size in [1e-45f32, 1e-30, 1e-7, 1.0, 60_000.0] {
            let values: Vec<f32> = (0..256).map(|i| size * (i as f32 - 100.0) / 156.0).collect();
            let back = there_and_back(dtype, &values);
            for (x, y) in values.iter().zip(back) {
                // No type is further off than its coarsest step, or the smallest f16 scale with its
                // integers.
                assert!((x - y).abs() <= 0.5 * size + 1e-6, "{dtype}: {x:e} came back as {y:e}");
            }
        }
    }
}
