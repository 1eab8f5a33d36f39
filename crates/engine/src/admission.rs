//! Admission: checks a request, counts it as live, and makes a sequence of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use minfer_text::{TextStream, Tokenizer};

use crate::constraint::Constrained;
use crate::reply::Reply;
use crate::request::{Request, RequestError};
use crate::sampler::{Sampler, random};
use crate::sequence::Sequence;
use crate::submission::Submission;
use crate::{EngineConfig, RequestId, SubmitError};

/// What requests are checked against.
pub(crate) struct Admission {
    n_ctx: usize,
    n_slots: usize,
    queue: usize,
    /// Token ids that can be fed and predicted are below it.
    vocab: usize,
    /// Tokens that one sequence has room for when it is alone.
    kv_tokens: usize,
    end_tokens: Arc<[u32]>,
    next_id: AtomicU64,
    /// Requests that were accepted and have not ended.
    live: Arc<AtomicUsize>,
    /// No more requests are taken.
    closed: AtomicBool,
}

impl Admission {
    pub(crate) fn new(
        config: &EngineConfig,
        tokenizer: &Tokenizer,
        vocab: usize,
        kv_tokens: usize,
    ) -> Admission {
        Admission {
            n_ctx: config.n_ctx,
            n_slots: config.n_slots,
            queue: config.queue,
            vocab,
            kv_tokens,
            end_tokens: tokenizer.end_of_generation().iter().copied().collect(),
            next_id: AtomicU64::new(0),
            live: Arc::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Makes sequences that count as live until their terminal events: of all submissions or of
    /// none.
    pub(crate) fn accept(&self, submissions: Vec<Submission>) -> Result<Vec<Sequence>, SubmitError> {
        let checked: Result<Vec<_>, SubmitError> = submissions
            .iter()
            .map(|Submission { request, .. }| {
                let most = self.most_tokens(request)?;
                Ok((most, TextStream::new(request.stop.clone()).map_err(RequestError::Stop)?))
            })
            .collect();
        let checked = checked?;
        if self.closed.load(Ordering::Acquire) {
            return Err(SubmitError::Stopped);
        }
        self.take_places(submissions.len())?;
        let sequence = |(submission, (most, text))| self.sequence(submission, most, text);
        Ok(submissions.into_iter().zip(checked).map(sequence).collect())
    }

    /// Takes no more requests.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Requests that were taken and have not ended.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    fn sequence(&self, submission: Submission, most: usize, text: TextStream) -> Sequence {
        let Submission { request, sink, constraint, priority, deadline } = submission;
        let sampler = self.sampler(&request);
        let id = RequestId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let reply = Reply::new(id, sink, Arc::clone(&self.live));
        let mut sequence = Sequence::new(request, most, sampler, text, reply);
        sequence.constraint = constraint.map(Constrained::Idle);
        sequence.priority = priority;
        sequence.deadline = deadline;
        sequence
    }

    /// Checks a request and returns the most tokens that it can generate.
    fn most_tokens(&self, request: &Request) -> Result<usize, SubmitError> {
        request.validate(self.vocab)?;
        let (n_prompt_tokens, n_ctx, kv_tokens) = (request.prompt.len(), self.n_ctx, self.kv_tokens);
        // A prompt may fill the whole context if no token is to be generated.
        let needed = usize::from(request.max_tokens != Some(0));
        if let Some(shift) = request.context_shift
            && shift.keep as usize + 1 >= n_ctx.min(kv_tokens)
        {
            let (keep, n_ctx) = (shift.keep, n_ctx.min(kv_tokens));
            return Err(RequestError::KeepsTooMuch { keep, n_ctx }.into());
        }
        // With a context shift the context never ends a generation, so the default limit is one
        // context of tokens.
        let endless = request.context_shift.is_some() && request.max_tokens.is_none();
        let unlimited = if endless { n_ctx } else { usize::MAX };
        if request.session.is_some() {
            // How many of the tokens are new is known only when the request starts.
            return Ok(unlimited);
        }
        if n_prompt_tokens + needed > n_ctx {
            return Err(SubmitError::ExceedsContext { n_prompt_tokens, n_ctx });
        }
        if n_prompt_tokens > kv_tokens {
            return Err(SubmitError::ExceedsKv { n_prompt_tokens, kv_tokens });
        }
        if request.context_shift.is_some() {
            return Ok(unlimited);
        }
        // The last token that is generated is not fed.
        Ok(n_ctx.min(kv_tokens.saturating_add(1)) - n_prompt_tokens)
    }

    fn sampler(&self, request: &Request) -> Sampler {
        let seed = request.seed.unwrap_or_else(random::fresh_seed);
        let masked_for = if request.ignore_eos { u32::MAX } else { request.min_tokens };
        Sampler::new(request.sampling.clone(), seed, request.choice)
            .with_masked(Arc::clone(&self.end_tokens), masked_for)
    }

    /// Counts so many requests as live if there are places for all of them.
    fn take_places(&self, count: usize) -> Result<(), SubmitError> {
        let (n_slots, queue) = (self.n_slots, self.queue);
        let taken = self.live.fetch_update(Ordering::AcqRel, Ordering::Acquire, |live| {
            (live + count <= n_slots.saturating_add(queue)).then_some(live + count)
        });
        taken.map(drop).map_err(|_| SubmitError::QueueFull { n_slots, queue })
    }
}
