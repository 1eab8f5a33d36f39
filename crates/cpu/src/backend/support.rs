//! What the CPU cannot run, and why.

use minfer_graph::{AttentionSpec, KvSpec, Op, WeightDesc};
use minfer_tensor::DType;

use super::step::MOST_PARTS;
use crate::ops::kv_store::MOST_DIMS;

/// The reason against an operation, or `None`.
pub(super) fn objection(op: &Op, weights: &[&WeightDesc], kv: &KvSpec) -> Option<String> {
    match op {
        Op::Embed { .. } | Op::Linear { .. } => {
            weights.iter().find_map(|weight| unpackable(weight)).or_else(|| match op {
                Op::Linear { parts } if parts.len() > MOST_PARTS => {
                    Some(format!("{} matrices in one step, at most {MOST_PARTS}", parts.len()))
                }
                Op::Linear { .. } => mixed_inputs(weights),
                _ => None,
            })
        }
        Op::Norm(_) | Op::AddNorm(_) => weights.iter().find_map(|weight| not_f32(weight)),
        Op::Attention(AttentionSpec { layer, k_dim, v_dim, .. })
        | Op::KvStore { layer, k_dim, v_dim, .. } => {
            missing_layer(*layer, kv).or_else(|| wide_head(*k_dim, *v_dim))
        }
        Op::RopeStore(spec) => missing_layer(spec.layer, kv).or_else(|| wide_head(spec.k_dim, spec.v_dim)),
        Op::Rope { .. }
        | Op::Activate(_)
        | Op::GatedActivate(_)
        | Op::Add
        | Op::Mul
        | Op::Scale { .. }
        | Op::SoftCap { .. }
        | Op::GatherRows
        | Op::View { .. } => None,
    }
}

/// Whether a matrix of this type takes 8-bit activations.
pub(super) fn takes_quantised_input(dtype: DType) -> bool {
    dtype.is_quantised()
}

fn unpackable(weight: &WeightDesc) -> Option<String> {
    match weight.dtype {
        DType::I32 | DType::U32 => Some(format!("{} is {}", weight.name, weight.dtype)),
        _ => None,
    }
}

fn mixed_inputs(weights: &[&WeightDesc]) -> Option<String> {
    let matrices: Vec<_> = weights.iter().filter(|weight| weight.dims.len() > 1).collect();
    let quantised = matrices.iter().filter(|weight| takes_quantised_input(weight.dtype)).count();
    if quantised == 0 || quantised == matrices.len() {
        return None;
    }
    let list: Vec<_> = matrices.iter().map(|weight| format!("{} {}", weight.name, weight.dtype)).collect();
    Some(format!("one input is needed both quantised and plain ({})", list.join(", ")))
}

fn not_f32(weight: &WeightDesc) -> Option<String> {
    let plain = matches!(weight.dtype, DType::F32 | DType::F16 | DType::BF16);
    (!plain).then(|| format!("{} is {}, a vector must be F32, F16 or BF16", weight.name, weight.dtype))
}

fn wide_head(k_dim: u32, v_dim: u32) -> Option<String> {
    let widest = k_dim.max(v_dim);
    (widest as usize > MOST_DIMS).then(|| format!("heads of {widest} elements, at most {MOST_DIMS}"))
}

fn missing_layer(layer: u32, kv: &KvSpec) -> Option<String> {
    kv.locate(layer).is_none().then(|| format!("layer {layer} has no KV group"))
}
