//! Engines of many settings, and what requests to them answer, in bits.

use minfer::cpu::Isa;
use minfer::engine::event::{Finished, Token};
use minfer::engine::{Engine, EngineConfig, Event, Events, Request, SamplingParams};
use minfer::graph::{KvGranule, KvLayout};
use minfer::{ContextLength, KvOptions, LoadOptions, Loaded, Machine, MachineOptions, ModelFile};
use minfer_testkit::synthetic::{self, Family};

/// Tokens of every answer.
pub(crate) const ANSWER: u32 = 6;

/// How an engine is made.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) n_ctx: u32,
    pub(crate) n_batch: u32,
    pub(crate) n_slots: u32,
    pub(crate) threads: usize,
    pub(crate) isa: Isa,
    pub(crate) layout: KvLayout,
    pub(crate) block_tokens: u32,
    pub(crate) kv_memory: Option<u64>,
    pub(crate) context_shift: bool,
    pub(crate) granule: KvGranule,
    /// Bytes of memory without rows that are kept for the next ones.
    pub(crate) keep_warm: u64,
    /// 0: what steps feed depends on no time.
    pub(crate) step_target: f32,
    pub(crate) prefix_cache: bool,
}

impl Way {
    pub(crate) fn plain(n_ctx: u32) -> Way {
        Way {
            n_ctx,
            n_batch: 256,
            n_slots: 4,
            threads: 2,
            isa: Isa::best(),
            layout: KvLayout::LaneMajor,
            block_tokens: 64,
            kv_memory: None,
            context_shift: false,
            granule: KvGranule::Page,
            keep_warm: 64 << 20,
            step_target: 0.0,
            prefix_cache: true,
        }
    }

    pub(crate) fn engine(self, file: &ModelFile) -> Engine {
        let loaded = self.load(file);
        let Way { step_target, prefix_cache, .. } = self;
        let config = EngineConfig { step_target, prefix_cache, ..loaded.engine_config() };
        loaded.into_engine_with(config).expect("an engine")
    }

    pub(crate) fn load(self, file: &ModelFile) -> Loaded {
        let machine =
            MachineOptions { threads: Some(self.threads), isa: Some(self.isa), ..MachineOptions::default() };
        let Way { layout, block_tokens, kv_memory, context_shift, n_batch, n_slots, .. } = self;
        let options = LoadOptions {
            n_ctx: ContextLength::Fixed(self.n_ctx),
            n_slots,
            n_batch,
            kv: KvOptions { layout, block_tokens, ..KvOptions::default() },
            kv_memory,
            context_shift,
            kv_granule: self.granule,
            kv_keep_warm: self.keep_warm,
            ..LoadOptions::default()
        };
        let machine = Machine::new(&machine).expect("a machine");
        Loaded::new(&machine, file, &options).expect("the model loads")
    }
}

/// An answer as ids with the bits of log-probabilities.
pub(crate) type Bits = Vec<(u32, Vec<(u32, u32)>)>;

pub(crate) fn read(events: &Events) -> (Bits, Finished) {
    bits(|| events.recv().expect("an event"))
}

/// What the events of one request say, up to its end.
pub(crate) fn bits(mut next: impl FnMut() -> Event) -> (Bits, Finished) {
    let mut bits = Bits::new();
    loop {
        match next() {
            Event::Token(Token { id, logprobs, .. }) => {
                let top = logprobs.expect("asked for").top;
                bits.push((id, top.iter().map(|token| (token.id, token.logprob.to_bits())).collect()));
            }
            Event::Finished(finished) => return (bits, finished),
            Event::Failed(error) => panic!("{error}"),
            Event::Cancelled => panic!("cancelled"),
            Event::Progress(_) | Event::PromptLogprobs(_) => {}
        }
    }
}

pub(crate) fn ask(engine: &Engine, request: Request) -> (Bits, Finished) {
    read(&engine.submit(request).expect("accepted").1)
}

pub(crate) fn request(prompt: &[u32]) -> Request {
    Request {
        max_tokens: Some(ANSWER),
        ignore_eos: true,
        logprobs: Some(8),
        sampling: SamplingParams::greedy(),
        ..Request::new(prompt.to_vec())
    }
}

pub(crate) fn tokens(vocabulary: u32, count: u32, seed: u32) -> Vec<u32> {
    (0..count).map(|index| (index * index * 7 + index * 13 + 5 + seed * 31) % vocabulary).collect()
}

/// A tiny model with room for long contexts.
pub(crate) fn synthetic_file(family: Family) -> ModelFile {
    let mut model: synthetic::ModelFile = family.model();
    model.set_context_length(2048);
    ModelFile::from_bytes(model.to_bytes()).expect("a sound file")
}
