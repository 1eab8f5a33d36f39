//! Tokenizers: any specification gives a tokenizer or an error; any text encodes and any ids decode.
//! If every byte has a token and no later token has its spelling, decoding returns the encoded text.
#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use minfer_text::{
    Alphabet, DecodeOptions, EncodeOptions, PRE_TOKENIZERS, TOKENIZER_MODELS, TokenType, Tokenizer,
    TokenizerSpec,
};

#[derive(Debug, Arbitrary)]
struct Input {
    /// Whether to build a tokenizer from the specification (one value in sixteen, as building is
    /// slow) or to take a ready one.
    way: u8,
    model: u8,
    pre: u16,
    bytes_have_tokens: bool,
    tokens: Vec<(String, u8)>,
    scores: Vec<f32>,
    charsmap: Vec<u8>,
    flags: [Option<bool>; 4],
    merges: Vec<(u16, u16)>,
    raw_merges: Vec<String>,
    named: [Option<u16>; 6],
    add: [Option<bool>; 2],
    /// Several, since building a tokenizer takes longer than using it.
    texts: Vec<Vec<u8>>,
    ids: Vec<u32>,
    add_special: bool,
    parse_special: bool,
}

fuzz_target!(|input: Input| {
    if input.way % 16 != 0 {
        let (tokenizer, keeps_bytes) = &READY[usize::from(input.way) % READY.len()];
        return check(tokenizer, *keeps_bytes, &input);
    }
    let (spec, keeps_bytes) = spec(&input);
    if let Ok(tokenizer) = Tokenizer::new(spec) {
        check(&tokenizer, keeps_bytes, &input);
    }
});

/// One tokenizer for each pre-tokenizer and one for each family, and whether it keeps bytes.
static READY: LazyLock<Vec<(Tokenizer, bool)>> = LazyLock::new(|| {
    let built = |spec| Tokenizer::new(spec).expect("the specification is well formed");
    let bytes = PRE_TOKENIZERS.iter().filter(|info| info.alphabet == Alphabet::Bytes);
    let mut ready: Vec<_> = bytes.map(|info| (built(byte_level(info.name)), !info.composes)).collect();
    for (model, _) in TOKENIZER_MODELS.iter().filter(|(model, _)| *model != "gpt2") {
        ready.push((built(characters(model)), *model == "rwkv"));
    }
    ready
});

fn byte_level(pre: &str) -> TokenizerSpec {
    let merges = ["a b", "ab c", "b c", "Ġ a", "Ġa b", "1 2", "Ġ Ġ", "ĠĠ Ġ", "Ã ©"];
    let mut spec = TokenizerSpec::byte_level(pre, &merges);
    spec.push_token("<|end|>", TokenType::Control);
    spec.push_token("<|end|><|end|>", TokenType::Control);
    spec.push_token("  own", TokenType::UserDefined);
    spec
}

/// A vocabulary of characters, with a token for each byte.
fn characters(model: &str) -> TokenizerSpec {
    let mut spec = TokenizerSpec { model: model.to_owned(), ..TokenizerSpec::default() };
    for (text, kind) in
        [("<unk>", TokenType::Unknown), ("<s>", TokenType::Control), ("</s>", TokenType::Control)]
    {
        spec.push_token(text, kind);
    }
    for byte in 0..=255u8 {
        match model {
            "rwkv" => spec.push_token(&format!("\\x{byte:02x}"), TokenType::Normal),
            _ => spec.push_token(&format!("<0x{byte:02X}>"), TokenType::Byte),
        };
    }
    for text in ["▁", "a", "b", "ab", "▁a", "▁▁", "é", "s", "1"] {
        spec.push_token(text, TokenType::Normal);
    }
    spec.push_token("<own>", TokenType::UserDefined);
    spec.scores = (0..spec.tokens.len()).map(|id| -(id as f32)).collect();
    spec
}

fn check(tokenizer: &Tokenizer, keeps_bytes: bool, input: &Input) {
    let options = EncodeOptions { add_special: input.add_special, parse_special: input.parse_special };
    let shown = DecodeOptions { show_special: true };
    for text in &input.texts {
        let Ok(encoded) = tokenizer.encode_bytes(text, options) else {
            assert!(!keeps_bytes);
            continue;
        };
        assert!(encoded.iter().all(|&id| (id as usize) < tokenizer.vocab_len()));
        if keeps_bytes && !input.add_special {
            assert_eq!(tokenizer.decode_bytes(&encoded, shown), *text);
        }
        if let Ok(text) = std::str::from_utf8(text) {
            assert_eq!(tokenizer.encode(text, options), Ok(encoded));
        }
    }
    tokenizer.decode(&input.ids, DecodeOptions::default());
    tokenizer.decode(&input.ids, shown);
    for &id in &input.ids {
        tokenizer.piece(id);
        tokenizer.is_end_of_generation(id);
    }
}

/// The specification, and whether it can spell every byte.
fn spec(input: &Input) -> (TokenizerSpec, bool) {
    let pre = PRE_TOKENIZERS.get(usize::from(input.pre) % (PRE_TOKENIZERS.len() + 1));
    let byte_level = pre.is_some_and(|info| info.alphabet == Alphabet::Bytes) && input.model % 2 == 0;
    let (model, _) = TOKENIZER_MODELS[usize::from(input.model / 2) % TOKENIZER_MODELS.len()];
    let composes = pre.is_some_and(|info| info.composes);
    let pre = pre.map_or("unknown", |info| info.name);
    let mut spec = match (byte_level, input.bytes_have_tokens) {
        (true, true) => TokenizerSpec::byte_level(pre, &[]),
        (true, false) => {
            TokenizerSpec { model: "gpt2".to_owned(), pre: pre.to_owned(), ..TokenizerSpec::default() }
        }
        (false, true) => characters(model),
        (false, false) => TokenizerSpec { model: model.to_owned(), ..TokenizerSpec::default() },
    };
    if !input.scores.is_empty() {
        spec.scores = input.scores.clone();
    }
    spec.precompiled_charsmap = input.charsmap.clone();
    (spec.add_space_prefix, spec.lowercase, spec.strip_accents) =
        (input.flags[0], input.flags[1], input.flags[2]);
    spec.remove_extra_whitespaces = input.flags[3] == Some(true);
    if input.flags[0] == Some(true) {
        spec.right_stripping = input.merges.iter().map(|(id, _)| u32::from(*id)).collect();
    }
    let mut respelled = false;
    for (text, kind) in &input.tokens {
        respelled |= spec.tokens.contains(text);
        spec.push_token(text, TokenType::from_gguf(i64::from(*kind)).unwrap_or_default());
    }
    for (left, right) in &input.merges {
        let part = |at: &u16| spec.tokens.get(usize::from(*at) % spec.tokens.len().max(1)).cloned();
        let (Some(left), Some(right)) = (part(left), part(right)) else { continue };
        spec.merges.push(format!("{left} {right}"));
        if !spec.tokens.contains(&format!("{left}{right}")) {
            spec.push_token(&format!("{left}{right}"), TokenType::Normal);
        }
    }
    spec.merges.extend(input.raw_merges.iter().cloned());
    // Half of them: others are refused where scores are read.
    if input.way % 32 == 0 {
        spec.scores.resize(spec.tokens.len(), 0.0);
    }
    let id = |at: usize| input.named[at].map(u32::from);
    (spec.bos, spec.eos, spec.eot, spec.eom, spec.unk, spec.pad) = (id(0), id(1), id(2), id(3), id(4), id(5));
    (spec.add_bos, spec.add_eos) = (input.add[0], input.add[1]);
    let keeps_bytes = byte_level
        && !composes
        && input.bytes_have_tokens
        && spec.right_stripping.is_empty()
        && !respelled
        && input.raw_merges.is_empty();
    (spec, keeps_bytes)
}
