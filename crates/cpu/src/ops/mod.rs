//! One file per operation: the algorithm over any instruction set, and how its work is split
//! between workers.

pub(crate) mod activate;
pub(crate) mod attention;
pub(crate) mod elementwise;
pub(crate) mod kv_store;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod rope;
