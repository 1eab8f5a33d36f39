//! Metadata of a synthetic model, in file order.

use super::Family;
use super::family::Sizes;
use super::file::{ModelFile, Value};
use super::parts::Parts;

const MERGES: [&str; 10] = ["t h", "th e", "i n", "e r", "a n", "Ġ the", "o n", "r e", "Ġ a", "in g"];

/// Writes a family's metadata; gives the sizes that it states.
pub(super) fn put_metadata(model: &mut ModelFile, family: Family) -> Sizes {
    let more: &[&str] = match family {
        Family::Phi3 | Family::Phi3Long => &["<unk>", "<s>", "</s>", "<|endoftext|>"],
        _ => &[],
    };
    let tokens = vocabulary(more);
    let sizes = family.sizes(tokens.len());
    put_sizes(model, family, &sizes);
    put_tokens(model, tokens);
    put_particulars(model, family, &sizes);
    sizes
}

fn put_sizes(model: &mut ModelFile, family: Family, sizes: &Sizes) {
    let arch = family.architecture();
    let own = |key: &str| format!("{arch}.{key}");
    model.set("general.architecture", arch);
    model.set("general.name", format!("synthetic {}", family.name()).as_str());
    model.set(&own("context_length"), 512);
    model.set(&own("embedding_length"), sizes.width as u32);
    model.set(&own("block_count"), sizes.layers as u32);
    model.set(&own("feed_forward_length"), sizes.feed_forward as u32);
    model.set(&own("attention.head_count"), sizes.heads as u32);
    model.set(&own("attention.head_count_kv"), sizes.kv_heads as u32);
    model.set(&own("vocab_size"), sizes.vocab as u32);
    let base = match family {
        Family::Llama3 | Family::Qwen2 | Family::Qwen3 | Family::Gemma3 => 1_000_000.0,
        Family::Olmo2 | Family::Smollm3 | Family::Glm4 => 1_000_000.0,
        _ => 10_000.0,
    };
    model.set(&own("rope.freq_base"), base);
    let layer_norm = Parts::of(family).is_some_and(|parts| parts.layer_norm);
    let eps = if layer_norm { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" };
    model.set(&own(eps), 1e-5);
    model.set("general.file_type", 0);
}

/// What only some families state.
fn put_particulars(model: &mut ModelFile, family: Family, sizes: &Sizes) {
    if let Some(parts) = Parts::of(family) {
        parts.put_metadata(model, family);
        return;
    }
    let arch = family.architecture();
    let own = |key: &str| format!("{arch}.{key}");
    let head_dim = sizes.head_dim as u32;
    if sizes.head_dim * sizes.heads != sizes.width {
        model.set(&own("attention.key_length"), head_dim);
        model.set(&own("attention.value_length"), head_dim);
    }
    match family {
        Family::LlamaYarn => {
            model.set(&own("rope.scaling.type"), "yarn");
            model.set(&own("rope.scaling.factor"), 4.0);
            model.set(&own("rope.scaling.original_context_length"), 64);
        }
        Family::LlamaLinear => {
            model.set(&own("rope.scaling.type"), "linear");
            model.set(&own("rope.scaling.factor"), 2.0);
        }
        Family::Phi3Long => {
            model.set(&own("rope.scaling.original_context_length"), 64);
            model.set(&own("rope.scaling.attn_factor"), 1.19);
        }
        _ => {}
    }
    if !matches!(
        family,
        Family::Qwen2 | Family::Qwen3 | Family::Gemma | Family::Gemma2 | Family::Gemma3 | Family::Olmo2
    ) {
        let rotated = if family == Family::Glm4 { head_dim / 2 } else { head_dim };
        model.set(&own("rope.dimension_count"), rotated);
    }
    match family {
        Family::Gemma2 | Family::Gemma3 => model.set(&own("attention.sliding_window"), 64),
        Family::Phi3 | Family::Phi3Long => model.set(&own("attention.sliding_window"), 0),
        _ => {}
    }
    if family == Family::Gemma2 {
        model.set(&own("attn_logit_softcapping"), 50.0);
        model.set(&own("final_logit_softcapping"), 30.0);
    }
    if family == Family::Granite {
        model.set(&own("embedding_scale"), 12.0);
        model.set(&own("residual_scale"), 0.22);
        model.set(&own("attention.scale"), 1.0 / head_dim as f32);
        model.set(&own("logit_scale"), 8.0);
    }
}

/// A byte-level vocabulary with a few merges; the last three tokens are begin, end and padding.
pub(super) fn put_tokenizer(model: &mut ModelFile) {
    put_tokens(model, vocabulary(&[]));
}

fn put_tokens(model: &mut ModelFile, tokens: Vec<String>) {
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

/// Bytes, merges, more tokens, then begin, end and padding.
fn vocabulary(more: &[&str]) -> Vec<String> {
    let merged = MERGES.iter().map(|merge| merge.replace(' ', ""));
    let special = more.iter().chain(&["<|bos|>", "<|eos|>", "<|pad|>"]).map(|token| (*token).to_owned());
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
