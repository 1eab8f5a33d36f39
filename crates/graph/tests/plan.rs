//! Memory plans: values that are alive together share no byte, except views and in-place results.

mod common;

use std::collections::{BTreeSet, HashMap};

use common::{GEMMA3, LLAMA, PARALLEL};
use minfer_graph::plan::ALIGNMENT;
use minfer_graph::{
    Activation, Extents, Graph, Location, ModelGraphBuilder, Node, NormKind, NormSpec, Op, Plan, Symbol,
    TensorDesc, ValueId, passes,
};
use proptest::prelude::*;

const EXTENTS: Extents = Extents { tokens: 3, rows: 2, sequences: 2 };

/// The memory elements of a value, element by element: (external buffer or none, index).
fn elements(graph: &Graph, plan: &Plan, id: ValueId) -> Vec<(Option<u32>, u64)> {
    let desc = graph.value(id);
    let rows = desc.dims[0].resolve(plan.extents);
    let (buffer, first, stride) = match plan.locations[id.0 as usize] {
        Location::Workspace { offset, row_stride } => (None, offset / 4, row_stride),
        Location::External { index, offset, row_stride } => (Some(index), u64::from(offset), row_stride),
        Location::Unused => return Vec::new(),
    };
    (0..rows)
        .flat_map(|row| (0..desc.width()).map(move |column| (row, column)))
        .map(|(row, column)| (buffer, first + row * u64::from(stride) + u64::from(column)))
        .collect()
}

/// Runs the graph symbolically: memory holds tags, each value's elements are tagged with its
/// computation, and an operand must still hold its tags when it is read.
fn check(graph: &Graph, plan: &Plan) {
    type Tag = (u32, usize);
    let mut memory: HashMap<(Option<u32>, u64), Tag> = HashMap::new();
    // What an element of a value must hold: views hold their source's tags.
    let mut tags: HashMap<ValueId, Vec<Tag>> = HashMap::new();
    let capacity = |buffer: Option<u32>| match buffer {
        None => plan.workspace_bytes / 4,
        Some(index) => plan.external_bytes[index as usize] / 4,
    };
    let write = |memory: &mut HashMap<_, _>, tags: &mut HashMap<_, _>, id: ValueId| {
        let places = elements(graph, plan, id);
        let distinct: BTreeSet<_> = places.iter().collect();
        assert_eq!(distinct.len(), places.len(), "{id:?} overlaps itself");
        for (index, &place) in places.iter().enumerate() {
            assert!(place.1 < capacity(place.0), "{id:?} leaves its buffer");
            memory.insert(place, (id.0, index));
        }
        tags.insert(id, (0..places.len()).map(|index| (id.0, index)).collect());
    };
    let read = |memory: &HashMap<_, _>, tags: &HashMap<ValueId, Vec<Tag>>, id: ValueId, who: &str| {
        for (place, tag) in elements(graph, plan, id).iter().zip(&tags[&id]) {
            assert_eq!(memory.get(place), Some(tag), "{who} reads {id:?} after it was overwritten");
        }
    };
    for &input in &graph.inputs {
        write(&mut memory, &mut tags, input);
    }
    let inputs: BTreeSet<u32> = (0..graph.inputs.len() as u32).collect();
    for node in &graph.nodes {
        for &operand in &node.inputs {
            read(&memory, &tags, operand, &node.name);
        }
        if let Op::View { offset } = node.op {
            check_view(graph, plan, node, offset, &mut tags);
            continue;
        }
        for &output in &node.outputs {
            let written: BTreeSet<_> = elements(graph, plan, output).into_iter().collect();
            assert!(
                written.iter().all(|(buffer, _)| buffer.is_none_or(|index| !inputs.contains(&index))),
                "{} overwrites an input",
                node.name
            );
            for &operand in &node.inputs {
                let operand_places = elements(graph, plan, operand);
                let meets = operand_places.iter().any(|place| written.contains(place));
                let in_place = node.op.is_elementwise() && operand_places == elements(graph, plan, output);
                assert!(!meets || in_place, "{} writes over its operand {operand:?}", node.name);
            }
            write(&mut memory, &mut tags, output);
        }
    }
    for (index, &output) in graph.outputs.iter().enumerate() {
        read(&memory, &tags, output, "the user");
        let desc = graph.value(output);
        let is_view = graph
            .nodes
            .iter()
            .any(|node| matches!(node.op, Op::View { .. }) && node.outputs.contains(&output));
        match plan.locations[output.0 as usize] {
            Location::External { index: at, offset, row_stride } => {
                if !is_view {
                    assert_eq!((offset, row_stride), (0, desc.width()), "a computed output is contiguous");
                    let own = (graph.inputs.len() + index) as u32;
                    let first = graph.outputs.iter().position(|&other| other == output) == Some(index);
                    assert!(!first || at == own || graph.inputs.contains(&output));
                }
            }
            other => panic!("output {output:?} lies in {other:?}"),
        }
    }
}

fn check_view(
    graph: &Graph,
    plan: &Plan,
    node: &Node,
    offset: u32,
    tags: &mut HashMap<ValueId, Vec<(u32, usize)>>,
) {
    let (source, view) = (node.inputs[0], node.outputs[0]);
    let (from, to) = (graph.value(source).width() as usize, graph.value(view).width() as usize);
    let pick = |row: usize, column: usize| row * from + offset as usize + column;
    let rows = graph.value(view).dims[0].resolve(plan.extents) as usize;
    let indexes: Vec<usize> =
        (0..rows).flat_map(|row| (0..to).map(move |column| pick(row, column))).collect();
    let source_places = elements(graph, plan, source);
    let expected: Vec<_> = indexes.iter().map(|&index| source_places[index]).collect();
    assert_eq!(elements(graph, plan, view), expected, "{} is not where its source is", node.name);
    let seen = indexes.iter().map(|&index| tags[&source][index]).collect();
    tags.insert(view, seen);
}

fn check_sizes(graph: &Graph, plan: &Plan) {
    assert!(plan.workspace_bytes <= plan.naive_bytes);
    for node in graph.nodes.iter().filter(|node| !matches!(node.op, Op::View { .. })) {
        for output in &node.outputs {
            if let Location::Workspace { offset, row_stride } = plan.locations[output.0 as usize] {
                let in_place_in_view = row_stride != graph.value(*output).width();
                assert!(in_place_in_view || offset % ALIGNMENT == 0 || node.op.is_elementwise());
            }
        }
    }
}

/// One step of a random graph: an operation and two picks among the values so far.
type Pick = (u8, usize, usize, u32);

fn random_graph(picks: &[Pick], outputs: &[usize]) -> Graph {
    let mut model_graph = ModelGraphBuilder::new();
    let mut b = model_graph.graph("random");
    let mut values = vec![b.input(Symbol::Tokens, 8, "a"), b.input(Symbol::Tokens, 12, "b")];
    let norm = |groups| NormSpec { kind: NormKind::Rms, weight: None, bias: None, eps: 1e-6.into(), groups };
    for &(op, first, second, number) in picks {
        let x = values[first % values.len()];
        let width = b.width(x);
        let alike: Vec<ValueId> = values.iter().copied().filter(|&value| b.width(value) == width).collect();
        let y = alike[second % alike.len()];
        match op {
            0 => values.push(b.add(x, y)),
            1 => values.push(b.mul(x, y)),
            2 => values.push(b.scale(x, 2.0)),
            3 => values.push(b.activate(x, Activation::Silu)),
            4 => values.push(b.gated_activate(x, y, Activation::Silu)),
            5 => values.push(b.norm(x, norm(1), "norm")),
            6 => {
                let (sum, normed) = b.add_norm(x, y, norm(1), "add_norm");
                values.extend([sum, normed]);
            }
            7 => {
                let rows = [4, 8, 12, 24][number as usize % 4];
                let weight = b.weight(&format!("w{rows}x{width}"), minfer_tensor::DType::F32, &[rows, width]);
                values.push(b.linear(x, weight, None, "linear"));
            }
            _ => {
                let narrow = 1 + number % width;
                let offset = (number / 7) % (width - narrow + 1);
                values.push(b.view(x, offset, narrow, "view"));
            }
        }
    }
    let outputs: Vec<ValueId> =
        outputs.iter().map(|&pick| values[values.len() - 1 - pick % values.len()]).collect();
    let graph = b.finish(&outputs);
    let model_graph = model_graph.finish(graph, Graph::default());
    model_graph.body.verify(&model_graph.weights).unwrap();
    model_graph.body
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn values_alive_together_never_share_memory(
        picks in prop::collection::vec((0u8..11, any::<usize>(), any::<usize>(), any::<u32>()), 1..40),
        outputs in prop::collection::vec(any::<usize>(), 1..4),
    ) {
        let graph = random_graph(&picks, &outputs);
        let plan = Plan::make(&graph, EXTENTS);
        check(&graph, &plan);
        check_sizes(&graph, &plan);
    }
}

#[test]
fn models_before_and_after_rewriting() {
    for family in [LLAMA, GEMMA3, PARALLEL] {
        let plain = family.model_graph();
        let mut fused = plain.clone();
        passes::rewrite_all(&mut fused, &passes::REWRITES).unwrap();
        for graph in [&plain.body, &plain.head, &fused.body, &fused.head] {
            let plan = Plan::make(graph, EXTENTS);
            check(graph, &plan);
            check_sizes(graph, &plan);
        }
        let plan = Plan::make(&fused.body, EXTENTS);
        assert!(
            plan.workspace_bytes * 2 < plan.naive_bytes,
            "{} of {}",
            plan.workspace_bytes,
            plan.naive_bytes
        );
    }
}

#[test]
fn workspace_does_not_grow_with_layers() {
    let bytes = |layers| {
        let mut model_graph = common::Family { layers, ..LLAMA }.model_graph();
        passes::rewrite_all(&mut model_graph, &passes::REWRITES).unwrap();
        Plan::make(&model_graph.body, EXTENTS).workspace_bytes
    };
    assert_eq!(bytes(4), bytes(24));
}

fn rows(symbol: Symbol, width: u32) -> TensorDesc {
    TensorDesc::rows(symbol, width, "value")
}

#[test]
fn a_gate_over_two_views_takes_the_place_of_the_gate() {
    let graph = Graph {
        name: "gate".to_owned(),
        values: vec![rows(Symbol::Tokens, 4), rows(Symbol::Tokens, 16)]
            .into_iter()
            .chain((0..3).map(|_| rows(Symbol::Tokens, 8)))
            .chain([rows(Symbol::Tokens, 8)])
            .collect(),
        nodes: [
            (Op::Activate(Activation::Silu), vec![0], vec![1]),
            (Op::View { offset: 0 }, vec![1], vec![2]),
            (Op::View { offset: 8 }, vec![1], vec![3]),
            (Op::GatedActivate(Activation::Silu), vec![2, 3], vec![4]),
            (
                Op::Norm(NormSpec {
                    kind: NormKind::Rms,
                    weight: None,
                    bias: None,
                    eps: 0.0.into(),
                    groups: 1,
                }),
                vec![4],
                vec![5],
            ),
        ]
        .into_iter()
        .map(|(op, inputs, outputs)| Node {
            op,
            inputs: inputs.into_iter().map(ValueId).collect(),
            outputs: outputs.into_iter().map(ValueId).collect(),
            name: "node".to_owned(),
        })
        .collect(),
        inputs: vec![ValueId(0)],
        outputs: vec![ValueId(5)],
    };
    let plan = Plan::make(&graph, EXTENTS);
    assert_eq!(plan.locations[2], Location::Workspace { offset: 0, row_stride: 16 });
    assert_eq!(plan.locations[3], Location::Workspace { offset: 32, row_stride: 16 });
    assert_eq!(plan.locations[4], plan.locations[2]);
    assert_eq!(plan.locations[5], Location::External { index: 1, offset: 0, row_stride: 8 });
    assert_eq!(plan.external_bytes, [3 * 4 * 4, 3 * 8 * 4]);
    assert_eq!(plan.workspace_bytes, 3 * 16 * 4);
    assert_eq!(plan.naive_bytes, 3 * 16 * 4 + 128, "aligned to 64");
}

#[test]
fn an_output_may_be_an_input_a_view_or_named_twice() {
    let mut model_graph = ModelGraphBuilder::new();
    let mut b = model_graph.graph("outputs");
    let x = b.input(Symbol::Tokens, 8, "x");
    let y = b.scale(x, 2.0);
    let view = b.view(y, 4, 4, "view");
    let of_input = b.view(x, 2, 2, "of_input");
    let graph = b.finish(&[x, view, view, of_input, y]);
    let plan = Plan::make(&graph, EXTENTS);
    check(&graph, &plan);
    let at = |id: ValueId| plan.locations[id.0 as usize];
    assert_eq!(at(x), Location::External { index: 0, offset: 0, row_stride: 8 });
    assert_eq!(at(of_input), Location::External { index: 0, offset: 2, row_stride: 8 });
    assert_eq!(at(y), Location::External { index: 5, offset: 0, row_stride: 8 });
    assert_eq!(at(view), Location::External { index: 5, offset: 4, row_stride: 8 });
    assert_eq!(plan.external_bytes, [96, 0, 0, 0, 0, 96]);
}

#[test]
fn values_of_dropped_nodes_are_unused() {
    let graph = Graph { values: vec![rows(Symbol::Rows, 4)], ..Graph::default() };
    let plan = Plan::make(&graph, EXTENTS);
    assert_eq!(plan.locations, [Location::Unused]);
}
