//! The executor on the null backend: counters, refused batches, state after failures.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use common::{Family, GEMMA3, LLAMA, ZeroWeights, choice};
use minfer_graph::null::seeded_logits;
use minfer_graph::{
    Backend, BackendError, Batch, BatchError, BlockTable, Executor, ExecutorConfig, ExecutorError, Extents,
    KvGroupBatch, KvMemory, KvSpec, KvSpecError, ModelGraphBuilder, NullBackend, Placement, SequenceView,
};
use minfer_tensor::DType;

const EXTENTS: Extents = Extents { tokens: 8, rows: 2, sequences: 2 };

fn config(off: &[&str]) -> ExecutorConfig {
    let rewrites_off = off.iter().map(ToString::to_string).collect();
    ExecutorConfig { extents: EXTENTS, rewrites_off, kv_memory: KvMemory::default() }
}

fn executor(family: Family, backend: &NullBackend) -> Result<Executor, ExecutorError> {
    let model_graph = family.model_graph();
    let kv = KvSpec::for_model(&model_graph, choice());
    let source = ZeroWeights::new(&model_graph);
    Executor::new(Arc::new(backend.clone()), model_graph, &source, kv, config(&[]))
}

/// A batch that owns its lists, so that a test can spoil one.
#[derive(Clone)]
struct Step {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    sequences: Vec<SequenceView>,
    cells: Vec<u32>,
    tables: Vec<Vec<u32>>,
    output_rows: Vec<u32>,
    groups: usize,
}

impl Step {
    /// Two sequences: five tokens from position 14 on over blocks 3 and 1, two from 0 on in block
    /// 2.
    fn new() -> Step {
        Step {
            tokens: vec![5, 6, 7, 8, 9, 1, 2],
            positions: vec![14, 15, 16, 17, 18, 0, 1],
            sequences: vec![SequenceView { rows: 0..5, cached: 14 }, SequenceView { rows: 5..7, cached: 0 }],
            cells: vec![62, 63, 16, 17, 18, 32, 33],
            tables: vec![vec![3, 1], vec![2]],
            output_rows: vec![4, 6],
            groups: 1,
        }
    }

    /// One sequence's tokens in block 0, `cached` positions being there.
    fn simple(tokens: &[u32], cached: u32) -> Step {
        let positions: Vec<u32> = (cached..cached + tokens.len() as u32).collect();
        Step {
            tokens: tokens.to_vec(),
            cells: positions.clone(),
            positions,
            sequences: vec![SequenceView { rows: 0..tokens.len() as u32, cached }],
            tables: vec![vec![0]],
            output_rows: vec![tokens.len() as u32 - 1],
            groups: 1,
        }
    }

    fn with<R>(&self, run: impl FnOnce(&Batch<'_>) -> R) -> R {
        let tables: Vec<_> = self.tables.iter().map(|table| BlockTable::Aligned(table)).collect();
        let kv = vec![KvGroupBatch { cells: &self.cells, block_tables: &tables }; self.groups];
        run(&Batch {
            token_ids: &self.tokens,
            positions: &self.positions,
            sequences: &self.sequences,
            kv: &kv,
            output_rows: &self.output_rows,
        })
    }

    fn body(&self, executor: &mut Executor) -> Result<(), ExecutorError> {
        self.with(|batch| executor.run_body(batch))
    }

    fn head(&self, executor: &mut Executor) -> Result<(), ExecutorError> {
        self.with(|batch| executor.run_head(batch))
    }
}

fn argmax(logits: &[f32]) -> usize {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap()
}

#[test]
fn everything_is_counted_and_decided_once() {
    let backend = NullBackend::new();
    let mut executor = executor(LLAMA, &backend).unwrap();
    for block in [1, 2, 3] {
        executor.arena().commit(0, block).unwrap();
    }
    for _ in 0..3 {
        Step::new().body(&mut executor).unwrap();
        Step::new().head(&mut executor).unwrap();
    }
    let stats = executor.stats().clone();
    assert_eq!((stats.graph_builds, stats.compiles), (2, 2));
    assert_eq!((stats.body_runs, stats.head_runs, stats.tokens, stats.rows), (3, 3, 21, 6));
    assert_eq!(stats.rewrites.count("merge_linears"), 4);
    assert_eq!(stats.workspace_bytes, executor.plans().iter().map(|plan| plan.workspace_bytes).sum::<u64>());
    assert!(stats.workspace_bytes < stats.naive_workspace_bytes);
    let model_graph = executor.model_graph();
    let weights: u64 = model_graph.used_weights().iter().map(|&id| model_graph.weight(id).bytes()).sum();
    assert_eq!(stats.weight_bytes, weights);
    assert_eq!(executor.placements()[0].to_string(), "nodes on null: 24");
    assert_eq!(executor.placements()[0].splits().len(), 1);

    executor.arena().release(0, 3);
    let seen = backend.stats();
    assert_eq!((seen.loads, seen.compiles, seen.body_runs, seen.head_runs), (1, 2, 3, 3));
    assert_eq!((seen.tokens, seen.rows, seen.largest_step), (21, 6, 7));
    assert_eq!(
        (seen.commits, seen.releases, seen.committed_blocks, seen.peak_committed_blocks),
        (3, 1, 2, 3)
    );
    assert_eq!(executor.arena().committed_bytes(), 2 * executor.kv_spec().groups[0].bytes_per_block());
    drop(executor);
    assert_eq!(backend.stats().committed_blocks, 0);
}

#[test]
fn a_graph_that_is_built_once_more_is_counted() {
    let mut builder = ModelGraphBuilder::new();
    let table = builder.weight("token_embd.weight", DType::F32, &[20, 8]);
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let mut body = builder.body();
        let rows = body.embed(table);
        bodies.push(body.finish(&[rows]));
    }
    let (mut head, hidden) = builder.head(8);
    let rows = head.gather_rows(hidden);
    let logits = head.linear(rows, table, None, "output");
    let head = head.finish(&[logits]);
    let model_graph = builder.finish(bodies.remove(0), head);
    let (kv, source) = (KvSpec::for_model(&model_graph, choice()), ZeroWeights::new(&model_graph));
    let backend = NullBackend::new();
    let executor = Executor::new(Arc::new(backend.clone()), model_graph, &source, kv, config(&[])).unwrap();
    let stats = executor.stats();
    assert_eq!((stats.graph_builds, stats.compiles), (3, backend.stats().compiles));
}

#[test]
fn positions_without_a_learned_embedding_are_refused() {
    let mut builder = ModelGraphBuilder::new();
    let [tokens, positions] = [("token_embd.weight", 20), ("position_embd.weight", 16)]
        .map(|(name, rows)| builder.weight(name, DType::F32, &[rows, 8]));
    let mut body = builder.body();
    let rows = body.embed(tokens);
    let places = body.embed_positions(positions);
    let sum = body.add(rows, places);
    let body = body.finish(&[sum]);
    let (mut head, hidden) = builder.head(8);
    let rows = head.gather_rows(hidden);
    let logits = head.linear(rows, tokens, None, "output");
    let head = head.finish(&[logits]);
    let model_graph = builder.finish(body, head);
    assert_eq!((model_graph.input_vocabulary(), model_graph.input_positions()), (20, 16));
    let (kv, source) = (KvSpec::for_model(&model_graph, choice()), ZeroWeights::new(&model_graph));
    let backend = Arc::new(NullBackend::new());
    let mut executor = Executor::new(backend, model_graph, &source, kv, config(&[])).unwrap();
    let step = |cached| Step { groups: 0, ..Step::simple(&[1, 2], cached) };
    step(14).body(&mut executor).unwrap();
    let wanted = BatchError::NoPosition { row: 1, position: 16, positions: 16 };
    assert!(matches!(step(15).body(&mut executor), Err(ExecutorError::Batch(error)) if error == wanted));
}

#[test]
fn a_batch_that_contradicts_itself_is_refused_before_the_backend_sees_it() {
    type Spoil = fn(&mut Step);
    let cases: &[(&str, Spoil)] = &[
        ("the batch is empty", |step| step.tokens.clear()),
        ("the batch is empty", |step| step.sequences.clear()),
        ("the batch has 9 tokens, planned are at most 8", |step| step.tokens = vec![0; 9]),
        ("the batch has 3 sequences, planned are at most 2", |step| {
            step.sequences.push(SequenceView { rows: 7..7, cached: 0 });
        }),
        ("positions: 6 entries, expected 7", |step| step.positions.truncate(6)),
        ("KV groups: 2 entries, expected 1", |step| step.groups = 2),
        ("cells of group 0: 6 entries, expected 7", |step| step.cells.truncate(6)),
        ("block tables of group 0: 1 entries, expected 2", |step| step.tables.truncate(1)),
        ("row 2: token 40 is outside of the vocabulary of 40", |step| step.tokens[2] = 40),
        ("sequence 0 has rows 1..5, expected one or more from 0 on, within 7", |step| {
            step.sequences[0].rows = 1..5;
        }),
        ("sequence 1 has rows 4..7, expected one or more from 5 on, within 7", |step| {
            step.sequences[1].rows = 4..7;
        }),
        ("sequence 1 has rows 5..8, expected one or more from 5 on, within 7", |step| {
            step.sequences[1].rows = 5..8;
        }),
        ("sequence 1 has rows 5..5, expected one or more from 5 on, within 7", |step| {
            step.sequences[1].rows = 5..5;
        }),
        ("the sequences cover 6 of 7 rows", |step| step.sequences[1].rows = 5..6),
        ("row 1 (sequence 0) is at position 16, expected 15", |step| step.positions[1] = 16),
        ("row 5 (sequence 1) is at position 0, expected 4294967295", |step| {
            step.sequences[1].cached = u32::MAX
        }),
        ("group 0, sequence 0: 1 blocks hold less than 19 positions, 2 are needed", |step| {
            step.tables[0].pop();
        }),
        ("group 0, sequence 1: block 8 is outside of the arena of 8 blocks", |step| step.tables[1][0] = 8),
        ("group 0, row 1: cell 64, the block table says 63", |step| step.cells[1] = 64),
        ("group 0: two rows go to cell 16", |step| {
            step.tables[1][0] = 1;
            step.cells[5] = 16;
            step.cells[6] = 17;
        }),
        ("output row 7 is outside of the 7 rows of the batch", |step| step.output_rows[0] = 7),
    ];
    let backend = NullBackend::new();
    let mut executor = executor(LLAMA, &backend).unwrap();
    for (expected, spoil) in cases {
        let mut step = Step::new();
        spoil(&mut step);
        let error = step.body(&mut executor).unwrap_err();
        assert_eq!(error.to_string(), *expected);
        assert!(matches!(error, ExecutorError::Batch(_)));
    }
    assert_eq!(backend.stats().body_runs, 0);
    // Blocks beyond those in use may be listed, and may be anything.
    executor.arena().commit(0, 1).unwrap();
    executor.arena().commit(0, 2).unwrap();
    executor.arena().commit(0, 3).unwrap();
    let mut step = Step::new();
    step.tables[1].push(u32::MAX);
    step.body(&mut executor).unwrap();
}

#[test]
fn the_head_needs_a_body_and_rows_that_fit() {
    let backend = NullBackend::new();
    let mut executor = executor(LLAMA, &backend).unwrap();
    executor.arena().commit(0, 0).unwrap();
    let mut step = Step::simple(&[1, 2, 3, 4], 0);
    let error = step.head(&mut executor).unwrap_err();
    assert_eq!(error.to_string(), "the head needs the body's output for 4 rows, there are 0");

    step.output_rows = vec![0, 1, 2, 3];
    step.body(&mut executor).unwrap();
    let error = step.head(&mut executor).unwrap_err();
    assert_eq!(error.to_string(), "the batch has 4 output rows, planned are at most 2");
    step.output_rows.clear();
    assert!(matches!(step.head(&mut executor), Err(ExecutorError::Batch(BatchError::Empty))));
    step.output_rows = vec![9];
    assert!(matches!(
        step.head(&mut executor),
        Err(ExecutorError::Batch(BatchError::OutputRow { row: 9, .. }))
    ));
    assert!(matches!(executor.logits(0), Err(ExecutorError::NoLogits { row: 0, present: 0 })));

    for rows in [vec![0, 1], vec![2], vec![3, 0]] {
        step.output_rows = rows;
        step.head(&mut executor).unwrap();
        let last = step.output_rows.len() - 1;
        assert_eq!(executor.logits(last).unwrap().len(), 40);
        assert!(executor.logits(last + 1).is_err());
    }
    assert_eq!(backend.stats().rows, 5);
}

#[test]
fn seeded_logits_depend_on_the_history_and_not_on_where_it_lies() {
    let backend = NullBackend::new().with_seeded_logits(7);
    let mut executor = executor(LLAMA, &backend).unwrap();
    for block in 0..4 {
        executor.arena().commit(0, block).unwrap();
    }
    let mut expected = vec![0.0; 40];
    seeded_logits(7, &[1, 2, 3], &mut expected);
    for chunks in [&[&[1, 2, 3][..]][..], &[&[1][..], &[2, 3][..]]] {
        let mut cached = 0;
        for chunk in chunks {
            let mut step = Step::simple(chunk, cached);
            step.tables = vec![vec![3]];
            step.cells.iter_mut().for_each(|cell| *cell += 3 * 16);
            step.body(&mut executor).unwrap();
            step.head(&mut executor).unwrap();
            cached += chunk.len() as u32;
        }
        assert_eq!(executor.logits(0).unwrap(), expected);
    }
    let mut other = vec![0.0; 40];
    seeded_logits(7, &[2, 1, 3], &mut other);
    assert_ne!(argmax(&other), argmax(&expected));
    assert_eq!(expected[argmax(&expected)], 8.0);
}

#[test]
fn the_null_backend_notices_cells_that_were_never_stored() {
    let backend = NullBackend::new().with_seeded_logits(7);
    let mut executor = executor(LLAMA, &backend).unwrap();
    let step = Step::simple(&[1, 2], 3);
    let error = step.body(&mut executor).unwrap_err();
    assert_eq!(error.to_string(), "the batch does not fit: group 0: block 0 of cell 3 is not committed");
    executor.arena().commit(0, 0).unwrap();
    step.body(&mut executor).unwrap();
    let error = step.head(&mut executor).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the batch does not fit: group 0, sequence 0, position 0: cell 0 was never stored"
    );
}

#[test]
fn a_failed_run_leaves_nothing_that_looks_valid() {
    let backend = NullBackend::new();
    let mut executor = executor(LLAMA, &backend).unwrap();
    executor.arena().commit(0, 0).unwrap();
    let step = Step::simple(&[1, 2], 0);
    step.body(&mut executor).unwrap();
    step.head(&mut executor).unwrap();

    backend.fail_run(1);
    step.body(&mut executor).unwrap();
    assert!(matches!(step.head(&mut executor), Err(ExecutorError::Backend(BackendError::Device { .. }))));
    assert!(executor.logits(0).is_err());
    step.head(&mut executor).unwrap();
    assert!(executor.logits(0).is_ok());

    backend.fail_run(0);
    assert!(step.head(&mut executor).is_err());
    assert!(executor.logits(0).is_err(), "the logits of the run before must not pass for this one's");

    backend.fail_run(0);
    assert!(step.body(&mut executor).is_err());
    assert!(matches!(step.head(&mut executor), Err(ExecutorError::NoHidden { asked: 2, present: 0 })));

    step.body(&mut executor).unwrap();
    backend.panic_run(0);
    assert!(catch_unwind(AssertUnwindSafe(|| step.body(&mut executor))).is_err());
    assert!(matches!(step.head(&mut executor), Err(ExecutorError::NoHidden { .. })));
    assert!(executor.logits(0).is_err());
    step.body(&mut executor).unwrap();
    step.head(&mut executor).unwrap();
    assert_eq!((executor.stats().body_runs, executor.stats().head_runs), (4, 3));
    assert_eq!(backend.stats().failed_runs, 4);
}

#[test]
fn every_refused_allocation_of_a_load_is_an_error() {
    let backend = NullBackend::new();
    drop(executor(LLAMA, &backend).unwrap());
    let allocations = backend.stats().allocations;
    assert_eq!(allocations, 6, "weights, two workspaces, two buffers, the arena");
    for refused in 0..allocations {
        let backend = NullBackend::new();
        backend.refuse_allocation(refused);
        let error = executor(LLAMA, &backend).err().expect("an allocation was refused");
        assert!(matches!(error, ExecutorError::Backend(BackendError::OutOfMemory { .. })), "{error}");
    }
    let mut executor = executor(LLAMA, &backend).unwrap();
    backend.refuse_allocation(1);
    executor.arena().commit(0, 0).unwrap();
    assert!(executor.arena().commit(0, 1).is_err());
    executor.arena().commit(0, 1).unwrap();
    assert_eq!(backend.stats().commits, 2);
}

#[test]
fn what_does_not_fit_is_an_error_of_the_load() {
    let model_graph = LLAMA.model_graph();
    let kv = KvSpec::for_model(&model_graph, choice());
    let load = |kv: &KvSpec, source: &ZeroWeights, config: ExecutorConfig| {
        let backend = Arc::new(NullBackend::new());
        let result = Executor::new(backend, model_graph.clone(), source, kv.clone(), config);
        result.err().expect("something does not fit").to_string()
    };
    let source = ZeroWeights::new(&model_graph);
    let cut = ZeroWeights::new(&model_graph).cut(1);
    assert_eq!(
        load(&kv, &cut, config(&[])),
        "weight blk.0.attn_norm.weight (F32 [64]) has 255 bytes, expected 256"
    );
    assert!(load(&kv, &source, config(&["x"])).starts_with("unknown rewrite \"x\" (choose from "));
    let extents = Extents { rows: 0, ..EXTENTS };
    assert!(load(&kv, &source, ExecutorConfig { extents, ..config(&[]) }).contains("at least 1"));

    let mut other = kv.clone();
    other.groups[0].layers.pop();
    assert_eq!(
        load(&other, &source, config(&[])),
        "the KV cache does not fit the model: layer 1 has no group"
    );
    let mut other = kv.clone();
    other.groups[0].v_dim = 8;
    assert_eq!(
        load(&other, &source, config(&[])),
        "the KV cache does not fit the model: layer 0 stores [kv_heads, k_dim, v_dim] [2, 16, 16], group 0 has [2, 16, 8]"
    );
    let mut other = kv.clone();
    other.groups[0].block_tokens = 24;
    assert_eq!(load(&other, &source, config(&[])), KvSpecError::BlockTokens(24).to_string());
    let mut other = kv;
    other.max_blocks[0] = u32::MAX;
    assert!(load(&other, &source, config(&[])).contains("more cells than 32 bits count"));
}

#[test]
fn a_node_that_nobody_runs_is_named_with_every_reason() {
    let backend = NullBackend::new().refusing("attention", "head dim 16 is not a multiple of 32");
    let error = executor(LLAMA, &backend).err().expect("attention is refused");
    assert_eq!(
        error.to_string(),
        "no backend runs blk.0.attention (attention) of the body: null: head dim 16 is not a multiple of 32"
    );
    // A refused fused form is left out; the plain one runs.
    let backend = NullBackend::new().refusing("add_norm", "not yet");
    let executor = executor(LLAMA, &backend).unwrap();
    assert_eq!(executor.stats().rewrites.count("add_norm"), 0);
    assert_eq!(executor.stats().rewrites.refused.len(), 3);
}

#[test]
fn nodes_go_to_the_first_backend_that_runs_them() {
    let model_graph = LLAMA.model_graph();
    let kv = KvSpec::for_model(&model_graph, choice());
    let picky = NullBackend::new().refusing("norm", "no norms here");
    let all = NullBackend::new();
    let backends: [&dyn Backend; 2] = [&picky, &all];
    let placement = Placement::decide(&model_graph.body, &model_graph.weights, &kv, &backends).unwrap();
    assert_eq!(placement.refusals.len(), 4);
    assert_eq!(placement.splits().len(), 9);
    assert_eq!(
        placement.to_string().lines().nth(1),
        Some("blk.0.attn_norm (norm) not on null: no norms here")
    );
}

#[test]
fn a_layer_with_two_readers_keeps_what_the_wider_window_sees() {
    let mut model_graph = Family { layers: 2, window: Some(5), ..LLAMA }.model_graph();
    // The second layer stores nothing and reads the first one's cache through a narrower window.
    model_graph.body.nodes.retain(|node| node.name != "blk.1.kv_store");
    for node in &mut model_graph.body.nodes {
        if let minfer_graph::Op::Attention(spec) = &mut node.op
            && spec.layer == 1
        {
            spec.layer = 0;
            spec.mask = minfer_graph::Mask::Window(3);
        }
    }
    model_graph.verify().unwrap();
    let layers = model_graph.kv_layers();
    assert_eq!((layers.len(), layers[0].window), (1, Some(5)));
}

#[test]
fn layers_of_one_shape_and_window_form_a_group() {
    let kv = KvSpec::for_model(&LLAMA.model_graph(), choice());
    assert_eq!(kv.groups.len(), 1);
    assert_eq!(kv.groups[0].layers, [0, 1]);
    assert_eq!((kv.groups[0].kv_heads, kv.groups[0].k_dim, kv.max_blocks[0]), (2, 16, 8));

    let mut model_graph = Family { layers: 3, ..GEMMA3 }.model_graph();
    for node in &mut model_graph.body.nodes {
        if let minfer_graph::Op::Attention(spec) = &mut node.op
            && spec.layer == 1
        {
            spec.mask = minfer_graph::Mask::Causal;
        }
    }
    let windows: Vec<Option<u32>> = model_graph.kv_layers().iter().map(|layer| layer.window).collect();
    assert_eq!(windows, [Some(3), None, Some(3)]);
    let kv = KvSpec::for_model(&model_graph, choice());
    let layers: Vec<&[u32]> = kv.groups.iter().map(|group| group.layers.as_slice()).collect();
    assert_eq!(layers, [&[0, 2][..], &[1]]);
}
