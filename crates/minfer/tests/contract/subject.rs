//! What ways of computing are compared on, and the proof that each was taken.

use std::path::PathBuf;

use minfer::engine::kv::{BlockOrder, SequenceId};
use minfer::engine::{Runner, Want};
use minfer::graph::{BlockTable, EVICTED, KvFormat};
use minfer::{Loaded, ModelFile};

use crate::variant::{Mates, Prefix, Variant};

/// A model with a prompt and a storage of rows.
pub(crate) struct Subject<'a> {
    file: &'a ModelFile,
    format: KvFormat,
    prompt: &'a [u32],
    /// The last variant's.
    runner: Option<(Variant, Runner)>,
    folder: tempfile::TempDir,
}

/// Bits of the logits after the tokens from index `first` on, row after row.
pub(crate) struct Rows {
    pub(crate) first: usize,
    pub(crate) bits: Vec<u32>,
}

/// A sequence that is computed, and what is fed beside it.
struct Run<'a> {
    runner: &'a mut Runner,
    prompt: &'a [u32],
    variant: Variant,
    ours: SequenceId,
    /// Those that stand before ours in a step, then those behind it.
    mates: Vec<SequenceId>,
    fed: usize,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(file: &'a ModelFile, format: KvFormat, prompt: &'a [u32]) -> Subject<'a> {
        let folder = tempfile::tempdir().expect("a folder");
        Subject { file, format, prompt, runner: None, folder }
    }

    /// Logits after the first `positions` tokens, as far as the variant computes them, proven to
    /// have been computed as it says.
    pub(crate) fn logits(&mut self, positions: usize, variant: Variant) -> Rows {
        let saved = (variant.prefix == Prefix::Restored).then(|| self.saved(positions, variant));
        let prompt = &self.prompt[..positions];
        let runner = self.runner(variant);
        let (mut run, first) = Run::begin(runner, prompt, variant, saved);
        let steps = run.runner.stats().steps;
        let rows = Rows { first, bits: run.rest(first) };
        let stats = run.runner.stats();
        assert_eq!(stats.steps - steps, (positions - first).div_ceil(variant.chunk) as u64, "steps");
        assert_eq!(stats.tokens_fed, run.fed as u64, "tokens fed");
        assert_eq!(stats.graph_builds, 2, "a graph is built once");
        run.check_places();
        rows
    }

    /// A runner as new, of the model as the variant wants it loaded.
    fn runner(&mut self, variant: Variant) -> &mut Runner {
        let kept = self.runner.take().filter(|(loaded, _)| loaded.is_loaded_alike(&variant));
        let runner = match kept {
            Some((_, mut runner)) => {
                runner.restart(variant.runner_options());
                runner
            }
            None => load(self.file, self.format, self.prompt.len(), variant),
        };
        &mut self.runner.insert((variant, runner)).1
    }

    /// A file with the rows that a variant begins with. It is made once for each way of saving.
    fn saved(&mut self, positions: usize, variant: Variant) -> PathBuf {
        let variant = variant.saved();
        let name = format!("{positions}-{}-{}", variant.layout, variant.block_tokens);
        let path = self.folder.path().join(name);
        if !path.exists() {
            let mut runner = load(self.file, self.format, self.prompt.len(), variant);
            let sequence = runner.open();
            for chunk in self.prompt[..cut(positions)].chunks(variant.chunk) {
                runner.feed(&[(sequence, chunk)], Want::Nothing, |_| {}).expect("the step runs");
                runner.evict_window(sequence);
            }
            runner.save(sequence, &path).expect("saved");
        }
        path
    }
}

fn load(file: &ModelFile, format: KvFormat, positions: usize, variant: Variant) -> Runner {
    let loaded = Loaded::new(&variant.machine(), file, &variant.load_options(format, positions))
        .expect("the model loads");
    let rewrites: usize = loaded.executor().stats().rewrites.applied.iter().map(|(_, count)| count).sum();
    assert_eq!(rewrites > 0, variant.rewritten, "rewrites: {rewrites}");
    let runner = loaded.into_runner(variant.runner_options());
    for group in &runner.kv_spec().groups {
        assert_eq!((group.layout, group.block_tokens), (variant.layout, variant.block_tokens));
        assert_eq!((group.k_format, group.v_format), (format, format));
    }
    runner
}

/// Tokens of a prompt whose rows are not computed with the rest: no multiple of 16.
fn cut(positions: usize) -> usize {
    let cut = positions * 4 / 5 + 5;
    let cut = cut + usize::from(cut.is_multiple_of(16));
    assert!(cut + 1 < positions, "a prompt of {positions} tokens has no rest");
    cut
}

impl<'a> Run<'a> {
    /// The sequence with the rows that it does not compute, and how many those are.
    fn begin(
        runner: &'a mut Runner,
        prompt: &'a [u32],
        variant: Variant,
        saved: Option<PathBuf>,
    ) -> (Run<'a>, usize) {
        let mates = if variant.mates == Mates::None { 0 } else { 3 };
        let mut mates: Vec<SequenceId> = (0..mates).map(|_| runner.open()).collect();
        let mut fed = 0;
        let (ours, first) = match variant.prefix {
            Prefix::Computed => (runner.open(), 0),
            Prefix::Reused | Prefix::Shared => {
                let cut = cut(prompt.len());
                let donor = donate(runner, prompt, cut, variant);
                fed = runner.length(donor) as usize;
                if variant.prefix == Prefix::Shared {
                    mates.push(donor);
                } else {
                    runner.close(donor);
                }
                let (ours, reused) = runner.open_with(prompt);
                let stats = runner.store().stats();
                assert_eq!((reused as usize, stats.tokens_reused as usize, stats.hits), (cut, cut, 1));
                assert_eq!(stats.blocks_shared > 0, variant.prefix == Prefix::Shared);
                (ours, cut)
            }
            Prefix::Restored => {
                let ours = runner.restore(&saved.expect("a file")).expect("restored");
                let cut = cut(prompt.len());
                assert_eq!((runner.stats().tokens_restored, runner.length(ours)), (cut as u64, cut as u32));
                (ours, cut)
            }
        };
        (Run { runner, prompt, variant, ours, mates, fed }, first)
    }

    /// Feeds the tokens from index `first` on; gives the bits of the logits after them.
    fn rest(&mut self, first: usize) -> Vec<u32> {
        let place = if self.variant.mates == Mates::Around { 2 } else { 0 };
        let mut bits = Vec::with_capacity((self.prompt.len() - first) * self.runner.vocab());
        for (step, chunk) in self.prompt[first..].chunks(self.variant.chunk).enumerate() {
            let texts: Vec<Vec<u32>> =
                (0..self.mates.len()).map(|mate| self.mates_tokens(step, mate)).collect();
            let pairs = self.mates.iter().copied().zip(texts.iter().map(Vec::as_slice));
            let mut batch: Vec<_> = pairs.filter(|(_, tokens)| !tokens.is_empty()).collect();
            let place = place.min(batch.len());
            batch.insert(place, (self.ours, chunk));
            self.fed += batch.iter().map(|(_, tokens)| tokens.len()).sum::<usize>();
            let read = |row: minfer::engine::Row<'_>| {
                if row.sequence == place {
                    assert_eq!(row.position as usize, first + bits.len() / row.logits.len());
                    bits.extend(row.logits.iter().map(|logit| logit.to_bits()));
                }
            };
            self.runner.feed(&batch, Want::All, read).expect("the step runs");
            if self.variant.prefix != Prefix::Computed {
                for (sequence, _) in batch {
                    self.runner.evict_window(sequence);
                }
            }
        }
        bits
    }

    /// Mates of other lengths with other tokens: 1, 3, 17 and 2 a step, as far as there is room.
    fn mates_tokens(&self, step: usize, mate: usize) -> Vec<u32> {
        let room = self.prompt.len() - self.runner.length(self.mates[mate]) as usize;
        let count = [1, 3, 17, 2][mate].min(room);
        let token = |index| self.prompt[(step * 31 + mate * 7 + index + 1) % self.prompt.len()];
        (0..count).map(token).collect()
    }

    /// The sequence's blocks lie in the order that the variant wants, and rows that others know
    /// were copied before the next was written.
    fn check_places(&self) {
        let stats = self.runner.store().stats();
        let beside_others = matches!(self.variant.prefix, Prefix::Reused | Prefix::Shared);
        assert_eq!(stats.blocks_copied > 0, beside_others, "the block in which the beginning ends");
        let BlockTable::Aligned(blocks) = self.runner.store().table(0, self.ours) else {
            panic!("a sequence that was never shifted")
        };
        let given_back = blocks.contains(&EVICTED);
        match self.variant.block_order {
            BlockOrder::LowestFirst => assert!(given_back || blocks.is_sorted(), "{blocks:?}"),
            BlockOrder::Shuffled(_) => {
                assert!(given_back || blocks.len() < 6 || !blocks.is_sorted(), "{blocks:?}");
            }
        }
    }
}

/// A sequence with the prompt's beginning and, where that is to end, a token that the prompt does
/// not go on with.
fn donate(runner: &mut Runner, prompt: &[u32], cut: usize, variant: Variant) -> SequenceId {
    let donor = runner.open();
    let mut tokens = prompt[..cut].to_vec();
    if variant.prefix == Prefix::Reused {
        tokens.push(if prompt[cut] > 0 { prompt[cut] - 1 } else { 1 });
    }
    for chunk in tokens.chunks(variant.chunk) {
        runner.feed(&[(donor, chunk)], Want::Nothing, |_| {}).expect("the step runs");
        runner.evict_window(donor);
    }
    donor
}
