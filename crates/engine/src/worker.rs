//! The step loop: schedule, run, sample, publish.

mod admit;
mod compaction;
mod preempt;
mod recover;
mod sampling;
mod sessions;
mod slots;
mod speculation;
pub(crate) mod transfers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use minfer_text::Tokenizer;

use crate::batcher::{self, Candidate, Limits};
use crate::config::EngineConfig;
use crate::constraint::Helper;
use crate::drafter::{Drafter, Lookup};
use crate::event::Event;
use crate::guard::guarded;
use crate::kv::session::SessionIdentity;
use crate::kv::{Store, StoreOptions, most_rope_offsets};
use crate::observer::{StepObserver, StepReport};
use crate::pace::{Pace, StepShape};
use crate::reply::Reply;
use crate::sequence::Sequence;
use crate::session::{RowStorage, Session, SessionId};
use crate::stats::EngineStats;
use crate::step_batch::StepBatch;
use crate::{EngineError, HostMemory, ModelExecutor, RequestId};
use preempt::Cells;
use sampling::{Outcome, Scratches};
use slots::Slot;
use transfers::Transfer;

/// Consecutive steps without progress after which the engine stops.
pub(crate) const STALLED_STEPS: u32 = 64;

/// Makes the drafter of one sequence.
pub(crate) type NewDrafter = Box<dyn Fn() -> Box<dyn Drafter> + Send>;

/// Everything that the worker thread owns.
pub(crate) struct Worker {
    model: Box<dyn ModelExecutor>,
    tokenizer: Arc<Tokenizer>,
    limits: Limits,
    store: Store,
    store_options: StoreOptions,
    /// In order of arrival, preempted sequences first.
    waiting: VecDeque<Sequence>,
    /// In order of arrival.
    running: Vec<Sequence>,
    /// Conversations, also those that a request uses now.
    sessions: BTreeMap<SessionId, Session>,
    session_uses: u64,
    slots: Vec<Slot>,
    slot_uses: u64,
    transfers: VecDeque<Transfer>,
    identity: SessionIdentity,
    pub(crate) host: HostMemory,
    n_ctx: u32,
    batch: StepBatch,
    scratches: Scratches,
    masks: Helper,
    /// Makes what guesses the tokens of a sequence; `None` guesses none.
    pub(crate) drafter: Option<NewDrafter>,
    pace: Pace,
    observer: Option<StepObserver>,
    /// The step under way.
    report: StepReport,
    /// Time since any fixed moment; tests bring their own.
    pub(crate) clock: Box<dyn Fn() -> Duration + Send>,
    idle_steps: u32,
    /// Blocks were freed since compaction last found nothing to move.
    fragmented: bool,
    counts: EngineStats,
    /// Requests that were accepted.
    accepted: u64,
    shared: Arc<Mutex<EngineStats>>,
    /// Endings, sent once memory is released and the counts are public.
    endings: Vec<(Reply, Event)>,
}

/// One sequence's share of a step.
struct Chunk {
    /// Its index among the running ones.
    sequence: usize,
    tokens: u32,
    /// First row in the batch.
    first_row: u32,
}

impl Worker {
    pub(crate) fn new(
        mut model: Box<dyn ModelExecutor>,
        tokenizer: Arc<Tokenizer>,
        config: &EngineConfig,
        shared: Arc<Mutex<EngineStats>>,
    ) -> Worker {
        let store_options = StoreOptions {
            most_blocks: config.kv_blocks,
            most_bytes: model.arena().memory().limit,
            block_order: config.block_order,
            cache: config.prefix_cache,
            // The rows of a store are all of one model: half of its identity is enough to tell them
            // from another's.
            fingerprint: config.identity.model as u64,
            most_rope_offsets: Some(most_rope_offsets(config.n_ctx as u32)),
            step_tokens: Some(config.n_batch as u32),
        };
        let vocab = model.vocab();
        let end_tokens = tokenizer.end_of_generation().iter().copied().collect();
        let mut worker = Worker {
            store: Store::new(model.kv_spec(), store_options),
            store_options,
            sessions: BTreeMap::new(),
            session_uses: 0,
            slots: vec![Slot::default(); config.n_slots],
            slot_uses: 0,
            transfers: VecDeque::new(),
            identity: config.identity,
            host: HostMemory::default(),
            n_ctx: config.n_ctx as u32,
            limits: Limits { tokens: config.n_batch as u32, slots: config.n_slots },
            model,
            tokenizer,
            waiting: VecDeque::new(),
            running: Vec::new(),
            batch: StepBatch::default(),
            scratches: Scratches::default(),
            masks: Helper::new(vocab, end_tokens),
            drafter: config.speculation.then(|| Box::new(lookup) as NewDrafter),
            pace: Pace::new(config.step_target, config.n_slots),
            observer: None,
            report: StepReport::default(),
            clock: Box::new(clock()),
            idle_steps: 0,
            fragmented: false,
            counts: EngineStats::default(),
            accepted: 0,
            shared,
            endings: Vec::new(),
        };
        worker.settle();
        worker
    }

    /// Tokens that one sequence alone has room for.
    pub(crate) fn kv_tokens(&self) -> usize {
        usize::try_from(self.store.capacity()).unwrap_or(usize::MAX)
    }

    /// Takes a request into the queue: behind those of its priority or a higher one, and behind
    /// those that ran before.
    pub(crate) fn accept(&mut self, mut sequence: Sequence) {
        self.accepted += 1;
        sequence.prepare_masks(&mut self.masks);
        let goes_before = |other: &Sequence| !other.was_admitted() && other.priority < sequence.priority;
        let place = self.waiting.iter().position(goes_before).unwrap_or(self.waiting.len());
        self.waiting.insert(place, sequence);
    }

    /// Whether there is anything to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty()
    }

    /// One step. Returns whether the engine can go on: not after too many steps without progress.
    pub(crate) fn step(&mut self) -> bool {
        let (ended, started) = (self.counts.ended(), (self.clock)());
        let advanced = self.contained(Worker::run_step).unwrap_or(false);
        let took = (self.clock)().saturating_sub(started);
        let goes_on = self.conclude(advanced || self.counts.ended() > ended);
        if self.has_work() {
            self.move_rows_beside(took);
        }
        goes_on
    }

    /// Schedule, run, sample, publish. Returns whether any sequence advanced.
    fn run_step(&mut self) -> bool {
        let started = (self.clock)();
        self.report = StepReport::default();
        self.remove_closed();
        let chunks = self.schedule();
        let shape = self.shape(&chunks);
        self.report.schedule = self.since(started);
        let outcome = guarded(|| {
            let started = (self.clock)();
            self.run()?;
            self.report.body = self.since(started);
            self.sample(&chunks)
        });
        let outcome = outcome.flatten();
        let (measured, ran) = (outcome.is_ok(), (self.clock)());
        let advanced = self.publish(chunks, outcome);
        if measured {
            self.pace.record(&shape, self.since(started));
            self.report.publish = self.since(ran);
            self.observe(&shape);
        }
        advanced
    }

    fn since(&self, start: Duration) -> Duration {
        (self.clock)().saturating_sub(start)
    }

    /// Tells the observer of the step, if it had rows.
    fn observe(&mut self, shape: &StepShape) {
        let Some(mut observer) = self.observer.take_if(|_| self.batch.rows() > 0) else { return };
        self.report.decode_rows = shape.decoding as u32;
        self.report.prefill_rows = self.batch.rows() - self.report.decode_rows;
        let report = self.report;
        if guarded(|| observer(&report)).is_ok() {
            self.observer = Some(observer);
        }
    }

    pub(crate) fn set_observer(&mut self, observer: StepObserver) {
        self.observer = Some(observer);
    }

    /// What comes after every step: the guard against steps without progress, public counts,
    /// endings, compaction.
    fn conclude(&mut self, advanced: bool) -> bool {
        let idle = !advanced && self.endings.is_empty() && self.has_work();
        self.idle_steps = if idle { self.idle_steps + 1 } else { 0 };
        let stalled = self.idle_steps >= STALLED_STEPS;
        if stalled {
            self.counts.stalled = true;
            self.contained(|worker| {
                worker.end_all(&Event::Failed(EngineError::Stalled { steps: STALLED_STEPS }))
            });
        }
        self.settle();
        if self.has_work() {
            self.contained(Worker::compact_some);
        }
        !stalled
    }

    /// Schedule: admits requests, chooses the step's tokens and takes KV cells for them.
    fn schedule(&mut self) -> Vec<Chunk> {
        self.admit();
        self.guess();
        self.running.iter_mut().for_each(|sequence| sequence.prepare_masks(&mut self.masks));
        let candidates: Vec<Candidate> =
            self.running.iter().map(|sequence| self.candidate(sequence)).collect();
        let decoding = candidates.iter().filter(|candidate| candidate.pending == 1).count();
        let tokens = batcher::schedule(&candidates, self.limits.tokens, &self.pace.budget(decoding));
        let ids: Vec<(RequestId, u32)> = self.running.iter().map(Sequence::id).zip(tokens).collect();
        let (mut chunks, mut missing, mut gave) = (Vec::new(), None, false);
        for (id, tokens) in ids.into_iter().filter(|&(_, tokens)| tokens > 0) {
            // Taking cells for one sequence may preempt others.
            let Some(index) = self.running.iter().position(|sequence| sequence.id() == id) else { continue };
            if let Some(tokens) = self.prepare_guesses(index) {
                chunks.push((id, tokens));
                continue;
            }
            let tokens = self.running[index].at_once(tokens);
            match self.prepare(index, tokens) {
                Cells::Prepared => chunks.push((id, tokens)),
                Cells::OutOfBlocks(error) => missing = Some(error),
                Cells::Skipped => gave = true,
            }
        }
        if let Some(error) = missing.filter(|_| chunks.is_empty() && !gave) {
            self.unblock(error);
        }
        let place = |id| self.running.iter().position(|sequence| sequence.id() == id);
        let chunk = |(id, tokens)| Some(Chunk { sequence: place(id)?, tokens, first_row: 0 });
        let mut chunks: Vec<Chunk> = chunks.into_iter().filter_map(chunk).collect();
        self.fill_batch(&mut chunks);
        chunks
    }

    fn candidate(&self, sequence: &Sequence) -> Candidate {
        Candidate { pending: sequence.pending(), cached: self.store.length(sequence.kv()) }
    }

    /// What the time of the step depends on.
    fn shape(&self, chunks: &[Chunk]) -> StepShape {
        let mut shape = StepShape::default();
        for chunk in chunks {
            let Candidate { pending, cached } = self.candidate(&self.running[chunk.sequence]);
            match pending {
                1 => shape.decoding += chunk.tokens as usize,
                _ => shape.chunks.push((cached, chunk.tokens)),
            }
        }
        shape
    }

    /// Puts the step's tokens into its batch.
    fn fill_batch(&mut self, chunks: &mut [Chunk]) {
        self.batch.clear(self.store.groups());
        for chunk in chunks {
            let sequence = &self.running[chunk.sequence];
            let tokens = &sequence.known_and_guessed()[sequence.fed..][..chunk.tokens as usize];
            chunk.first_row = self.batch.push(&self.store, sequence.kv(), tokens);
        }
    }

    /// Run: the model's layers on the step's batch.
    fn run(&mut self) -> Result<(), EngineError> {
        if self.batch.rows() == 0 {
            return Ok(());
        }
        self.batch.run_body(&mut *self.model, &self.store)?;
        self.counts.steps += 1;
        self.counts.tokens_fed += u64::from(self.batch.rows());
        Ok(())
    }

    /// Publish: KV rows to the store, events to the clients. Returns whether any sequence advanced.
    fn publish(&mut self, chunks: Vec<Chunk>, outcome: Result<Vec<Outcome>, EngineError>) -> bool {
        match outcome {
            Ok(outcomes) => {
                for (chunk, outcome) in chunks.iter().zip(outcomes).rev() {
                    self.advance(chunk, outcome);
                }
            }
            Err(error) => {
                for chunk in chunks.iter().rev() {
                    let sequence = self.running.remove(chunk.sequence);
                    self.end(sequence, Event::Failed(error.clone()));
                }
            }
        }
        !chunks.is_empty()
    }

    /// A sequence's tokens of this step are in the cache. What panics while its client is told
    /// fails it alone.
    fn advance(&mut self, chunk: &Chunk, outcome: Outcome) {
        let sequence = &mut self.running[chunk.sequence];
        let (kv, generated, guessed) = (sequence.kv(), sequence.generated(), sequence.guesses());
        let told = guarded(|| tell(sequence, chunk.tokens, outcome, &self.tokenizer));
        let ending = told.unwrap_or_else(|error| Some(Event::Failed(error)));
        let ending = sequence.reply.fault().map(Event::Failed).or(ending);
        let generated = sequence.generated() - generated;
        self.counts.generated_tokens += generated as u64;
        // The token that a right guess leads to is fed with it.
        let right = generated.saturating_sub(1);
        if guessed > 0 {
            self.counts.guessed_tokens += guessed as u64;
            self.counts.right_guesses += right as u64;
            self.counts.tokens_fed -= (guessed - right) as u64;
            let length = self.store.length(kv) + 1 + right as u32;
            self.store.undo_from(self.model.arena(), kv, length);
        }
        self.store.publish(kv);
        self.store.evict_window(self.model.arena(), kv, 0);
        if let Some(event) = ending {
            let sequence = self.running.remove(chunk.sequence);
            self.end(sequence, event);
        }
    }

    /// Ends a request if it has not ended yet.
    pub(crate) fn cancel(&mut self, id: RequestId) {
        self.remove(|sequence| (sequence.id() == id).then_some(Event::Cancelled));
        self.settle();
    }

    /// Ends every request.
    pub(crate) fn cancel_all(&mut self) {
        self.end_all(&Event::Cancelled);
        self.settle();
    }

    /// Cancels the requests that nobody listens to any more, and ends those that took too long.
    fn remove_closed(&mut self) {
        let now = Instant::now();
        self.remove(|sequence| {
            let closed = sequence.reply.is_closed();
            let late = sequence.deadline.is_some_and(|deadline| deadline <= now);
            let fault = sequence.reply.fault().or((late && !closed).then_some(EngineError::Deadline));
            fault.map(Event::Failed).or(closed.then_some(Event::Cancelled))
        });
    }

    /// Ends those of the live requests for which `ending` gives an event.
    fn remove(&mut self, mut ending: impl FnMut(&mut Sequence) -> Option<Event>) {
        let mut index = 0;
        while index < self.waiting.len() + self.running.len() {
            let waits = index < self.waiting.len();
            let place = if waits { index } else { index - self.waiting.len() };
            let sequence = if waits { &mut self.waiting[place] } else { &mut self.running[place] };
            let Some(event) = ending(sequence) else {
                index += 1;
                continue;
            };
            let removed = if waits { self.waiting.remove(place) } else { Some(self.running.remove(place)) };
            self.end(removed.expect("an index into the queue"), event);
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

    /// Ends a sequence and releases its blocks; its client receives the ending when the step
    /// settles. The ending is queued first: it is sent even if releasing the blocks panics.
    fn end(&mut self, mut sequence: Sequence, event: Event) {
        let cached = match sequence.rows {
            RowStorage::Cached(kv) => Some(kv),
            _ => None,
        };
        self.leave_slot(&mut sequence, true);
        self.keep_session(&mut sequence);
        let kept = !matches!(sequence.rows, RowStorage::Cached(_));
        self.fragmented = true;
        match event {
            Event::Failed(_) => self.counts.failed += 1,
            Event::Cancelled => self.counts.cancelled += 1,
            _ => self.counts.finished += 1,
        }
        let constraint = sequence.constraint.take();
        let _ = guarded(move || drop(constraint));
        self.endings.push((sequence.reply, event));
        if let Some(kv) = cached {
            self.store.undo(self.model.arena(), kv);
            if !kept {
                self.store.drop_sequence(self.model.arena(), kv);
            }
        }
    }

    /// Makes the counts public, then sends the endings: a client that receives its ending finds it
    /// counted. A gauge that cannot be read keeps its last value.
    pub(crate) fn settle(&mut self) {
        let _ = guarded(|| self.read_gauges());
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = self.counts;
        for (reply, event) in self.endings.drain(..) {
            reply.end(event);
        }
    }

    fn read_gauges(&mut self) {
        self.counts.waiting = self.waiting.len() as u64;
        self.counts.running = self.running.len() as u64;
        self.counts.model = self.model.stats();
        self.counts.kv = self.store.stats();
        let memory = self.model.arena().memory();
        self.counts.kv_committed_bytes = memory.committed;
        self.counts.kv_warm_bytes = memory.warm;
        self.counts.kv_limit_bytes = memory.limit;
        self.counts.kv_reserved_bytes = memory.reserved;
    }
}

/// Reports a sequence's step to its client; returns the ending, if it ends with that.
fn tell(sequence: &mut Sequence, tokens: u32, outcome: Outcome, tokenizer: &Tokenizer) -> Option<Event> {
    let guesses = sequence.tokens_with_guesses().map(|tokens| tokens[1..].to_vec());
    sequence.advance(if guesses.is_some() { 1 } else { tokens }, outcome.rows);
    let mut guesses = guesses.unwrap_or_default().into_iter();
    let ended = outcome.chosen.is_empty().then(|| sequence.ended_without_tokens());
    let (mut reason, mut right) = (ended.flatten(), 0);
    for chosen in outcome.chosen {
        let appended = chosen.and_then(|chosen| Ok((chosen.id, sequence.append(chosen, tokenizer)?)));
        let (id, ended) = match appended {
            Ok(appended) => appended,
            Err(error) => return Some(Event::Failed(error)),
        };
        reason = ended;
        if reason.is_some() || guesses.next() != Some(id) {
            break;
        }
        // The guess was right: its row is there.
        sequence.advance(1, Vec::new());
        right += 1;
    }
    sequence.judge_guesses(right);
    reason.map(|reason| Event::Finished(sequence.finished(reason)))
}

fn lookup() -> Box<dyn Drafter> {
    Box::new(Lookup::default())
}

/// Time since now.
fn clock() -> impl Fn() -> Duration + Send {
    let start = Instant::now();
    move || start.elapsed()
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
mod slot_tests;
#[cfg(test)]
mod speculation_tests;
#[cfg(test)]
mod swap_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod window_tests;
