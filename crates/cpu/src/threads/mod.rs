//! Workers that walk the same list of steps, and the views of memory that they share.

mod arena;
mod barrier;
mod pool;
mod shared;
mod worker;

pub use arena::share_allocator_arena;
pub(crate) use barrier::Barrier;
pub use pool::Pool;
pub(crate) use shared::{Rows, SharedSlice};
pub(crate) use worker::{ChunkCounter, Worker};
