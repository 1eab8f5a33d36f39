//! Tensor type ids of ggml, those that are read and those that are only named.

use std::fmt;

use minfer_tensor::DType;

/// How a file says that a tensor is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// A type that this build reads.
    Known(DType),
    /// A type that ggml defines and this build does not read.
    Other {
        /// Its id in the file.
        id: u32,
        /// Its name.
        name: &'static str,
        /// Elements of a block.
        block_len: u64,
        /// Bytes of a block.
        block_bytes: u64,
    },
}

impl TensorType {
    /// The type of an id in a file, if ggml defines it.
    pub fn from_id(id: u32) -> Option<TensorType> {
        if let Some(&(_, dtype)) = KNOWN.iter().find(|known| known.0 == id) {
            return Some(TensorType::Known(dtype));
        }
        let &(id, name, block_len, block_bytes) = OTHER.iter().find(|other| other.0 == id)?;
        Some(TensorType::Other { id, name, block_len, block_bytes })
    }

    /// The id in a file; none for a type that GGUF cannot store.
    pub fn id(self) -> Option<u32> {
        match self {
            TensorType::Known(dtype) => KNOWN.iter().find(|known| known.1 == dtype).map(|known| known.0),
            TensorType::Other { id, .. } => Some(id),
        }
    }

    /// The type, if this build reads it.
    pub fn dtype(self) -> Option<DType> {
        match self {
            TensorType::Known(dtype) => Some(dtype),
            TensorType::Other { .. } => None,
        }
    }

    /// The field's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            TensorType::Known(dtype) => dtype.name(),
            TensorType::Other { name, .. } => name,
        }
    }

    /// Consecutive elements of a row that are stored together.
    pub fn block_len(self) -> u64 {
        match self {
            TensorType::Known(dtype) => dtype.block_len() as u64,
            TensorType::Other { block_len, .. } => block_len,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> u64 {
        match self {
            TensorType::Known(dtype) => dtype.block_bytes() as u64,
            TensorType::Other { block_bytes, .. } => block_bytes,
        }
    }
}

impl From<DType> for TensorType {
    fn from(dtype: DType) -> Self {
        TensorType::Known(dtype)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// Ids of the types that this build reads. `U32` has none.
const KNOWN: [(u32, DType); 28] = [
    (0, DType::F32),
    (1, DType::F16),
    (2, DType::Q4_0),
    (3, DType::Q4_1),
    (6, DType::Q5_0),
    (7, DType::Q5_1),
    (8, DType::Q8_0),
    (10, DType::Q2_K),
    (11, DType::Q3_K),
    (12, DType::Q4_K),
    (13, DType::Q5_K),
    (14, DType::Q6_K),
    (15, DType::Q8_K),
    (16, DType::IQ2_XXS),
    (17, DType::IQ2_XS),
    (18, DType::IQ3_XXS),
    (19, DType::IQ1_S),
    (20, DType::IQ4_NL),
    (21, DType::IQ3_S),
    (22, DType::IQ2_S),
    (23, DType::IQ4_XS),
    (26, DType::I32),
    (29, DType::IQ1_M),
    (30, DType::BF16),
    (34, DType::TQ1_0),
    (35, DType::TQ2_0),
    (39, DType::MXFP4),
    (40, DType::NVFP4),
];

/// Id, name, elements and bytes of a block of ggml's other types. Ids 31 to 33 and 36 to 38 are
/// repacked forms that ggml no longer writes.
const OTHER: [(u32, &str, u64, u64); 12] = [
    (9, "Q8_1", 32, 40),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (31, "Q4_0_4_4", 32, 18),
    (32, "Q4_0_4_8", 32, 18),
    (33, "Q4_0_8_8", 32, 18),
    (36, "IQ4_NL_4_4", 32, 18),
    (37, "IQ4_NL_4_8", 32, 18),
    (38, "IQ4_NL_8_8", 32, 18),
    (41, "Q1_0", 128, 18),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_come_back() {
        let mut ids: Vec<u32> = KNOWN.iter().map(|t| t.0).chain(OTHER.iter().map(|t| t.0)).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
        for id in ids {
            assert_eq!(TensorType::from_id(id).unwrap().id(), Some(id));
        }
        for gap in [4, 5, 42, 1000, u32::MAX] {
            assert_eq!(TensorType::from_id(gap), None);
        }
    }

    #[test]
    fn every_dtype_but_u32_has_an_id() {
        for dtype in DType::ALL {
            let id = TensorType::from(dtype).id();
            assert_eq!(id.is_none(), dtype == DType::U32, "{dtype}");
        }
    }
}
