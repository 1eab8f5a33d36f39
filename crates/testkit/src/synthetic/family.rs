use super::file::{ModelFile, TensorData, Value};
use super::numpy::NormalRng;

/// A kind of tiny model whose distributions are on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Plain llama.
    Llama,
    /// llama with a rope factor tensor.
    Llama3,
    /// llama with YaRN: factor 4 from 64 positions.
    LlamaYarn,
    /// llama with linear rope scaling: factor 2.
    LlamaLinear,
    /// llama with sizes that no vector width divides: head dim 24, feed-forward 80, three query heads to one KV head.
    LlamaOdd,
    /// qwen2: biases on q, k and v.
    Qwen2,
}

impl Family {
    /// Every family, in declaration order.
    pub const ALL: [Family; 6] = [
        Family::Llama,
        Family::Llama3,
        Family::LlamaYarn,
        Family::LlamaLinear,
        Family::LlamaOdd,
        Family::Qwen2,
    ];

    /// Its name, as in the records.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::Llama3 => "llama3",
            Family::LlamaYarn => "llama-yarn",
            Family::LlamaLinear => "llama-linear",
            Family::LlamaOdd => "llama-odd",
            Family::Qwen2 => "qwen2",
        }
    }

    /// The model's metadata and tensors, in the order of its file.
    pub fn model(self) -> ModelFile {
        let sizes = Sizes::of(self);
        let mut model = ModelFile::default();
        put_metadata(&mut model, self, &sizes);
        // The seed is the sum of the name's characters.
        let seed = self.name().bytes().map(u32::from).sum();
        let mut maker = Maker { rng: NormalRng::new(seed), tensors: Vec::new() };
        if self == Family::Llama3 {
            maker.drawn("rope_freqs.weight", &[sizes.head_dim / 2], 2.0, 5.0);
        }
        maker.drawn("token_embd.weight", &[sizes.vocab, sizes.width], 0.5, 0.0);
        maker.norm("output_norm.weight", sizes.width);
        maker.matrix("output.weight", sizes.vocab, sizes.width);
        for layer in 0..LAYERS {
            put_layer(&mut maker, layer, &sizes, self == Family::Qwen2);
        }
        model.tensors = maker.tensors;
        model
    }

    fn architecture(self) -> &'static str {
        match self {
            Family::Qwen2 => "qwen2",
            _ => "llama",
        }
    }
}

const LAYERS: usize = 4;
const MERGES: [&str; 10] = ["t h", "th e", "i n", "e r", "a n", "Ġ the", "o n", "r e", "Ġ a", "in g"];

struct Sizes {
    width: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    feed_forward: usize,
    vocab: usize,
}

impl Sizes {
    fn of(family: Family) -> Sizes {
        let vocab = vocabulary().len();
        match family {
            Family::LlamaOdd => {
                Sizes { width: 72, heads: 3, kv_heads: 1, head_dim: 24, feed_forward: 80, vocab }
            }
            _ => Sizes { width: 64, heads: 4, kv_heads: 2, head_dim: 16, feed_forward: 96, vocab },
        }
    }
}

/// Draws tensors one after another, as `float32(normal) * float32(scale) + float32(around)`.
struct Maker {
    rng: NormalRng,
    tensors: Vec<TensorData>,
}

impl Maker {
    fn drawn(&mut self, name: &str, dims: &[usize], scale: f32, around: f32) {
        let count = dims.iter().product();
        let values: Vec<f32> =
            (0..count).map(|_| self.rng.standard_normal() as f32 * scale + around).collect();
        self.tensors.push(TensorData::from_f32(name, dims, &values));
    }

    fn matrix(&mut self, name: &str, rows: usize, columns: usize) {
        self.drawn(name, &[rows, columns], (1.0 / (columns as f64).sqrt()) as f32, 0.0);
    }

    fn bias(&mut self, name: &str, len: usize) {
        self.drawn(name, &[len], 0.1, 0.0);
    }

    fn norm(&mut self, name: &str, len: usize) {
        self.drawn(name, &[len], 0.4, 1.0);
    }
}

fn put_layer(maker: &mut Maker, layer: usize, sizes: &Sizes, qkv_biases: bool) {
    let name = |tail: &str| format!("blk.{layer}.{tail}");
    let (width, feed_forward) = (sizes.width, sizes.feed_forward);
    let (q_width, kv_width) = (sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim);
    maker.norm(&name("attn_norm.weight"), width);
    maker.matrix(&name("attn_q.weight"), q_width, width);
    maker.matrix(&name("attn_k.weight"), kv_width, width);
    maker.matrix(&name("attn_v.weight"), kv_width, width);
    maker.matrix(&name("attn_output.weight"), width, q_width);
    if qkv_biases {
        maker.bias(&name("attn_q.bias"), q_width);
        maker.bias(&name("attn_k.bias"), kv_width);
        maker.bias(&name("attn_v.bias"), kv_width);
    }
    maker.norm(&name("ffn_norm.weight"), width);
    maker.matrix(&name("ffn_gate.weight"), feed_forward, width);
    maker.matrix(&name("ffn_up.weight"), feed_forward, width);
    maker.matrix(&name("ffn_down.weight"), width, feed_forward);
}

fn put_metadata(model: &mut ModelFile, family: Family, sizes: &Sizes) {
    let arch = family.architecture();
    let own = |key: &str| format!("{arch}.{key}");
    model.set("general.architecture", arch);
    model.set("general.name", format!("synthetic {}", family.name()).as_str());
    model.set(&own("context_length"), 512);
    model.set(&own("embedding_length"), sizes.width as u32);
    model.set(&own("block_count"), LAYERS as u32);
    model.set(&own("feed_forward_length"), sizes.feed_forward as u32);
    model.set(&own("attention.head_count"), sizes.heads as u32);
    model.set(&own("attention.head_count_kv"), sizes.kv_heads as u32);
    model.set(&own("vocab_size"), sizes.vocab as u32);
    let long_base = matches!(family, Family::Llama3 | Family::Qwen2);
    model.set(&own("rope.freq_base"), if long_base { 1_000_000.0 } else { 10_000.0 });
    model.set(&own("attention.layer_norm_rms_epsilon"), 1e-5);
    model.set("general.file_type", 0);
    put_tokenizer(model);
    match family {
        Family::LlamaYarn => {
            model.set("llama.rope.scaling.type", "yarn");
            model.set("llama.rope.scaling.factor", 4.0);
            model.set("llama.rope.scaling.original_context_length", 64);
        }
        Family::LlamaLinear => {
            model.set("llama.rope.scaling.type", "linear");
            model.set("llama.rope.scaling.factor", 2.0);
        }
        Family::Llama | Family::Llama3 | Family::LlamaOdd | Family::Qwen2 => {}
    }
    if family != Family::Qwen2 {
        model.set(&own("rope.dimension_count"), sizes.head_dim as u32);
    }
}

/// A byte-level vocabulary with a few merges; the last three tokens are begin, end and padding.
pub(super) fn put_tokenizer(model: &mut ModelFile) {
    let tokens = vocabulary();
    let vocab = tokens.len() as u32;
    let kinds = (0..vocab).map(|id| if id + 3 < vocab { 1 } else { 3 }).collect();
    model.set("tokenizer.ggml.model", "gpt2");
    model.set("tokenizer.ggml.pre", "qwen2");
    model.set("tokenizer.ggml.tokens", Value::Texts(tokens));
    model.set("tokenizer.ggml.token_type", Value::I32s(kinds));
    model.set("tokenizer.ggml.merges", Value::Texts(MERGES.map(str::to_owned).to_vec()));
    model.set("tokenizer.ggml.bos_token_id", vocab - 3);
    model.set("tokenizer.ggml.eos_token_id", vocab - 2);
    model.set("tokenizer.ggml.padding_token_id", vocab - 1);
    model.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
}

fn vocabulary() -> Vec<String> {
    let merged = MERGES.iter().map(|merge| merge.replace(' ', ""));
    let special = ["<|bos|>", "<|eos|>", "<|pad|>"].map(str::to_owned);
    byte_characters().into_iter().map(String::from).chain(merged).chain(special).collect()
}

/// One visible character for each byte: its own where it has one, else the next from U+0100 on.
fn byte_characters() -> Vec<char> {
    let mut next = 256;
    (0..=255_u32)
        .map(|byte| {
            let visible = matches!(byte, 33..=126 | 161..=172 | 174..=255);
            let code = if visible { byte } else { next };
            next += u32::from(!visible);
            char::from_u32(code).expect("below the surrogates")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::synthetic::{file, reference};

    #[test]
    fn files_are_the_recorded_ones() {
        for family in Family::ALL {
            let digest = Sha256::digest(file(family));
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, reference(family).sha256, "{}", family.name());
        }
    }
}
