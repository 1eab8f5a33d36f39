//! Which block of the cache holds which tokens of which sequence.
//!
//! Bookkeeping only: bytes are an arena's, which a backend owns. Every operation either happens or changes nothing.

mod blocks;
mod store;

pub use blocks::Placement;
pub use store::{KvStats, SequenceId, Store, StoreError};
