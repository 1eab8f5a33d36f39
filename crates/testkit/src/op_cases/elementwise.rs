//! Cases of elementwise operations.

use minfer_graph::{Activation, GraphBuilder, ValueId};

use super::case::{Maker, OpCase, Outline};
use super::check::Tolerance;
use super::step;

/// Row widths: one vector of lanes and a part of one, and many.
const WIDTHS: [u32; 2] = [21, 256];

const ACTIVATIONS: [Activation; 3] = [Activation::Silu, Activation::GeluTanh, Activation::GeluHalf];

fn outline(op: &'static str, shape: String, tolerance: f64) -> Outline {
    Outline {
        op,
        types: "F32".to_owned(),
        shape,
        parts: step::tokens(5),
        kv: None,
        tolerance: Tolerance::OfRow(tolerance),
    }
}

/// Rounding of the function; a table of f16 values has that of f16.
fn tolerance(activation: Activation) -> f64 {
    match activation {
        Activation::Silu | Activation::GeluTanh => 1e-6,
        Activation::GeluHalf => 1e-3,
    }
}

pub(super) fn activate() -> Vec<OpCase> {
    let case = |activation: Activation, width| {
        let shape = format!("{}, 5 x {width}", activation.name());
        OpCase::new(outline("activate", shape, tolerance(activation)), |maker| {
            let x = maker.operand(width);
            vec![maker.graph.activate(x, activation)]
        })
    };
    let widths = |activation| WIDTHS.map(|width| case(activation, width));
    ACTIVATIONS.into_iter().flat_map(widths).collect()
}

pub(super) fn gated_activate() -> Vec<OpCase> {
    let case = |activation: Activation, width| {
        let shape = format!("{}, 5 x {width}", activation.name());
        OpCase::new(outline("gated_activate", shape, tolerance(activation)), |maker| {
            let (gate, up) = (maker.operand(width), maker.operand(width));
            vec![maker.graph.gated_activate(gate, up, activation)]
        })
    };
    let widths = |activation| WIDTHS.map(|width| case(activation, width));
    ACTIVATIONS.into_iter().flat_map(widths).collect()
}

/// Two operands, and one operand twice.
fn binary(op: &'static str, node: fn(&mut GraphBuilder<'_>, ValueId, ValueId) -> ValueId) -> Vec<OpCase> {
    let case = |width, twice: bool| {
        let operands = if twice { "one operand twice, " } else { "" };
        OpCase::new(outline(op, format!("{operands}5 x {width}"), 1e-6), |maker| {
            let a = maker.operand(width);
            let b = if twice { a } else { maker.operand(width) };
            vec![node(&mut maker.graph, a, b)]
        })
    };
    WIDTHS.into_iter().flat_map(|width| [case(width, false), case(width, true)]).collect()
}

pub(super) fn add() -> Vec<OpCase> {
    binary("add", |graph, a, b| graph.add(a, b))
}

pub(super) fn mul() -> Vec<OpCase> {
    binary("mul", |graph, a, b| graph.mul(a, b))
}

fn unary(
    op: &'static str,
    what: &str,
    tolerance: f64,
    node: impl Fn(&mut Maker<'_>, ValueId) -> ValueId,
) -> Vec<OpCase> {
    let case = |width| {
        OpCase::new(outline(op, format!("{what}, 5 x {width}"), tolerance), |maker| {
            let x = maker.operand(width);
            vec![node(maker, x)]
        })
    };
    WIDTHS.map(case).into()
}

pub(super) fn scale() -> Vec<OpCase> {
    unary("scale", "by -2.5", 1e-6, |maker, x| maker.graph.scale(x, -2.5))
}

pub(super) fn soft_cap() -> Vec<OpCase> {
    unary("soft_cap", "at 1.5", 1e-6, |maker, x| maker.graph.soft_cap(x, 1.5))
}
