//! Codebooks: up to sixteen integers that the indices of a type (IQ, MXFP4, NVFP4) stand for.

use minfer_tensor::blocks::codebook;

/// Up to sixteen integers that packed nibbles stand for, and how scales are to be read. It belongs
/// to the type, so that types that differ in nothing else share their kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Codebook {
    /// The integers, moved up by 128 so that they are unsigned.
    pub(super) values: [u8; 16],
    /// What scales are counted in.
    pub(super) unit: f32,
    /// What the scales of a run are.
    pub(super) scales: RunScales,
}

/// The 32 bytes of scales of a run of 16 rows that stands alone.
#[derive(Debug, Clone, Copy)]
pub(super) enum RunScales {
    /// An f16 for each row.
    F16,
    /// A bf16 for each row.
    BF16,
    /// For each half of the run, one after the other, a byte for each row: floating-point numbers
    /// with 4 bits of exponent and 3 of fraction, as
    /// [`Simd::load_e4m3`](crate::arch::Simd::load_e4m3) reads them.
    HalvesE4M3,
}

impl Codebook {
    /// Of types without one.
    pub(crate) const NONE: Codebook = Codebook { values: [0; 16], unit: 1.0, scales: RunScales::F16 };

    /// Of a type whose runs stand alone.
    pub(super) const fn of_runs(values: [i8; 16], scales: RunScales) -> Codebook {
        Codebook { values: moved(values), unit: 1.0, scales }
    }

    /// Of a type with superblocks.
    pub(super) const fn of_superblocks(codebook: codebook::Codebook) -> Codebook {
        Codebook { values: moved(codebook.values), unit: codebook.unit, scales: RunScales::F16 }
    }
}

/// Adding 128 to a signed byte flips its top bit.
const fn moved(values: [i8; 16]) -> [u8; 16] {
    let mut moved = [0; 16];
    let mut at = 0;
    while at < 16 {
        moved[at] = values[at] as u8 ^ 0x80;
        at += 1;
    }
    moved
}

/// A weight as it was before it was moved up.
pub(super) fn signed(weight: u8) -> f32 {
    f32::from((weight ^ 0x80) as i8)
}
