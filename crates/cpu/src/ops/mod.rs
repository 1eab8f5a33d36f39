//! One file per operation: the algorithm over any instruction set, and how its work is split between workers.

pub(crate) mod linear;
pub(crate) mod attention;
