//! Activation functions, alone and as the gate of a product. Rows and outputs as in
//! [`elementwise`](super::elementwise).

use std::ops::Range;

use minfer_graph::Activation;

use super::elementwise::{Lanes, map};
use crate::arch::{Isa, Simd};
use crate::math;
use crate::threads::Rows;

/// output = function(input).
pub(crate) fn activate(
    isa: Isa,
    rows: Range<usize>,
    function: Activation,
    input: &Rows<'_>,
    output: &Rows<'_>,
) {
    map(isa, rows, Plain(function), input, input, output);
}

/// output = function(gate) * up.
pub(crate) fn gated_activate(
    isa: Isa,
    rows: Range<usize>,
    function: Activation,
    gate: &Rows<'_>,
    up: &Rows<'_>,
    output: &Rows<'_>,
) {
    map(isa, rows, Gated(function), gate, up, output);
}

#[derive(Clone, Copy)]
struct Plain(Activation);

impl Lanes for Plain {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, a: S::F32, _b: S::F32) -> S::F32 {
        math::activate(simd, self.0, a)
    }
}

#[derive(Clone, Copy)]
struct Gated(Activation);

impl Lanes for Gated {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, a: S::F32, b: S::F32) -> S::F32 {
        simd.mul(math::activate(simd, self.0, a), b)
    }
}
