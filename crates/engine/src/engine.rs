//! The engine: the handle that clients share, and its worker thread.

mod sessions;

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use minfer_text::Tokenizer;

use crate::admission::Admission;
use crate::event::Event;
use crate::guard::guarded;
use crate::kv::session::{SavedSequence, SessionError};
use crate::observer::{StepObserver, StepReport};
use crate::reply::{EventSink, Events};
use crate::request::Request;
use crate::sequence::Sequence;
use crate::session::{SessionId, SessionInfo, SessionTerms};
use crate::slot::SlotInfo;
use crate::stats::EngineStats;
use crate::submission::Submission;
use crate::worker::Worker;
use crate::worker::transfers::Outgoing;
use crate::{ConfigError, EngineConfig, HostMemory, ModelExecutor, SubmitError};

/// How often the end of requests is looked for while an engine drains.
const DRAIN_POLL: Duration = Duration::from_millis(5);

/// Names a request of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A model that answers requests, many at a time. One thread owns the model and runs steps while
/// there is work.
///
/// Dropping it is [`shutdown`](Self::shutdown).
pub struct Engine {
    commands: Option<Sender<Command>>,
    worker: Option<JoinHandle<()>>,
    tokenizer: Arc<Tokenizer>,
    config: EngineConfig,
    vocab: usize,
    admission: Admission,
    stats: Arc<Mutex<EngineStats>>,
    next_session: AtomicU64,
    session_terms: SessionTerms,
}

enum Command {
    Submit(Vec<Sequence>),
    Cancel(RequestId),
    CancelAll,
    OpenSession(SessionId, Option<u64>),
    CloseSession(SessionId),
    SessionInfo(SessionId, SyncSender<Option<SessionInfo>>),
    SendSession(SessionId, Vec<u8>, SyncSender<Result<Outgoing, SessionError>>),
    ReceiveSession(SessionId, Option<u64>, Incoming),
    Observe(StepObserver),
    SlotInfos(SyncSender<Vec<SlotInfo>>),
    SendSlots(Option<usize>, SyncSender<Result<Outgoing, SessionError>>),
    ReceiveSlot(Option<usize>, Incoming),
    EraseSlot(usize, SyncSender<Result<u32, SessionError>>),
    /// Rows were taken or sent: there may be more to move.
    Wake,
}

/// A sequence whose rows come in.
struct Incoming {
    saved: SavedSequence,
    rows: Receiver<Vec<u8>>,
    done: SyncSender<Result<(), SessionError>>,
}

impl Engine {
    /// Starts the worker thread.
    ///
    /// # Errors
    /// Settings that contradict each other or the model, or no thread could be had.
    pub fn new(
        model: impl ModelExecutor + 'static,
        tokenizer: Arc<Tokenizer>,
        config: EngineConfig,
    ) -> Result<Engine, ConfigError> {
        Engine::with_host_memory(model, tokenizer, config, HostMemory::default())
    }

    /// As [`new`](Self::new), asking `host` before rows are copied to the host's memory.
    ///
    /// # Errors
    /// As there.
    pub fn with_host_memory(
        model: impl ModelExecutor + 'static,
        tokenizer: Arc<Tokenizer>,
        config: EngineConfig,
        host: HostMemory,
    ) -> Result<Engine, ConfigError> {
        config.validate(model.extents())?;
        let (tokens, vocab) = (tokenizer.vocab_len(), model.vocab().min(model.input_vocab()));
        if tokens > vocab {
            return Err(ConfigError::Vocabulary { tokens, vocab });
        }
        let stats = Arc::new(Mutex::new(EngineStats::default()));
        let mut worker = Worker::new(Box::new(model), Arc::clone(&tokenizer), &config, Arc::clone(&stats));
        worker.host = host;
        let session_terms = worker.session_terms();
        let admission = Admission::new(&config, &tokenizer, vocab, worker.kv_tokens());
        let (commands, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("minfer-engine".to_owned())
            .spawn(move || serve(worker, &receiver))
            .map_err(|error| ConfigError::Thread(error.to_string()))?;
        Ok(Engine {
            commands: Some(commands),
            worker: Some(thread),
            tokenizer,
            config,
            vocab,
            admission,
            stats,
            next_session: AtomicU64::new(0),
            session_terms,
        })
    }

    /// Accepts a request. Its events come in order and end with exactly one terminal event.
    ///
    /// # Errors
    /// The request cannot be carried out, or there is no place for it.
    pub fn submit(&self, request: Request) -> Result<(RequestId, Events), SubmitError> {
        let (sink, events) = Events::channel();
        Ok((self.submit_to(request, sink)?, events))
    }

    /// Accepts a request. The worker thread calls `sink` with its events; a sink that panics fails
    /// this request only.
    ///
    /// # Errors
    /// The request cannot be carried out, or there is no place for it; the sink is dropped unused.
    pub fn submit_to(
        &self,
        request: Request,
        sink: impl EventSink + 'static,
    ) -> Result<RequestId, SubmitError> {
        Ok(self.submit_many(vec![Submission::new(request, sink)])?[0])
    }

    /// Accepts all of several requests or none of them.
    ///
    /// # Errors
    /// One cannot be carried out, or there is no place for all.
    pub fn submit_many(&self, submissions: Vec<Submission>) -> Result<Vec<RequestId>, SubmitError> {
        let sequences = self.admission.accept(submissions)?;
        let ids = sequences.iter().map(Sequence::id).collect();
        self.send(Command::Submit(sequences))?;
        Ok(ids)
    }

    /// Cancels a request before the next step, unless it has ended by then.
    pub fn cancel(&self, id: RequestId) {
        // A worker that has ended has nothing left to cancel.
        let _ = self.send(Command::Cancel(id));
    }

    /// Asks the worker and waits for its answer, which comes between two steps.
    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, SubmitError> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.send(command(answer))?;
        answered.recv().map_err(|_| SubmitError::Stopped)
    }

    /// Has `observer` hear of every step from the next one on, in place of an earlier one.
    pub fn observe_steps(&self, observer: impl FnMut(&StepReport) + Send + 'static) {
        // A worker that has ended makes no more steps.
        let _ = self.send(Command::Observe(Box::new(observer)));
    }

    /// Takes no more requests, and waits until those that were taken have ended: at the deadline
    /// they are cancelled. Returns whether all ended by themselves.
    pub fn drain(&self, deadline: Instant) -> bool {
        self.admission.close();
        while self.admission.live() > 0 && !self.has_stopped() {
            if Instant::now() >= deadline {
                let _ = self.send(Command::CancelAll);
                return false;
            }
            std::thread::sleep(DRAIN_POLL);
        }
        true
    }

    /// Counts as of the last step.
    pub fn stats(&self) -> EngineStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tokenizer that turns generated tokens into text.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The settings.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Token ids of prompts and answers are below it.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Whether requests are no longer carried out: the worker stalled or failed.
    pub fn has_stopped(&self) -> bool {
        self.worker.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Cancels every live request and waits for the worker's end.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        drop(self.commands.take());
        let own = std::thread::current().id();
        // A sink may drop the last handle from the worker's own thread, which then ends by itself.
        if let Some(worker) = self.worker.take().filter(|worker| worker.thread().id() != own) {
            // Its panics were caught and told to the clients.
            let _ = worker.join();
        }
    }

    fn send(&self, command: Command) -> Result<(), SubmitError> {
        let commands = self.commands.as_ref().ok_or(SubmitError::Stopped)?;
        commands.send(command).map_err(|_| SubmitError::Stopped)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Engine").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The worker thread: steps while there is work, waits for commands while there is none. Ends when
/// the handle is gone or the engine cannot go on.
fn serve(mut worker: Worker, commands: &Receiver<Command>) {
    let served = guarded(|| while take_commands(&mut worker, commands) && worker.step() {});
    let event = match served {
        Ok(()) => Event::Cancelled,
        Err(error) => Event::Failed(error),
    };
    worker.contained(|worker| worker.end_all(&event));
    worker.settle();
}

/// Takes what clients have sent, waiting for it while there is nothing to do and no rows can move.
/// Returns whether the handle is still there.
fn take_commands(worker: &mut Worker, commands: &Receiver<Command>) -> bool {
    loop {
        let command = if worker.has_work() || worker.contained(Worker::tidy_up) == Some(true) {
            match commands.try_recv() {
                Ok(command) => command,
                Err(TryRecvError::Empty) if worker.has_work() => return true,
                Err(TryRecvError::Empty) => continue,
                Err(TryRecvError::Disconnected) => return false,
            }
        } else {
            match commands.recv() {
                Ok(command) => command,
                Err(mpsc::RecvError) => return false,
            }
        };
        worker.contained(|worker| carry_out(worker, command));
    }
}

fn carry_out(worker: &mut Worker, command: Command) {
    match command {
        Command::Submit(sequences) => sequences.into_iter().for_each(|sequence| worker.accept(sequence)),
        Command::Cancel(id) => worker.cancel(id),
        Command::CancelAll => worker.cancel_all(),
        Command::OpenSession(id, salt) => worker.open_session(id, salt),
        Command::CloseSession(id) => worker.close_session(id),
        // Somebody who does not wait for the answer does not need it.
        Command::SessionInfo(id, answer) => drop(answer.send(worker.session_info(id))),
        Command::SendSession(id, host, answer) => drop(answer.send(worker.send_session(id, host))),
        Command::ReceiveSession(id, salt, Incoming { saved, rows, done }) => {
            worker.receive_session(id, saved, salt, rows, move |end| drop(done.send(end)));
        }
        Command::Observe(observer) => worker.set_observer(observer),
        Command::SlotInfos(answer) => drop(answer.send(worker.slot_infos())),
        Command::SendSlots(only, answer) => drop(answer.send(worker.send_slots(only))),
        Command::ReceiveSlot(slot, Incoming { saved, rows, done }) => {
            worker.receive_slot(slot, &saved, rows, move |end| drop(done.send(end)));
        }
        Command::EraseSlot(slot, answer) => drop(answer.send(worker.erase_slot(slot))),
        Command::Wake => (),
    }
}

#[cfg(test)]
mod tests;
