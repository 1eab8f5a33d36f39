//! Random tensors of a synthetic model, drawn in file order.

use super::Family;
use super::family::Sizes;
use super::file::TensorData;
use super::numpy::NormalRng;

/// Draws tensors one after another, as `float32(normal) * float32(scale) + float32(around)`.
pub(super) struct Maker {
    rng: NormalRng,
    pub(super) tensors: Vec<TensorData>,
}

impl Maker {
    pub(super) fn new(seed: u32) -> Maker {
        Maker { rng: NormalRng::new(seed), tensors: Vec::new() }
    }

    pub(super) fn drawn(&mut self, name: &str, dims: &[usize], scale: f32, around: f32) {
        let count = dims.iter().product();
        let values: Vec<f32> =
            (0..count).map(|_| self.rng.standard_normal() as f32 * scale + around).collect();
        self.tensors.push(TensorData::from_f32(name, dims, &values));
    }

    pub(super) fn matrix(&mut self, name: &str, rows: usize, columns: usize) {
        self.drawn(name, &[rows, columns], (1.0 / (columns as f64).sqrt()) as f32, 0.0);
    }

    pub(super) fn bias(&mut self, name: &str, len: usize) {
        self.drawn(name, &[len], 0.1, 0.0);
    }

    pub(super) fn norm(&mut self, name: &str, len: usize) {
        self.drawn(name, &[len], 0.4, 1.0);
    }
}

/// One layer of a family.
pub(super) fn put_layer(maker: &mut Maker, family: Family, layer: usize, sizes: &Sizes) {
    let name = |tail: &str| format!("blk.{layer}.{tail}");
    let (width, inner) = (sizes.width, sizes.feed_forward);
    let after_parts = matches!(family, Family::Gemma2 | Family::Gemma3 | Family::Olmo2 | Family::Glm4);
    if family != Family::Olmo2 {
        maker.norm(&name("attn_norm.weight"), width);
    }
    put_attention(maker, family, layer, sizes);
    if after_parts {
        maker.norm(&name("post_attention_norm.weight"), width);
        maker.norm(&name("post_ffw_norm.weight"), width);
    }
    if family != Family::Olmo2 {
        maker.norm(&name("ffn_norm.weight"), width);
    }
    if matches!(family, Family::Phi3 | Family::Phi3Long | Family::Glm4) {
        maker.matrix(&name("ffn_up.weight"), 2 * inner, width);
    } else {
        maker.matrix(&name("ffn_gate.weight"), inner, width);
        maker.matrix(&name("ffn_up.weight"), inner, width);
    }
    maker.matrix(&name("ffn_down.weight"), width, inner);
}

fn put_attention(maker: &mut Maker, family: Family, layer: usize, sizes: &Sizes) {
    let name = |tail: &str| format!("blk.{layer}.{tail}");
    let (q_width, kv_width) = (sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim);
    if matches!(family, Family::Phi3 | Family::Phi3Long) {
        maker.matrix(&name("attn_qkv.weight"), q_width + 2 * kv_width, sizes.width);
    } else {
        maker.matrix(&name("attn_q.weight"), q_width, sizes.width);
        maker.matrix(&name("attn_k.weight"), kv_width, sizes.width);
        maker.matrix(&name("attn_v.weight"), kv_width, sizes.width);
    }
    maker.matrix(&name("attn_output.weight"), sizes.width, q_width);
    if matches!(family, Family::Qwen2 | Family::Glm4) {
        maker.bias(&name("attn_q.bias"), q_width);
        maker.bias(&name("attn_k.bias"), kv_width);
        maker.bias(&name("attn_v.bias"), kv_width);
    }
    let norms = match family {
        Family::Qwen3 | Family::Gemma3 => Some((sizes.head_dim, sizes.head_dim)),
        Family::Olmo2 => Some((q_width, kv_width)),
        _ => None,
    };
    if let Some((q, k)) = norms {
        maker.norm(&name("attn_q_norm.weight"), q);
        maker.norm(&name("attn_k_norm.weight"), k);
    }
}
