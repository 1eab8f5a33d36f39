//! A model for tests: the null backend under a small model graph, and a byte-level tokenizer with
//! one end token.

pub(crate) mod hooked;

use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use minfer_graph::backend::{WeightError, WeightSource};
use minfer_graph::{
    Executor, ExecutorConfig, Extents, KvFormat, KvGroupSpec, KvLayout, KvMemory, KvSpec, ModelGraphBuilder,
    NullBackend, WeightId,
};
use minfer_tensor::DType;
use minfer_text::{TokenType, Tokenizer, TokenizerSpec};

use crate::admission::Admission;
use crate::event::{Event, Finished, Token};
use crate::kv::session::{self, SessionError, SessionRows};
use crate::reply::Events;
use crate::session::{SessionId, SessionTerms};
use crate::worker::Worker;
use crate::worker::transfers::Outgoing;
use crate::{
    EngineConfig, EngineStats, ModelExecutor, Request, RequestId, SamplingParams, Submission, SubmitError,
};

/// The end-of-generation token; ids below it are bytes.
pub(crate) const END: u32 = 256;
/// Tokens of the vocabulary.
pub(crate) const VOCAB: u32 = 257;
/// Positions of a block.
pub(crate) const BLOCK: u32 = 16;

pub(crate) fn tokenizer() -> Arc<Tokenizer> {
    let mut spec = TokenizerSpec::byte_level("gpt-2", &[]);
    spec.eos = Some(spec.push_token("<|im_end|>", TokenType::Control));
    Arc::new(Tokenizer::new(spec).unwrap())
}

/// A cache of two groups of one layer each, `blocks` blocks of 16 positions.
pub(crate) fn kv_spec(blocks: u32) -> KvSpec {
    windowed_kv_spec([blocks; 2], None)
}

/// As [`kv_spec`], the second group with a window and as many blocks as it says.
pub(crate) fn windowed_kv_spec(max_blocks: [u32; 2], window: Option<u32>) -> KvSpec {
    let group = |layer, window| KvGroupSpec {
        layers: vec![layer],
        kv_heads: 1,
        k_dim: 2,
        v_dim: 2,
        window,
        k_format: KvFormat::F32,
        v_format: KvFormat::F32,
        layout: KvLayout::LaneMajor,
        block_tokens: BLOCK,
    };
    KvSpec { groups: vec![group(0, None), group(1, window)], max_blocks: max_blocks.to_vec() }
}

struct NoWeights(Vec<u8>);

impl WeightSource for NoWeights {
    fn stored_bytes(&self, _id: WeightId) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, _id: WeightId, offset: u64, target: &mut [u8]) -> Result<(), WeightError> {
        target.copy_from_slice(&self.0[offset as usize..][..target.len()]);
        Ok(())
    }
}

/// An executor over `backend`.
pub(crate) fn executor(backend: &NullBackend, blocks: u32, extents: Extents) -> Executor {
    executor_over(backend, kv_spec(blocks), extents)
}

fn executor_over(backend: &NullBackend, spec: KvSpec, extents: Extents) -> Executor {
    let mut model_graph = ModelGraphBuilder::new();
    let table = model_graph.weight("table", DType::F32, &[VOCAB, 2]);
    let mut body = model_graph.body();
    let hidden = body.embed(table);
    body.kv_store(hidden, hidden, 0, 1);
    body.kv_store(hidden, hidden, 1, 1);
    let body = body.finish(&[hidden]);
    let (mut head, hidden) = model_graph.head(2);
    let rows = head.gather_rows(hidden);
    let logits = head.linear(rows, table, None, "output");
    let head = head.finish(&[logits]);
    let source = NoWeights(vec![0; VOCAB as usize * 2 * 4]);
    let config = ExecutorConfig { extents, rewrites_off: Vec::new(), kv_memory: KvMemory::default() };
    let model_graph = model_graph.finish(body, head);
    Executor::new(Arc::new(backend.clone()), model_graph, &source, spec, config).unwrap()
}

/// A backend whose answer to a prompt of `prompt` tokens is `answer`, then the end token for ever.
pub(crate) fn scripted(prompt: usize, answer: &str) -> NullBackend {
    let answer = answer.as_bytes().to_vec();
    NullBackend::new().with_logits(move |history, logits| {
        logits.fill(0.0);
        let next = answer.get(history.len() - prompt).map_or(END, |&byte| u32::from(byte));
        logits[next as usize] = 10.0;
    })
}

/// A backend whose answers depend on everything that was fed, and end now and then.
pub(crate) fn eloquent() -> NullBackend {
    NullBackend::new().with_seeded_logits(7)
}

/// A request that takes the most probable tokens.
pub(crate) fn greedy(prompt: &[u32]) -> Request {
    Request { sampling: SamplingParams::greedy(), ..Request::new(prompt.to_vec()) }
}

/// A worker without a thread: tests say when a step happens.
pub(crate) struct Bench {
    pub(crate) backend: NullBackend,
    pub(crate) worker: Worker,
    pub(crate) admission: Admission,
    stats: Arc<Mutex<EngineStats>>,
}

/// Settings of a bench.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) config: EngineConfig,
    pub(crate) blocks: u32,
    /// Window of the second group.
    pub(crate) window: Option<u32>,
    /// Blocks of the second group, where they are others.
    pub(crate) window_blocks: Option<u32>,
    pub(crate) head_rows: u32,
}

impl Default for Shape {
    fn default() -> Shape {
        let config = EngineConfig {
            n_ctx: 128,
            n_batch: 8,
            // Steps are counted: what they feed depends on no time.
            step_target: 0.0,
            n_slots: 3,
            queue: 5,
            // Tests that want guesses bring their own.
            speculation: false,
            ..EngineConfig::default()
        };
        Shape { config, blocks: 64, window: None, window_blocks: None, head_rows: 2 }
    }
}

impl Bench {
    pub(crate) fn new(backend: &NullBackend, shape: Shape) -> Bench {
        Bench::with_model(backend, shape, |executor| executor)
    }

    /// A bench of what `wrap` makes of the executor.
    pub(crate) fn with_model<M: ModelExecutor + 'static>(
        backend: &NullBackend,
        shape: Shape,
        wrap: impl FnOnce(Executor) -> M,
    ) -> Bench {
        let extents = Extents {
            tokens: shape.config.n_batch as u32,
            rows: shape.head_rows,
            sequences: shape.config.n_slots as u32,
        };
        let window_blocks = shape.window_blocks.unwrap_or(shape.blocks);
        let spec = windowed_kv_spec([shape.blocks, window_blocks], shape.window);
        let model = wrap(executor_over(backend, spec, extents));
        let tokenizer = tokenizer();
        let stats = Arc::default();
        let worker = Worker::new(Box::new(model), Arc::clone(&tokenizer), &shape.config, Arc::clone(&stats));
        let admission = Admission::new(&shape.config, &tokenizer, VOCAB as usize, worker.kv_tokens());
        Bench { backend: backend.clone(), worker, admission, stats }
    }

    pub(crate) fn submit(&mut self, request: Request) -> Result<(RequestId, Events), SubmitError> {
        let (sink, events) = Events::channel();
        Ok((self.submit_with(Submission::new(request, sink))?, events))
    }

    pub(crate) fn submit_with(&mut self, submission: Submission) -> Result<RequestId, SubmitError> {
        let sequences = self.admission.accept(vec![submission])?;
        let id = sequences[0].id();
        sequences.into_iter().for_each(|sequence| self.worker.accept(sequence));
        Ok(id)
    }

    /// Opens a conversation from a file, as an engine does.
    pub(crate) fn load(
        &mut self,
        id: SessionId,
        path: &Path,
        salt: Option<u64>,
    ) -> Result<Vec<u8>, SessionError> {
        let file = self.worker.session_terms().open(path)?;
        let saved = file.sequences()[0].clone();
        self.receive(&file, 0, |worker, rows, done| worker.receive_session(id, saved, salt, rows, done))?;
        Ok(file.sequences()[0].host.clone())
    }

    /// Opens every slot of a file, as an engine does.
    pub(crate) fn load_slots(&mut self, path: &Path) -> Result<(), SessionError> {
        let file = self.worker.session_terms().open_all(path)?;
        (0..file.sequences().len()).try_for_each(|index| {
            let saved = &file.sequences()[index];
            self.receive(&file, index, |worker, rows, done| worker.receive_slot(None, saved, rows, done))
        })
    }

    fn receive(
        &mut self,
        file: &SessionRows,
        index: usize,
        start: impl FnOnce(&mut Worker, Receiver<Vec<u8>>, Box<dyn FnOnce(Result<(), SessionError>) + Send>),
    ) -> Result<(), SessionError> {
        let spec = self.worker.session_terms().spec;
        let ((sender, rows), (done, end)) = (mpsc::sync_channel(1), mpsc::channel());
        start(&mut self.worker, rows, Box::new(move |ended| done.send(ended).unwrap()));
        std::thread::scope(|scope| {
            // Pieces of any length: chunks are no unit of the cache.
            scope.spawn(move || file.send_rows(index, &spec, 37, |bytes| sender.send(bytes).is_ok()));
            loop {
                if let Ok(ended) = end.try_recv() {
                    return ended;
                }
                self.worker.move_rows(Duration::ZERO);
            }
        })
    }

    /// Saves a conversation, as an engine does.
    pub(crate) fn save(&mut self, id: SessionId, path: &Path, host: Vec<u8>) -> Result<u64, SessionError> {
        let outgoing = self.worker.send_session(id, host)?;
        self.write(outgoing, path)
    }

    /// Saves all slots, as an engine does.
    pub(crate) fn save_slots(&mut self, path: &Path) -> Result<u64, SessionError> {
        let outgoing = self.worker.send_slots(None)?;
        self.write(outgoing, path)
    }

    /// Writes what a worker sends while the bench's thread moves rows.
    pub(crate) fn write(&mut self, outgoing: Outgoing, path: &Path) -> Result<u64, SessionError> {
        let SessionTerms { identity, spec, .. } = self.worker.session_terms();
        std::thread::scope(|scope| {
            let written = scope.spawn(move || {
                let Outgoing { saved, rows } = outgoing;
                session::write(path, identity, &spec, saved, |put| {
                    rows.iter().try_for_each(|bytes| put(&bytes))
                })
            });
            while !written.is_finished() {
                self.worker.move_rows(Duration::ZERO);
            }
            written.join().unwrap()
        })
    }

    /// Steps until there is nothing to do.
    pub(crate) fn drain(&mut self) {
        while self.worker.has_work() && self.worker.step() {}
    }

    /// Carries out one request alone.
    pub(crate) fn answer(&mut self, request: Request) -> Answer {
        let (_, events) = self.submit(request).unwrap();
        self.drain();
        Answer::of(&events)
    }

    pub(crate) fn stats(&self) -> EngineStats {
        *self.stats.lock().unwrap()
    }

    /// Nothing runs, waits or holds memory but the prefix cache.
    pub(crate) fn assert_idle(&self) {
        let stats = self.stats();
        assert_eq!((stats.waiting, stats.running), (0, 0));
        assert_eq!((stats.kv.blocks_live, stats.kv.sequences), (0, 0));
        assert_eq!(self.backend.stats().committed_blocks, stats.kv.blocks_cached);
    }
}

/// All events of one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) events: Vec<Event>,
}

impl Answer {
    /// What has come; checks the promise of one terminal event, which is the last.
    pub(crate) fn of(events: &Events) -> Answer {
        let events: Vec<Event> = std::iter::from_fn(|| events.try_recv()).collect();
        let terminal = events.iter().position(Event::is_terminal);
        assert_eq!(terminal.map(|index| index + 1), Some(events.len()), "{events:?}");
        Answer { events }
    }

    pub(crate) fn tokens(&self) -> Vec<&Token> {
        let tokens = self.events.iter().filter_map(|event| match event {
            Event::Token(token) => Some(token),
            _ => None,
        });
        tokens.collect()
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.tokens().iter().map(|token| token.id).collect()
    }

    pub(crate) fn text(&self) -> String {
        let mut text: String = self.tokens().iter().map(|token| token.text.as_str()).collect();
        if let Event::Finished(finished) = self.last() {
            text.push_str(&finished.tail);
        }
        text
    }

    pub(crate) fn last(&self) -> &Event {
        self.events.last().expect("there is a terminal event")
    }

    pub(crate) fn finished(&self) -> &Finished {
        match self.last() {
            Event::Finished(finished) => finished,
            other => panic!("ended with {other:?}"),
        }
    }
}
