//! IQ4_NL, MXFP4 and NVFP4 in panels: nibbles, which are indices into the type's codebook, then 32
//! bytes of scales.
//!
//! All take 4.5 bits a weight. The nibbles are looked up with a shuffle of bytes, in registers.

use std::marker::PhantomData;

use minfer_tensor::blocks::{iq4_nl, mxfp4, nvfp4};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut, transmute_ref};

use super::codebook::{Codebook, RunScales, signed};
use super::format::{
    Format, Nibbles, STEPS, Terms, bytes_at, f16_bits, nibbles, put_nibbles, put_one_nibble,
};
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

/// A type of the file whose blocks are `RUNS` runs.
pub(crate) struct LookupRuns<T, const RUNS: usize>(PhantomData<T>);

/// 32 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Run {
    quants: Nibbles,
    /// See [`RunScales`].
    scales: [u16; LANES],
}

/// How a type of the file becomes runs.
pub(crate) trait Source<const RUNS: usize>: 'static {
    /// A block of the file.
    type File: FromBytes + Immutable + KnownLayout + Unaligned;
    /// Bytes of zero.
    const ZERO: Self::File;
    /// What the nibbles and scales stand for.
    const CODEBOOK: Codebook;

    /// Puts a row's block into a lane.
    fn put(row: &Self::File, lane: usize, runs: &mut [Run; RUNS]);
}

impl<T: Source<RUNS>, const RUNS: usize> Format for LookupRuns<T, RUNS> {
    type File = T::File;
    type Block = [Run; RUNS];
    type Kernels = IQ4_NL;
    const RUNS: usize = RUNS;
    const ZERO: T::File = T::ZERO;
    const TERMS: usize = 3;
    const CODEBOOK: Codebook = T::CODEBOOK;

    #[inline(always)]
    fn pack(rows: &[&T::File; LANES], block: &mut [Run; RUNS]) {
        for (lane, row) in rows.iter().enumerate() {
            T::put(row, lane, block);
        }
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, codebook: &Codebook, block: &[Run; RUNS], run: usize) -> [S::U8; STEPS] {
        looked_up(simd, codebook, &block[run].quants)
    }

    #[inline(always)]
    fn terms<S: Simd>(simd: S, codebook: &Codebook, block: &[Run; RUNS], run: usize) -> Terms<S> {
        let (scales, one) = (&block[run].scales, simd.splat(1.0));
        match codebook.scales {
            RunScales::F16 => [simd.load_f16(scales), one, one],
            RunScales::BF16 => [simd.load_bf16(scales), one, one],
            RunScales::HalvesE4M3 => {
                let [low, high]: &[[u8; LANES]; 2] = transmute_ref!(scales);
                [one, simd.load_e4m3(low), simd.load_e4m3(high)]
            }
        }
    }

    fn value(terms: [f32; 3], column: usize, weight: u8) -> f32 {
        terms[0] * terms[1 + column / 16] * signed(weight)
    }
}

/// What nibbles stand for.
#[inline(always)]
pub(super) fn looked_up<S: Simd>(simd: S, codebook: &Codebook, quants: &Nibbles) -> [S::U8; STEPS] {
    let mut weights = nibbles(simd, quants);
    for i in 0..STEPS {
        weights[i] = simd.look_up(&codebook.values, weights[i]);
    }
    weights
}

/// The 16-value table and an f16 scale.
#[allow(non_camel_case_types, reason = "the field's own spelling")]
pub(crate) type IQ4_NL = LookupRuns<NonLinear, 1>;

/// Numbers of 4 bits under a power of two, which is kept as a bf16.
pub(crate) type MXFP4 = LookupRuns<Microscaled, 1>;

/// Numbers of 4 bits with an 8-bit scale for every 16 columns.
pub(crate) type NVFP4 = LookupRuns<SixteenScaled, 2>;

/// The file's side of [`IQ4_NL`].
pub(crate) struct NonLinear;

impl Source<1> for NonLinear {
    type File = [u8; iq4_nl::BYTES];
    const ZERO: Self::File = [0; iq4_nl::BYTES];
    const CODEBOOK: Codebook = Codebook::of_runs(iq4_nl::VALUES, RunScales::F16);

    #[inline(always)]
    fn put(row: &Self::File, lane: usize, [run]: &mut [Run; 1]) {
        put_nibbles(&mut run.quants, lane, bytes_at(row, iq4_nl::QUANTS_AT));
        run.scales[lane] = f16_bits(row, iq4_nl::SCALE_AT);
    }
}

/// The file's side of [`MXFP4`].
pub(crate) struct Microscaled;

impl Source<1> for Microscaled {
    type File = [u8; mxfp4::BYTES];
    const ZERO: Self::File = [0; mxfp4::BYTES];
    const CODEBOOK: Codebook = Codebook::of_runs(mxfp4::VALUES, RunScales::BF16);

    #[inline(always)]
    fn put(row: &Self::File, lane: usize, [run]: &mut [Run; 1]) {
        put_nibbles(&mut run.quants, lane, bytes_at(row, mxfp4::QUANTS_AT));
        // A power of two is exact in the upper half of an f32, also the two below the normal
        // numbers.
        run.scales[lane] = (mxfp4::scale(row[mxfp4::EXPONENT_AT]).to_bits() >> 16) as u16;
    }
}

/// The file's side of [`NVFP4`].
pub(crate) struct SixteenScaled;

impl Source<2> for SixteenScaled {
    type File = [u8; nvfp4::BYTES];
    const ZERO: Self::File = [0; nvfp4::BYTES];
    const CODEBOOK: Codebook = Codebook::of_runs(nvfp4::VALUES, RunScales::HalvesE4M3);

    #[inline(always)]
    fn put(row: &Self::File, lane: usize, runs: &mut [Run; 2]) {
        let parts = nvfp4::unpack(row);
        for (index, run) in runs.iter_mut().enumerate() {
            put_one_nibble(&mut run.quants, lane, &parts.quants.as_chunks::<BLOCK>().0[index], 0);
            let halves: &mut [[u8; LANES]; 2] = transmute_mut!(&mut run.scales);
            for (half, scales) in halves.iter_mut().enumerate() {
                scales[lane] = match parts.scales[2 * index + half] {
                    // The file's pattern of not-a-number is a zero, and its top bit says nothing.
                    0x7f => 0,
                    scale => scale & 0x7f,
                };
            }
        }
    }
}
