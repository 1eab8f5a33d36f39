//! The engine's settings.

use minfer_graph::Extents;

use crate::ConfigError;
use crate::kv::BlockOrder;
use crate::kv::session::SessionIdentity;

/// Settings of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineConfig {
    /// Most tokens of a sequence, prompt and answer together.
    pub n_ctx: usize,
    /// Most tokens of one step, over all sequences.
    pub n_batch: usize,
    /// Most sequences that run at once.
    pub n_slots: usize,
    /// Most requests that are accepted beyond those that run.
    pub queue: usize,
    /// Most KV blocks of each group, where fewer than the arena reserves are wanted.
    pub kv_blocks: Option<u32>,
    /// In which order KV blocks are handed out.
    pub block_order: BlockOrder,
    /// Whether rows of ended requests are kept for later ones while there is memory.
    pub prefix_cache: bool,
    /// What saved conversations depend on.
    pub identity: SessionIdentity,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            n_ctx: 4096,
            n_batch: 512,
            n_slots: 4,
            queue: 512,
            kv_blocks: None,
            block_order: BlockOrder::LowestFirst,
            prefix_cache: true,
            identity: SessionIdentity::default(),
        }
    }
}

impl EngineConfig {
    /// Checks the settings against what a model was compiled for.
    ///
    /// # Errors
    /// A setting that is too small or too large, by name.
    pub fn validate(&self, extents: Extents) -> Result<(), ConfigError> {
        let least = [
            ("n_ctx", self.n_ctx, 2),
            ("n_slots", self.n_slots, 1),
            ("n_batch", self.n_batch, self.n_slots.max(1)),
            ("head rows", extents.rows as usize, 1),
        ];
        if let Some(&(field, value, least)) = least.iter().find(|(_, value, least)| value < least) {
            return Err(ConfigError::TooSmall { field, value, least });
        }
        let most = [
            ("n_batch", self.n_batch, extents.tokens as usize),
            ("n_slots", self.n_slots, extents.sequences as usize),
            ("n_ctx", self.n_ctx, i32::MAX as usize),
        ];
        match most.iter().find(|(_, value, most)| value > most) {
            Some(&(field, value, most)) => Err(ConfigError::TooLarge { field, value, most }),
            None => Ok(()),
        }
    }
}
