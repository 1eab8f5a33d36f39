//! Tensors of the families in the table of `tools/synthetic/make_reference.py`.

use super::Family;
use super::family::Sizes;
use super::file::ModelFile;
use super::layers::Maker;

/// Positions of a learned position embedding, the context that every file states.
const CONTEXT: usize = 512;

/// The parts of a file of a family.
pub(super) struct Parts {
    /// Whether norms take the mean away.
    pub(super) layer_norm: bool,
    /// What has biases: n norms, q projections to q, k and v, o the one back, f the feed-forward
    /// part, h the head.
    biases: &'static str,
    /// Whether the embedding is also the output.
    tied: bool,
    /// Whether positions have an embedding.
    positions: bool,
    /// Whether q, k and v are one tensor.
    joint: bool,
    /// Whether the feed-forward part has a gate.
    gated: bool,
    /// Rotated elements of a head.
    rotated: u32,
    /// Norms of hidden rows.
    norms: &'static [&'static str],
    head_norms: HeadNorms,
}

/// Factors of norms of the heads of q and k.
#[derive(PartialEq)]
enum HeadNorms {
    None,
    /// The same for every head.
    Shared,
    /// Of its own for each head.
    Each,
}

const PLAIN: Parts = Parts {
    layer_norm: false,
    biases: "",
    tied: false,
    positions: false,
    joint: false,
    gated: true,
    rotated: 16,
    norms: &["attn_norm", "ffn_norm"],
    head_norms: HeadNorms::None,
};

impl Parts {
    /// The parts of a family; none for those that [`super::layers`] knows.
    pub(super) fn of(family: Family) -> Option<Parts> {
        let layered = Parts { layer_norm: true, ..PLAIN };
        let parallel = &["attn_norm"];
        let after = &["post_attention_norm", "post_ffw_norm"];
        Some(match family {
            Family::Gpt2 => Parts {
                biases: "nqof",
                tied: true,
                positions: true,
                joint: true,
                gated: false,
                rotated: 0,
                ..layered
            },
            Family::Phi2 => {
                Parts { biases: "nqofh", joint: true, gated: false, rotated: 8, norms: parallel, ..layered }
            }
            Family::Starcoder2 => Parts { biases: "nqof", tied: true, gated: false, ..layered },
            Family::Stablelm => Parts { biases: "nq", rotated: 4, ..layered },
            Family::StablelmParallel => {
                Parts { biases: "n", rotated: 4, norms: parallel, head_norms: HeadNorms::Each, ..layered }
            }
            Family::Falcon => {
                Parts { biases: "n", tied: true, joint: true, gated: false, norms: parallel, ..layered }
            }
            Family::Falcon40b => {
                let norms = &["attn_norm", "attn_norm_2"];
                Parts { biases: "n", joint: true, gated: false, norms, ..layered }
            }
            Family::CommandR | Family::Cohere2 => Parts { tied: true, norms: parallel, ..layered },
            Family::Internlm2 | Family::Minicpm => PLAIN,
            Family::Exaone4 => Parts { norms: after, head_norms: HeadNorms::Shared, ..PLAIN },
            Family::Exaone432b => Parts { rotated: 8, norms: after, head_norms: HeadNorms::Shared, ..PLAIN },
            _ => return None,
        })
    }

    /// What only some families state.
    pub(super) fn put_metadata(&self, model: &mut ModelFile, family: Family) {
        let arch = family.architecture();
        let mut set = |key: &str, value: super::Value| model.set(&format!("{arch}.{key}"), value);
        if self.rotated > 0 {
            set("rope.dimension_count", self.rotated.into());
        }
        match family {
            Family::CommandR => set("logit_scale", 0.25.into()),
            Family::Cohere2 => {
                set("attention.sliding_window", 64.into());
                set("logit_scale", 0.25.into());
            }
            Family::Minicpm => {
                set("embedding_scale", 12.0.into());
                set("residual_scale", 0.7.into());
                set("logit_scale", 4.0.into());
            }
            Family::Exaone432b => set("attention.sliding_window", 64.into()),
            _ => {}
        }
    }

    /// Every tensor.
    pub(super) fn put_tensors(&self, maker: &mut Maker, sizes: &Sizes) {
        // As the output too, it gives logits of usual size.
        let scale = if self.tied { 0.125 } else { 0.5 };
        maker.drawn("token_embd.weight", &[sizes.vocab, sizes.width], scale, 0.0);
        if self.positions {
            maker.drawn("position_embd.weight", &[CONTEXT, sizes.width], scale, 0.0);
        }
        self.norm(maker, "output_norm", &[sizes.width]);
        if !self.tied {
            self.linear(maker, "output", sizes.vocab, sizes.width, 'h');
        }
        for layer in 0..sizes.layers {
            self.put_layer(maker, sizes, &format!("blk.{layer}."));
        }
    }

    fn put_layer(&self, maker: &mut Maker, sizes: &Sizes, prefix: &str) {
        let name = |local: &str| format!("{prefix}{local}");
        let Sizes { width, heads, kv_heads, head_dim, feed_forward: inner, .. } = *sizes;
        let (q, kv) = (heads * head_dim, kv_heads * head_dim);
        self.norms.iter().for_each(|local| self.norm(maker, &name(local), &[width]));
        if self.joint {
            self.linear(maker, &name("attn_qkv"), q + 2 * kv, width, 'q');
        } else {
            self.linear(maker, &name("attn_q"), q, width, 'q');
            self.linear(maker, &name("attn_k"), kv, width, 'q');
            self.linear(maker, &name("attn_v"), kv, width, 'q');
        }
        self.linear(maker, &name("attn_output"), width, q, 'o');
        for (local, heads) in [("attn_q_norm.weight", heads), ("attn_k_norm.weight", kv_heads)] {
            match self.head_norms {
                HeadNorms::None => {}
                HeadNorms::Shared => maker.norm(&name(local), head_dim),
                HeadNorms::Each => maker.drawn(&name(local), &[heads, head_dim], 0.4, 1.0),
            }
        }
        if self.gated {
            self.linear(maker, &name("ffn_gate"), inner, width, 'f');
        }
        self.linear(maker, &name("ffn_up"), inner, width, 'f');
        self.linear(maker, &name("ffn_down"), width, inner, 'f');
    }

    fn norm(&self, maker: &mut Maker, name: &str, dims: &[usize]) {
        maker.drawn(&format!("{name}.weight"), dims, 0.4, 1.0);
        if self.biases.contains('n') {
            maker.drawn(&format!("{name}.bias"), dims, 0.1, 0.0);
        }
    }

    fn linear(&self, maker: &mut Maker, name: &str, rows: usize, columns: usize, kind: char) {
        maker.matrix(&format!("{name}.weight"), rows, columns);
        if self.biases.contains(kind) {
            maker.bias(&format!("{name}.bias"), rows);
        }
    }
}
