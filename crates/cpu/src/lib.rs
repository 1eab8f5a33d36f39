//! The CPU backend: packed weights, kernels written once over any instruction set, and a pool of
//! threads that runs a graph as a list of steps.
//!
//! * `arch`: instruction sets behind one vocabulary of sixteen lanes.
//! * `pack`, `quantise`: weights in panels of 16 rows, activations as signed bytes.
//! * `ops`: one file for each operation. `math`: exp, tanh, sine and cosine.
//! * `threads`: the pool, the barrier, and the views of memory that workers share.
//! * `arena`: memory of the KV cache. `memory`: memory of weights and workspace.
//! * `backend`: how a graph becomes steps and how they run.
//!
//! # One answer
//!
//! A sequence's logits are the same bits for every instruction set, number of threads, chunking of
//! the prompt, other sequences in the batch, and place of its rows in the cache. This holds because
//! the arithmetic is fixed, down to the order of operations:
//!
//! * **Lanes.** Every kernel is written once over sixteen virtual lanes. A lane is an output. The
//!   reduction runs inside a lane, in order; it is never split between lanes or workers.
//! * **Linear with quantised weights.** Activations are quantised for each row and 32 columns
//!   (scale `amax / 127`, to nearest even). Inside a block of 32 columns sums are exact integers.
//!   Between blocks, in order, `acc = fma(dot, weight_scale * activation_scale, acc)`. Types with a
//!   minimum then add `acc = fma(minimum, activation_scale * sum, acc)`. Q2_K, Q3_K, Q6_K and the
//!   types with a codebook first add two halves of 16 columns with a scale each, exactly; NVFP4's
//!   scales are no integers, so it rounds that sum once. Q2_K adds a minimum for the low half, then
//!   one for the high half.
//! * **Linear with F32, F16 and BF16 weights.** They multiply f32 activations, column by column,
//!   fused.
//! * **Attention.** Tiles of 64 positions, aligned to the position in the sequence. `q . k` adds
//!   dims in order, `p . v` positions in order. Tiles are folded in order inside spans of 1024
//!   positions, then spans in order. f32 and f16 rows use f32 fused multiply-adds; bf16 rows use
//!   pair dots with the rounding of `vdpbf16ps`. For K in q8_0 or q4_0 a query is quantised as
//!   activations are, and a score is `fma(dot, query_scale * K_scale, score)` over its blocks of 32
//!   in order. V in those formats is decoded exactly to f32. Scales belong to one row, so no row's
//!   stored form depends on a later one.
//! * **Norms and sums.** Sixteen virtual lanes (`i % 16`), joined by one fixed tree.
//! * **Functions.** `exp`, `tanh`, sine and cosine are the crate's own, with one order of
//!   operations. Rope angles are f64.
//! * **Floating-point mode.** Every job runs in the processor's default mode, whatever the host
//!   program set.
//!
//! The contract test (`crates/minfer/tests/contract/main.rs`) compares logits with `==` over the
//! product of instruction sets, threads, chunkings, other sequences and block placements, and
//! checks that each variant really ran. `crates/minfer/tests/bits.rs` holds checksums of logits, so
//! a bit that changes in all variants alike is seen too.
//!
//! Two choices that measurements settled:
//!
//! * *Rows of the KV cache are f16 by default.* They cost half of f32's memory traffic in a long
//!   decode, and their rounding is far below that of 8-bit activations. Every value is widened
//!   exactly, so the arithmetic is that of f32; a prefill runs within 15 % of f32's speed. bf16
//!   pair dots are an option (`--cache-type bf16`). They lose where `vdpbf16ps` runs at half the
//!   rate of f32 multiply-adds, as on the processor measured, and they round queries and
//!   probabilities to 8 bits.
//! * *Activations have one scale for 32 columns*, also for K-quants. One for 256, which others use,
//!   would save conversions. The finer one keeps the distance to the exact model at 0.9 (Q4_1), 0.5
//!   and 0.2 (Q4_K_M) of llama.cpp's on the recorded passages.
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
pub mod profile;
mod quantise;
pub mod roofline;
#[allow(unsafe_code, reason = "memory shared between workers under one stated promise")]
mod threads;

pub use arch::{Isa, IsaError};
pub use backend::CpuBackend;
pub use memory::MemoryError;
pub use pack::PackError;
pub use threads::{Pool, share_allocator_arena};
