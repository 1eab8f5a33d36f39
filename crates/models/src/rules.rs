//! Tensor rules that families share: names and shapes of the tensors of a model and of a layer.

use minfer_graph::NormKind;

use crate::{Hyperparams, TensorRule};

/// Collects the rules of a model.
#[derive(Debug)]
pub struct Rules<'h> {
    hyperparams: &'h Hyperparams,
    rules: Vec<TensorRule>,
}

/// Collects the rules of one layer, `blk.{layer}.*`.
#[derive(Debug)]
pub struct LayerRules<'r, 'h> {
    rules: &'r mut Rules<'h>,
    first: usize,
    layer: u32,
}

impl<'h> Rules<'h> {
    /// Embedding, output norm and output; a file without an output ties it to the embedding.
    pub fn model(hyperparams: &'h Hyperparams) -> Rules<'h> {
        let Hyperparams { hidden_size, vocab, .. } = *hyperparams;
        let mut rules = Rules { hyperparams, rules: Vec::new() };
        rules.rules.push(TensorRule::matrix("token_embd.weight", vocab, hidden_size));
        rules.norm("output_norm");
        rules.rules.push(TensorRule::matrix("output.weight", vocab, hidden_size).optional());
        rules.rules.push(TensorRule::vector("output.bias", vocab).optional());
        rules
    }

    /// One more rule.
    #[must_use]
    pub fn with(mut self, rule: TensorRule) -> Rules<'h> {
        self.rules.push(rule);
        self
    }

    /// The same rules for every layer; gives all rules.
    pub fn layers(
        mut self,
        each: impl for<'r> Fn(LayerRules<'r, 'h>) -> LayerRules<'r, 'h>,
    ) -> Vec<TensorRule> {
        for layer in 0..self.hyperparams.n_layers {
            let first = self.rules.len();
            each(LayerRules { rules: &mut self, first, layer });
        }
        self.rules
    }

    /// Weight of a norm of hidden rows, and for LayerNorm an optional bias.
    fn norm(&mut self, name: &str) {
        let hidden_size = self.hyperparams.hidden_size;
        self.rules.push(TensorRule::vector(format!("{name}.weight"), hidden_size));
        if self.hyperparams.norm_kind == NormKind::Layer {
            self.rules.push(TensorRule::vector(format!("{name}.bias"), hidden_size).optional());
        }
    }
}

impl LayerRules<'_, '_> {
    /// A norm of hidden rows.
    #[must_use]
    pub fn norm(self, local: &str) -> Self {
        let name = self.name(local);
        self.rules.norm(&name);
        self
    }

    /// A vector `{local}.weight`.
    #[must_use]
    pub fn vector(self, local: &str, len: u32) -> Self {
        let name = self.name(&format!("{local}.weight"));
        self.rules.rules.push(TensorRule::vector(name, len));
        self
    }

    /// `{local}.weight` [rows, columns], perhaps with a bias.
    #[must_use]
    pub fn linear(self, local: &str, rows: u32, columns: u32) -> Self {
        let weight = TensorRule::matrix(self.name(&format!("{local}.weight")), rows, columns);
        let bias = TensorRule::vector(self.name(&format!("{local}.bias")), rows).optional();
        self.rules.rules.extend([weight, bias]);
        self
    }

    /// Projections to Q, K and V, and the output projection.
    #[must_use]
    pub fn attention(self) -> Self {
        let Hyperparams { hidden_size, .. } = *self.rules.hyperparams;
        let [q, k, v] = self.projections();
        self.linear("attn_q", q, hidden_size)
            .linear("attn_k", k, hidden_size)
            .linear("attn_v", v, hidden_size)
            .attention_output()
    }

    /// One joint projection to Q, K and V, and the output projection.
    #[must_use]
    pub fn fused_attention(self) -> Self {
        let Hyperparams { hidden_size, .. } = *self.rules.hyperparams;
        let rows = self.projections().iter().sum();
        self.linear("attn_qkv", rows, hidden_size).attention_output()
    }

    /// One joint projection to Q, K and V or three, and the output projection.
    #[must_use]
    pub fn any_attention(self) -> Self {
        let joint = self.name("attn_qkv.weight");
        let first = self.rules.rules.len();
        let layer = self.attention();
        for rule in &mut layer.rules.rules[first..first + 6] {
            rule.instead = Some(joint.clone());
        }
        let rows = layer.projections().iter().sum();
        let hidden_size = layer.rules.hyperparams.hidden_size;
        layer.linear("attn_qkv", rows, hidden_size).optional("attn_qkv.weight")
    }

    /// Norms of Q and K, per head, with one weight for all heads.
    #[must_use]
    pub fn head_norms(self) -> Self {
        let dim = self.rules.hyperparams.k_dim;
        self.vector("attn_q_norm", dim).vector("attn_k_norm", dim)
    }

    /// Optional norms of Q and K, per head, with weights for every head.
    #[must_use]
    pub fn norms_of_each_head(self) -> Self {
        let Hyperparams { heads, kv_heads, k_dim, .. } = *self.rules.hyperparams;
        for (local, heads) in [("attn_q_norm.weight", heads), ("attn_k_norm.weight", kv_heads)] {
            let rule = TensorRule { shape: vec![heads, k_dim], ..TensorRule::vector(self.name(local), 0) };
            self.rules.rules.push(rule.optional());
        }
        self
    }

    /// Norms of Q and K over all heads of a row.
    #[must_use]
    pub fn row_norms(self) -> Self {
        let [q, k, _] = self.projections();
        self.vector("attn_q_norm", q).vector("attn_k_norm", k)
    }

    /// Gate, up and down.
    #[must_use]
    pub fn gated_mlp(self) -> Self {
        let Hyperparams { hidden_size, feed_forward, .. } = *self.rules.hyperparams;
        self.linear("ffn_gate", feed_forward, hidden_size).plain_mlp()
    }

    /// Gate and up side by side in `ffn_up`, and down.
    #[must_use]
    pub fn fused_mlp(self) -> Self {
        let Hyperparams { hidden_size, feed_forward, .. } = *self.rules.hyperparams;
        self.linear("ffn_up", 2 * feed_forward, hidden_size).linear("ffn_down", hidden_size, feed_forward)
    }

    /// Up and down.
    #[must_use]
    pub fn plain_mlp(self) -> Self {
        let Hyperparams { hidden_size, feed_forward, .. } = *self.rules.hyperparams;
        self.linear("ffn_up", feed_forward, hidden_size).linear("ffn_down", hidden_size, feed_forward)
    }

    /// Makes an optional tensor of this layer required.
    ///
    /// # Panics
    /// The layer has no rule for it.
    #[must_use]
    pub fn required(self, local: &str) -> Self {
        self.set_optional(local, false)
    }

    /// Makes a tensor of this layer optional.
    ///
    /// # Panics
    /// The layer has no rule for it.
    #[must_use]
    pub fn optional(self, local: &str) -> Self {
        self.set_optional(local, true)
    }

    fn set_optional(self, local: &str, optional: bool) -> Self {
        let name = self.name(local);
        let rule = self.rules.rules[self.first..].iter_mut().find(|rule| rule.name == name);
        rule.unwrap_or_else(|| panic!("{name} has no rule")).optional = optional;
        self
    }

    fn attention_output(self) -> Self {
        let (hidden_size, columns) =
            (self.rules.hyperparams.hidden_size, self.rules.hyperparams.attention_output_size());
        self.linear("attn_output", hidden_size, columns)
    }

    /// Sizes of Q, K and V rows.
    fn projections(&self) -> [u32; 3] {
        let numbers = self.rules.hyperparams;
        [numbers.q_size(), numbers.k_size(), numbers.v_size()]
    }

    fn name(&self, local: &str) -> String {
        format!("blk.{}.{local}", self.layer)
    }
}
