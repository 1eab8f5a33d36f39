//! One file per element type: its block layout, its scalar decode and, where offered, its encode.
//!
//! Each file says where the bytes of a block lie (`BYTES`, `LEN`), takes a block apart without loss
//! (`unpack`), and gives its values (`decode`). Rows of blocks go through [`decode_row`] and
//! [`encode_row`].

pub mod affine;
pub mod bf16;
pub mod codebook;
pub mod f16;
pub mod f32;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod nvfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod q8_k;
pub mod tq1_0;
pub mod tq2_0;

mod fit;
mod grids;
mod row;
mod split;

pub use row::{BlockError, decode_row, encode_row};
