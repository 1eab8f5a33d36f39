//! The KV store: which block of the cache holds the rows of which tokens.
//!
//! A paged KV cache with prefix sharing. The store is bookkeeping only: bytes belong to a backend's
//! [`KvArena`](minfer_graph::backend::KvArena), which commits, copies and releases blocks. Every
//! operation happens or changes nothing, except that cached blocks may have been evicted.
//!
//! A **block** holds a fixed number of positions (64 by default) of one sequence, for all layers of
//! a **group**: the layers with the same row sizes, formats and window. A sequence has one **block
//! table** for each group. A **cell** is the place of one row: block times block size plus offset.
//!
//! * **Ownership** (`blocks`, `prepare`). A block counts the sequences whose tables name it.
//!   `prepare` hands out cells only in a block that the sequence owns alone and that is not in the
//!   prefix index. Otherwise it first copies the rows before the new one to a block of its own
//!   (copy on write). `fork` and `reuse` copy nothing.
//! * **Prefix index** (`prefix`, `prefix_index`, `reuse`). `publish` enters full blocks into a
//!   tree, one for each block size. A root stands for the store's fingerprint and the salt; a node
//!   stands for a block's tokens after those of its parent. Nodes are found by a hash of (parent,
//!   tokens) and compared by parent and tokens, so a collision cannot return wrong rows. A sequence
//!   that is dropped leaves its indexed blocks, and its last partly filled block, as cached. Cached
//!   blocks are evicted in order of last use when the pool is empty or the arena refuses memory.
//!   `reuse` takes the longest known prefix for which every group has the rows that the next token
//!   sees; it matches to the token, not to the block.
//! * **Windows** (`window`). `evict_window` releases blocks that no later token sees. `truncate`
//!   and `remove` fail where the next token would see a released row. `can_truncate` and
//!   `removal_widens_sight` check it beforehand.
//! * **Removal** (`shift`, `table`). A context shift writes no row. The table becomes a list of
//!   runs, each with its **rope offset**: how much further its K rows were rotated than their
//!   position says. Attention rotates queries by that offset. A shifted sequence is not entered
//!   into the prefix index, because its rows also depend on the removed tokens.
//! * **Demand** (`demand`). How many blocks a sequence will take to begin, to grow or to come back,
//!   and whether they are free, cached, or owned by sequences that can be dropped. A group with a
//!   window takes at most its window, one step, and two blocks.
//! * **Moves** (`compact`, `restore`). Compaction plans moves, commits and copies, and changes
//!   tables last. A [`SequenceLayout`] is a sequence without its rows, for any block size:
//!   `restore` makes cells for it, and the caller writes the rows, from a [session file](session)
//!   or from host memory.
//!
//! `tests/property.rs` runs 200 000 random operations against a model that keeps one row for each
//! token, recounts everything after each, and repeats some with each commit and copy failing.

mod blocks;
mod compact;
mod demand;
mod error;

mod prefix;
mod prefix_index;
mod prepare;
mod reset;
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

pub use blocks::BlockOrder;
pub use demand::{Demand, Droppable, SHIFTED_BLOCKS, window_blocks};
pub use error::StoreError;
pub use restore::{LayoutRun, SequenceLayout};
pub use shift::most_rope_offsets;
pub use stats::{KvStats, SequenceBlocks};
pub use store::{SequenceId, Store, StoreOptions};
