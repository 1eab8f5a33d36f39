//! Which block of the cache holds which tokens of which sequence.
//!
//! Bookkeeping only: bytes are an arena's, which a backend owns. Every operation either happens or changes nothing.
//! A [`Store`] is one value with one file for each thing it does: `prepare` takes cells, `shift` removes tokens, `window`
//! gives back what is out of sight, `restore` makes room for rows from elsewhere, `compact` moves blocks down.

mod blocks;
mod compact;
mod demand;
mod error;
mod naming;
mod prefix;
mod prepare;
mod restore;
mod reuse;
pub mod session;
mod shift;
mod stats;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod window;

pub use blocks::Placement;
pub use demand::{Demand, Droppable, SHIFTED_BLOCKS, window_blocks};
pub use error::StoreError;
pub use restore::{Shape, ShapeRun};
pub use shift::most_rope_offsets;
pub use stats::{KvStats, SequenceBlocks};
pub use store::{SequenceId, Store, StoreOptions};
