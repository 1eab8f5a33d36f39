//! Decodes and encodes rows of blocks of any type.

use half::f16 as half16;

use super::{
    bf16, f16, iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs, mxfp4, nvfp4, q2_k,
    q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, q8_k, tq1_0, tq2_0,
};
use crate::{DType, DTypeError};

/// Decodes a row of `out.len()` elements from its stored bytes.
///
/// Values are exact: an element is the formula of its type in real numbers, rounded once to f32.
///
/// # Errors
/// The type holds no real numbers, the row is not a whole number of blocks, or `bytes` is not its
/// exact size.
pub fn decode_row(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), BlockError> {
    check_size(dtype, bytes.len(), out.len())?;
    match dtype {
        DType::F32 => each_block(bytes, out, super::f32::decode),
        DType::F16 => each_block(bytes, out, f16::decode),
        DType::BF16 => each_block(bytes, out, bf16::decode),
        DType::Q4_0 => each_block(bytes, out, q4_0::decode),
        DType::Q4_1 => each_block(bytes, out, q4_1::decode),
        DType::Q5_0 => each_block(bytes, out, q5_0::decode),
        DType::Q5_1 => each_block(bytes, out, q5_1::decode),
        DType::Q8_0 => each_block(bytes, out, q8_0::decode),
        DType::Q2_K => each_block(bytes, out, q2_k::decode),
        DType::Q3_K => each_block(bytes, out, q3_k::decode),
        DType::Q4_K => each_block(bytes, out, q4_k::decode),
        DType::Q5_K => each_block(bytes, out, q5_k::decode),
        DType::Q6_K => each_block(bytes, out, q6_k::decode),
        DType::Q8_K => each_block(bytes, out, q8_k::decode),
        DType::TQ1_0 => each_block(bytes, out, tq1_0::decode),
        DType::TQ2_0 => each_block(bytes, out, tq2_0::decode),
        DType::IQ4_NL => each_block(bytes, out, iq4_nl::decode),
        DType::IQ4_XS => each_block(bytes, out, iq4_xs::decode),
        DType::MXFP4 => each_block(bytes, out, mxfp4::decode),
        DType::NVFP4 => each_block(bytes, out, nvfp4::decode),
        DType::IQ3_XXS => each_block(bytes, out, iq3_xxs::decode),
        DType::IQ3_S => each_block(bytes, out, iq3_s::decode),
        DType::IQ2_XXS => each_block(bytes, out, iq2_xxs::decode),
        DType::IQ2_XS => each_block(bytes, out, iq2_xs::decode),
        DType::IQ2_S => each_block(bytes, out, iq2_s::decode),
        DType::IQ1_S => each_block(bytes, out, iq1_s::decode),
        DType::IQ1_M => each_block(bytes, out, iq1_m::decode),
        DType::I32 | DType::U32 => return Err(BlockError::NotReal { dtype }),
    }
    Ok(())
}

/// Encodes a row of values into its stored bytes: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, the
/// K-quants Q2_K to Q6_K and Q8_K, MXFP4 and IQ4_NL.
///
/// F16 and BF16 round to nearest, ties to even, and keep infinities and NaN. Q8_0, Q4_0 and MXFP4
/// follow the reference quantiser of the GGUF tools bit for bit; the other quantised types search
/// for scales with a small sum of squared errors. Every row gives the same bytes at every time and
/// place.
///
/// # Errors
/// The type has no encoder, the row is not a whole number of blocks, `out` is not its exact size,
/// or (quantised types) a value is not finite or too large for the block's f16 scale. `out` is then
/// unspecified.
pub fn encode_row(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<(), BlockError> {
    check_size(dtype, out.len(), values.len())?;
    match dtype {
        DType::F32 => plain_blocks(values, out, super::f32::encode),
        DType::F16 => plain_blocks(values, out, f16::encode),
        DType::BF16 => plain_blocks(values, out, bf16::encode),
        DType::Q4_0 => return quantise_blocks(values, out, q4_0::MAX_VALUE, q4_0::encode),
        DType::MXFP4 => return quantise_blocks(values, out, mxfp4::MAX_VALUE, mxfp4::encode),
        DType::IQ4_NL => return quantise_blocks(values, out, iq4_nl::MAX_VALUE, iq4_nl::encode),
        DType::Q4_1 => return quantise_blocks(values, out, q4_1::MAX_VALUE, q4_1::encode),
        DType::Q5_0 => return quantise_blocks(values, out, q5_0::MAX_VALUE, q5_0::encode),
        DType::Q5_1 => return quantise_blocks(values, out, q5_1::MAX_VALUE, q5_1::encode),
        DType::Q8_0 => return quantise_blocks(values, out, q8_0::MAX_VALUE, q8_0::encode),
        DType::Q2_K => return quantise_blocks(values, out, q2_k::MAX_VALUE, q2_k::encode),
        DType::Q3_K => return quantise_blocks(values, out, q3_k::MAX_VALUE, q3_k::encode),
        DType::Q4_K => return quantise_blocks(values, out, q4_k::MAX_VALUE, q4_k::encode),
        DType::Q5_K => return quantise_blocks(values, out, q5_k::MAX_VALUE, q5_k::encode),
        DType::Q6_K => return quantise_blocks(values, out, q6_k::MAX_VALUE, q6_k::encode),
        DType::Q8_K => return quantise_blocks(values, out, q8_k::MAX_VALUE, q8_k::encode),
        _ => return Err(BlockError::NoEncoder { dtype }),
    }
    Ok(())
}

/// Why a row could not be decoded or encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The row cannot be laid out in this type.
    #[error(transparent)]
    Layout(#[from] DTypeError),
    /// The bytes given are not the size of the row.
    #[error("a row of {elements} elements of {dtype} takes {wanted} bytes, not {found}")]
    Size {
        /// Type of the row.
        dtype: DType,
        /// Elements in the row.
        elements: usize,
        /// Bytes that the row takes.
        wanted: u64,
        /// Bytes that were given.
        found: usize,
    },
    /// Integers stand for ids, not for values.
    #[error("{dtype} holds integers, which do not decode to real numbers")]
    NotReal {
        /// Type of the row.
        dtype: DType,
    },
    /// This type can only be decoded.
    #[error("{dtype} has no encoder")]
    NoEncoder {
        /// Type of the row.
        dtype: DType,
    },
    /// A value is infinite, not a number, or too large for the scale of its block.
    #[error("element {index} of the row cannot be quantised: it is not finite or too large for an f16 scale")]
    NotEncodable {
        /// Position of the first such value in the row.
        index: usize,
    },
}

fn check_size(dtype: DType, found: usize, elements: usize) -> Result<(), BlockError> {
    let wanted = dtype.row_bytes(elements as u64)?;
    if wanted != found as u64 {
        return Err(BlockError::Size { dtype, elements, wanted, found });
    }
    Ok(())
}

fn each_block<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    for (block, values) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        decode(block, values);
    }
}

fn plain_blocks<const BYTES: usize>(
    values: &[f32],
    out: &mut [u8],
    encode: impl Fn(&[f32; 1], &mut [u8; BYTES]),
) {
    for (value, block) in values.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        encode(value, block);
    }
}

fn quantise_blocks<const BYTES: usize, const LEN: usize>(
    values: &[f32],
    out: &mut [u8],
    max_value: f32,
    encode: impl Fn(&[f32; LEN], &mut [u8; BYTES]),
) -> Result<(), BlockError> {
    if let Some(index) = values.iter().position(|value| value.is_nan() || value.abs() > max_value) {
        return Err(BlockError::NotEncodable { index });
    }
    for (values, block) in values.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        encode(values, block);
    }
    Ok(())
}

/// Largest magnitude whose block scale is still finite when the scale is the magnitude divided by
/// `levels`.
pub(super) const fn max_encodable(levels: f32) -> f32 {
    half16::MAX.to_f32_const() * levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked() {
        let mut out = [0.0; 32];
        let error = decode_row(DType::Q4_0, &[0; 17], &mut out).unwrap_err();
        assert_eq!(error.to_string(), "a row of 32 elements of Q4_0 takes 18 bytes, not 17");
        let error = decode_row(DType::Q4_0, &[0; 18], &mut out[..31]).unwrap_err();
        assert!(matches!(error, BlockError::Layout(DTypeError::PartialBlock { .. })));
        assert!(decode_row(DType::Q4_0, &[], &mut []).is_ok());
        assert!(encode_row(DType::Q8_0, &[0.0; 32], &mut [0; 35]).is_err());
    }

    #[test]
    fn integers_and_missing_encoders_are_named() {
        let error = decode_row(DType::I32, &[0; 4], &mut [0.0]).unwrap_err();
        assert!(error.to_string().contains("I32"));
        let error = encode_row(DType::TQ1_0, &[0.0; 256], &mut [0; 54]).unwrap_err();
        assert_eq!(error, BlockError::NoEncoder { dtype: DType::TQ1_0 });
    }

    #[test]
    fn constants_agree_with_the_dtype_table() {
        let layouts = [
            (DType::F32, super::super::f32::LEN, super::super::f32::BYTES),
            (DType::F16, f16::LEN, f16::BYTES),
            (DType::BF16, bf16::LEN, bf16::BYTES),
            (DType::Q4_0, q4_0::LEN, q4_0::BYTES),
            (DType::Q4_1, q4_1::LEN, q4_1::BYTES),
            (DType::Q5_0, q5_0::LEN, q5_0::BYTES),
            (DType::Q5_1, q5_1::LEN, q5_1::BYTES),
            (DType::Q8_0, q8_0::LEN, q8_0::BYTES),
            (DType::Q2_K, q2_k::LEN, q2_k::BYTES),
            (DType::Q3_K, q3_k::LEN, q3_k::BYTES),
            (DType::Q4_K, q4_k::LEN, q4_k::BYTES),
            (DType::Q5_K, q5_k::LEN, q5_k::BYTES),
            (DType::Q6_K, q6_k::LEN, q6_k::BYTES),
            (DType::Q8_K, q8_k::LEN, q8_k::BYTES),
            (DType::TQ1_0, tq1_0::LEN, tq1_0::BYTES),
            (DType::TQ2_0, tq2_0::LEN, tq2_0::BYTES),
            (DType::IQ4_NL, iq4_nl::LEN, iq4_nl::BYTES),
            (DType::IQ4_XS, iq4_xs::LEN, iq4_xs::BYTES),
            (DType::MXFP4, mxfp4::LEN, mxfp4::BYTES),
            (DType::NVFP4, nvfp4::LEN, nvfp4::BYTES),
            (DType::IQ3_XXS, iq3_xxs::LEN, iq3_xxs::BYTES),
            (DType::IQ3_S, iq3_s::LEN, iq3_s::BYTES),
            (DType::IQ2_XXS, iq2_xxs::LEN, iq2_xxs::BYTES),
            (DType::IQ2_XS, iq2_xs::LEN, iq2_xs::BYTES),
            (DType::IQ2_S, iq2_s::LEN, iq2_s::BYTES),
            (DType::IQ1_S, iq1_s::LEN, iq1_s::BYTES),
            (DType::IQ1_M, iq1_m::LEN, iq1_m::BYTES),
        ];
        for (dtype, len, bytes) in layouts {
            assert_eq!((dtype.block_len(), dtype.block_bytes()), (len, bytes), "{dtype}");
        }
    }

    #[test]
    fn values_that_no_scale_can_hold_are_refused() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30] {
            let mut row = [1.0; 64];
            row[40] = bad;
            for dtype in [DType::Q8_0, DType::Q4_0] {
                let mut out = vec![0; dtype.row_bytes(64).unwrap() as usize];
                assert_eq!(encode_row(dtype, &row, &mut out), Err(BlockError::NotEncodable { index: 40 }));
            }
        }
        let mut row = [0.0; 32];
        row[3] = q8_0::MAX_VALUE;
        let mut out = [0; 34];
        encode_row(DType::Q8_0, &row, &mut out).unwrap();
        decode_row(DType::Q8_0, &out, &mut row).unwrap();
        assert!(row[3].is_finite());
    }
}
