//! Cases of linear maps, for every type of weights.

use minfer_graph::LinearPart;
use minfer_tensor::DType;

use super::case::{OpCase, Outline};
use super::check::Tolerance;
use super::step;

/// Tokens, rows and columns: one token and several, rows that are no whole panel, one and two
/// superblocks.
const SHAPES: [[u32; 3]; 3] = [[1, 40, 512], [7, 33, 256], [40, 16, 256]];

/// Every type of weights in every shape, and parts of one or several types.
pub(super) fn linear() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_real()) {
        for [tokens, rows, columns] in SHAPES {
            let shape = format!("{tokens} x {columns} -> {rows}");
            cases.push(case(dtype.name().to_owned(), shape, tokens, columns, &[(dtype, rows)], false));
        }
        let parts = [(dtype, 32), (dtype, 5)];
        let shape = "3 x 256 -> 32 + 5, biases".to_owned();
        cases.push(case(dtype.name().to_owned(), shape, 3, 256, &parts, true));
    }
    for (first, second) in [
        (DType::Q4_K, DType::Q6_K),
        (DType::Q8_0, DType::Q5_0),
        (DType::F32, DType::F16),
        (DType::Q8_0, DType::F16),
    ] {
        let types = format!("{first} and {second}");
        let shape = "3 x 256 -> 32 + 16".to_owned();
        cases.push(case(types, shape, 3, 256, &[(first, 32), (second, 16)], false));
    }
    cases
}

fn case(
    types: String,
    shape: String,
    tokens: u32,
    columns: u32,
    matrices: &[(DType, u32)],
    biases: bool,
) -> OpCase {
    let outline = Outline {
        op: "linear",
        types,
        shape,
        parts: step::tokens(tokens),
        kv: None,
        tolerance: Tolerance::Product,
    };
    OpCase::new(outline, |maker| {
        let x = maker.operand(columns);
        let part = |&(dtype, rows): &(DType, u32)| LinearPart {
            weight: maker.weight(dtype, rows, columns),
            bias: biases.then(|| maker.vector(rows, 0.0)),
        };
        let parts = matrices.iter().map(part).collect();
        vec![maker.graph.linear_parts(x, parts, "linear")]
    })
}
