//! Whether a model fits into memory, told before any weight is read.

use minfer_models::Model;

use crate::{LoadError, LoadOptions, available_memory};

/// Memory that is asked for beside the KV cache, and what there is.
pub(crate) struct Room {
    weights: u64,
    /// Bytes that each token of a forward adds to the workspace.
    per_batch_token: u64,
    logits: u64,
    n_batch: u64,
    limit: Option<u64>,
    free: u64,
}

impl Room {
    /// `kept` are the bytes that the backend keeps of each weight, `n_ctx` the positions that are wanted: a forward has no
    /// more tokens than all sequences together.
    pub(crate) fn of(model: &Model, kept: &[u64], n_ctx: u32, options: &LoadOptions) -> Room {
        let numbers = &model.hyperparams;
        Room {
            weights: kept.iter().sum(),
            // Hidden rows, the widest pair of rows of a layer, their 8-bit images.
            per_batch_token: 4 * u64::from(numbers.width) * 3 + 4 * u64::from(numbers.feed_forward) * 4,
            logits: 4 * u64::from(numbers.vocab) * u64::from(options.head_rows),
            n_batch: u64::from(options.n_batch.min(n_ctx.saturating_mul(options.n_slots))),
            limit: options.memory_limit,
            // Where the operating system does not tell, it refuses by itself when memory is taken.
            free: available_memory().unwrap_or(u64::MAX),
        }
    }

    /// Bytes of packed weights.
    pub(crate) fn weights(&self) -> u64 {
        self.weights
    }

    /// Bytes of activations and logits.
    pub(crate) fn workspace(&self) -> u64 {
        self.workspace_of(self.n_batch)
    }

    fn workspace_of(&self, n_batch: u64) -> u64 {
        self.per_batch_token * n_batch + self.logits
    }

    fn available(&self) -> u64 {
        self.limit.unwrap_or(u64::MAX).min(self.free)
    }

    /// `n_ctx`, if that many positions of `per_token` bytes fit.
    pub(crate) fn check(&self, n_ctx: u32, per_token: u64) -> Result<u32, LoadError> {
        let (kv, workspace) = (u64::from(n_ctx) * per_token, self.workspace());
        if self.weights + workspace + kv <= self.available() {
            return Ok(n_ctx);
        }
        let advice = self.advice(kv, u64::from(n_ctx.min(LITTLE)) * per_token);
        Err(LoadError::Memory { weights: self.weights, kv, workspace, available: self.available(), advice })
    }

    /// The most positions that fit, at least one block.
    pub(crate) fn longest(&self, most: u32, per_token: u64, block_tokens: u32) -> Result<u32, LoadError> {
        let room = self.available().saturating_sub(self.weights + self.workspace());
        let fitting = (room / per_token.max(1)).min(u64::from(most)) as u32;
        if fitting == most {
            return Ok(most);
        }
        self.check((fitting / block_tokens * block_tokens).max(block_tokens.min(most)), per_token)
    }

    /// What would make the model fit: less of one thing, of both, or another model. `little_kv` are the bytes of a short
    /// context.
    fn advice(&self, kv: u64, little_kv: u64) -> String {
        let fits = |workspace, kv| self.weights + workspace + kv <= self.available();
        let (workspace, little) = (self.workspace(), self.workspace_of(self.n_batch.min(LITTLE.into())));
        let (n_batch, n_ctx) = ("a smaller --n-batch (-b)", "a smaller --n-ctx (-c)");
        let settings = match (fits(little, kv), fits(workspace, little_kv)) {
            (true, true) => format!("{n_batch} or {n_ctx}"),
            (true, false) => n_batch.to_owned(),
            (false, true) => n_ctx.to_owned(),
            (false, false) if fits(little, little_kv) => format!("{n_batch} and {n_ctx}"),
            (false, false) => "a smaller model".to_owned(),
        };
        match self.limit {
            Some(limit) if limit < self.free => format!("; try {settings}, or a larger --memory-limit"),
            _ => format!("; try {settings}"),
        }
    }
}

/// Tokens of a forward, and positions of a context, that are little to ask for.
const LITTLE: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 bytes of weights; 10 for each token of a batch of 100, 100 of logits.
    fn room(limit: u64) -> Room {
        let n_batch = 100;
        Room { weights: 1000, per_batch_token: 10, logits: 100, n_batch, limit: Some(limit), free: 1 << 40 }
    }

    fn refusal(limit: u64, n_ctx: u32) -> String {
        room(limit).check(n_ctx, 5).unwrap_err().to_string()
    }

    #[test]
    fn what_fits_exactly_fits() {
        assert_eq!(room(2600).check(100, 5).unwrap(), 100);
        assert!(room(2599).check(100, 5).is_err());
        assert_eq!(
            (room(2599).longest(100, 5, 16).unwrap(), room(2600).longest(100, 5, 16).unwrap()),
            (96, 100)
        );
    }

    #[test]
    fn advice_names_what_is_worth_reducing() {
        for (limit, n_ctx, advice) in [
            (
                2599,
                100,
                "; try a smaller --n-batch (-b) or a smaller --n-ctx (-c), or a larger --memory-limit",
            ),
            (2100, 50, "; try a smaller --n-batch (-b), or"),
            (2500, 10_000, "; try a smaller --n-ctx (-c), or"),
            (2100, 10_000, "; try a smaller --n-batch (-b) and a smaller --n-ctx (-c), or"),
            (900, 100, "; try a smaller model, or"),
        ] {
            let refusal = refusal(limit, n_ctx);
            assert!(refusal.contains(advice), "{limit} {n_ctx}: {refusal}");
        }
        let unlimited = Room { limit: None, free: 900, ..room(0) };
        assert!(unlimited.check(100, 5).unwrap_err().to_string().ends_with("; try a smaller model"));
    }
}
