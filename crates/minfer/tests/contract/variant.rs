//! One way of computing the same thing.

use minfer::cpu::Isa;
use minfer::engine::kv::Placement;
use minfer::engine::{Runner, RunnerOptions, Want};
use minfer::graph::KvFormat;
use minfer::{ContextLength, KvOptions, LoadOptions, Loaded, Machine, MachineOptions, ModelFile};

/// Tokens of a step at most, mates included.
const N_BATCH: u32 = 640;

/// What may differ without changing a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) isa: Isa,
    pub(crate) threads: usize,
    /// Tokens of the prompt that are fed at once.
    pub(crate) chunk: usize,
    /// How many other sequences are in every step, and in which order ours stands among them.
    pub(crate) mates: Mates,
    pub(crate) placement: Placement,
    pub(crate) block_tokens: u32,
    /// Rows of the head at once.
    pub(crate) head_rows: u32,
    /// Graph rewrites on or off.
    pub(crate) rewritten: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mates {
    None,
    /// Three, ours first.
    After,
    /// Three, ours third.
    Around,
}

impl Variant {
    pub(crate) const PLAIN: Variant = Variant {
        isa: Isa::Scalar,
        threads: 1,
        chunk: 512,
        mates: Mates::None,
        placement: Placement::Fresh,
        block_tokens: 64,
        head_rows: 16,
        rewritten: true,
    };
}

/// Bits of the logits after every token of `prompt`, row after row, proven to have been computed as the variant says.
pub(crate) fn logits(file: &ModelFile, format: KvFormat, prompt: &[u32], variant: Variant) -> Vec<u32> {
    let machine = machine(variant);
    let loaded =
        Loaded::new(&machine, file, &options(format, prompt.len(), variant)).expect("the model loads");
    let rewrites: usize = loaded.executor().stats().rewrites.applied.iter().map(|(_, count)| count).sum();
    assert_eq!(rewrites > 0, variant.rewritten, "rewrites: {rewrites}");
    let mut runner =
        loaded.into_runner(RunnerOptions { placement: variant.placement, ..RunnerOptions::default() });
    let bits = feed(&mut runner, prompt, variant);
    let stats = runner.stats();
    assert_eq!(stats.steps as usize, prompt.len().div_ceil(variant.chunk), "steps");
    assert_eq!(stats.graph_builds, 2, "a graph is built once");
    bits
}

fn machine(variant: Variant) -> Machine {
    let options = MachineOptions {
        threads: Some(variant.threads),
        isa: Some(variant.isa),
        ..MachineOptions::default()
    };
    let machine = Machine::new(&options).expect("a machine");
    assert_eq!((machine.isa(), machine.threads()), (variant.isa, variant.threads));
    machine
}

fn options(format: KvFormat, positions: usize, variant: Variant) -> LoadOptions {
    let off = if variant.rewritten { Vec::new() } else { minfer::graph::passes::names() };
    LoadOptions {
        n_ctx: ContextLength::Fixed(positions as u32 + 1),
        n_batch: N_BATCH,
        n_slots: 4,
        head_rows: variant.head_rows,
        kv: KvOptions {
            k_format: format,
            v_format: format,
            block_tokens: variant.block_tokens,
            ..KvOptions::default()
        },
        rewrites_off: off.into_iter().map(str::to_owned).collect(),
        ..LoadOptions::default()
    }
}

fn feed(runner: &mut Runner, prompt: &[u32], variant: Variant) -> Vec<u32> {
    let ours = runner.open();
    let others: Vec<_> = match variant.mates {
        Mates::None => Vec::new(),
        Mates::After | Mates::Around => (0..3).map(|_| runner.open()).collect(),
    };
    let place = if variant.mates == Mates::Around { 2 } else { 0 };
    let mut bits = Vec::with_capacity(prompt.len() * runner.vocab());
    for (step, chunk) in prompt.chunks(variant.chunk).enumerate() {
        // Mates of other lengths with other tokens: 1, 3 and 17 a step, as far as there is room.
        let tokens = |mate: usize| -> Vec<u32> {
            let count = [1, 3, 17][mate].min(prompt.len() - runner.length(others[mate]) as usize);
            (0..count).map(|index| prompt[(step * 31 + mate * 7 + index) % prompt.len()]).collect()
        };
        let texts: Vec<Vec<u32>> = (0..others.len()).map(tokens).collect();
        let pairs = others.iter().copied().zip(texts.iter().map(Vec::as_slice));
        let mut batch: Vec<_> = pairs.filter(|(_, tokens)| !tokens.is_empty()).collect();
        let place = place.min(batch.len());
        batch.insert(place, (ours, chunk));
        runner
            .feed(&batch, Want::All, |row| {
                if row.sequence == place {
                    assert_eq!(row.position as usize, bits.len() / row.logits.len());
                    bits.extend(row.logits.iter().map(|logit| logit.to_bits()));
                }
            })
            .expect("the step runs");
    }
    bits
}
