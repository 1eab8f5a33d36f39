//! Small llama-like model graphs, and weights and batches for them.
#![allow(dead_code, reason = "each test file uses a part")]

use minfer_graph::backend::{WeightError, WeightSource};
use minfer_graph::{
    Activation, AttentionSpec, F64Bits, GraphBuilder, KvChoice, KvFormat, KvLayout, Mask, ModelGraph,
    ModelGraphBuilder, NormKind, NormSpec, RopePairs, RopeSpec, ValueId, WeightId,
};
use minfer_tensor::DType;

/// What varies between the families.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    pub(crate) layers: u32,
    pub(crate) width: u32,
    pub(crate) heads: u32,
    pub(crate) kv_heads: u32,
    pub(crate) head_dim: u32,
    pub(crate) ffn: u32,
    pub(crate) vocabulary: u32,
    pub(crate) biases: bool,
    /// Types of q, k, v.
    pub(crate) types: [DType; 3],
    /// A norm per head of q and k, before the rotation.
    pub(crate) head_norms: bool,
    /// A norm of each branch before it joins the residual stream.
    pub(crate) post_norms: bool,
    /// One norm feeds attention and feed-forward, both join at the end.
    pub(crate) parallel: bool,
    pub(crate) window: Option<u32>,
}

pub(crate) const LLAMA: Family = Family {
    layers: 2,
    width: 64,
    heads: 4,
    kv_heads: 2,
    head_dim: 16,
    ffn: 96,
    vocabulary: 40,
    biases: false,
    types: [DType::F32; 3],
    head_norms: false,
    post_norms: false,
    parallel: false,
    window: None,
};

pub(crate) const QWEN2: Family =
    Family { biases: true, types: [DType::Q8_0, DType::Q8_0, DType::Q5_0], ..LLAMA };
pub(crate) const GEMMA3: Family = Family { head_norms: true, post_norms: true, window: Some(3), ..LLAMA };
pub(crate) const PARALLEL: Family = Family { parallel: true, ..LLAMA };

pub(crate) fn rope(head_dim: u32) -> RopeSpec {
    let pairs = head_dim / 2;
    RopeSpec {
        pairs: RopePairs::Halves,
        frequencies: (0..pairs)
            .map(|pair| F64Bits::from(10_000f64.powf(-f64::from(pair) / f64::from(pairs))))
            .collect(),
        magnitude: 1.0.into(),
    }
}

pub(crate) fn norm(b: &mut GraphBuilder<'_>, x: ValueId, groups: u32, name: &str) -> ValueId {
    let width = b.width(x) / groups;
    let weight = b.weight(&format!("{name}.weight"), DType::F32, &[width]);
    let spec = NormSpec { kind: NormKind::Rms, weight: Some(weight), bias: None, eps: 1e-6.into(), groups };
    b.norm(x, spec, name)
}

pub(crate) fn linear(
    b: &mut GraphBuilder<'_>,
    x: ValueId,
    rows: u32,
    bias: bool,
    dtype: DType,
    name: &str,
) -> ValueId {
    let columns = b.width(x);
    let weight = b.weight(&format!("{name}.weight"), dtype, &[rows, columns]);
    let bias = bias.then(|| b.weight(&format!("{name}.bias"), DType::F32, &[rows]));
    b.linear(x, weight, bias, name)
}

impl Family {
    pub(crate) fn model_graph(&self) -> ModelGraph {
        let mut model_graph = ModelGraphBuilder::new();
        let table = model_graph.weight("token_embd.weight", DType::Q8_0, &[self.vocabulary, self.width]);
        let mut body = model_graph.body();
        let mut x = body.embed(table);
        for layer in 0..self.layers {
            x = self.layer(&mut body, x, layer);
        }
        let body = body.finish(&[x]);
        let (mut head, hidden) = model_graph.head(self.width);
        let rows = head.gather_rows(hidden);
        let normed = norm(&mut head, rows, 1, "output_norm");
        let logits = head.linear(normed, table, None, "output");
        let head = head.finish(&[logits]);
        model_graph.finish(body, head)
    }

    fn layer(&self, b: &mut GraphBuilder<'_>, x: ValueId, layer: u32) -> ValueId {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let normed = norm(b, x, 1, &name("attn_norm"));
        let attention = self.attention(b, normed, layer);
        if self.parallel {
            let ffn = self.feed_forward(b, normed, layer);
            let both = b.add(attention, ffn);
            return b.add(x, both);
        }
        let x = b.add(x, attention);
        let normed = norm(b, x, 1, &name("ffn_norm"));
        let ffn = self.feed_forward(b, normed, layer);
        b.add(x, ffn)
    }

    fn attention(&self, b: &mut GraphBuilder<'_>, x: ValueId, layer: u32) -> ValueId {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (heads, kv_heads, dim) = (self.heads, self.kv_heads, self.head_dim);
        let mut q = linear(b, x, heads * dim, self.biases, self.types[0], &name("attn_q"));
        let mut k = linear(b, x, kv_heads * dim, self.biases, self.types[1], &name("attn_k"));
        let v = linear(b, x, kv_heads * dim, self.biases, self.types[2], &name("attn_v"));
        if self.head_norms {
            q = norm(b, q, heads, &name("attn_q_norm"));
            k = norm(b, k, kv_heads, &name("attn_k_norm"));
        }
        let rope = rope(dim);
        let q = b.rope(q, &rope, heads, dim);
        let k = b.rope(k, &rope, kv_heads, dim);
        b.kv_store(k, v, layer, kv_heads);
        let spec = AttentionSpec {
            layer,
            heads,
            kv_heads,
            k_dim: dim,
            v_dim: dim,
            scale: (1.0 / (dim as f32).sqrt()).into(),
            mask: self.window.map_or(Mask::Causal, Mask::Window),
            softcap: None,
            sinks: None,
            rope: Some(rope),
        };
        let attention = b.attention(q, spec);
        let result = linear(b, attention, self.width, false, DType::Q8_0, &name("attn_output"));
        if self.post_norms { norm(b, result, 1, &name("post_attention_norm")) } else { result }
    }

    fn feed_forward(&self, b: &mut GraphBuilder<'_>, x: ValueId, layer: u32) -> ValueId {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let gate = linear(b, x, self.ffn, false, DType::Q8_0, &name("ffn_gate"));
        let up = linear(b, x, self.ffn, false, DType::Q8_0, &name("ffn_up"));
        let gated = b.gated_activate(gate, up, Activation::Silu);
        let result = linear(b, gated, self.width, false, DType::Q8_0, &name("ffn_down"));
        if self.post_norms { norm(b, result, 1, &name("post_ffw_norm")) } else { result }
    }
}

pub(crate) fn choice() -> KvChoice {
    KvChoice {
        k_format: KvFormat::F32,
        v_format: KvFormat::F32,
        layout: KvLayout::LaneMajor,
        block_tokens: 16,
        max_blocks: 8,
    }
}

/// Decoded weights: small numbers that depend on id and index, around 1 for vectors.
pub(crate) fn weights(model_graph: &ModelGraph) -> impl Fn(WeightId) -> Vec<f32> + '_ {
    move |id| {
        let desc = model_graph.weight(id);
        let vector = desc.dims.len() == 1;
        let mut state = u64::from(id.0) + 1;
        (0..desc.rows() * desc.columns())
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let x = (state >> 40) as f32 / 8_388_608.0 - 1.0;
                if vector { 1.0 + 0.3 * x } else { 0.3 * x }
            })
            .collect()
    }
}

/// Stored bytes of the right length, all zero.
pub(crate) struct ZeroWeights(Vec<Vec<u8>>);

impl ZeroWeights {
    pub(crate) fn new(model_graph: &ModelGraph) -> ZeroWeights {
        ZeroWeights(model_graph.weights.iter().map(|weight| vec![0; weight.bytes() as usize]).collect())
    }

    pub(crate) fn cut(mut self, id: u32) -> ZeroWeights {
        self.0[id as usize].pop();
        self
    }
}

impl WeightSource for ZeroWeights {
    fn stored_bytes(&self, id: WeightId) -> u64 {
        self.0[id.0 as usize].len() as u64
    }

    fn read(&self, id: WeightId, offset: u64, target: &mut [u8]) -> Result<(), WeightError> {
        target.copy_from_slice(&self.0[id.0 as usize][offset as usize..][..target.len()]);
        Ok(())
    }
}
