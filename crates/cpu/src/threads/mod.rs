//! Workers that walk the same list of steps, and the views of memory that they share.

mod shared;
mod worker;

pub(crate) use shared::{Rows, SharedSlice};
pub(crate) use worker::{ChunkCounter, Worker};
