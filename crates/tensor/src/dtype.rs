//! Element types, with the length and bytes of a block of each.

use std::fmt;

/// How the elements of a tensor are stored.
///
/// Quantised types store runs of [`block_len`](DType::block_len) consecutive elements of a row in
/// [`block_bytes`](DType::block_bytes) bytes.
#[allow(non_camel_case_types, reason = "the field's own spelling of these types")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of binary32.
    BF16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// 32 values of 4 bits, one f16 scale: `d * (q - 8)`.
    Q4_0,
    /// 32 values of 4 bits, f16 scale and minimum: `d * q + m`.
    Q4_1,
    /// 32 values of 5 bits, one f16 scale: `d * (q - 16)`.
    Q5_0,
    /// 32 values of 5 bits, f16 scale and minimum: `d * q + m`.
    Q5_1,
    /// 32 signed bytes, one f16 scale: `d * q`.
    Q8_0,
    /// 256 values of 2 bits in sixteen sub-blocks of 16 with 4-bit scales and minimums.
    Q2_K,
    /// 256 values of 3 bits in sixteen sub-blocks of 16 with 6-bit scales.
    Q3_K,
    /// 256 values of 4 bits in eight sub-blocks of 32 with 6-bit scales and minimums.
    Q4_K,
    /// 256 values of 5 bits in eight sub-blocks of 32 with 6-bit scales and minimums.
    Q5_K,
    /// 256 values of 6 bits in sixteen sub-blocks of 16 with 8-bit scales.
    Q6_K,
    /// 256 signed bytes, one f32 scale: `d * q`.
    Q8_K,
    /// 256 values of -1, 0 and 1, five to a byte, one f16 scale.
    TQ1_0,
    /// 256 values of -1, 0 and 1 in 2 bits each, one f16 scale.
    TQ2_0,
    /// 32 indices of 4 bits into a table of 16 values, one f16 scale.
    IQ4_NL,
    /// 256 indices of 4 bits into the table of `IQ4_NL` in eight sub-blocks of 32 with 6-bit
    /// scales.
    IQ4_XS,
    /// 32 floating-point numbers of 4 bits under one power of two.
    MXFP4,
    /// 64 floating-point numbers of 4 bits in four sub-blocks of 16 with 8-bit floating-point
    /// scales.
    NVFP4,
    /// 256 values as rows of four out of a grid of 256, 3.06 bits each.
    IQ3_XXS,
    /// 256 values as rows of four out of a grid of 512, 3.44 bits each.
    IQ3_S,
    /// 256 values as rows of eight out of a grid of 256, 2.06 bits each.
    IQ2_XXS,
    /// 256 values as rows of eight out of a grid of 512, 2.31 bits each.
    IQ2_XS,
    /// 256 values as rows of eight out of a grid of 1024, 2.56 bits each.
    IQ2_S,
    /// 256 values as rows of eight out of a grid of 2048, 1.56 bits each.
    IQ1_S,
    /// 256 values as rows of eight out of a grid of 2048, 1.75 bits each, with finer scales.
    IQ1_M,
}

/// A row length that an element type cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DTypeError {
    /// The row is not a whole number of blocks.
    #[error("a row of {elements} elements is not a whole number of {dtype} blocks of {block_len}")]
    PartialBlock {
        /// The type whose blocks do not divide the row.
        dtype: DType,
        /// Elements in the row.
        elements: u64,
        /// Elements in a block of `dtype`.
        block_len: u64,
    },
    /// The byte count does not fit in 64 bits.
    #[error("a row of {elements} elements of {dtype} overflows a 64-bit byte count")]
    Overflow {
        /// The type of the row.
        dtype: DType,
        /// Elements in the row.
        elements: u64,
    },
}

impl DType {
    /// Every type, in declaration order.
    pub const ALL: [DType; 29] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I32,
        DType::U32,
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
        DType::Q8_K,
        DType::TQ1_0,
        DType::TQ2_0,
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
    ];

    /// The field's name of the type, for example `Q4_K`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "F32",
            DType::F16 => "F16",
            DType::BF16 => "BF16",
            DType::I32 => "I32",
            DType::U32 => "U32",
            DType::Q4_0 => "Q4_0",
            DType::Q4_1 => "Q4_1",
            DType::Q5_0 => "Q5_0",
            DType::Q5_1 => "Q5_1",
            DType::Q8_0 => "Q8_0",
            DType::Q2_K => "Q2_K",
            DType::Q3_K => "Q3_K",
            DType::Q4_K => "Q4_K",
            DType::Q5_K => "Q5_K",
            DType::Q6_K => "Q6_K",
            DType::Q8_K => "Q8_K",
            DType::TQ1_0 => "TQ1_0",
            DType::TQ2_0 => "TQ2_0",
            DType::IQ4_NL => "IQ4_NL",
            DType::IQ4_XS => "IQ4_XS",
            DType::MXFP4 => "MXFP4",
            DType::NVFP4 => "NVFP4",
            DType::IQ3_XXS => "IQ3_XXS",
            DType::IQ3_S => "IQ3_S",
            DType::IQ2_XXS => "IQ2_XXS",
            DType::IQ2_XS => "IQ2_XS",
            DType::IQ2_S => "IQ2_S",
            DType::IQ1_S => "IQ1_S",
            DType::IQ1_M => "IQ1_M",
        }
    }

    /// Consecutive elements of a row that are stored together; 1 for plain types.
    pub const fn block_len(self) -> usize {
        match self {
            DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::U32 => 1,
            DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0 => 32,
            DType::IQ4_NL | DType::MXFP4 => 32,
            DType::NVFP4 => 64,
            DType::IQ4_XS | DType::IQ3_XXS | DType::IQ3_S => 256,
            DType::IQ2_XXS | DType::IQ2_XS | DType::IQ2_S | DType::IQ1_S | DType::IQ1_M => 256,
            DType::Q2_K
            | DType::Q3_K
            | DType::Q4_K
            | DType::Q5_K
            | DType::Q6_K
            | DType::Q8_K
            | DType::TQ1_0
            | DType::TQ2_0 => 256,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::Q4_0 => 18,
            DType::Q4_1 => 20,
            DType::Q5_0 => 22,
            DType::Q5_1 => 24,
            DType::Q8_0 => 34,
            DType::Q2_K => 84,
            DType::Q3_K => 110,
            DType::Q4_K => 144,
            DType::Q5_K => 176,
            DType::Q6_K => 210,
            DType::Q8_K => 292,
            DType::TQ1_0 => 54,
            DType::TQ2_0 => 66,
            DType::IQ4_NL => 18,
            DType::IQ4_XS => 136,
            DType::MXFP4 => 17,
            DType::NVFP4 => 36,
            DType::IQ3_XXS => 98,
            DType::IQ3_S => 110,
            DType::IQ2_XXS => 66,
            DType::IQ2_XS => 74,
            DType::IQ2_S => 82,
            DType::IQ1_S => 50,
            DType::IQ1_M => 56,
        }
    }

    /// Whether elements are real numbers, as weights are.
    pub const fn is_real(self) -> bool {
        !matches!(self, DType::I32 | DType::U32)
    }

    /// Whether elements are stored as scaled integers.
    pub const fn is_quantised(self) -> bool {
        self.block_len() > 1
    }

    /// Bytes of a row of `elements` elements.
    ///
    /// # Errors
    /// The row is not a whole number of blocks, or its size overflows.
    pub const fn row_bytes(self, elements: u64) -> Result<u64, DTypeError> {
        let block_len = self.block_len() as u64;
        if !elements.is_multiple_of(block_len) {
            return Err(DTypeError::PartialBlock { dtype: self, elements, block_len });
        }
        match (elements / block_len).checked_mul(self.block_bytes() as u64) {
            Some(bytes) => Ok(bytes),
            None => Err(DTypeError::Overflow { dtype: self, elements }),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}
