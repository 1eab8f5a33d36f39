//! x86-64 lanes.

mod avx2;
mod avx512;

pub(crate) use avx2::Avx2;
pub(crate) use avx512::{Avx512, Avx512Pairs};
