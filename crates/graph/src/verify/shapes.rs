//! The shape rule of each operation.

use minfer_tensor::DType;

use super::Fault;
use crate::{
    AttentionSpec, Dim, LinearPart, Mask, NormSpec, Op, RopeSpec, RopeStoreSpec, Symbol, TensorDesc,
    WeightDesc, WeightId,
};

/// The results' dimensions of an operation on given operands. `view_width` is the width that a
/// [`Op::View`] is asked for; other operations do not look at it.
///
/// # Errors
/// Operands, weights or numbers of the payload break the operation's rule.
pub fn output_shapes(
    op: &Op,
    inputs: &[&TensorDesc],
    weights: &[WeightDesc],
    view_width: Option<u32>,
) -> Result<Vec<[Dim; 2]>, Fault> {
    let expected = op.operand_count();
    if inputs.len() != expected {
        return Err(Fault::Operands { expected, found: inputs.len() });
    }
    for id in op.weights() {
        weights.get(id.0 as usize).ok_or(Fault::UnknownWeight(id.0))?;
    }
    if let Some(desc) = inputs.iter().find(|desc| !is_rows(desc)) {
        return Err(Fault::NotRows { value: desc.name.clone(), found: desc.to_string() });
    }
    let same = |desc: &TensorDesc| vec![[desc.dims[0], desc.dims[1]]];
    Ok(match op {
        Op::Embed { table, .. } => {
            vec![[Dim::each(Symbol::Tokens), Dim::fixed(matrix("table", weights, *table)?.columns())]]
        }
        Op::Norm(spec) => {
            check_norm(spec, inputs[0], weights)?;
            same(inputs[0])
        }
        Op::Linear { parts } => {
            vec![[inputs[0].dims[0], Dim::fixed(linear_width(parts, inputs[0], weights)?)]]
        }
        Op::Rope { rope, heads, head_dim } => {
            check_rope(rope, *head_dim)?;
            expect_tokens("operand", inputs[0], product("heads x head_dim", *heads, *head_dim)?)?;
            same(inputs[0])
        }
        Op::KvStore { kv_heads, k_dim, v_dim, .. } => {
            expect_tokens("K", inputs[0], product("kv_heads x k_dim", *kv_heads, *k_dim)?)?;
            expect_tokens("V", inputs[1], product("kv_heads x v_dim", *kv_heads, *v_dim)?)?;
            Vec::new()
        }
        Op::Attention(spec) => {
            check_attention(spec, weights)?;
            expect_tokens("Q", inputs[0], product("heads x k_dim", spec.heads, spec.k_dim)?)?;
            vec![[inputs[0].dims[0], Dim::fixed(product("heads x v_dim", spec.heads, spec.v_dim)?)]]
        }
        Op::Activate(_) | Op::Scale { .. } => same(inputs[0]),
        Op::SoftCap { cap } => {
            let positive = cap.get() > 0.0 && cap.get().is_finite();
            ensure(positive, || format!("a cap of {cap:?} is not a positive number"))?;
            same(inputs[0])
        }
        Op::GatedActivate(_) | Op::Add | Op::Mul => {
            expect_equal(inputs[0], inputs[1])?;
            same(inputs[0])
        }
        Op::GatherRows => {
            expect_tokens("operand", inputs[0], inputs[0].width())?;
            vec![[Dim::each(Symbol::Rows), inputs[0].dims[1]]]
        }
        Op::View { offset } => vec![view_shape(*offset, view_width.unwrap_or(0), inputs[0])?],
        Op::AddNorm(spec) => {
            expect_equal(inputs[0], inputs[1])?;
            ensure(spec.groups == 1, || format!("normalises {} groups, expected 1", spec.groups))?;
            check_norm(spec, inputs[0], weights)?;
            let shape = [inputs[0].dims[0], inputs[0].dims[1]];
            vec![shape, shape]
        }
        Op::RopeStore(spec) => {
            let (q, row) = check_rope_store(spec)?;
            expect_tokens("operand", inputs[0], row)?;
            vec![[inputs[0].dims[0], Dim::fixed(q)]]
        }
    })
}

fn check_norm(spec: &NormSpec, input: &TensorDesc, weights: &[WeightDesc]) -> Result<(), Fault> {
    let width = input.width();
    ensure(spec.groups > 0 && width.is_multiple_of(spec.groups), || {
        format!("a row of {width} elements does not split into {} groups", spec.groups)
    })?;
    let eps = spec.eps.get();
    ensure(eps >= 0.0 && eps.is_finite(), || format!("eps is {eps}"))?;
    for (role, id) in [("norm weight", spec.weight), ("norm bias", spec.bias)] {
        if let Some(id) = id {
            let each = weights.get(id.0 as usize).is_some_and(|weight| weight.dims == [width]);
            vector(role, weights, id, if each { width } else { width / spec.groups })?;
        }
    }
    Ok(())
}

fn linear_width(parts: &[LinearPart], input: &TensorDesc, weights: &[WeightDesc]) -> Result<u32, Fault> {
    ensure(!parts.is_empty(), || "has no parts".to_owned())?;
    let mut width = 0u32;
    for part in parts {
        let weight = matrix("matrix", weights, part.weight)?;
        if weight.columns() != input.width() {
            return Err(Fault::Weight {
                role: "matrix",
                weight: weight.name.clone(),
                expected: format!("{} columns for the operand {input}", input.width()),
                found: weight.to_string(),
            });
        }
        if let Some(bias) = part.bias {
            vector("bias", weights, bias, weight.rows())?;
        }
        width = width
            .checked_add(weight.rows())
            .ok_or_else(|| Fault::Payload("the joint width overflows 32 bits".to_owned()))?;
    }
    Ok(width)
}

fn check_rope(rope: &RopeSpec, head_dim: u32) -> Result<(), Fault> {
    let pairs = rope.frequencies.len();
    ensure(pairs > 0 && 2 * pairs as u64 <= u64::from(head_dim), || {
        format!("rotates {} of the {head_dim} elements of a head", 2 * pairs)
    })?;
    ensure(rope.frequencies.iter().all(|frequency| frequency.get().is_finite()), || {
        "has a frequency that is not a number".to_owned()
    })?;
    let magnitude = rope.magnitude.get();
    ensure(magnitude.is_finite(), || format!("the magnitude is {magnitude}"))
}

fn check_attention(spec: &AttentionSpec, weights: &[WeightDesc]) -> Result<(), Fault> {
    ensure(spec.kv_heads > 0 && spec.heads.is_multiple_of(spec.kv_heads), || {
        format!("{} KV heads do not divide {} heads", spec.kv_heads, spec.heads)
    })?;
    ensure(spec.mask != Mask::Window(0), || "a window of 0 positions shows nothing".to_owned())?;
    let scale = spec.scale.get();
    ensure(scale.is_finite(), || format!("the scale is {scale}"))?;
    if let Some(cap) = spec.softcap {
        let positive = cap.get() > 0.0 && cap.get().is_finite();
        ensure(positive, || format!("a cap of {cap:?} is not a positive number"))?;
    }
    match spec.sinks {
        Some(sinks) => vector("sinks", weights, sinks, spec.heads),
        None => Ok(()),
    }?;
    spec.rope.as_ref().map_or(Ok(()), |rope| check_rope(rope, spec.k_dim))
}

/// Widths of the rotated Q and of the joint row.
fn check_rope_store(spec: &RopeStoreSpec) -> Result<(u32, u32), Fault> {
    check_rope(&spec.rope, spec.k_dim)?;
    ensure(spec.kv_heads > 0 && spec.heads.is_multiple_of(spec.kv_heads), || {
        format!("{} KV heads do not divide {} heads", spec.kv_heads, spec.heads)
    })?;
    let q = product("heads x k_dim", spec.heads, spec.k_dim)?;
    let k = product("kv_heads x k_dim", spec.kv_heads, spec.k_dim)?;
    let v = product("kv_heads x v_dim", spec.kv_heads, spec.v_dim)?;
    let row = q.checked_add(k).and_then(|sum| sum.checked_add(v));
    Ok((q, row.ok_or_else(|| Fault::Payload("the joint width overflows 32 bits".to_owned()))?))
}

fn view_shape(offset: u32, width: u32, input: &TensorDesc) -> Result<[Dim; 2], Fault> {
    ensure(width > 0, || "a view needs a width".to_owned())?;
    let end = u64::from(offset) + u64::from(width);
    ensure(end <= u64::from(input.width()), || {
        format!("columns {offset}..{end} lie outside of {} {input}", input.name)
    })?;
    Ok([input.dims[0], Dim::fixed(width)])
}

fn matrix<'w>(role: &'static str, weights: &'w [WeightDesc], id: WeightId) -> Result<&'w WeightDesc, Fault> {
    let weight = &weights[id.0 as usize];
    if weight.dims.len() == 2 && weight.dtype.is_real() {
        return Ok(weight);
    }
    Err(Fault::Weight {
        role,
        weight: weight.name.clone(),
        expected: "a matrix of numbers".to_owned(),
        found: weight.to_string(),
    })
}

fn vector(role: &'static str, weights: &[WeightDesc], id: WeightId, length: u32) -> Result<(), Fault> {
    let weight = &weights[id.0 as usize];
    if weight.dims == [length] && weight.dtype == DType::F32 {
        return Ok(());
    }
    Err(Fault::Weight {
        role,
        weight: weight.name.clone(),
        expected: format!("F32 [{length}]"),
        found: weight.to_string(),
    })
}

fn expect_tokens(what: &str, desc: &TensorDesc, width: u32) -> Result<(), Fault> {
    let tokens = Dim::each(Symbol::Tokens);
    if desc.dims == [tokens, Dim::fixed(width)] {
        return Ok(());
    }
    Err(Fault::Shape {
        what: format!("{what} {}", desc.name),
        expected: shape_text(tokens, width),
        found: desc.to_string(),
    })
}

fn expect_equal(a: &TensorDesc, b: &TensorDesc) -> Result<(), Fault> {
    if a.dims == b.dims {
        return Ok(());
    }
    Err(Fault::Shape {
        what: format!("operand {}", b.name),
        expected: format!("{a} like {}", a.name),
        found: b.to_string(),
    })
}

pub(super) fn is_rows(desc: &TensorDesc) -> bool {
    desc.dtype == DType::F32
        && desc.dims.len() == 2
        && desc.dims[0].times > 0
        && desc.dims[1].symbol == Symbol::One
        && desc.dims[1].times > 0
}

fn product(what: &str, a: u32, b: u32) -> Result<u32, Fault> {
    match a.checked_mul(b) {
        Some(0) | None => Err(Fault::Payload(format!("{what} is {a} x {b}"))),
        Some(product) => Ok(product),
    }
}

fn ensure(condition: bool, text: impl FnOnce() -> String) -> Result<(), Fault> {
    if condition { Ok(()) } else { Err(Fault::Payload(text())) }
}

pub(super) fn shape_text(rows: Dim, width: u32) -> String {
    format!("F32 [{rows}, {width}]")
}
