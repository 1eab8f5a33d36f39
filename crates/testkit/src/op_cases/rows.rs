//! Cases of embeddings, row gathers and views.

use minfer_tensor::DType;

use super::case::{OpCase, Outline};
use super::check::Tolerance;
use super::step;

fn outline(op: &'static str, types: &str, shape: String, tokens: u32) -> Outline {
    Outline {
        op,
        types: types.to_owned(),
        shape,
        parts: step::tokens(tokens),
        kv: None,
        tolerance: Tolerance::OfRow(1e-6),
    }
}

/// Rows of tables of every type by token, and by position.
pub(super) fn embed() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_real()) {
        for (rows, columns) in [(20, 256), (33, 512)] {
            let shape = format!("all of {rows} x {columns}");
            cases.push(OpCase::new(outline("embed", dtype.name(), shape, rows), |maker| {
                let table = maker.weight(dtype, rows, columns);
                vec![maker.graph.embed(table)]
            }));
        }
    }
    cases.push(OpCase::new(outline("embed", "F32", "by position, 9 of 12 x 20".to_owned(), 9), |maker| {
        let table = maker.weight(DType::F32, 12, 20);
        vec![maker.graph.embed_positions(table)]
    }));
    cases
}

pub(super) fn gather_rows() -> Vec<OpCase> {
    let case = |width| {
        OpCase::new(outline("gather_rows", "F32", format!("2 of 7 x {width}"), 7), |maker| {
            let x = maker.operand(width);
            vec![maker.graph.gather_rows(x)]
        })
    };
    [21, 256].map(case).into()
}

/// A view is read by another operation, once with rows that begin on no vector of lanes.
pub(super) fn view() -> Vec<OpCase> {
    let case = |(offset, width)| {
        let shape = format!("columns {offset}..{} of 64", offset + width);
        OpCase::new(outline("view", "F32", shape, 5), |maker| {
            let x = maker.operand(64);
            let view = maker.graph.view(x, offset, width, "view");
            vec![maker.graph.scale(view, 2.0)]
        })
    };
    [(0, 64), (16, 32), (3, 21)].map(case).into()
}
