//! Q4_K in panels: eight runs of nibbles with their sub-scales and sub-minimums as bytes, then 16
//! scales of each kind.

use minfer_tensor::blocks::q4_k;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::codebook::Codebook;
use super::format::{Format, Nibbles, STEPS, Terms, bytes_at, f16_bits, nibbles, put_one_nibble};
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

#[allow(non_camel_case_types, reason = "the field's own spelling")]
pub(crate) struct Q4_K;

/// 256 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Block {
    runs: [Run; q4_k::SUBS],
    scales: [u16; LANES],
    minimums: [u16; LANES],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Run {
    quants: Nibbles,
    scales: [u8; LANES],
    minimums: [u8; LANES],
}

impl Format for Q4_K {
    type File = [u8; q4_k::BYTES];
    type Block = Block;
    type Kernels = Self;
    const RUNS: usize = q4_k::SUBS;
    const ZERO: Self::File = [0; q4_k::BYTES];
    const TERMS: usize = 2;

    #[inline(always)]
    fn pack(rows: &[&Self::File; LANES], block: &mut Block) {
        for (lane, row) in rows.iter().enumerate() {
            let quants: &[u8; q4_k::LEN / 2] = bytes_at(row, q4_k::QUANTS_AT);
            let (scales, minimums) = sub_scales(bytes_at(row, q4_k::SUB_SCALES_AT));
            for (index, run) in block.runs.iter_mut().enumerate() {
                // Two runs share 32 bytes: the first takes the low nibbles, the second the high
                // ones.
                let bytes = &quants.as_chunks::<BLOCK>().0[index / 2];
                put_one_nibble(&mut run.quants, lane, bytes, if index % 2 == 0 { 0 } else { 4 });
                run.scales[lane] = scales[index];
                run.minimums[lane] = minimums[index];
            }
            block.scales[lane] = f16_bits(row, q4_k::SCALE_AT);
            block.minimums[lane] = f16_bits(row, q4_k::MIN_AT);
        }
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> [S::U8; STEPS] {
        nibbles(simd, &block.runs[run].quants)
    }

    #[inline(always)]
    fn terms<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> Terms<S> {
        let Run { scales, minimums, .. } = &block.runs[run];
        scaled(simd, [&block.scales, &block.minimums], [scales, minimums])
    }

    fn value([scale, minimum, _]: [f32; 3], _column: usize, weight: u8) -> f32 {
        scale * f32::from(weight) + minimum
    }
}

/// Scale and minimum of a run, out of f16 numbers and the bytes that they scale. Products of 11 and
/// 6 bits are exact.
#[inline(always)]
pub(super) fn scaled<S: Simd>(simd: S, numbers: [&[u16; LANES]; 2], bytes: [&[u8; LANES]; 2]) -> Terms<S> {
    let scale = simd.mul(simd.load_f16(numbers[0]), simd.load_u8(bytes[0]));
    let minimum = simd.mul(simd.load_f16(numbers[1]), simd.load_u8(bytes[1]));
    [scale, simd.sub(simd.splat(-0.0), minimum), simd.splat(0.0)]
}

/// The eight 6-bit scales and minimums, laid out as `q4_k::unpack` says, four at a time.
#[inline(always)]
pub(super) fn sub_scales(packed: &[u8; 12]) -> ([u8; q4_k::SUBS], [u8; q4_k::SUBS]) {
    let word = |at: usize| u32::from_le_bytes(*bytes_at(packed, at));
    let (first, second, third) = (word(0), word(4), word(8));
    let top = |word: u32| word >> 2 & 0x3030_3030;
    let join = |low: u32, high: u32| (u64::from(high) << 32 | u64::from(low)).to_le_bytes();
    let scales = join(first & 0x3f3f_3f3f, third & 0x0f0f_0f0f | top(first));
    let minimums = join(second & 0x3f3f_3f3f, third >> 4 & 0x0f0f_0f0f | top(second));
    (scales, minimums)
}
