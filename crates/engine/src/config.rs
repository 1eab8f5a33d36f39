//! Settings of an engine.

use minfer_graph::Extents;

use crate::ConfigError;
use crate::kv::BlockOrder;
use crate::kv::session::SessionIdentity;

/// Settings of one engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngineConfig {
    /// Most tokens of a sequence, prompt and answer together.
    pub n_ctx: usize,
    /// Most tokens of one step, over all sequences.
    pub n_batch: usize,
    /// While rows decode, a step that also feeds a prefill chunk takes about this many times a step
    /// that only decodes: the chunk is sized by measured time. 0 bounds chunks by `n_batch` alone;
    /// else above 1. The smaller it is, the less running answers wait, and the longer prompts take
    /// beside them.
    pub step_target: f32,
    /// Most sequences that run at once.
    pub n_slots: usize,
    /// Most requests that wait; another one is refused.
    pub queue: usize,
    /// Most KV blocks of each group of layers, if fewer than the arena reserves.
    pub kv_blocks: Option<u32>,
    /// The order in which KV blocks are handed out.
    pub block_order: BlockOrder,
    /// Whether KV blocks of ended requests are kept, while there is memory, for later requests that
    /// begin alike.
    pub prefix_cache: bool,
    /// Whether tokens that may follow are guessed from the text so far and checked together: the
    /// answers are the same, in fewer steps.
    pub speculation: bool,
    /// What a saved conversation's rows depend on: a file of another identity is refused.
    pub identity: SessionIdentity,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            n_ctx: 4096,
            n_batch: 512,
            step_target: 4.0,
            n_slots: 4,
            queue: 512,
            kv_blocks: None,
            block_order: BlockOrder::LowestFirst,
            prefix_cache: true,
            speculation: true,
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
        if self.step_target != 0.0 && !(self.step_target > 1.0 && self.step_target.is_finite()) {
            return Err(ConfigError::StepTarget(self.step_target.to_string()));
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
