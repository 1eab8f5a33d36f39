//! Cases of RMSNorm and LayerNorm.

use minfer_graph::{NormKind, NormSpec};

use super::case::{Maker, OpCase, Outline};
use super::check::Tolerance;
use super::step;

const WIDTHS: [u32; 2] = [84, 256];

fn outline(op: &'static str, shape: String) -> Outline {
    Outline {
        op,
        types: "F32".to_owned(),
        shape,
        parts: step::tokens(5),
        kv: None,
        tolerance: Tolerance::OfRow(4e-6),
    }
}

/// Which vectors a norm has.
#[derive(Debug, Clone, Copy)]
enum Vectors {
    None,
    Weight,
    WeightAndBias,
    /// A weight for every element of a row, where the row has several groups.
    WeightOfTheRow,
}

fn spec(maker: &mut Maker<'_>, kind: NormKind, width: u32, groups: u32, vectors: Vectors) -> NormSpec {
    let size = width / groups;
    let (weight, bias) = match vectors {
        Vectors::None => (None, None),
        Vectors::Weight => (Some(maker.vector(size, 1.0)), None),
        Vectors::WeightAndBias => (Some(maker.vector(size, 1.0)), Some(maker.vector(size, 0.0))),
        Vectors::WeightOfTheRow => (Some(maker.vector(width, 1.0)), None),
    };
    NormSpec { kind, weight, bias, eps: 1e-3.into(), groups }
}

pub(super) fn norm() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for kind in [NormKind::Rms, NormKind::Layer] {
        for width in WIDTHS {
            for (groups, vectors) in [
                (1, Vectors::None),
                (1, Vectors::Weight),
                (1, Vectors::WeightAndBias),
                (4, Vectors::Weight),
                (4, Vectors::WeightOfTheRow),
            ] {
                let shape = format!("{kind:?}, 5 x {width}, {groups} groups, {vectors:?}");
                cases.push(OpCase::new(outline("norm", shape), |maker| {
                    let x = maker.operand(width);
                    let spec = spec(maker, kind, width, groups, vectors);
                    vec![maker.graph.norm(x, spec, "norm")]
                }));
            }
        }
    }
    cases
}

pub(super) fn add_norm() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for kind in [NormKind::Rms, NormKind::Layer] {
        for width in WIDTHS {
            let shape = format!("{kind:?}, 5 x {width}");
            cases.push(OpCase::new(outline("add_norm", shape), |maker| {
                let (a, b) = (maker.operand(width), maker.operand(width));
                let spec = spec(maker, kind, width, 1, Vectors::WeightAndBias);
                let (sum, normed) = maker.graph.add_norm(a, b, spec, "add_norm");
                vec![sum, normed]
            }));
        }
    }
    cases
}
