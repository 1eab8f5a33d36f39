//! The synthetic models, one for each family and variant.

use super::file::ModelFile;
use super::layers::{Maker, put_layer};
use super::metadata::put_metadata;
use super::parts::Parts;

/// Lists the families once: variant, name, meaning.
macro_rules! families {
    ($($variant:ident $name:literal $doc:literal,)*) => {
        /// A kind of tiny model whose distributions are on record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Family {
            $(#[doc = $doc] $variant,)*
        }

        impl Family {
            /// Every family, in declaration order.
            pub const ALL: &[Family] = &[$(Family::$variant,)*];

            /// Its name, as in the records.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Family::$variant => $name,)*
                }
            }

            /// The text of its record.
            pub(super) const fn record(self) -> &'static str {
                match self {
                    $(Family::$variant => include_str!(concat!("../../data/synthetic/", $name, ".json")),)*
                }
            }
        }
    };
}

families! {
    Llama "llama" "Plain llama.",
    Llama3 "llama3" "llama with a rope factor tensor.",
    LlamaYarn "llama-yarn" "llama with YaRN: factor 4 from 64 positions.",
    LlamaLinear "llama-linear" "llama with linear rope scaling: factor 2.",
    LlamaOdd "llama-odd"
        "llama with sizes that no vector width divides: head dim 24, feed-forward 80, three query heads to one KV head.",
    Qwen2 "qwen2" "qwen2: biases on q, k and v.",
    Qwen3 "qwen3" "qwen3: norms of heads, heads wider than width / heads.",
    Gemma "gemma" "gemma: scaled embedding, GELU, tied output.",
    Gemma2 "gemma2" "gemma2: soft caps, norms after each part, a window of 64 in every other layer.",
    Gemma3 "gemma3" "gemma3: seven layers, the sixth without a window and with a rope base of its own.",
    Phi3 "phi3" "phi3: joint tensors for q, k and v, and for gate and up.",
    Phi3Long "phi3-long" "phi3 with rope factors for contexts up to 64 positions and beyond.",
    Granite "granite" "granite: factors on embedding, scores, residual and logits.",
    Olmo2 "olmo2" "olmo2: norms after each part only, norms of whole rows of q and k.",
    Smollm3 "smollm3" "smollm3: no rotation in the fourth layer.",
    Glm4 "glm4" "glm4: half of each head rotated, norms after each part, biases on q, k and v.",
    Gpt2 "gpt2" "gpt2: learned positions, biases everywhere, joint q, k and v, GELU without a gate.",
    Phi2 "phi2" "phi2: attention and feed-forward part side by side on one norm, half of each head rotated.",
    Starcoder2 "starcoder2" "starcoder2: biases everywhere, GELU without a gate, tied output.",
    Stablelm "stablelm" "stablelm: layer norms, a quarter of each head rotated.",
    StablelmParallel "stablelm-parallel" "stablelm with its parts side by side and norms of heads with factors for each.",
    Falcon "falcon" "falcon: one head of k and v, parts side by side, no biases of matrices.",
    Falcon40b "falcon-40b" "falcon with a norm for each of its parts.",
    CommandR "command-r" "command-r: layer norms without biases, parts side by side, a factor on logits.",
    Cohere2 "cohere2" "cohere2: windows and rotation in three of four layers, neither in the fourth.",
    Internlm2 "internlm2" "internlm2: llama by another name.",
    Minicpm "minicpm" "minicpm: factors on embedding, residual and logits.",
    Exaone4 "exaone4" "exaone4: norms after each part only, norms of heads.",
    Exaone432b "exaone4-32b" "exaone4 with 64 layers: windows and rotation in three of four, neither in the fourth.",
}

impl Family {
    /// The largest difference of a log-probability from its record that is allowed, in nats.
    /// Records have five decimals and come from f32 arithmetic.
    pub const fn tolerance(self) -> f64 {
        match self {
            // Arguments of GELU near the middle of two f16 are rounded to one or the other.
            Family::Gemma | Family::Gemma2 | Family::Gemma3 => 2e-3,
            // The engine that made the records computes GELU in f16.
            Family::Gpt2 | Family::Phi2 | Family::Starcoder2 | Family::Falcon | Family::Falcon40b => 2e-3,
            _ => 2e-5,
        }
    }
}

/// Sizes of a model.
pub(super) struct Sizes {
    pub(super) layers: usize,
    pub(super) width: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) feed_forward: usize,
    pub(super) vocab: usize,
}

impl Family {
    /// The model's metadata and tensors, in the order of its file.
    pub fn model(self) -> ModelFile {
        let mut model = ModelFile::default();
        let sizes = put_metadata(&mut model, self);
        // The seed is the sum of the name's characters.
        let mut maker = Maker::new(self.name().bytes().map(u32::from).sum());
        if let Some(parts) = Parts::of(self) {
            parts.put_tensors(&mut maker, &sizes);
            model.tensors = maker.tensors;
            return model;
        }
        match self {
            Family::Llama3 => maker.drawn("rope_freqs.weight", &[sizes.head_dim / 2], 2.0, 5.0),
            Family::Phi3Long => {
                maker.drawn("rope_factors_long.weight", &[sizes.head_dim / 2], 1.0, 3.0);
                maker.drawn("rope_factors_short.weight", &[sizes.head_dim / 2], 0.1, 1.0);
            }
            _ => {}
        }
        maker.drawn("token_embd.weight", &[sizes.vocab, sizes.width], 0.5, 0.0);
        maker.norm("output_norm.weight", sizes.width);
        let tied = matches!(self, Family::Gemma | Family::Gemma2 | Family::Gemma3 | Family::Smollm3);
        if !tied {
            maker.matrix("output.weight", sizes.vocab, sizes.width);
        }
        for layer in 0..sizes.layers {
            put_layer(&mut maker, self, layer, &sizes);
        }
        model.tensors = maker.tensors;
        model
    }

    /// The value of `general.architecture`, which begins the family's metadata keys.
    pub const fn architecture(self) -> &'static str {
        match self {
            Family::Llama | Family::Llama3 | Family::LlamaYarn | Family::LlamaLinear | Family::LlamaOdd => {
                "llama"
            }
            Family::Phi3 | Family::Phi3Long => "phi3",
            Family::StablelmParallel => "stablelm",
            Family::Falcon40b => "falcon",
            Family::Exaone432b => "exaone4",
            other => other.name(),
        }
    }

    pub(super) fn sizes(self, vocab: usize) -> Sizes {
        let usual =
            Sizes { layers: 4, width: 64, heads: 4, kv_heads: 2, head_dim: 16, feed_forward: 96, vocab };
        match self {
            Family::LlamaOdd => {
                Sizes { width: 72, heads: 3, kv_heads: 1, head_dim: 24, feed_forward: 80, ..usual }
            }
            Family::Gemma3 => Sizes { layers: 7, head_dim: 32, ..usual },
            Family::Qwen3 | Family::Gemma | Family::Gemma2 => Sizes { head_dim: 32, ..usual },
            Family::Gpt2 | Family::Phi2 => Sizes { kv_heads: 4, ..usual },
            Family::Falcon => Sizes { kv_heads: 1, ..usual },
            Family::Exaone432b => Sizes { layers: 64, width: 32, head_dim: 8, feed_forward: 32, ..usual },
            _ => usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::synthetic::{file, reference};

    #[test]
    fn files_are_the_recorded_ones() {
        for &family in Family::ALL {
            let digest = Sha256::digest(file(family));
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, reference(family).sha256, "{}", family.name());
        }
    }
}
