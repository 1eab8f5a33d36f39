//! F32, F16 and BF16 in panels: one column of 16 rows after the other.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::arch::{LANES, Simd};

/// A type whose elements stand alone.
pub(crate) trait Plain: 'static {
    /// An element in the file.
    type File: FromBytes + Immutable + KnownLayout + Unaligned + Copy;
    /// One column of 16 rows.
    type Column: FromBytes + IntoBytes + Immutable + KnownLayout;
    /// The bytes of zero.
    const ZERO: Self::File;

    /// Puts an element into a lane.
    fn put(column: &mut Self::Column, lane: usize, element: Self::File);
    /// The values of a column, exact.
    fn load<S: Simd>(simd: S, column: &Self::Column) -> S::F32;
}

macro_rules! plain {
    ($name:ident, $word:ident, $load:ident, $doc:literal) => {
        #[doc = $doc]
        pub(crate) struct $name;

        impl Plain for $name {
            type File = [u8; size_of::<$word>()];
            type Column = [$word; LANES];
            const ZERO: Self::File = [0; size_of::<$word>()];

            #[inline(always)]
            fn put(column: &mut Self::Column, lane: usize, element: Self::File) {
                column[lane] = $word::from_le_bytes(element);
            }

            #[inline(always)]
            fn load<S: Simd>(simd: S, column: &Self::Column) -> S::F32 {
                simd.$load(column)
            }
        }
    };
}

plain!(F32, f32, load, "IEEE binary32.");
plain!(F16, u16, load_f16, "IEEE binary16.");
plain!(BF16, u16, load_bf16, "The upper half of binary32.");
