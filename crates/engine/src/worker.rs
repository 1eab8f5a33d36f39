//! The step loop's state and its four verbs: schedule, run, sample, publish.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use minfer_text::Tokenizer;

use crate::batcher::{self, Candidate, Limits};
use crate::config::EngineConfig;
use crate::event::{Event, PromptRow};
use crate::feed::Feed;
use crate::kv::{Store, StoreError, StoreOptions};
use crate::reply::Reply;
use crate::sampler::logprobs::LogSoftmax;
use crate::sampler::{SampleError, Scratch};
use crate::sequence::{Chosen, Sequence};
use crate::stats::EngineStats;
use crate::{EngineError, Forward, RequestId};

/// Consecutive steps that may leave work and advance none.
pub(crate) const STALLED_STEPS: u32 = 64;

/// Everything that the worker thread owns.
pub(crate) struct Worker {
    model: Box<dyn Forward>,
    tokenizer: Arc<Tokenizer>,
    limits: Limits,
    store: Store,
    /// In order of arrival; those that were preempted are in front of those that never ran.
    waiting: VecDeque<Sequence>,
    /// In order of arrival.
    running: Vec<Sequence>,
    feed: Feed,
    scratch: Scratch,
    idle_steps: u32,
    counts: EngineStats,
    shared: Arc<Mutex<EngineStats>>,
    /// Endings that are sent once memory is given back and the counts are public.
    endings: Vec<(Reply, Event)>,
}

/// One sequence's share of a step.
struct Piece {
    /// Its index among the running ones.
    sequence: usize,
    tokens: u32,
    /// First row in the batch.
    first_row: u32,
}

/// What the logits of a step said about one sequence.
#[derive(Default)]
struct Outcome {
    rows: Vec<PromptRow>,
    chosen: Option<Result<Chosen, EngineError>>,
}

impl Worker {
    pub(crate) fn new(
        model: Box<dyn Forward>,
        tokenizer: Arc<Tokenizer>,
        config: &EngineConfig,
        shared: Arc<Mutex<EngineStats>>,
    ) -> Worker {
        let (most_blocks, placement) = (config.kv_blocks, config.placement);
        let options = StoreOptions { most_blocks, placement, ..StoreOptions::default() };
        let mut worker = Worker {
            store: Store::new(model.kv_spec(), options),
            limits: Limits { tokens: config.n_batch as u32, slots: config.n_slots },
            model,
            tokenizer,
            waiting: VecDeque::new(),
            running: Vec::new(),
            feed: Feed::default(),
            scratch: Scratch::default(),
            idle_steps: 0,
            counts: EngineStats::default(),
            shared,
            endings: Vec::new(),
        };
        worker.settle();
        worker
    }

    /// Tokens that one sequence has room for when it is alone.
    pub(crate) fn kv_tokens(&self) -> usize {
        usize::try_from(self.store.capacity()).unwrap_or(usize::MAX)
    }

    /// Takes a request into the queue.
    pub(crate) fn accept(&mut self, sequence: Sequence) {
        self.waiting.push_back(sequence);
    }

    /// Ends a request if it has not ended yet.
    pub(crate) fn cancel(&mut self, id: RequestId) {
        self.remove(|sequence| sequence.id() == id);
        self.settle();
    }

    /// Whether there is anything to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty()
    }

    /// One step. Tells whether the engine can go on: not after too many steps without progress.
    pub(crate) fn step(&mut self) -> bool {
        self.remove(|sequence| sequence.reply.is_closed());
        let pieces = self.schedule();
        let outcome = guarded(|| {
            self.run()?;
            self.sample(&pieces)
        });
        self.publish(pieces, outcome)
    }

    /// Chooses the step's tokens and takes cells for them. Makes room where there is none.
    fn schedule(&mut self) -> Vec<Piece> {
        let schedule = {
            let candidate = |sequence: &Sequence| Candidate { pending: sequence.pending() };
            let running: Vec<Candidate> = self.running.iter().map(candidate).collect();
            let fitting = self.fitting();
            let waiting: Vec<Candidate> = self.waiting.iter().take(fitting).map(candidate).collect();
            batcher::schedule(&running, &waiting, self.limits)
        };
        for mut sequence in self.waiting.drain(..schedule.admitted) {
            sequence.admit(self.store.create());
            self.running.push(sequence);
        }
        let mut pieces = Vec::new();
        for (sequence, &tokens) in schedule.tokens.iter().enumerate() {
            if sequence < self.running.len() && tokens > 0 && self.prepare(sequence, tokens) {
                pieces.push(Piece { sequence, tokens, first_row: 0 });
            }
        }
        self.fill_feed(&mut pieces);
        pieces
    }

    /// How many of the waiting, from the front, have room for all their tokens beside what the running ones still need.
    /// With none running the first has all the room there is.
    fn fitting(&self) -> usize {
        let reserved: Vec<_> = self
            .running
            .iter()
            .filter_map(|sequence| Some((sequence.kv?, sequence.tokens.len() as u32 + 1)))
            .collect();
        let wanted = self.waiting.iter().map(|sequence| (&sequence.tokens[..], None));
        self.store.fitting(&reserved, wanted).max(usize::from(self.running.is_empty()))
    }

    /// Takes cells for a running sequence. Where there is no room the youngest sequences give theirs; one that is alone
    /// and still has no room ends.
    fn prepare(&mut self, index: usize, tokens: u32) -> bool {
        loop {
            let sequence = &self.running[index];
            let kv = sequence.kv.expect("a running sequence is in the store");
            let next = &sequence.tokens[sequence.fed..][..tokens as usize];
            let Err(error) = self.store.prepare(self.model.arena(), kv, next) else { return true };
            if self.running.len() == 1 {
                self.exhausted(error);
                return false;
            }
            self.preempt_youngest();
            if index == self.running.len() {
                return false;
            }
        }
    }

    /// The youngest running sequence goes back to the front of the queue without its rows.
    fn preempt_youngest(&mut self) {
        let mut sequence = self.running.pop().expect("a sequence runs");
        if let Some(kv) = sequence.preempt() {
            self.store.drop_sequence(self.model.arena(), kv);
        }
        self.counts.preemptions += 1;
        self.waiting.push_front(sequence);
    }

    /// The only running sequence has no room for its next token.
    fn exhausted(&mut self, error: StoreError) {
        let mut sequence = self.running.pop().expect("a sequence runs");
        let event = match sequence.generated() {
            0 => Event::Failed(EngineError::Kv(error)),
            _ => Event::Finished(sequence.exhausted()),
        };
        self.end(sequence, event);
    }

    /// Writes down what the step feeds.
    fn fill_feed(&mut self, pieces: &mut [Piece]) {
        self.feed.clear(self.store.groups());
        for piece in pieces {
            let sequence = &self.running[piece.sequence];
            let kv = sequence.kv.expect("a running sequence is in the store");
            let tokens = &sequence.tokens[sequence.fed..][..piece.tokens as usize];
            piece.first_row = self.feed.push(&self.store, kv, tokens);
        }
    }

    /// Feeds the step's tokens.
    fn run(&mut self) -> Result<(), EngineError> {
        if self.feed.rows() == 0 {
            return Ok(());
        }
        self.feed.run_body(&mut *self.model, &self.store)?;
        self.counts.steps += 1;
        self.counts.tokens_fed += u64::from(self.feed.rows());
        Ok(())
    }

    /// Computes the logits that somebody reads, as many rows at a time as the head takes, and reads them.
    fn sample(&mut self, pieces: &[Piece]) -> Result<Vec<Outcome>, EngineError> {
        let mut outcomes: Vec<Outcome> = pieces.iter().map(|_| Outcome::default()).collect();
        let wanted = self.wanted_rows(pieces);
        for chunk in wanted.chunks(self.model.extents().rows as usize) {
            let rows: Vec<u32> = chunk.iter().map(|wanted| wanted.row).collect();
            self.feed.run_head(&mut *self.model, &self.store, &rows)?;
            self.counts.head_runs += 1;
            self.counts.head_rows += rows.len() as u64;
            for (row, wanted) in chunk.iter().enumerate() {
                let sequence = &self.running[pieces[wanted.piece].sequence];
                let logits = self.model.logits(row)?;
                read_row(sequence, wanted.position, &logits, &mut self.scratch, &mut outcomes[wanted.piece]);
            }
        }
        Ok(outcomes)
    }

    fn wanted_rows(&self, pieces: &[Piece]) -> Vec<WantedRow> {
        let mut wanted = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let sequence = &self.running[piece.sequence];
            wanted.extend(sequence.wanted_positions(piece.tokens).map(|position| WantedRow {
                piece: index,
                position,
                row: piece.first_row + (position - sequence.fed) as u32,
            }));
        }
        wanted
    }

    /// Makes the step's results known: rows to the store, events to the clients. Tells whether the engine can go on.
    fn publish(&mut self, pieces: Vec<Piece>, outcome: Result<Vec<Outcome>, EngineError>) -> bool {
        let mut advanced = !pieces.is_empty();
        match outcome {
            Ok(outcomes) => {
                for (piece, outcome) in pieces.iter().zip(outcomes).rev() {
                    self.advance(piece, outcome);
                }
            }
            Err(error) => {
                for piece in pieces.iter().rev() {
                    let sequence = self.running.remove(piece.sequence);
                    self.end(sequence, Event::Failed(error.clone()));
                }
            }
        }
        advanced |= !self.endings.is_empty();
        self.idle_steps = if advanced || !self.has_work() { 0 } else { self.idle_steps + 1 };
        let stalled = self.idle_steps >= STALLED_STEPS;
        if stalled {
            self.counts.stalled = true;
            self.end_all(&Event::Failed(EngineError::Stalled { steps: STALLED_STEPS }));
        }
        self.settle();
        !stalled
    }

    /// A sequence's tokens of this step are in the cache.
    fn advance(&mut self, piece: &Piece, outcome: Outcome) {
        let sequence = &mut self.running[piece.sequence];
        self.store.publish(sequence.kv.expect("a running sequence is in the store"));
        sequence.advance(piece.tokens, outcome.rows);
        let ending = match outcome.chosen {
            Some(Ok(chosen)) => {
                self.counts.generated_tokens += 1;
                sequence
                    .append(chosen, &self.tokenizer)
                    .map(|reason| Event::Finished(sequence.finished(reason)))
            }
            Some(Err(error)) => Some(Event::Failed(error)),
            None => sequence.ended_without_tokens().map(|reason| Event::Finished(sequence.finished(reason))),
        };
        if let Some(event) = ending {
            let sequence = self.running.remove(piece.sequence);
            self.end(sequence, event);
        }
    }

    /// Cancels those of the live requests that `which` picks.
    fn remove(&mut self, which: impl Fn(&Sequence) -> bool) {
        let (waiting, running) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.running));
        for sequence in waiting {
            if which(&sequence) {
                self.end(sequence, Event::Cancelled);
            } else {
                self.waiting.push_back(sequence);
            }
        }
        for sequence in running {
            if which(&sequence) {
                self.end(sequence, Event::Cancelled);
            } else {
                self.running.push(sequence);
            }
        }
    }

    /// Ends every live request with the same event.
    pub(crate) fn end_all(&mut self, event: &Event) {
        let running = std::mem::take(&mut self.running);
        let waiting = std::mem::take(&mut self.waiting);
        for sequence in running.into_iter().chain(waiting) {
            self.end(sequence, event.clone());
        }
    }

    /// Gives a sequence's memory back; its client hears of the end when the step settles.
    fn end(&mut self, sequence: Sequence, event: Event) {
        if let Some(kv) = sequence.kv {
            self.store.drop_sequence(self.model.arena(), kv);
        }
        match event {
            Event::Failed(_) => self.counts.failed += 1,
            Event::Cancelled => self.counts.cancelled += 1,
            _ => self.counts.finished += 1,
        }
        self.endings.push((sequence.reply, event));
    }

    /// Makes the counts public, then sends the endings: a client that heard of its end finds it counted.
    pub(crate) fn settle(&mut self) {
        self.counts.waiting = self.waiting.len() as u64;
        self.counts.running = self.running.len() as u64;
        self.counts.model = self.model.stats();
        self.counts.kv = self.store.stats();
        let memory = self.model.arena().memory();
        self.counts.kv_committed_bytes = memory.committed;
        self.counts.kv_warm_bytes = memory.warm;
        self.counts.kv_limit_bytes = memory.limit;
        self.counts.kv_reserved_bytes = memory.reserved;
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = self.counts;
        for (reply, event) in self.endings.drain(..) {
            reply.end(event);
        }
    }
}

/// A row of logits that somebody reads.
struct WantedRow {
    piece: usize,
    /// The token's index in its sequence.
    position: usize,
    /// Its row in the batch.
    row: u32,
}

/// Reports and chooses what one row of logits is wanted for.
fn read_row(
    sequence: &Sequence,
    position: usize,
    logits: &[f32],
    scratch: &mut Scratch,
    outcome: &mut Outcome,
) {
    let index = sequence.generated() as u32;
    let mut read = || -> Result<Option<Chosen>, SampleError> {
        if sequence.scores_at(position) {
            outcome.rows.push(prompt_row(sequence, position, logits, scratch)?);
        }
        if !sequence.samples_at(position) {
            return Ok(None);
        }
        let id = sequence.sampler.sample(scratch, logits, &sequence.tokens, index)?;
        let logprobs = match sequence.logprobs {
            Some(top) => Some(LogSoftmax::of(logits)?.of_token(scratch, logits, id, top as usize)),
            None => None,
        };
        Ok(Some(Chosen { id, logprobs }))
    };
    let chosen = read().map_err(|error| EngineError::Sample(error, index)).transpose();
    outcome.chosen = outcome.chosen.take().filter(Result::is_err).or(chosen);
}

fn prompt_row(
    sequence: &Sequence,
    position: usize,
    logits: &[f32],
    scratch: &mut Scratch,
) -> Result<PromptRow, SampleError> {
    let softmax = LogSoftmax::of(logits)?;
    let next = sequence.next_in_prompt(position);
    Ok(PromptRow {
        position: position as u32,
        token: sequence.tokens[position],
        next_logprob: next.map(|id| softmax.logprob(logits[id as usize])),
        top: softmax.top(scratch, logits, sequence.prompt_top().unwrap_or(0)),
    })
}

/// Runs a step's work; a panic becomes an error.
fn guarded<R>(work: impl FnOnce() -> Result<R, EngineError>) -> Result<R, EngineError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(EngineError::Panicked(words(&*panic))))
}

/// What a panic said.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests;
