//! exp, tanh, sine and cosine. The crate has its own, so that their bits depend on no library and
//! no instruction set: one polynomial, one order of operations, stated errors.

mod angle;
mod exp;
mod lanes;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use angle::sin_cos;
pub(crate) use exp::{activate, exp_of_nonpositive, tanh};
pub(crate) use lanes::{load_padded, store_part};
