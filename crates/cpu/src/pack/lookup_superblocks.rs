//! IQ4_XS and the types with grids in panels: eight runs of nibbles, which are indices into the
//! type's codebook, with two sub-scales, then 16 scales.
//!
//! All take 4.5625 bits a weight, also those whose file has less than two. A grid's rows would have
//! to be gathered from a table for every use, eight columns of one row at a time, while a lane
//! needs four columns of each of 16 rows; a nibble that names one of the few integers that a grid
//! is made of is looked up for 64 weights by one shuffle of bytes. Nothing is rounded on the way.

use std::marker::PhantomData;

use minfer_tensor::blocks::{codebook, iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_xs};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::codebook::{Codebook, signed};
use super::format::{Format, Nibbles, STEPS, Terms, put_one_nibble};
use super::lookup_runs::looked_up;
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

/// A type of the file with superblocks.
pub(crate) struct LookupSuperblocks<T>(PhantomData<T>);

/// Runs of 32 columns in a block.
const RUNS: usize = codebook::LEN / BLOCK;

/// 256 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Block {
    runs: [Run; RUNS],
    scales: [u16; LANES],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Run {
    quants: Nibbles,
    scales: [[i8; LANES]; 2],
}

/// How a type of the file comes apart.
pub(crate) trait Source: 'static {
    /// A block of the file.
    type File: FromBytes + Immutable + KnownLayout + Unaligned;
    /// Bytes of zero.
    const ZERO: Self::File;
    /// What the indices and sub-scales stand for.
    const CODEBOOK: codebook::Codebook;

    /// Takes a block apart.
    fn unpack(block: &Self::File) -> codebook::Unpacked;
}

impl<T: Source> Format for LookupSuperblocks<T> {
    type File = T::File;
    type Block = Block;
    type Kernels = IQ4_XS;
    const RUNS: usize = RUNS;
    const ZERO: T::File = T::ZERO;
    const TERMS: usize = 3;
    const CODEBOOK: Codebook = Codebook::of_superblocks(T::CODEBOOK);

    #[inline(always)]
    fn pack(rows: &[&T::File; LANES], block: &mut Block) {
        for (lane, row) in rows.iter().enumerate() {
            let parts = T::unpack(row);
            put(&parts, lane, block);
        }
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, codebook: &Codebook, block: &Block, run: usize) -> [S::U8; STEPS] {
        looked_up(simd, codebook, &block.runs[run].quants)
    }

    /// The unit is a power of two, so its product with an f16 is exact.
    #[inline(always)]
    fn terms<S: Simd>(simd: S, codebook: &Codebook, block: &Block, run: usize) -> Terms<S> {
        let scales = &block.runs[run].scales;
        let scale = simd.mul(simd.load_f16(&block.scales), simd.splat(codebook.unit));
        [scale, simd.load_i8(&scales[0]), simd.load_i8(&scales[1])]
    }

    fn value(terms: [f32; 3], column: usize, weight: u8) -> f32 {
        terms[0] * terms[1 + column / codebook::SUB_LEN] * signed(weight)
    }
}

/// Puts a row into a lane.
fn put(parts: &codebook::Unpacked, lane: usize, block: &mut Block) {
    for (index, run) in block.runs.iter_mut().enumerate() {
        put_one_nibble(&mut run.quants, lane, &parts.indices.as_chunks::<BLOCK>().0[index], 0);
        run.scales[0][lane] = parts.scales[2 * index];
        run.scales[1][lane] = parts.scales[2 * index + 1];
    }
    block.scales[lane] = parts.d_bits;
}

macro_rules! superblocks {
    ($($name:ident, $file:ident = $module:ident;)*) => {
        $(
            #[doc = concat!("The format of `", stringify!($name), "`.")]
            #[allow(non_camel_case_types, reason = "the field's own spelling")]
            pub(crate) type $name = LookupSuperblocks<$file>;

            #[doc = concat!("The file's side of [`", stringify!($name), "`].")]
            pub(crate) struct $file;

            impl Source for $file {
                type File = [u8; $module::BYTES];
                const ZERO: Self::File = [0; $module::BYTES];
                const CODEBOOK: codebook::Codebook = $module::CODEBOOK;

                fn unpack(block: &Self::File) -> codebook::Unpacked {
                    $module::unpack(block)
                }
            }
        )*
    };
}

superblocks! {
    IQ4_XS, Iq4Xs = iq4_xs;
    IQ3_XXS, Iq3Xxs = iq3_xxs;
    IQ3_S, Iq3S = iq3_s;
    IQ2_XXS, Iq2Xxs = iq2_xxs;
    IQ2_XS, Iq2Xs = iq2_xs;
    IQ2_S, Iq2S = iq2_s;
    IQ1_S, Iq1S = iq1_s;
    IQ1_M, Iq1M = iq1_m;
}
