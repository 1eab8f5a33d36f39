//! Memory is accounted for before it is taken, once for all that a machine has loaded.

mod common;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

use common::logits_of;
use minfer::cpu::Isa;
use minfer::engine::kv::{SequenceId, Store, StoreOptions};
use minfer::engine::{
    ContextShift, EngineConfig, Event, Events, ModelExecutor, Request, RunnerOptions, SamplingParams, Want,
};
use minfer::graph::{Batch, BlockTable, EVICTED, KvGranule, KvGroupBatch, KvMemoryStats, SequenceView};
use minfer::models::RopeScalingKind;
use minfer::{
    BudgetError, ContextBound, ContextLength, Footprint, HeldMemory, KvOptions, LoadError, LoadOptions,
    LoadProgress, Loaded, Machine, MachineOptions, MemoryBound, MemoryUse, ModelFile, Setting, Suggestion,
};
use minfer_testkit::residency::resident_bytes;
use minfer_testkit::synthetic::{self, Family};

fn machine(memory_limit: Option<u64>) -> Machine {
    Machine::new(&MachineOptions { threads: Some(2), isa: Some(Isa::best()), memory_limit })
        .expect("a machine")
}

fn file(family: Family) -> ModelFile {
    ModelFile::from_bytes(synthetic::file(family)).expect("a sound file")
}

fn footprint(file: &ModelFile, options: &LoadOptions) -> Footprint {
    let model = file.model(&options.model).expect("a model");
    Footprint::of(&machine(None), &model, options).expect("it fits")
}

/// What a refusal was for, and its numbers: needed, held, at most.
fn refused(result: Result<Loaded, LoadError>) -> (MemoryUse, [u64; 3], Vec<Suggestion>) {
    match result {
        Err(LoadError::Memory {
            refused: BudgetError::Exceeded { what, needed, held, most, .. },
            suggestions,
        }) => (what, [needed, held, most], suggestions),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it fits"),
    }
}

#[test]
fn each_part_that_does_not_fit_is_refused_by_its_name() {
    let file = file(Family::Llama);
    for options in [
        LoadOptions { n_ctx: ContextLength::Fixed(512), ..LoadOptions::default() },
        LoadOptions {
            n_ctx: ContextLength::Fixed(512),
            n_batch: 65536,
            n_slots: 4,
            ..LoadOptions::default()
        },
    ] {
        let Footprint { weight_bytes, tokenizer_bytes, workspace_bytes, .. } = footprint(&file, &options);
        // Several sequences share what there is, but one has room for all of its positions.
        let kv_bytes = 512 * 512;
        let mut held = 0;
        // Several sequences may have less than all of their contexts.
        let least = weight_bytes + tokenizer_bytes + workspace_bytes + kv_bytes;
        for (what, bytes, has_others) in [
            (MemoryUse::Weights, weight_bytes, false),
            (MemoryUse::Tokenizer, tokenizer_bytes, false),
            (MemoryUse::Workspace, workspace_bytes, true),
            (MemoryUse::Kv, kv_bytes, true),
        ] {
            let machine = machine(Some(held + bytes - 1));
            let (refused_what, numbers, suggestions) = refused(Loaded::new(&machine, &file, &options));
            assert_eq!((refused_what, numbers), (what, [bytes, held, held + bytes - 1]));
            assert_eq!(suggestions.last(), Some(&vec![Setting::MemoryLimit(least)]));
            assert_eq!(suggestions.len() > 1, has_others, "{suggestions:?}");
            assert_eq!(machine.budget().held(), HeldMemory::default(), "nothing is held");
            held += bytes;
        }
        assert!(Loaded::new(&machine(Some(held)), &file, &options).is_ok(), "what fits exactly fits");
    }
}

/// The parts that are leased are those that the loaded model has.
#[test]
fn leases_are_what_was_taken() {
    // Elements of a head that each distinct rotation of K turns.
    for (family, rotated) in
        [(Family::Llama, 16), (Family::Gemma3, 2 * 32), (Family::Gpt2, 0), (Family::Phi3Long, 16)]
    {
        let (file, machine) = (file(family), machine(None));
        let n_ctx = ContextLength::Fixed(512);
        let options = LoadOptions { n_ctx, n_slots: 3, n_batch: 100, ..LoadOptions::default() };
        let before = footprint(&file, &options);
        let loaded = Loaded::new(&machine, &file, &options).expect("it loads");
        let stats = loaded.executor().stats();
        let edges = loaded.executor().plans().each_ref().map(|plan| &plan.external_bytes);
        // Angles of 3 sequences, of whose rows a context of 512 may have 11 offsets, with room to
        // grow.
        let angles = 2 * 3 * 11 * rotated * 4;
        let workspace = stats.workspace_bytes + edges[0][0] + edges[1][1] + angles;
        assert_eq!(before.workspace_bytes, workspace, "{}", family.name());
        assert_eq!(before.weight_bytes, stats.weight_bytes, "{}", family.name());
        let held = machine.budget().held();
        assert_eq!(held.of(MemoryUse::Weights), stats.weight_bytes);
        assert_eq!(held.of(MemoryUse::Workspace), workspace);
        assert_eq!(held.of(MemoryUse::Tokenizer), loaded.tokenizer.memory_bytes() as u64);
        assert_eq!(held.of(MemoryUse::Kv), before.kv_bytes);
        assert_eq!(before.kv_bytes, loaded.kv.arena_bytes(4096));
    }
}

/// A load tells of every weight, up to the bytes that it leases.
#[test]
fn a_load_tells_how_far_it_has_come() {
    for family in [Family::Llama, Family::Gemma3, Family::Gpt2] {
        let (file, machine) = (file(family), machine(None));
        let told = Mutex::new(Vec::new());
        let report = |progress| told.lock().expect("no panic").push(progress);
        let loaded = Loaded::with_progress(&machine, &file, &LoadOptions::default(), report);
        let total = loaded.expect("it loads").executor().stats().weight_bytes;
        let told: Vec<LoadProgress> = told.into_inner().expect("no panic");
        let done: BTreeSet<u64> = told.iter().map(|progress| progress.done).collect();
        assert!(done.len() > 9, "{}: {done:?}", family.name());
        assert_eq!(done.last(), Some(&total), "{}", family.name());
        assert!(told.iter().all(|progress| progress.total == total), "{}", family.name());
    }
}

#[test]
fn two_engines_share_one_budget() {
    let file = file(Family::Llama);
    let options = LoadOptions { n_ctx: ContextLength::Fixed(512), ..LoadOptions::default() };
    let one = footprint(&file, &options).total_bytes;
    let machine = machine(Some(one * 3 / 2));
    let first =
        Loaded::new(&machine, &file, &options).expect("the first fits").into_engine().expect("it runs");
    let held = machine.budget().held();
    assert!(held.total() > 0 && held.total() <= one);
    let (_, [_, others, most], _) = refused(Loaded::new(&machine, &file, &options));
    assert!(others >= held.total() && most == one * 3 / 2, "{others} of {most}");
    assert_eq!(machine.budget().held(), held, "a refused request disturbs nothing");
    // A clone of the machine has the same account.
    drop(first);
    assert_eq!(machine.clone().budget().held(), HeldMemory::default());
    let second = Loaded::new(&machine, &file, &options).expect("the second fits alone");
    drop(second.into_runner(RunnerOptions::default()));
    assert_eq!(machine.budget().held(), HeldMemory::default());
}

/// Little memory shortens the context and says so, and does not choose other rope factors.
#[test]
fn memory_bounds_the_context_and_not_the_answer() {
    let file = file(Family::Phi3Long);
    let options = LoadOptions { n_ctx: ContextLength::AtMost(512), ..LoadOptions::default() };
    let whole = footprint(&file, &options);
    assert_eq!((whole.n_ctx, whole.wanted_n_ctx), (512, 512));
    let least = LoadOptions { n_ctx: ContextLength::AtMost(64), ..options.clone() };
    let least = footprint(&file, &least).total_bytes;
    let within = |limit| Loaded::new(&machine(Some(limit)), &file, &options);
    let short = within(least).expect("one block fits");
    assert_eq!((short.n_ctx, short.wanted_n_ctx), (64, 512));
    assert_eq!(short.context_bound, Some(ContextBound::Memory(MemoryBound::Limit)));
    assert_eq!(refused(within(least - 1)).0, MemoryUse::Kv);
    let middle = within(whole.total_bytes - 1).expect("all but one block fits");
    assert_eq!((middle.n_ctx, middle.wanted_n_ctx), (448, 512));
    assert_eq!(logits_of(short), logits_of(within(whole.total_bytes).expect("all of it fits")));
}

#[test]
fn the_cache_has_a_bound_of_its_own() {
    let file = file(Family::Llama);
    let load = |n_ctx, kv_memory, n_slots| {
        let options = LoadOptions { n_ctx, kv_memory, n_slots, ..LoadOptions::default() };
        let machine = machine(None);
        Loaded::new(&machine, &file, &options)
            .map(|loaded| (machine.budget().held().of(MemoryUse::Kv), loaded))
    };
    // 512 bytes a token.
    let (held, short) = load(ContextLength::Auto, Some(200 * 512), 1).expect("three blocks fit");
    assert_eq!((short.n_ctx, held), (192, 192 * 512));
    assert_eq!(short.context_bound, Some(ContextBound::KvMemory));
    let (held, fixed) = load(ContextLength::Fixed(128), Some(128 * 512), 1).expect("it fits exactly");
    assert_eq!((fixed.n_ctx, held), (128, 128 * 512));
    let error = load(ContextLength::Fixed(129), Some(128 * 512), 1).map(drop).unwrap_err().to_string();
    let refusal = "a context of 129 takes 98304 bytes, `kv_memory` allows 65536";
    assert!(error.ends_with(refusal), "{error}");
    // Four sequences share a bound that one of them may use alone.
    let (held, shared) = load(ContextLength::Fixed(512), Some(600 * 512), 4).expect("one has all its room");
    assert_eq!((shared.n_ctx, held), (512, 600 * 512));
    let (held, _) = load(ContextLength::Fixed(512), None, 4).expect("all have all their room");
    assert_eq!(held, 4 * 512 * 512);
}

/// The unit that settings name is the one of the arena and of what is leased for it.
#[test]
fn the_arena_of_a_load_has_the_granule_that_was_asked_for() {
    let file = file(Family::Gemma3);
    for (kv_granule, kv_keep_warm, granule) in [
        (KvGranule::Page, 64 << 20, 4096),
        (KvGranule::Bytes(1 << 16), 0, 1 << 16),
        (KvGranule::Bytes(2 << 20), 0, 2 << 20),
    ] {
        let options = LoadOptions { kv_granule, kv_keep_warm, ..LoadOptions::default() };
        let machine = machine(None);
        let loaded = Loaded::new(&machine, &file, &options).expect("it loads");
        let whole = loaded.kv.arena_bytes(granule);
        let first_blocks = loaded.kv.groups.iter().map(|group| group.bytes_per_block());
        let committed = first_blocks.map(|bytes| bytes.next_multiple_of(granule)).sum();
        assert_eq!(machine.budget().held().of(MemoryUse::Kv), whole);
        let mut runner = loaded.into_runner(RunnerOptions::default());
        let sequence = runner.open();
        runner.feed(&[(sequence, &[1])], Want::Nothing, |_| {}).expect("the model runs");
        let memory = runner.into_model().arena().memory();
        let limit = Some(whole);
        assert_eq!(memory, KvMemoryStats { reserved: whole, committed, warm: 0, granule, limit });
    }
    let options = LoadOptions { kv_granule: KvGranule::Bytes(5000), ..LoadOptions::default() };
    let refused = Loaded::new(&machine(None), &file, &options).map(drop).unwrap_err().to_string();
    assert_eq!(
        refused,
        "a KV granule of 5000 bytes cannot be used: a power of two from the page of 4096 bytes on is needed"
    );
}

/// A model with a store of its own, so that a test sees every block.
struct Watched {
    model: Box<dyn ModelExecutor>,
    store: Store,
    addresses: Vec<Range<usize>>,
    page: usize,
    /// Blocks of each group that sequences own or that are cached.
    known: BTreeSet<(usize, u32)>,
    name: String,
}

impl Watched {
    fn new(family: Family, kv_granule: KvGranule, kv_keep_warm: u64) -> Watched {
        let mut options = LoadOptions {
            n_ctx: ContextLength::Fixed(4224),
            n_slots: 2,
            kv_granule,
            kv_keep_warm,
            ..LoadOptions::default()
        };
        options.model.rope.scaling = Some(RopeScalingKind::Linear);
        options.model.rope.scale = Some(16.0);
        let machine = machine(None);
        let loaded = Loaded::new(&machine, &file(family), &options).expect("it loads");
        let page = machine.backend().kv_granule_bytes(KvGranule::Page).expect("a page") as usize;
        let mut model = loaded.into_runner(RunnerOptions::default()).into_model();
        let store = StoreOptions { cache: true, ..StoreOptions::default() };
        let store = Store::new(model.kv_spec(), store);
        let arena = model.arena();
        let addresses = (0..store.groups()).map(|group| arena.addresses(group).expect("memory of ours"));
        let (addresses, known) = (addresses.collect(), BTreeSet::new());
        let name = format!("{}, {kv_granule}, {kv_keep_warm} bytes warm", family.name());
        Watched { model, store, addresses, page, known, name }
    }

    /// Feeds a sequence up to `length` tokens, as an engine does: windows give back what no later
    /// token sees. Sequences of different `first` tokens share nothing.
    fn grow(&mut self, (id, first): (SequenceId, u32), length: u32) {
        while self.store.length(id) < length {
            let cached = self.store.length(id);
            let positions: Vec<u32> = (cached..length.min(cached + 512)).collect();
            let tokens: Vec<u32> = positions.iter().map(|position| (position * 7 + first) % 90).collect();
            self.store.prepare(self.model.arena(), id, &tokens).expect("there is room");
            let groups = 0..self.store.groups();
            let cells: Vec<Vec<u32>> =
                groups.clone().map(|group| self.store.cells(group, id).collect()).collect();
            let tables: Vec<[BlockTable<'_>; 1]> =
                groups.map(|group| [self.store.table(group, id)]).collect();
            let kv = cells.iter().zip(&tables);
            let kv: Vec<KvGroupBatch<'_>> =
                kv.map(|(cells, block_tables)| KvGroupBatch { cells, block_tables }).collect();
            let sequences = [SequenceView { rows: 0..tokens.len() as u32, cached }];
            let batch = Batch {
                token_ids: &tokens,
                positions: &positions,
                sequences: &sequences,
                kv: &kv,
                output_rows: &[],
            };
            self.model.run_body(&batch).expect("the model runs");
            self.store.publish(id);
            self.note(id);
            self.store.evict_window(self.model.arena(), id, 0);
        }
    }

    /// Blocks that a sequence owns.
    fn blocks(&self, id: SequenceId) -> BTreeSet<(usize, u32)> {
        let of = |group| self.store.rows(group, id).into_iter().map(move |run| (group, run.block));
        (0..self.store.groups()).flat_map(of).filter(|&(_, block)| block != EVICTED).collect()
    }

    fn note(&mut self, id: SequenceId) {
        self.known.extend(self.blocks(id));
    }

    /// Gives up every cached block; `left` are the sequences there are.
    fn forget_cached(&mut self, left: &[SequenceId]) {
        self.store.trim(self.model.arena(), 0);
        self.known = left.iter().flat_map(|&id| self.blocks(id)).collect();
    }

    /// Compares what is counted with the formula and with what the system says; tells the committed
    /// bytes.
    fn check(&mut self, at: &str) -> u64 {
        let name = format!("{} at {at}", self.name);
        let (memory, stats) = (self.model.arena().memory(), self.store.stats());
        assert_eq!(self.known.len() as u64, stats.blocks_live + stats.blocks_cached, "{name}");
        let spec = self.model.kv_spec();
        let granules = self.known.iter().flat_map(|&(group, block)| {
            let bytes = spec.groups[group].bytes_per_block();
            let (first, end) = (u64::from(block) * bytes, u64::from(block + 1) * bytes);
            (first / memory.granule..end.div_ceil(memory.granule)).map(move |granule| (group, granule))
        });
        let union = granules.collect::<BTreeSet<_>>().len() as u64 * memory.granule;
        assert_eq!(memory.committed, union, "{name}");
        let resident = self.addresses.iter().map(|range| resident_bytes(range.clone(), self.page));
        match resident.sum::<std::io::Result<u64>>() {
            Ok(resident) => assert_eq!(resident, memory.committed + memory.warm, "{name}"),
            Err(error) => println!("skipped: the system does not tell what is in memory: {error}"),
        }
        for (group, addresses) in self.addresses.iter().enumerate() {
            assert_eq!(
                self.model.arena().addresses(group).as_ref(),
                Some(addresses),
                "nothing moves: {name}"
            );
        }
        memory.committed
    }
}

/// The arena of a whole model commits the granules of its live and cached blocks and no others, and
/// the system agrees: while a sequence grows, when it is gone, when blocks move.
#[test]
fn whole_models_have_in_memory_what_is_counted() {
    for (family, granule, keep_warm) in [
        (Family::Llama, KvGranule::Page, 0),
        (Family::Gemma3, KvGranule::Page, 0),
        (Family::Gemma3, KvGranule::Bytes(1 << 16), 64 << 20),
        (Family::Cohere2, KvGranule::Bytes(1 << 18), 0),
    ] {
        let mut watched = Watched::new(family, granule, keep_warm);
        assert_eq!(watched.check("no tokens"), 0);
        let long = watched.store.create();
        let mut before = BTreeSet::new();
        for length in [1, 63, 64, 65, 4096] {
            watched.grow((long, 5), length);
            watched.check(&format!("{length} tokens"));
            let now = watched.blocks(long);
            // What a window gave back is gone, and nothing else.
            let windows = watched.model.kv_spec().groups.iter().any(|group| group.window.is_some());
            assert!(windows || now.is_superset(&before), "{}", watched.name);
            before = now;
        }
        let stats = watched.store.stats();
        assert_eq!((stats.blocks_moved, stats.rows_copied), (0, 0), "growth moves nothing: {}", watched.name);

        let short = watched.store.create();
        watched.grow((short, 6), 300);
        let both = watched.check("4096 and 300 tokens");
        watched.store.drop_sequence(watched.model.arena(), long);
        assert_eq!(watched.check("the long one dropped"), both, "its blocks are cached");
        watched.forget_cached(&[short]);
        assert!(watched.check("the cache forgotten") < both, "{}", watched.name);
        let moved = watched.store.compact(watched.model.arena(), u32::MAX).expect("there is room");
        assert!(moved > 0, "{}", watched.name);
        watched.known = watched.blocks(short);
        let least = watched.check("compacted");
        watched.grow((short, 6), 301);
        assert_eq!(watched.check("301 tokens"), least, "the last block has room");
        watched.store.drop_sequence(watched.model.arena(), short);
        watched.forget_cached(&[]);
        assert_eq!(watched.check("nothing left"), 0);
    }
}

/// A group with a window needs blocks for its window, one step and two more, whatever the context
/// length, and the context is chosen by that.
#[test]
fn a_window_group_is_charged_its_window_and_one_step() {
    let file = file(Family::Gemma3);
    let options = |n_ctx, n_slots, context_shift| {
        let mut options = LoadOptions {
            n_ctx,
            n_slots,
            context_shift,
            n_batch: 128,
            kv_granule: KvGranule::Page,
            ..LoadOptions::default()
        };
        options.model.rope.scaling = Some(RopeScalingKind::Linear);
        options.model.rope.scale = Some(16.0);
        options
    };
    for (n_slots, context_shift) in [(1, false), (3, false), (2, true)] {
        let options = options(ContextLength::Fixed(4096), n_slots, context_shift);
        let loaded = Loaded::new(&machine(None), &file, &options).expect("it loads");
        let runner = loaded.into_runner(RunnerOptions::default());
        let spec = runner.kv_spec();
        assert!(spec.groups.iter().any(|group| group.window == Some(64)));
        for (group, &blocks) in spec.groups.iter().zip(&spec.max_blocks) {
            let held = group.window.map_or(4096 / 64, |window| (window + 128) / 64 + 2);
            let spare = if context_shift { 2 } else { 0 };
            assert_eq!(blocks, n_slots * (held + spare));
        }
    }
    let one = footprint(&file, &options(ContextLength::Fixed(2048), 1, false)).kv_bytes;
    let bounded = |kv_memory| {
        let options = options(ContextLength::AtMost(4096), 1, false);
        footprint(&file, &LoadOptions { kv_memory: Some(kv_memory), ..options }).n_ctx
    };
    assert_eq!((bounded(one), bounded(one - 1), bounded(u64::MAX)), (2048, 1984, 4096));
}

/// Rows of shifted sequences that leave the cache are leased first: under a limit that leaves
/// nothing for them they stay where they are, and every request comes to its end.
#[test]
fn rows_that_leave_the_cache_are_in_the_account() {
    let file = file(Family::Llama);
    let kv = KvOptions { block_tokens: 16, ..KvOptions::default() };
    let options = LoadOptions {
        n_ctx: ContextLength::Fixed(128),
        n_slots: 3,
        context_shift: true,
        kv,
        kv_memory: Some(14 * 16 * 512),
        ..LoadOptions::default()
    };
    let total = footprint(&file, &options).total_bytes;
    let request = |seed: u32| Request {
        max_tokens: Some(300),
        ignore_eos: true,
        sampling: SamplingParams { temperature: 0.0, ..SamplingParams::default() },
        context_shift: Some(ContextShift { keep: 5 }),
        ..Request::new((0..40).map(|index| (index * 7 + seed) % 90).collect())
    };
    let ask = |limit, seeds: &[u32]| {
        let machine = machine(Some(limit));
        let loaded = Loaded::new(&machine, &file, &options).expect("it loads");
        // Steps that are not sized by time fill the cache in the same order every time.
        let config = EngineConfig { step_target: 0.0, ..loaded.engine_config() };
        let engine = loaded.into_engine_with(config).expect("it runs");
        let before = machine.budget().held();
        let events: Vec<Events> =
            seeds.iter().map(|&seed| engine.submit(request(seed)).expect("accepted").1).collect();
        let answers: Vec<(Vec<u32>, u64)> = events.iter().map(|events| ids(events, &machine)).collect();
        let most_swapped = answers.iter().map(|(_, swapped)| *swapped).max().expect("an answer");
        let answers: Vec<Vec<u32>> = answers.into_iter().map(|(ids, _)| ids).collect();
        assert_eq!(machine.budget().held(), before, "what was leased for rows is given back");
        (answers, engine.stats().swaps, most_swapped)
    };
    let alone = [1, 2, 3].map(|seed| ask(total, &[seed]).0.remove(0));
    let (answers, swaps, most_swapped) = ask(total + (1 << 20), &[1, 2, 3]);
    assert_eq!(answers, alone);
    assert!(swaps > 0 && most_swapped > 0, "{swaps} swaps, {most_swapped} bytes seen");
    // A byte less than the smallest sequence that is swapped takes.
    let (answers, swaps, most_swapped) = ask(total + 511, &[1, 2, 3]);
    assert_eq!((swaps, most_swapped), (0, 0));
    assert_eq!(answers[0], alone[0], "the oldest is as if alone");
}

/// Ids of an answer, which must end well, and the most bytes that rows outside of the cache held
/// meanwhile.
fn ids(events: &Events, machine: &Machine) -> (Vec<u32>, u64) {
    let (mut ids, mut swapped) = (Vec::new(), 0);
    loop {
        match events.recv().expect("an event") {
            Event::Token(token) => {
                ids.push(token.id);
                swapped = swapped.max(machine.budget().held().of(MemoryUse::Swapped));
            }
            Event::Finished(_) => return (ids, swapped),
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
}
