//! Choosing the next token: a list of stages over candidates, one file each.
//!
//! Masks and the logit bias come first, then the stages in the order that the parameters give, then
//! one draw. A sampler has no state of its own: what it chooses depends on the logits, the tokens
//! before, the seed, the choice and the index of the generated token, and on nothing else.

mod candidates;
mod exp;
mod logit_bias;
pub mod logprobs;
mod mass;
mod min_p;
mod params;
mod penalties;
pub mod random;
mod temperature;
mod top_k;
mod top_p;

use std::sync::Arc;

pub use candidates::Scratch;
pub use params::{Param, ParamError, SamplingParams, Stage};

use candidates::Candidates;

/// Why no token could be chosen.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// Every token has a logit of negative infinity.
    #[error("all tokens are masked")]
    AllMasked,
    /// The model gave a logit that is not a number or positive infinity.
    #[error(
        "the logit of token {id} is {value}: the file's weights may be damaged, or a setting does not fit the model"
    )]
    NotFinite {
        /// The token.
        id: u32,
        /// Its logit.
        value: f32,
    },
}

/// How one request's tokens are chosen.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    seed: u64,
    choice: u32,
    masked: Arc<[u32]>,
    masked_for: u32,
}

impl Sampler {
    /// A sampler with validated parameters. The draws are keyed by `seed` and `choice`.
    pub fn new(params: SamplingParams, seed: u64, choice: u32) -> Sampler {
        Sampler { params, seed, choice, masked: Arc::default(), masked_for: 0 }
    }

    /// Never chooses one of `ids` as one of the first `tokens` tokens.
    #[must_use]
    pub fn with_masked(self, ids: Arc<[u32]>, tokens: u32) -> Sampler {
        Sampler { masked: ids, masked_for: tokens, ..self }
    }

    /// The seed of the draws.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Chooses the generated token of index `index` after the tokens `history`. With `allowed`, only
    /// tokens whose bit is set: bit `id % 32` of word `id / 32`.
    ///
    /// # Errors
    /// A logit that is no number, or nothing left to choose from.
    pub fn sample(
        &self,
        scratch: &mut Scratch,
        logits: &[f32],
        allowed: Option<&[u32]>,
        history: &[u32],
        index: u32,
    ) -> Result<u32, SampleError> {
        let mut candidates = Candidates::new(scratch, logits)?;
        if let Some(allowed) = allowed {
            candidates.allow(allowed);
        }
        self.narrow(&mut candidates, history, index);
        if self.params.temperature == 0.0 {
            return candidates.best();
        }
        candidates.draw(random::draw(self.seed, self.choice, index, 0))
    }

    /// Leaves what may be chosen. Stages that change nothing about the best candidate are left out
    /// when only that one is wanted.
    fn narrow(&self, candidates: &mut Candidates<'_>, history: &[u32], index: u32) {
        if index < self.masked_for {
            candidates.mask(&self.masked);
        }
        logit_bias::apply(candidates, &self.params.logit_bias);
        for stage in &self.params.order {
            if self.params.temperature == 0.0 && stage.keeps_the_best() {
                continue;
            }
            self.apply(*stage, candidates, history);
        }
    }

    fn apply(&self, stage: Stage, candidates: &mut Candidates<'_>, history: &[u32]) {
        let params = &self.params;
        match stage {
            Stage::Penalties => penalties::apply(candidates, params, history),
            Stage::TopK => top_k::apply(candidates, params.top_k),
            Stage::TopP => top_p::apply(candidates, params.top_p),
            Stage::MinP => min_p::apply(candidates, params.min_p),
            Stage::Temperature => temperature::apply(candidates, params.temperature),
        }
    }
}

#[cfg(test)]
mod tests;
