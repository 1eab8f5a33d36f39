//! Tensor rules, and the tensors of a file that were checked against them.

use std::collections::BTreeMap;

use minfer_graph::{GraphBuilder, WeightDesc, WeightId};
use minfer_tensor::DType;

use crate::ModelError;

/// Name, shape and use of a tensor of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorRule {
    /// Its name in the file.
    pub name: String,
    /// Row-major, last contiguous.
    pub shape: Vec<u32>,
    /// How it is used, which decides the allowed types.
    pub usage: TensorUse,
    /// Whether a file may lack it.
    pub optional: bool,
    /// An alternative: a file that has this other tensor need not have the rule's own.
    pub instead: Option<String>,
}

/// How a tensor is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorUse {
    /// A matrix or an embedding table: any type of real numbers.
    Matrix,
    /// A norm weight or a bias: F32, the type that converters and quantisers keep for vectors.
    Vector,
    /// Numbers that go into the graph itself: F32.
    Constant,
}

impl TensorRule {
    /// A matrix [rows, columns] that must be there.
    pub fn matrix(name: impl Into<String>, rows: u32, columns: u32) -> TensorRule {
        TensorRule {
            name: name.into(),
            shape: vec![rows, columns],
            usage: TensorUse::Matrix,
            optional: false,
            instead: None,
        }
    }

    /// A vector that must be there.
    pub fn vector(name: impl Into<String>, len: u32) -> TensorRule {
        TensorRule { shape: vec![len], usage: TensorUse::Vector, ..TensorRule::matrix(name, 0, 0) }
    }

    /// A vector of numbers that go into the graph.
    pub fn constant(name: impl Into<String>, len: u32) -> TensorRule {
        TensorRule { usage: TensorUse::Constant, ..TensorRule::vector(name, len) }
    }

    /// The same, but a file may lack it.
    #[must_use]
    pub fn optional(self) -> TensorRule {
        TensorRule { optional: true, ..self }
    }

    /// Compares a tensor of the file with the rule.
    ///
    /// # Errors
    /// The shape or the type does not fit.
    pub fn check(&self, found: &[u64], dtype: DType) -> Result<(), ModelError> {
        if !found.iter().copied().eq(self.shape.iter().map(|&dim| u64::from(dim))) {
            return Err(ModelError::TensorShape {
                name: self.name.clone(),
                found: found.to_vec(),
                wanted: self.shape.clone(),
            });
        }
        let wanted = match self.usage {
            TensorUse::Matrix if !dtype.is_real() => "a type of real numbers",
            TensorUse::Vector | TensorUse::Constant if dtype != DType::F32 => "F32",
            _ => return Ok(()),
        };
        Err(ModelError::TensorType { name: self.name.clone(), found: dtype, wanted })
    }
}

/// The checked tensors that a file has, by name, with the types it stores them in.
#[derive(Debug, Clone, Default)]
pub struct AvailableTensors {
    tensors: BTreeMap<String, WeightDesc>,
}

impl AvailableTensors {
    /// Adds a tensor that was checked against its rule.
    pub fn insert(&mut self, rule: &TensorRule, dtype: DType) {
        // Norm weights may be stored as one row for each head; a norm takes them as one vector.
        let dims = match rule.usage {
            TensorUse::Vector => vec![rule.shape.iter().product()],
            TensorUse::Matrix | TensorUse::Constant => rule.shape.clone(),
        };
        let weight = WeightDesc { name: rule.name.clone(), dtype, dims };
        self.tensors.insert(rule.name.clone(), weight);
    }

    /// The weight's id in the model graph under construction, if the file has the tensor.
    pub fn weight(&self, graph: &mut GraphBuilder<'_>, name: &str) -> Option<WeightId> {
        let weight = self.tensors.get(name)?;
        Some(graph.weight(&weight.name, weight.dtype, &weight.dims))
    }

    /// The weight's id in the model graph under construction.
    ///
    /// # Panics
    /// The tensor is not there, though its rule does not say that it is optional.
    pub fn required(&self, graph: &mut GraphBuilder<'_>, name: &str) -> WeightId {
        self.weight(graph, name).unwrap_or_else(|| panic!("{name} is used without a rule that asks for it"))
    }
}

impl FromIterator<(TensorRule, DType)> for AvailableTensors {
    fn from_iter<I: IntoIterator<Item = (TensorRule, DType)>>(tensors: I) -> AvailableTensors {
        let mut available = AvailableTensors::default();
        tensors.into_iter().for_each(|(rule, dtype)| available.insert(&rule, dtype));
        available
    }
}
