//! RMSNorm and LayerNorm of hidden rows and of heads.

use minfer_graph::{NormSpec, ValueId};

use super::Scope;

/// The model's norm of each hidden row with weight `{local}.weight`, and bias
/// `{local}.bias` if the file has it.
pub fn row(scope: &mut Scope<'_, '_>, x: ValueId, local: &str) -> ValueId {
    let weight = Some(scope.required(&format!("{local}.weight")));
    let bias = scope.optional(&format!("{local}.bias"));
    let (kind, eps) = (scope.hyperparams.norm_kind, scope.hyperparams.norm_eps.into());
    let name = scope.name(local);
    scope.graph.norm(x, NormSpec { kind, weight, bias, eps, groups: 1 }, &name)
}

/// The model's norm of each head of a row, or of the row, as long as the factors `{local}.weight`
/// are; `x` itself if the file has none. Where the model's norms are of heads, a row of factors has
/// those of each head.
pub fn heads(scope: &mut Scope<'_, '_>, x: ValueId, local: &str, heads: u32) -> ValueId {
    let Some(weight) = scope.optional(&format!("{local}.weight")) else { return x };
    let numbers = scope.hyperparams;
    let of_row =
        scope.graph.weight_rows(weight) == scope.graph.width(x) && !numbers.attention.head_norm_weights;
    let groups = if of_row { 1 } else { heads };
    let (kind, eps) = (numbers.norm_kind, numbers.norm_eps.into());
    let name = scope.name(local);
    scope.graph.norm(x, NormSpec { kind, weight: Some(weight), bias: None, eps, groups }, &name)
}
