//! NVFP4: 64 floating-point numbers of 4 bits, the table of MXFP4, with an 8-bit floating-point
//! scale for every 16.
//!
//! Element `i` of sub-block `s` is `scale[s] / 2 * VALUES[q]`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..4 | scales: 4 bits of exponent (bias 7), 3 of fraction; the top bit is ignored |
//! | 4..36 | 8 bytes a sub-block; byte `i` holds element `i` (low nibble) and element `i + 8` (high nibble) |

pub use super::mxfp4::VALUES;

/// Elements of a block.
pub const LEN: usize = 64;
/// Bytes of a block.
pub const BYTES: usize = 36;
/// First byte of the quants.
pub const QUANTS_AT: usize = 4;
/// Elements of a sub-block.
pub const SUB_LEN: usize = 16;
/// Sub-blocks of a block.
pub const SUBS: usize = LEN / SUB_LEN;

/// A block taken apart without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// Scale of each sub-block.
    pub scales: [u8; SUBS],
    /// Indices into [`VALUES`], in element order.
    pub quants: [u8; LEN],
}

/// Half of the number that a scale's byte stands for. The pattern of not-a-number is zero.
pub fn scale(byte: u8) -> f32 {
    let (exponent, fraction) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    match (byte, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => fraction * power_of_two(-10),
        _ => (8.0 + fraction) * power_of_two(exponent - 11),
    }
}

fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let (scales, packed) = block.split_first_chunk::<SUBS>().expect("a block begins with its scales");
    let quants = std::array::from_fn(|i| {
        let (sub, within) = (i / SUB_LEN, i % SUB_LEN);
        packed[8 * sub + within % 8] >> (within / 8 * 4) & 15
    });
    Unpacked { scales: *scales, quants }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let parts = unpack(block);
    for (i, (value, quant)) in out.iter_mut().zip(parts.quants).enumerate() {
        *value = scale(parts.scales[i / SUB_LEN]) * f32::from(VALUES[usize::from(quant)]);
    }
}
