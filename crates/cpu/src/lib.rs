//! The CPU backend: packed weights, kernels written once over any instruction set, and a pool of threads that walks a
//! compiled list of steps.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "instruction set intrinsics, each behind a proof of presence")]
mod arch;
#[allow(unsafe_code, reason = "memory of the KV cache that kernels share")]
mod arena;
mod backend;
mod math;
#[allow(unsafe_code, reason = "disjoint parts of one mapping")]
mod memory;
mod ops;
mod pack;
mod quantise;
pub mod roofline;
#[allow(unsafe_code, reason = "memory shared between workers under one stated promise")]
mod threads;

pub use arch::{Isa, IsaError};
pub use backend::CpuBackend;
pub use memory::MemoryError;
pub use pack::PackError;
pub use threads::{Pool, share_allocator_arena};
