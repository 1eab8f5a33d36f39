//! What any caller of the backend's safe functions can get wrong is an error.

use minfer_graph::backend::{Compiled, WeightError, WeightSource};
use minfer_graph::plan::Location;
use minfer_graph::{
    Batch, BlockTable, Extents, KvFormat, KvGroupBatch, KvGroupSpec, KvLayout, ModelGraphBuilder,
    SequenceView, WeightId,
};
use minfer_tensor::DType;

use super::*;

const WIDTH: u32 = 16;
const EXTENTS: Extents = Extents { tokens: 4, rows: 4, sequences: 2 };

/// A body that stores its embeddings as K and V, and a head of `vocabulary` logits.
fn model(vocabulary: u32) -> ModelGraph {
    let mut builder = ModelGraphBuilder::new();
    let mut body = builder.body();
    let table = body.weight("embed", DType::F32, &[vocabulary, WIDTH]);
    let x = body.embed(table);
    body.kv_store(x, x, 0, 1);
    let hidden = body.scale(x, 2.0);
    let body = body.finish(&[hidden]);
    let (mut head, hidden) = builder.head(WIDTH);
    let output = head.weight("output", DType::F32, &[vocabulary, WIDTH]);
    let rows = head.gather_rows(hidden);
    let logits = head.linear(rows, output, None, "logits");
    let head = head.finish(&[logits]);
    builder.finish(body, head)
}

fn kv() -> KvSpec {
    let group = KvGroupSpec {
        layers: vec![0],
        kv_heads: 1,
        k_dim: WIDTH,
        v_dim: WIDTH,
        window: None,
        k_format: KvFormat::F16,
        v_format: KvFormat::F16,
        layout: KvLayout::LaneMajor,
        block_tokens: 16,
    };
    KvSpec { groups: vec![group], max_blocks: vec![2] }
}

struct Zeros;

impl WeightSource for Zeros {
    fn stored_bytes(&self, _: WeightId) -> u64 {
        0
    }

    fn read(&self, _: WeightId, _: u64, target: &mut [u8]) -> Result<(), WeightError> {
        target.fill(0);
        Ok(())
    }
}

fn backend() -> CpuBackend {
    CpuBackend::new(Isa::best(), Arc::new(Pool::new(2).unwrap()))
}

fn compile(
    model_graph: &ModelGraph,
    graph: &Graph,
    plan: &Plan,
    loaded: &ModelGraph,
) -> Result<Box<dyn Compiled>, BackendError> {
    let backend = backend();
    let weights = backend.load(loaded, &Zeros).unwrap();
    backend.compile(model_graph, graph, plan, weights.as_ref(), &kv())
}

#[test]
fn a_plan_in_which_workers_would_meet_is_refused() {
    let model = model(40);
    let good = Plan::make(&model.head, EXTENTS);
    assert!(compile(&model, &model.head, &good, &model).is_ok());
    let logits = model.head.outputs[0].0 as usize;
    let input = model.head.nodes.last().unwrap().inputs[0].0 as usize;
    // Over the input of the product, half over it, and with rows that reach into each other.
    let [external, stride] = match good.locations[logits] {
        Location::External { index, row_stride, .. } => [index, row_stride],
        other => panic!("{other:?}"),
    };
    let Location::Workspace { offset, .. } = good.locations[input] else { panic!("an inner value") };
    for (place, reason) in [
        (Location::Workspace { offset, row_stride: stride }, "a result overlaps an operand"),
        (Location::Workspace { offset: offset + 64, row_stride: stride }, "a result overlaps an operand"),
        (
            Location::External { index: external, offset: 0, row_stride: stride - 1 },
            "rows of one of its values",
        ),
    ] {
        let mut plan = good.clone();
        plan.locations[logits] = place;
        let error = compile(&model, &model.head, &plan, &model).err().expect("refused").to_string();
        assert!(error.contains(reason) && error.contains("logits"), "{place:?}: {error}");
    }
}

#[test]
fn weights_of_another_model_are_refused() {
    let (model, other) = (model(40), self::model(48));
    let plan = Plan::make(&model.head, EXTENTS);
    let error = compile(&model, &model.head, &plan, &other).err().expect("refused").to_string();
    assert!(error.contains("another type or shape"), "{error}");
}

#[test]
fn a_batch_in_which_workers_would_meet_is_refused() {
    let model = model(40);
    let plan = Plan::make(&model.body, EXTENTS);
    let mut compiled = compile(&model, &model.body, &plan, &model).unwrap();
    let backend = backend();
    let mut arena = backend.kv_arena(&kv(), KvMemory::default()).unwrap();
    (0..2).for_each(|block| arena.commit(0, block).unwrap());
    let mut hidden = backend.buffer(plan.external_bytes[0]).unwrap();
    let mut submit = |tokens: usize, cells: &[u32], rows: [std::ops::Range<u32>; 2]| {
        let ids: Vec<u32> = (0..tokens as u32).collect();
        let tables = [BlockTable::Aligned(&[0][..]), BlockTable::Aligned(&[1][..])];
        let batch = Batch {
            token_ids: &ids,
            positions: &ids,
            sequences: &rows.map(|rows| SequenceView { rows, cached: 0 }),
            kv: &[KvGroupBatch { cells, block_tables: &tables }],
            output_rows: &[0; 9],
        };
        compiled.submit(&batch, arena.as_mut(), &mut [hidden.as_mut()])
    };
    assert_eq!(submit(4, &[0, 1, 16, 17], [0..2, 2..4]), Ok(()));
    let refused = |result: Result<(), BackendError>| matches!(result, Err(BackendError::BadBatch(_)));
    assert!(refused(submit(4, &[0, 1, 16, 1], [0..2, 2..4])), "a cell twice");
    assert!(refused(submit(4, &[0, 1, 16, 17], [0..3, 2..4])), "a row of two sequences");
    assert!(refused(submit(5, &[0, 1, 16, 17, 18], [0..2, 2..5])), "more tokens than planned");
}
