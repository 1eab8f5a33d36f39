//! One way of computing the same thing.

use minfer::cpu::Isa;
use minfer::engine::RunnerOptions;
use minfer::engine::kv::BlockOrder;
use minfer::graph::{KvFormat, KvLayout};
use minfer::{ContextLength, KvOptions, LoadOptions, Machine, MachineOptions};

/// Tokens of a step at most, those of others included.
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
    pub(crate) block_order: BlockOrder,
    pub(crate) layout: KvLayout,
    pub(crate) block_tokens: u32,
    pub(crate) prefix: Prefix,
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

/// Where the rows of the prompt's beginning come from. But for the first it is cut inside of a
/// block of 16, and windows give back what is out of sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    Computed,
    /// Those of a sequence that has ended.
    Reused,
    /// Those of a sequence that goes on with other tokens in every step.
    Shared,
    /// A file, saved under another layout and block size.
    Restored,
}

impl Variant {
    pub(crate) const PLAIN: Variant = Variant {
        isa: Isa::Scalar,
        threads: 1,
        chunk: 512,
        mates: Mates::None,
        block_order: BlockOrder::LowestFirst,
        layout: KvLayout::LaneMajor,
        block_tokens: 64,
        prefix: Prefix::Computed,
        head_rows: 16,
        rewritten: true,
    };

    /// The values of all factors, in a fixed order.
    pub(crate) fn values(&self) -> [String; 10] {
        let Variant {
            isa,
            threads,
            chunk,
            mates,
            block_order,
            layout,
            block_tokens,
            prefix,
            head_rows,
            rewritten,
        } = *self;
        [
            isa.to_string(),
            threads.to_string(),
            chunk.to_string(),
            format!("{mates:?}"),
            format!("{block_order:?}"),
            format!("{layout:?}"),
            block_tokens.to_string(),
            format!("{prefix:?}"),
            head_rows.to_string(),
            rewritten.to_string(),
        ]
    }

    /// Whether a model that was loaded for one serves the other.
    pub(crate) fn is_loaded_alike(&self, other: &Variant) -> bool {
        let loaded = |variant: &Variant| Variant {
            isa: variant.isa,
            threads: variant.threads,
            layout: variant.layout,
            block_tokens: variant.block_tokens,
            head_rows: variant.head_rows,
            rewritten: variant.rewritten,
            ..Variant::PLAIN
        };
        loaded(self) == loaded(other)
    }

    /// How the file is made that a restored beginning comes from: as little as possible is the
    /// same.
    pub(crate) fn saved(self) -> Variant {
        let layout = match self.layout {
            KvLayout::SeqMajor => KvLayout::HeadMajor,
            _ => KvLayout::SeqMajor,
        };
        let block_tokens = if self.block_tokens == 16 { 64 } else { 16 };
        Variant { isa: Isa::best(), threads: 2, layout, block_tokens, ..Variant::PLAIN }
    }

    pub(crate) fn machine(&self) -> Machine {
        let options =
            MachineOptions { threads: Some(self.threads), isa: Some(self.isa), ..MachineOptions::default() };
        let machine = Machine::new(&options).expect("a machine");
        assert_eq!((machine.isa(), machine.threads()), (self.isa, self.threads));
        machine
    }

    pub(crate) fn load_options(&self, format: KvFormat, positions: usize) -> LoadOptions {
        let off = if self.rewritten { Vec::new() } else { minfer::graph::passes::names() };
        LoadOptions {
            n_ctx: ContextLength::Fixed(positions as u32 + 1),
            n_batch: N_BATCH,
            // Ours, three mates, and one whose rows it shares.
            n_slots: 5,
            head_rows: self.head_rows,
            kv: KvOptions {
                k_format: format,
                v_format: format,
                layout: self.layout,
                block_tokens: self.block_tokens,
            },
            rewrites_off: off.into_iter().map(str::to_owned).collect(),
            ..LoadOptions::default()
        }
    }

    pub(crate) fn runner_options(&self) -> RunnerOptions {
        let prefix_cache = matches!(self.prefix, Prefix::Reused | Prefix::Shared);
        RunnerOptions { block_order: self.block_order, prefix_cache, ..RunnerOptions::default() }
    }
}
