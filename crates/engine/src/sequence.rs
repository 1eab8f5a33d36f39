//! One request on its way: its tokens, how many of them are in the cache, and what is to become of it.

use std::time::Instant;

use minfer_text::{TextStream, Tokenizer};

use crate::RequestId;
use crate::event::{
    Event, FinishReason, Finished, Progress, PromptRow, StopCause, Timings, Token, TokenLogprobs, Usage,
};
use crate::kv::SequenceId;
use crate::reply::Reply;
use crate::request::{PromptLogprobs, Request};
use crate::sampler::Sampler;

/// A request that was accepted.
pub(crate) struct Sequence {
    /// The prompt, then what was generated.
    pub(crate) tokens: Vec<u32>,
    prompt_len: usize,
    /// Tokens whose rows are in the cache.
    pub(crate) fed: usize,
    /// The sequence in the KV store; none while it waits.
    pub(crate) kv: Option<SequenceId>,
    /// Most tokens to generate.
    limit: usize,
    pub(crate) sampler: Sampler,
    pub(crate) logprobs: Option<u32>,
    prompt_logprobs: Option<PromptLogprobs>,
    /// Positions of the prompt that were reported.
    scored: usize,
    /// Prompt tokens reported as fed.
    progress: usize,
    stop: Vec<String>,
    text: TextStream,
    pub(crate) reply: Reply,
    clock: Clock,
}

/// When the stages of a request began.
struct Clock {
    submitted: Instant,
    admitted: Option<Instant>,
    prompt_done: Option<Instant>,
}

/// A chosen token with what is to be reported about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) id: u32,
    pub(crate) logprobs: Option<TokenLogprobs>,
}

impl Sequence {
    /// `request` was validated; there is room for `most` tokens after its prompt.
    pub(crate) fn new(
        request: Request,
        most: usize,
        sampler: Sampler,
        text: TextStream,
        reply: Reply,
    ) -> Sequence {
        let prompt_len = request.prompt.len();
        Sequence {
            prompt_len,
            tokens: request.prompt,
            fed: 0,
            kv: None,
            limit: request.max_tokens.map_or(most, |wanted| most.min(wanted as usize)),
            sampler,
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            scored: 0,
            progress: 0,
            stop: request.stop,
            text,
            reply,
            clock: Clock { submitted: Instant::now(), admitted: None, prompt_done: None },
        }
    }

    pub(crate) fn id(&self) -> RequestId {
        self.reply.id
    }

    /// Tokens that are known but not in the cache.
    pub(crate) fn pending(&self) -> u32 {
        (self.tokens.len() - self.fed) as u32
    }

    /// Tokens generated so far.
    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Alternatives to report at each prompt position, if any are wanted.
    pub(crate) fn prompt_top(&self) -> Option<usize> {
        self.prompt_logprobs.map(|wanted| wanted.top as usize)
    }

    /// The token that follows `position` in the prompt.
    pub(crate) fn next_in_prompt(&self, position: usize) -> Option<u32> {
        self.tokens[..self.prompt_len].get(position + 1).copied()
    }

    /// The positions, among the next `tokens` ones, whose logits somebody reads.
    pub(crate) fn wanted_positions(&self, tokens: u32) -> std::ops::Range<usize> {
        let end = self.fed + tokens as usize;
        let samples = end == self.tokens.len() && self.generated() < self.limit;
        if self.prompt_logprobs.is_some() && self.scored < self.prompt_len && end > self.scored {
            return self.scored.max(self.fed)..if samples { end } else { end.min(self.prompt_len) };
        }
        if samples { end - 1..end } else { end..end }
    }

    /// Whether the logits after `position` choose the next token.
    pub(crate) fn samples_at(&self, position: usize) -> bool {
        position + 1 == self.tokens.len() && self.generated() < self.limit
    }

    /// Whether the prediction after `position` is still to be reported.
    pub(crate) fn scores_at(&self, position: usize) -> bool {
        self.prompt_logprobs.is_some() && (self.scored..self.prompt_len).contains(&position)
    }

    /// The sequence takes part in a step from now on.
    pub(crate) fn admit(&mut self, kv: SequenceId) {
        self.kv = Some(kv);
        self.clock.admitted.get_or_insert_with(Instant::now);
    }

    /// Everything is fed again when the sequence is next admitted.
    pub(crate) fn preempt(&mut self) -> Option<SequenceId> {
        self.fed = 0;
        self.kv.take()
    }

    /// `tokens` more are in the cache: reports progress and predictions.
    pub(crate) fn advance(&mut self, tokens: u32, rows: Vec<PromptRow>) {
        self.fed += tokens as usize;
        let done = self.fed.min(self.prompt_len);
        if done > self.progress {
            self.progress = done;
            let progress = Progress { done: done as u32, total: self.prompt_len as u32 };
            self.reply.send(Event::Progress(progress));
        }
        if !rows.is_empty() {
            self.scored += rows.len();
            self.reply.send(Event::PromptLogprobs(rows));
        }
        if self.fed >= self.prompt_len {
            self.clock.prompt_done.get_or_insert_with(Instant::now);
        }
    }

    /// The end of a request that wants no tokens, once its prompt is fed.
    pub(crate) fn ended_without_tokens(&self) -> Option<FinishReason> {
        (self.limit == 0 && self.pending() == 0).then_some(FinishReason::Length)
    }

    /// Appends a chosen token and reports it; tells whether the generation ends with it.
    pub(crate) fn append(&mut self, chosen: Chosen, tokenizer: &Tokenizer) -> Option<FinishReason> {
        let index = self.generated();
        let id = chosen.id;
        self.tokens.push(id);
        let is_end = tokenizer.is_end_of_generation(id);
        let bytes = if !is_end && tokenizer.is_shown(id) { tokenizer.token_bytes(id) } else { &[] };
        let mut text = self.text.push(bytes).text;
        let is_last = is_end || index + 1 == self.limit;
        if is_last && self.text.stopped().is_none() {
            text.push_str(&self.text.finish().text);
        }
        self.reply.send(Event::Token(Token {
            index: index as u32,
            id,
            text,
            is_end,
            logprobs: chosen.logprobs,
        }));
        if let Some(stop) = self.text.stopped() {
            return Some(FinishReason::Stop(StopCause::StopString(self.stop[stop].clone())));
        }
        if is_end {
            return Some(FinishReason::Stop(StopCause::EndToken(id)));
        }
        is_last.then_some(FinishReason::Length)
    }

    /// The end of a generation that has no room for its last token's row: what was held back is text after all.
    pub(crate) fn exhausted(&mut self) -> Finished {
        let tail = self.text.finish();
        let reason = match tail.stopped {
            Some(stop) => FinishReason::Stop(StopCause::StopString(self.stop[stop].clone())),
            None => FinishReason::Length,
        };
        Finished { tail: tail.text, ..self.finished(reason) }
    }

    /// The numbers of a generation that ends now.
    pub(crate) fn finished(&self, reason: FinishReason) -> Finished {
        let now = Instant::now();
        let admitted = self.clock.admitted.unwrap_or(now);
        let prompt_done = self.clock.prompt_done.unwrap_or(now);
        Finished {
            reason,
            tail: String::new(),
            usage: Usage { prompt: self.prompt_len as u32, completion: self.generated() as u32, cached: 0 },
            timings: Timings {
                queued: admitted - self.clock.submitted,
                prompt: prompt_done - admitted,
                predicted: now - prompt_done,
            },
            seed: self.sampler.seed(),
        }
    }
}
