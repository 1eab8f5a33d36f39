//! The step loop's state and its four verbs: schedule, run, sample, publish.

mod admit;
mod compaction;
mod preempt;
mod sessions;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use minfer_text::Tokenizer;

use crate::batcher::{self, Candidate, Limits};
use crate::config::EngineConfig;
use crate::event::{Event, PromptRow};
use crate::feed::Feed;
use crate::kv::session::SessionIdentity;
use crate::kv::{Store, StoreOptions, most_rope_offsets};
use crate::reply::Reply;
use crate::sampler::logprobs::LogSoftmax;
use crate::sampler::{SampleError, Scratch};
use crate::sequence::{Chosen, Sequence};
use crate::session::{RowStorage, Session, SessionId};
use crate::stats::EngineStats;
use crate::{EngineError, HostMemory, ModelExecutor, RequestId};
use preempt::Cells;

/// Consecutive steps that may leave work and advance none.
pub(crate) const STALLED_STEPS: u32 = 64;

/// Everything that the worker thread owns.
pub(crate) struct Worker {
    model: Box<dyn ModelExecutor>,
    tokenizer: Arc<Tokenizer>,
    limits: Limits,
    store: Store,
    /// In order of arrival; those that were preempted are in front of those that never ran.
    waiting: VecDeque<Sequence>,
    /// In order of arrival.
    running: Vec<Sequence>,
    /// Conversations, those that a request uses now included.
    sessions: BTreeMap<SessionId, Session>,
    session_uses: u64,
    identity: SessionIdentity,
    pub(crate) host: HostMemory,
    n_ctx: u32,
    feed: Feed,
    scratch: Scratch,
    idle_steps: u32,
    /// Blocks were freed since compaction last found nothing to move.
    fragmented: bool,
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
        mut model: Box<dyn ModelExecutor>,
        tokenizer: Arc<Tokenizer>,
        config: &EngineConfig,
        shared: Arc<Mutex<EngineStats>>,
    ) -> Worker {
        let options = StoreOptions {
            most_blocks: config.kv_blocks,
            most_bytes: model.arena().memory().limit,
            block_order: config.block_order,
            cache: config.prefix_cache,
            // The rows of a store are all of one model: half of its identity is enough to tell them from another's.
            fingerprint: config.identity.model as u64,
            most_rope_offsets: Some(most_rope_offsets(config.n_ctx as u32)),
            step_tokens: Some(config.n_batch as u32),
        };
        let mut worker = Worker {
            store: Store::new(model.kv_spec(), options),
            sessions: BTreeMap::new(),
            session_uses: 0,
            identity: config.identity,
            host: HostMemory::default(),
            n_ctx: config.n_ctx as u32,
            limits: Limits { tokens: config.n_batch as u32, slots: config.n_slots },
            model,
            tokenizer,
            waiting: VecDeque::new(),
            running: Vec::new(),
            feed: Feed::default(),
            scratch: Scratch::default(),
            idle_steps: 0,
            fragmented: false,
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
        self.admit();
        let candidates: Vec<Candidate> =
            self.running.iter().map(|sequence| Candidate { pending: sequence.pending() }).collect();
        let tokens = batcher::schedule(&candidates, self.limits.tokens);
        let ids: Vec<(RequestId, u32)> = self.running.iter().map(Sequence::id).zip(tokens).collect();
        let (mut pieces, mut missing, mut gave) = (Vec::new(), None, false);
        for (id, tokens) in ids.into_iter().filter(|&(_, tokens)| tokens > 0) {
            // Making room for one sequence may send others away.
            let Some(index) = self.running.iter().position(|sequence| sequence.id() == id) else { continue };
            let tokens = self.running[index].at_once(tokens);
            match self.prepare(index, tokens) {
                Cells::Prepared => pieces.push((id, tokens)),
                Cells::OutOfBlocks(error) => missing = Some(error),
                Cells::Skipped => gave = true,
            }
        }
        if let Some(error) = missing.filter(|_| pieces.is_empty() && !gave) {
            self.unblock(error);
        }
        let place = |id| self.running.iter().position(|sequence| sequence.id() == id);
        let piece = |(id, tokens)| Some(Piece { sequence: place(id)?, tokens, first_row: 0 });
        let mut pieces: Vec<Piece> = pieces.into_iter().filter_map(piece).collect();
        self.fill_feed(&mut pieces);
        pieces
    }

    /// Writes down what the step feeds.
    fn fill_feed(&mut self, pieces: &mut [Piece]) {
        self.feed.clear(self.store.groups());
        for piece in pieces {
            let sequence = &self.running[piece.sequence];
            let tokens = &sequence.tokens()[sequence.fed..][..piece.tokens as usize];
            piece.first_row = self.feed.push(&self.store, sequence.kv(), tokens);
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
        if self.has_work() {
            self.compact_some();
        }
        !stalled
    }

    /// A sequence's tokens of this step are in the cache.
    fn advance(&mut self, piece: &Piece, outcome: Outcome) {
        let sequence = &mut self.running[piece.sequence];
        let kv = sequence.kv();
        self.store.publish(kv);
        self.store.evict_window(self.model.arena(), kv, 0);
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
    fn end(&mut self, mut sequence: Sequence, event: Event) {
        if let RowStorage::Cached(kv) = sequence.rows {
            self.store.undo(self.model.arena(), kv);
        }
        self.keep_session(&mut sequence);
        if let RowStorage::Cached(kv) = sequence.rows {
            self.store.drop_sequence(self.model.arena(), kv);
        }
        self.fragmented = true;
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
        let id = sequence.sampler.sample(scratch, logits, sequence.tokens(), index)?;
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
        token: sequence.tokens()[position],
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
mod admit_tests;
#[cfg(test)]
mod preempt_tests;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod sharing_tests;
#[cfg(test)]
mod swap_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod window_tests;
