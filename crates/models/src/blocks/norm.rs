//! Normalisation.

use minfer_graph::{NormKind, NormSpec, ValueId};

use super::Scope;

/// Root mean square norm of each row with the factors `{local}.weight`.
pub fn rms_norm(scope: &mut Scope<'_, '_>, x: ValueId, local: &str, eps: f32) -> ValueId {
    let weight = Some(scope.required(&format!("{local}.weight")));
    let spec = NormSpec { kind: NormKind::Rms, weight, bias: None, eps: eps.into(), groups: 1 };
    let name = scope.name(local);
    scope.graph.norm(x, spec, &name)
}
