//! Options of one generation, shared by chats, completions and conversations.

use minfer_engine::{Request, SamplingParams, SessionId};

/// How an answer is generated: its length, its end and how tokens are sampled.
///
/// [`Chat`](crate::Chat), [`Completion`](crate::Completion) and
/// [`Conversation`](crate::Conversation) have a method for each field, and `options` for all.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct GenerationOptions {
    /// The most tokens to generate; `None` goes on to the end of the context.
    pub max_tokens: Option<u32>,
    /// End-of-generation tokens are banned until this many tokens are generated.
    pub min_tokens: u32,
    /// Seed of the random draws; `None` draws one and reports it.
    pub seed: Option<u64>,
    /// The answer ends before the first of these texts.
    pub stop: Vec<String>,
    /// End-of-generation tokens are banned.
    pub ignore_eos: bool,
    /// Temperature, top-k, top-p, min-p, penalties and logit bias.
    pub sampling: SamplingParams,
}

impl GenerationOptions {
    /// The engine's request for a prompt.
    pub(super) fn request(&self, prompt: Vec<u32>, session: Option<SessionId>) -> Request {
        Request {
            max_tokens: self.max_tokens,
            min_tokens: self.min_tokens,
            seed: self.seed,
            stop: self.stop.clone(),
            ignore_eos: self.ignore_eos,
            sampling: self.sampling.clone(),
            session,
            ..Request::new(prompt)
        }
    }
}

/// The methods that set a field of `self.options`.
macro_rules! generation_setters {
    () => {
        /// The most tokens to generate. Without it the answer may go on to the end of the context.
        pub fn max_tokens(mut self, tokens: u32) -> Self {
            self.options.max_tokens = Some(tokens);
            self
        }

        /// Bans end-of-generation tokens until this many tokens are generated.
        pub fn min_tokens(mut self, tokens: u32) -> Self {
            self.options.min_tokens = tokens;
            self
        }

        /// Sampling temperature (0.8); 0 takes the most probable token each time.
        pub fn temperature(mut self, temperature: f32) -> Self {
            self.options.sampling.temperature = temperature;
            self
        }

        /// Samples from this many of the most probable tokens (40); 0 is off.
        pub fn top_k(mut self, tokens: u32) -> Self {
            self.options.sampling.top_k = tokens;
            self
        }

        /// Samples from the most probable tokens that together reach this probability (0.95);
        /// 1 is off.
        pub fn top_p(mut self, probability: f32) -> Self {
            self.options.sampling.top_p = probability;
            self
        }

        /// Samples from tokens at least this probable in proportion to the best one (0.05);
        /// 0 is off.
        pub fn min_p(mut self, share: f32) -> Self {
            self.options.sampling.min_p = share;
            self
        }

        /// Penalty for tokens of the last 64 (1); 1 is off.
        pub fn repeat_penalty(mut self, penalty: f32) -> Self {
            self.options.sampling.repeat_penalty = penalty;
            self
        }

        /// Adds `bias` to the logit of a token before sampling; negative infinity bans it.
        pub fn logit_bias(mut self, token: u32, bias: f32) -> Self {
            self.options.sampling.logit_bias.push((token, bias));
            self
        }

        /// All sampling parameters at once.
        pub fn sampling(mut self, params: $crate::engine::SamplingParams) -> Self {
            self.options.sampling = params;
            self
        }

        /// Seed of the random draws. The same prompt, options and seed give the same answer,
        /// whatever else runs. Without it a seed is drawn and reported.
        pub fn seed(mut self, seed: u64) -> Self {
            self.options.seed = Some(seed);
            self
        }

        /// Ends the answer before this text. May be called several times.
        pub fn stop(mut self, text: impl Into<String>) -> Self {
            self.options.stop.push(text.into());
            self
        }

        /// Bans end-of-generation tokens, so that the answer has the full length.
        pub fn ignore_eos(mut self, ignore: bool) -> Self {
            self.options.ignore_eos = ignore;
            self
        }

        /// All options at once.
        pub fn options(mut self, options: $crate::GenerationOptions) -> Self {
            self.options = options;
            self
        }
    };
}

pub(super) use generation_setters;
