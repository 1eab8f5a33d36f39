//! An accepted request: its tokens, how many of them are in the KV cache, its sampler, its text and
//! its client.

use std::time::Instant;

use minfer_text::{TextStream, Tokenizer};

use crate::constraint::{Constrained, Helper, TextState};
use crate::drafter::{Acceptance, Confidence, Draft, Drafter};
use crate::event::{
    Event, FinishReason, Finished, Progress, PromptRow, StopCause, Timings, Token, TokenKind, TokenLogprobs,
    Usage,
};
use crate::history::History;
use crate::kv::SequenceId;
use crate::reply::Reply;
use crate::request::{ContextShift, PromptLogprobs, Request};
use crate::sampler::Sampler;
use crate::session::{RowStorage, SessionId};
use crate::{EngineError, RequestId};

/// A request that was accepted.
pub(crate) struct Sequence {
    /// The prompt, then what was generated.
    pub(crate) history: History,
    prompt_len: usize,
    /// Tokens that have been fed: their KV rows are in the cache.
    pub(crate) fed: usize,
    /// Tokens that had been fed when its KV rows were last dropped: they are fed again.
    refeed: usize,
    /// Where the KV rows of the fed tokens are.
    pub(crate) rows: RowStorage,
    /// The conversation that this request continues.
    pub(crate) session: Option<SessionId>,
    /// The slot that it runs in.
    pub(crate) slot: Option<usize>,
    /// What to remove when the context is full.
    pub(crate) context_shift: Option<ContextShift>,
    /// Whether KV rows may be taken from the prefix cache and left there.
    pub(crate) reuse: bool,
    pub(crate) salt: Option<u64>,
    /// Tokens of the prompt that were not fed, and how many of them context shifts had removed;
    /// `None` before the first admission.
    cached: Option<(u32, u32)>,
    /// Most tokens to generate.
    limit: usize,
    pub(crate) sampler: Sampler,
    pub(crate) logprobs: Option<u32>,
    prompt_logprobs: Option<PromptLogprobs>,
    /// Positions of the prompt whose predictions were reported.
    scored: usize,
    /// Prompt tokens reported as fed.
    progress: usize,
    pub(crate) stop: Vec<String>,
    text: TextStream,
    /// Which tokens it may have.
    pub(crate) constraint: Option<Constrained>,
    pub(crate) priority: i32,
    pub(crate) deadline: Option<Instant>,
    pub(crate) reply: Reply,
    clock: Clock,
    drafter: Option<Box<dyn Drafter>>,
    pub(crate) acceptance: Acceptance,
    /// Of the step under way.
    guesses: Option<Guesses>,
    /// Guessed tokens, and those that were right.
    guessed: (u32, u32),
}

/// Tokens that are fed behind the last one, to be checked.
#[derive(Debug)]
struct Guesses {
    /// All known tokens, then the guessed ones.
    tokens: Vec<u32>,
    count: usize,
    confidence: Confidence,
}

/// When the phases of a request began.
struct Clock {
    submitted: Instant,
    admitted: Option<Instant>,
    prompt_done: Option<Instant>,
}

/// A sampled token with what is to be reported about it.
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
            history: History::new(request.prompt),
            fed: 0,
            refeed: 0,
            rows: RowStorage::None,
            session: request.session,
            slot: None,
            context_shift: request.context_shift,
            // Predictions at positions of the prompt need the forward of each.
            reuse: request.reuse && request.prompt_logprobs.is_none(),
            salt: request.salt,
            cached: None,
            limit: request.max_tokens.map_or(most, |wanted| most.min(wanted as usize)),
            sampler,
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            scored: 0,
            progress: 0,
            stop: request.stop,
            text,
            constraint: None,
            priority: 0,
            deadline: None,
            reply,
            clock: Clock { submitted: Instant::now(), admitted: None, prompt_done: None },
            drafter: None,
            acceptance: Acceptance::default(),
            guesses: None,
            guessed: (0, 0),
        }
    }

    pub(crate) fn id(&self) -> RequestId {
        self.reply.id
    }

    /// The prompt, then what was generated.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.history.tokens
    }

    /// Tokens that are known and still to be fed: those that were removed are not.
    pub(crate) fn pending(&self) -> u32 {
        (self.tokens().len() - self.fed) as u32 - self.history.removed_from(self.fed)
    }

    /// The sequence in the KV store.
    ///
    /// # Panics
    /// It does not run.
    pub(crate) fn kv(&self) -> SequenceId {
        match self.rows {
            RowStorage::Cached(kv) => kv,
            _ => panic!("a running sequence is in the store"),
        }
    }

    /// KV rows that it has once all known tokens and the next one are fed.
    pub(crate) fn rows_wanted(&self) -> u32 {
        self.tokens().len() as u32 + 1 - self.history.removed_tokens()
    }

    /// Its KV rows were dropped: those of all tokens that were fed and not removed are computed
    /// again.
    pub(crate) fn give_up_rows(&mut self) {
        self.recompute(self.fed);
        self.fed = 0;
        self.rows = RowStorage::None;
    }

    /// The rows of its first `tokens` tokens are computed again.
    pub(crate) fn recompute(&mut self, tokens: usize) {
        self.refeed = self.refeed.max(tokens);
    }

    /// Tokens that have been fed, whether their rows are there or are being computed again.
    pub(crate) fn fed_once(&self) -> usize {
        self.fed.max(self.refeed)
    }

    /// How many of its next `tokens` one step feeds. Tokens that are fed again are never in one
    /// step with new ones: a full context then removes what it would have removed without the
    /// preemption. Removed tokens are passed over between two steps.
    pub(crate) fn at_once(&self, tokens: u32) -> u32 {
        let tokens = tokens.min(self.history.until_removed(self.fed) as u32);
        match self.refeed.saturating_sub(self.fed) {
            0 => tokens,
            left => tokens.min(left as u32),
        }
    }

    /// KV rows that it has once the tokens that one step may feed together are fed.
    pub(crate) fn rows_known(&self) -> u32 {
        let tokens = if self.fed < self.refeed { self.refeed } else { self.tokens().len() };
        tokens as u32 - self.history.removed_tokens()
    }

    /// Whether it prefills: its prompt, or after a preemption its tokens, are still being fed.
    pub(crate) fn is_prefilling(&self) -> bool {
        self.pending() > 1
    }

    /// Tokens of the prompt.
    pub(crate) fn prompt_len(&self) -> usize {
        self.prompt_len
    }

    /// Tokens generated so far.
    pub(crate) fn generated(&self) -> usize {
        self.tokens().len() - self.prompt_len
    }

    /// How many of the most probable tokens to report at each position of the prompt; `None`
    /// reports nothing.
    pub(crate) fn prompt_top(&self) -> Option<usize> {
        self.prompt_logprobs.map(|wanted| wanted.top as usize)
    }

    /// The token that follows `position` in the prompt.
    pub(crate) fn next_in_prompt(&self, position: usize) -> Option<u32> {
        self.tokens()[..self.prompt_len].get(position + 1).copied()
    }

    /// Guesses what follows, up to so many tokens, where a right guess could be used: all of it
    /// has room in the answer and in the context.
    pub(crate) fn guess(
        &mut self,
        new: &dyn Fn() -> Box<dyn Drafter>,
        most: usize,
        most_rows: u32,
    ) -> Option<Draft> {
        if self.refeed > self.fed {
            return None;
        }
        // The last token of an answer is not fed.
        let left = self.limit.saturating_sub(self.generated() + 1);
        let most = most.min(left).min(most_rows.saturating_sub(self.rows_known()) as usize);
        if most == 0 {
            return None;
        }
        if let Some(constraint) = &mut self.constraint {
            let mut tokens = constraint.forced()?;
            tokens.truncate(most);
            if !tokens.is_empty() {
                return Some(Draft { tokens, confidence: Confidence::Forced });
            }
        }
        self.drafter.get_or_insert_with(new).draft(&self.history.tokens, most)
    }

    /// Feeds the first `count` tokens of a draft in the next step.
    pub(crate) fn take_guesses(&mut self, draft: Draft, count: usize) {
        let tokens = [&self.history.tokens, &draft.tokens[..count]].concat();
        self.guesses = Some(Guesses { tokens, count, confidence: draft.confidence });
    }

    pub(crate) fn forget_guesses(&mut self) {
        self.guesses = None;
    }

    /// The next token and those that are guessed to follow it.
    pub(crate) fn tokens_with_guesses(&self) -> Option<&[u32]> {
        self.guesses.as_ref().map(|guesses| &guesses.tokens[self.fed..])
    }

    /// All known tokens, then the guessed ones.
    pub(crate) fn known_and_guessed(&self) -> &[u32] {
        self.guesses.as_ref().map_or(self.tokens(), |guesses| &guesses.tokens)
    }

    /// Guessed tokens of the step under way.
    pub(crate) fn guesses(&self) -> usize {
        self.guesses.as_ref().map_or(0, |guesses| guesses.count)
    }

    /// Of the guessed tokens the first `right` ones were right.
    pub(crate) fn judge_guesses(&mut self, right: usize) {
        if let Some(guesses) = self.guesses.take() {
            self.acceptance.record(guesses.confidence, guesses.count, right);
            self.guessed.0 += guesses.count as u32;
            self.guessed.1 += right as u32;
        }
    }

    /// The positions among the next `tokens` whose logits are read.
    pub(crate) fn wanted_positions(&self, tokens: u32) -> std::ops::Range<usize> {
        let end = self.fed + tokens as usize;
        if self.guesses.is_some() {
            return self.fed..end;
        }
        let samples = end == self.tokens().len() && self.generated() < self.limit;
        if self.prompt_logprobs.is_some() && self.scored < self.prompt_len && end > self.scored {
            return self.scored.max(self.fed)..if samples { end } else { end.min(self.prompt_len) };
        }
        if samples { end - 1..end } else { end..end }
    }

    /// Whether the logits after `position` choose the next token.
    pub(crate) fn samples_at(&self, position: usize) -> bool {
        position + 1 >= self.tokens().len() && self.generated() < self.limit
    }

    /// Whether the prediction after `position` is still to be reported.
    pub(crate) fn scores_at(&self, position: usize) -> bool {
        self.prompt_logprobs.is_some() && (self.scored..self.prompt_len).contains(&position)
    }

    /// The sequence runs from now on. Its first `rows` KV rows are in the cache.
    pub(crate) fn admit(&mut self, kv: SequenceId, rows: u32) {
        self.rows = RowStorage::Cached(kv);
        self.fed = self.history.index_of(rows) as usize;
        let removed = self.history.removed_tokens();
        self.cached.get_or_insert(((rows + removed).min(self.prompt_len as u32), removed));
        self.clock.admitted.get_or_insert_with(Instant::now);
    }

    /// Whether it has run before.
    pub(crate) fn was_admitted(&self) -> bool {
        self.cached.is_some()
    }

    /// There is room for `most` tokens after the prompt.
    pub(crate) fn set_room(&mut self, most: usize) {
        self.limit = self.limit.min(most);
    }

    /// `tokens` more are in the cache: sends progress and predictions.
    pub(crate) fn advance(&mut self, tokens: u32, rows: Vec<PromptRow>) {
        self.fed = self.history.passing_removed(self.fed + tokens as usize);
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

    /// The ending of a request that generates no tokens, once its prompt is fed.
    pub(crate) fn ended_without_tokens(&self) -> Option<FinishReason> {
        (self.limit == 0 && self.pending() == 0).then_some(FinishReason::Length)
    }

    /// Appends a sampled token and sends it; returns why the generation ends, if it ends with this
    /// token.
    ///
    /// # Errors
    /// The constraint's.
    pub(crate) fn append(
        &mut self,
        chosen: Chosen,
        tokenizer: &Tokenizer,
    ) -> Result<Option<FinishReason>, EngineError> {
        let index = self.generated();
        let id = chosen.id;
        let kind = match () {
            () if tokenizer.is_end_of_generation(id) => TokenKind::End,
            () if tokenizer.is_shown(id) => TokenKind::Text,
            () => TokenKind::Control,
        };
        let is_end = kind == TokenKind::End;
        let is_complete = !is_end && self.commit(id)? == TextState::Complete;
        self.history.tokens.push(id);
        let bytes = if kind == TokenKind::Text { tokenizer.token_bytes(id) } else { &[] };
        let mut text = self.text.push(bytes).text;
        let is_last = is_end || is_complete || index + 1 == self.limit;
        if is_last && self.text.stopped().is_none() {
            text.push_str(&self.text.finish().text);
        }
        self.reply.send(Event::Token(Token {
            index: index as u32,
            id,
            text,
            kind,
            logprobs: chosen.logprobs,
        }));
        if let Some(stop) = self.text.stopped() {
            return Ok(Some(FinishReason::Stop(StopCause::StopString(self.stop[stop].clone()))));
        }
        if is_end {
            return Ok(Some(FinishReason::Stop(StopCause::EndToken(id))));
        }
        if is_complete {
            return Ok(Some(FinishReason::Stop(StopCause::Complete)));
        }
        Ok(is_last.then_some(FinishReason::Length))
    }

    /// Has the masks of its next token and of those behind guesses made, if it has a constraint.
    pub(crate) fn prepare_masks(&mut self, helper: &mut Helper) {
        if let Some(constraint) = &mut self.constraint {
            let guesses = self.guesses.as_ref().map_or(&[][..], |guesses| &guesses.tokens[self.fed + 1..]);
            constraint.prepare(helper, guesses);
        }
    }

    /// Tells the constraint of a token; whether its text may go on.
    fn commit(&mut self, id: u32) -> Result<TextState, EngineError> {
        self.constraint.as_mut().map_or(Ok(TextState::Open), |constraint| constraint.commit(id))
    }

    /// The ending when the KV cache is exhausted. Text that was held back for a stop string is
    /// sent.
    pub(crate) fn exhausted(&mut self) -> Finished {
        let tail = self.text.finish();
        let reason = match tail.stopped {
            Some(stop) => FinishReason::Stop(StopCause::StopString(self.stop[stop].clone())),
            None => FinishReason::Length,
        };
        Finished { tail: tail.text, ..self.finished(reason) }
    }

    /// The ending of a generation that ends now.
    pub(crate) fn finished(&self, reason: FinishReason) -> Finished {
        let now = Instant::now();
        let admitted = self.clock.admitted.unwrap_or(now);
        let prompt_done = self.clock.prompt_done.unwrap_or(now);
        let (cached, forgotten) = self.cached.unwrap_or_default();
        Finished {
            reason,
            tail: String::new(),
            usage: Usage {
                prompt: self.prompt_len as u32,
                completion: self.generated() as u32,
                cached,
                reused: cached.saturating_sub(forgotten),
                removed: self.history.removed_tokens(),
            },
            timings: Timings {
                queued: admitted - self.clock.submitted,
                prompt: prompt_done - admitted,
                predicted: now - prompt_done,
                guessed: self.guessed.0,
                right_guesses: self.guessed.1,
            },
            seed: self.sampler.seed(),
        }
    }
}
