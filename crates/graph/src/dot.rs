//! Draws a graph as Graphviz DOT.
//!
//! Boxes are operations, coloured by kind, with their weights inside. Arrows are values with their
//! shapes. Layers are framed. A layer's KV cache is a cylinder between the node that writes it and
//! the node that reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::{EmbedBy, Graph, Mask, Node, NormKind, Op, RopePairs, RopeSpec, ValueId, WeightDesc, WeightId};

/// Renders a graph, or the part of it whose nodes' names start with `prefix` (`blk.0.`), in the DOT
/// language. Values that come from or go to nodes outside of the part are drawn as ellipses.
pub fn render(graph: &Graph, weights: &[WeightDesc], prefix: &str) -> String {
    let mut picture = Picture { graph, weights, prefix, text: String::new() };
    picture.header();
    picture.clusters();
    picture.caches();
    picture.edges();
    picture.text.push_str("}\n");
    picture.text
}

struct Picture<'a> {
    graph: &'a Graph,
    weights: &'a [WeightDesc],
    prefix: &'a str,
    text: String,
}

impl Picture<'_> {
    fn header(&mut self) {
        let part = if self.prefix.is_empty() { String::new() } else { format!(", {}*", self.prefix) };
        let _ = write!(
            self.text,
            r##"digraph "{name}" {{
  graph [label="{name}{part}", labelloc=t, fontname="Helvetica", fontsize=18, newrank=true, nodesep=0.45, ranksep=0.4];
  node [shape=box, style="rounded,filled", color="#55606b", fontname="Helvetica", fontsize=11, margin="0.12,0.05"];
  edge [fontname="Helvetica", fontsize=9, color="#55606b", fontcolor="#333a40"];
"##,
            name = escape(&self.graph.name),
        );
    }

    fn shown(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.graph.nodes.iter().enumerate().filter(|(_, node)| node.name.starts_with(self.prefix))
    }

    fn clusters(&mut self) {
        let mut blocks: BTreeMap<Option<u32>, Vec<String>> = BTreeMap::new();
        for (index, node) in self.shown() {
            blocks.entry(block_number(&node.name)).or_default().push(self.node_text(index, node));
        }
        for (block, nodes) in blocks {
            match block {
                Some(block) => {
                    let _ = writeln!(
                        self.text,
                        "  subgraph cluster_{block} {{ label=\"block {block}\"; labeljust=l; fontsize=14; \
                         style=\"rounded\"; color=\"#9aa5b1\";"
                    );
                    nodes.iter().for_each(|node| self.text.push_str(node));
                    self.text.push_str("  }\n");
                }
                None => nodes.iter().for_each(|node| self.text.push_str(node)),
            }
        }
    }

    /// One line of title, one of what the operation is set to, one for each weight.
    fn node_text(&self, index: usize, node: &Node) -> String {
        let name = short(&node.name);
        let mut label = format!(
            "<tr><td><b>{}</b>  <font color=\"#55606b\">{}</font></td></tr>",
            markup(title(&node.op)),
            markup(name)
        );
        for line in settings(&node.op) {
            let _ = write!(label, "<tr><td><font point-size=\"10\">{}</font></td></tr>", markup(&line));
        }
        for line in self.weight_lines(&node.op) {
            let _ = write!(
                label,
                "<tr><td><font point-size=\"10\" color=\"#1f4e79\">{}</font></td></tr>",
                markup(&line)
            );
        }
        let colour = colour(&node.op);
        let shape = if matches!(node.op, Op::View { .. }) { ", style=\"dashed,filled\"" } else { "" };
        let table = "<table border=\"0\" cellborder=\"0\" cellspacing=\"0\" cellpadding=\"1\">";
        format!("    n{index} [label=<{table}{label}</table>>, fillcolor=\"{colour}\"{shape}];\n")
    }

    fn weight_lines(&self, op: &Op) -> Vec<String> {
        let line = |id: WeightId| {
            let desc = &self.weights[id.0 as usize];
            let name = short(&desc.name);
            let dims: Vec<String> = desc.dims.iter().map(ToString::to_string).collect();
            format!("{name}  {} {}", desc.dtype, dims.join(" × "))
        };
        match op {
            Op::Linear { parts } => parts
                .iter()
                .map(|part| match part.bias {
                    Some(_) => format!("{} + bias", line(part.weight)),
                    None => line(part.weight),
                })
                .collect(),
            _ => op.weights().into_iter().map(line).collect(),
        }
    }

    /// The KV cache of each layer that a shown node touches, with a dotted arrow in and one out.
    fn caches(&mut self) {
        let mut layers = BTreeSet::new();
        let mut arrows = String::new();
        for (index, node) in self.shown() {
            let (layer, arrow) = match &node.op {
                Op::KvStore { layer, .. } => (*layer, format!("n{index} -> kv{layer} [label=\"write K, V\"")),
                Op::RopeStore(spec) => {
                    (spec.layer, format!("n{index} -> kv{} [label=\"write K, V\"", spec.layer))
                }
                Op::Attention(spec) => (spec.layer, format!("kv{} -> n{index} [label=\"read\"", spec.layer)),
                _ => continue,
            };
            layers.insert(layer);
            let _ = writeln!(arrows, "  {arrow}, style=dashed, color=\"#b36b00\", fontcolor=\"#b36b00\"];");
        }
        for layer in layers {
            let _ = writeln!(
                self.text,
                "  kv{layer} [label=\"KV cache\\nlayer {layer}\", shape=cylinder, style=filled, \
                 fillcolor=\"#ffe8c2\", color=\"#b36b00\"];"
            );
        }
        self.text.push_str(&arrows);
    }

    fn edges(&mut self) {
        let producers: BTreeMap<ValueId, usize> = self
            .graph
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(index, node)| node.outputs.iter().map(move |&output| (output, index)))
            .collect();
        let shown: BTreeSet<usize> = self.shown().map(|(index, _)| index).collect();
        let mut ends = BTreeSet::new();
        let mut lines = Vec::new();
        for (index, node) in self.graph.nodes.iter().enumerate() {
            for &input in &node.inputs {
                let source = producers.get(&input).filter(|source| shown.contains(source));
                match (source, shown.contains(&index)) {
                    (Some(source), true) => lines.push((format!("n{source}"), format!("n{index}"), input)),
                    (None, true) => lines.push((format!("v{}", input.0), format!("n{index}"), input)),
                    (Some(source), false) => {
                        lines.push((format!("n{source}"), format!("out{}", input.0), input))
                    }
                    (None, false) => {}
                }
            }
        }
        for &output in &self.graph.outputs {
            if let Some(source) = producers.get(&output).filter(|source| shown.contains(source)) {
                lines.push((format!("n{source}"), format!("out{}", output.0), output));
            }
        }
        let mut drawn = BTreeSet::new();
        for (from, to, value) in lines {
            let outside = from.starts_with('v') || to.starts_with("out");
            if outside && !drawn.insert((from.clone(), to.clone())) {
                continue;
            }
            for end in [&from, &to] {
                if !end.starts_with('n') && ends.insert(end.clone()) {
                    let name = escape(&self.graph.value(value).name);
                    let _ = writeln!(
                        self.text,
                        "  {end} [label=\"{name}\", shape=ellipse, style=filled, fillcolor=\"#ffffff\"];"
                    );
                }
            }
            let label = self.edge_label(value, &producers);
            let _ = writeln!(self.text, "  {from} -> {to} [label=\"  {}\"];", escape(&label));
        }
    }

    /// The shape, with the result's role when a node has several.
    fn edge_label(&self, value: ValueId, producers: &BTreeMap<ValueId, usize>) -> String {
        let desc = self.graph.value(value);
        let dims: Vec<String> = desc.dims.iter().map(ToString::to_string).collect();
        let shape = dims.join(" × ");
        let node = producers.get(&value).map(|&index| &self.graph.nodes[index]);
        match node {
            Some(node) if node.outputs.len() > 1 => {
                let role = if node.outputs[0] == value { "sum" } else { "norm" };
                format!("{role}: {shape}")
            }
            _ => shape,
        }
    }
}

/// The number in `blk.<number>.`.
fn block_number(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// The name without its block, which the frame around it tells.
fn short(name: &str) -> &str {
    match block_number(name) {
        Some(_) => name.splitn(3, '.').last().unwrap_or(name),
        None => name,
    }
}

fn title(op: &Op) -> &'static str {
    match op {
        Op::Embed { by: EmbedBy::Token, .. } => "Embed",
        Op::Embed { by: EmbedBy::Position, .. } => "Embed positions",
        Op::Norm(_) => "Norm",
        Op::Linear { parts } if parts.len() > 1 => "Joint linear",
        Op::Linear { .. } => "Linear",
        Op::Rope { .. } => "Rotate",
        Op::KvStore { .. } => "Store K, V",
        Op::Attention(_) => "Attention",
        Op::Activate(_) => "Activate",
        Op::GatedActivate(_) => "Gate",
        Op::Add => "Add",
        Op::Mul => "Multiply",
        Op::Scale { .. } => "Scale",
        Op::SoftCap { .. } => "Soft cap",
        Op::GatherRows => "Gather rows",
        Op::View { .. } => "View",
        Op::AddNorm(_) => "Add + norm",
        Op::RopeStore(_) => "Rotate Q, K + store K, V",
    }
}

fn settings(op: &Op) -> Vec<String> {
    let rotation = |rope: &RopeSpec| {
        let pairs = match rope.pairs {
            RopePairs::Adjacent => "adjacent pairs",
            RopePairs::Halves => "pairs of halves",
        };
        format!("{} rotated dims, {pairs}", rope.rotated_dims())
    };
    match op {
        Op::Norm(spec) | Op::AddNorm(spec) => {
            let kind = match spec.kind {
                NormKind::Rms => "rms",
                NormKind::Layer => "layer",
            };
            let groups = if spec.groups > 1 { format!(", {} groups", spec.groups) } else { String::new() };
            vec![format!("{kind}, eps {:e}{groups}", spec.eps.get())]
        }
        Op::Rope { rope, heads, head_dim } => {
            vec![format!("heads {heads} × {head_dim}"), rotation(rope)]
        }
        Op::KvStore { kv_heads, k_dim, v_dim, .. } => {
            vec![format!("KV heads {kv_heads}, K {k_dim}, V {v_dim}")]
        }
        Op::RopeStore(spec) => vec![
            format!("heads {}, KV heads {}, K {}, V {}", spec.heads, spec.kv_heads, spec.k_dim, spec.v_dim),
            rotation(&spec.rope),
        ],
        Op::Attention(spec) => {
            let mask = match spec.mask {
                Mask::Causal => "causal".to_owned(),
                Mask::Window(window) => format!("window of {window}"),
                Mask::Bidirectional => "bidirectional".to_owned(),
            };
            let cap = spec.softcap.map_or(String::new(), |cap| format!(", soft cap {}", cap.get()));
            vec![
                format!("heads {} × {}, KV heads {}", spec.heads, spec.k_dim, spec.kv_heads),
                format!("{mask}, scale {}{cap}", spec.scale.get()),
            ]
        }
        Op::Activate(activation) => vec![activation.name().to_owned()],
        Op::GatedActivate(activation) => vec![format!("{}(gate) × up", activation.name())],
        Op::Scale { factor } => vec![format!("× {}", factor.get())],
        Op::SoftCap { cap } => vec![format!("± {}", cap.get())],
        Op::View { offset } => vec![format!("from column {offset}")],
        Op::Embed { .. } | Op::Linear { .. } | Op::Add | Op::Mul | Op::GatherRows => Vec::new(),
    }
}

/// One colour for each kind: tables, matrices, norms, attention and cache, elementwise, data
/// movement.
fn colour(op: &Op) -> &'static str {
    match op {
        Op::Embed { .. } | Op::GatherRows => "#e6e6fa",
        Op::Linear { .. } => "#cfe3f7",
        Op::Norm(_) | Op::AddNorm(_) => "#d8efd3",
        Op::Rope { .. } | Op::KvStore { .. } | Op::RopeStore(_) => "#ffe8c2",
        Op::Attention(_) => "#ffd1b3",
        Op::Activate(_)
        | Op::GatedActivate(_)
        | Op::Add
        | Op::Mul
        | Op::Scale { .. }
        | Op::SoftCap { .. } => "#f6f1c9",
        Op::View { .. } => "#f2f2f2",
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
