//! Weights in panels: one layout for every instruction set, in the file's bits per weight or, for
//! types that are read through a codebook, in four and a half.
//!
//! A *panel* is 16 rows of a weight matrix, interleaved: panel `p` has the rows `16 p .. 16 p +
//! 16`, one lane for each row, block after block of columns. One load then has the same few columns
//! of all 16 rows, and a lane adds up the output of its row. A *run* is 32 columns of a panel.
//! Panels follow each other, so kernels read memory from end to end. A last panel with fewer rows
//! is filled with zeros.

mod codebook;
mod format;
mod lookup_runs;
mod lookup_superblocks;
mod matrix;
mod pairs;
mod plain;
mod planes;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_k;
mod ternary;

pub(crate) use codebook::Codebook;
pub(crate) use format::{Format, Run, STEPS, Terms};
pub(crate) use lookup_runs::{IQ4_NL, MXFP4, NVFP4};
pub(crate) use lookup_superblocks::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, IQ4_XS};
pub use matrix::PackError;
pub(crate) use matrix::{PackedMatrix, UnpackedPanels};
pub(crate) use plain::{BF16, F16, F32, Plain};
pub(crate) use q2_k::Q2_K;
pub(crate) use q3_k::Q3_K;
pub(crate) use q4_0::Q4_0;
pub(crate) use q4_1::Q4_1;
pub(crate) use q4_k::Q4_K;
pub(crate) use q5_0::Q5_0;
pub(crate) use q5_1::Q5_1;
pub(crate) use q5_k::Q5_K;
pub(crate) use q6_k::Q6_K;
pub(crate) use q8_0::Q8_0;
pub(crate) use q8_k::Q8_K;
pub(crate) use ternary::{TQ1_0, TQ2_0};

/// Evaluates an expression with the format of an element type: `$format` names a [`Format`] in the
/// first expression, `$plain` a [`Plain`] type in the second. A type that cannot be packed gives
/// the third.
macro_rules! with_format {
    ($dtype:expr, $format:ident => $quantised:expr, $plain:ident => $other:expr, _ => $none:expr) => {{
        use minfer_tensor::DType;
        macro_rules! quantised {
            ($name:ident) => {{
                type $format = $crate::pack::$name;
                $quantised
            }};
        }
        macro_rules! plain {
            ($name:ident) => {{
                type $plain = $crate::pack::$name;
                $other
            }};
        }
        match $dtype {
            DType::Q4_0 => quantised!(Q4_0),
            DType::Q4_1 => quantised!(Q4_1),
            DType::Q5_0 => quantised!(Q5_0),
            DType::Q5_1 => quantised!(Q5_1),
            DType::Q8_0 => quantised!(Q8_0),
            DType::Q2_K => quantised!(Q2_K),
            DType::Q3_K => quantised!(Q3_K),
            DType::Q4_K => quantised!(Q4_K),
            DType::Q5_K => quantised!(Q5_K),
            DType::Q6_K => quantised!(Q6_K),
            DType::Q8_K => quantised!(Q8_K),
            DType::TQ1_0 => quantised!(TQ1_0),
            DType::TQ2_0 => quantised!(TQ2_0),
            DType::IQ4_NL => quantised!(IQ4_NL),
            DType::IQ4_XS => quantised!(IQ4_XS),
            DType::MXFP4 => quantised!(MXFP4),
            DType::NVFP4 => quantised!(NVFP4),
            DType::IQ3_XXS => quantised!(IQ3_XXS),
            DType::IQ3_S => quantised!(IQ3_S),
            DType::IQ2_XXS => quantised!(IQ2_XXS),
            DType::IQ2_XS => quantised!(IQ2_XS),
            DType::IQ2_S => quantised!(IQ2_S),
            DType::IQ1_S => quantised!(IQ1_S),
            DType::IQ1_M => quantised!(IQ1_M),
            DType::F32 => plain!(F32),
            DType::F16 => plain!(F16),
            DType::BF16 => plain!(BF16),
            DType::I32 | DType::U32 => $none,
        }
    }};
}
pub(crate) use with_format;

#[cfg(test)]
mod tests;
