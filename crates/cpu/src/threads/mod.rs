//! Workers that walk the same list of steps, and the views of memory that they share.

mod arena;
mod barrier;
mod float_mode;
mod pool;
mod shared;
mod sync;
mod turns;
mod worker;

pub use arena::share_allocator_arena;
pub(crate) use barrier::Barrier;
pub(crate) use float_mode::DefaultFloatMode;
pub use pool::Pool;
pub(crate) use shared::{Rows, SharedSlice};
pub(crate) use worker::{ChunkCounter, Worker};
