//! A graph under construction with the weights of one layer, found by name.

use minfer_graph::{GraphBuilder, ValueId, WeightId};

use crate::{AvailableTensors, Hyperparams};

/// A graph under construction, the model's numbers, and the part of a file's tensors that a piece
/// of the graph uses.
pub struct Scope<'s, 'p> {
    /// The graph.
    pub graph: &'s mut GraphBuilder<'p>,
    /// The model's numbers.
    pub hyperparams: &'s Hyperparams,
    /// The layer; 0 outside of layers.
    pub layer: u32,
    available: &'s AvailableTensors,
    prefix: String,
}

impl<'s, 'p> Scope<'s, 'p> {
    /// The tensors whose names have no prefix: embedding, output norm, output.
    pub fn model(
        graph: &'s mut GraphBuilder<'p>,
        hyperparams: &'s Hyperparams,
        available: &'s AvailableTensors,
    ) -> Scope<'s, 'p> {
        Scope { graph, hyperparams, layer: 0, available, prefix: String::new() }
    }

    /// The tensors of one layer, `blk.{layer}.*`.
    pub fn layer(
        graph: &'s mut GraphBuilder<'p>,
        hyperparams: &'s Hyperparams,
        available: &'s AvailableTensors,
        layer: u32,
    ) -> Scope<'s, 'p> {
        Scope { graph, hyperparams, layer, available, prefix: format!("blk.{layer}.") }
    }

    /// The full name of something of this part.
    pub fn name(&self, local: &str) -> String {
        format!("{}{local}", self.prefix)
    }

    /// A weight, if the file has it.
    pub fn optional(&mut self, local: &str) -> Option<WeightId> {
        let name = self.name(local);
        self.available.weight(self.graph, &name)
    }

    /// A weight.
    ///
    /// # Panics
    /// No rule of the family asks for it.
    pub fn required(&mut self, local: &str) -> WeightId {
        let name = self.name(local);
        self.available.required(self.graph, &name)
    }

    /// `x * {local}.weight^T`, plus `{local}.bias` if the file has it.
    pub fn linear(&mut self, x: ValueId, local: &str) -> ValueId {
        let weight = self.required(&format!("{local}.weight"));
        let bias = self.optional(&format!("{local}.bias"));
        let name = self.name(local);
        self.graph.linear(x, weight, bias, &name)
    }

    /// `x * factor`; `x` itself where the factor is 1.
    pub fn scaled(&mut self, x: ValueId, factor: f32) -> ValueId {
        if factor == 1.0 { x } else { self.graph.scale(x, factor) }
    }

    /// Some columns of a row under a name of this part.
    pub fn view(&mut self, x: ValueId, offset: u32, width: u32, local: &str) -> ValueId {
        let name = self.name(local);
        self.graph.view(x, offset, width, &name)
    }
}
