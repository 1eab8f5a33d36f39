use minfer_graph::{GraphBuilder, ValueId, WeightId};

use crate::Present;

/// A graph under construction, and the part of a file's tensors that a piece of it uses.
pub struct Scope<'s, 'p> {
    /// The graph.
    pub graph: &'s mut GraphBuilder<'p>,
    present: &'s Present,
    prefix: String,
}

impl<'s, 'p> Scope<'s, 'p> {
    /// The tensors whose names have no prefix: embedding, output norm, output.
    pub fn model(graph: &'s mut GraphBuilder<'p>, present: &'s Present) -> Scope<'s, 'p> {
        Scope { graph, present, prefix: String::new() }
    }

    /// The tensors of one layer, `blk.{layer}.*`.
    pub fn layer(graph: &'s mut GraphBuilder<'p>, present: &'s Present, layer: u32) -> Scope<'s, 'p> {
        Scope { graph, present, prefix: format!("blk.{layer}.") }
    }

    /// The full name of something of this part.
    pub fn name(&self, local: &str) -> String {
        format!("{}{local}", self.prefix)
    }

    /// A weight, if the file has it.
    pub fn optional(&mut self, local: &str) -> Option<WeightId> {
        let name = self.name(local);
        self.present.weight(self.graph, &name)
    }

    /// A weight.
    ///
    /// # Panics
    /// No rule of the family asks for it.
    pub fn required(&mut self, local: &str) -> WeightId {
        let name = self.name(local);
        self.present.required(self.graph, &name)
    }

    /// Rows of the token embedding.
    pub fn embed(&mut self) -> ValueId {
        let table = self.required("token_embd.weight");
        self.graph.embed(table)
    }

    /// `x * {local}.weight^T`, plus `{local}.bias` if the file has it.
    pub fn linear(&mut self, x: ValueId, local: &str) -> ValueId {
        let weight = self.required(&format!("{local}.weight"));
        let bias = self.optional(&format!("{local}.bias"));
        let name = self.name(local);
        self.graph.linear(x, weight, bias, &name)
    }
}
