//! Any specification gives a tokenizer or an error, and any text and ids pass through a tokenizer. Where every byte has
//! its token and no later token takes its spelling, decoding gives back what was encoded.
#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use minfer_text::{DecodeOptions, EncodeOptions, TokenType, Tokenizer, TokenizerSpec};

#[derive(Debug, Arbitrary)]
struct Input {
    /// Whether to build a tokenizer from the specification (one value in sixteen, as building is slow) or to take a
    /// ready one.
    way: u8,
    pre: u8,
    bytes_have_tokens: bool,
    tokens: Vec<(String, u8)>,
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
        return check(&READY[usize::from(input.way) % READY.len()], true, &input);
    }
    let (spec, keeps_bytes) = spec(&input);
    if let Ok(tokenizer) = Tokenizer::new(spec) {
        check(&tokenizer, keeps_bytes, &input);
    }
});

/// One tokenizer for each way of splitting text.
static READY: LazyLock<[Tokenizer; 3]> = LazyLock::new(|| {
    ["gpt-2", "qwen2", "smollm"].map(|pre| {
        let mut spec = TokenizerSpec::byte_level(
            pre,
            &["a b", "ab c", "b c", "Ġ a", "Ġa b", "1 2", "Ġ Ġ", "ĠĠ Ġ", "Ã ©"],
        );
        spec.push_token("<|end|>", TokenType::Control);
        spec.push_token("<|end|><|end|>", TokenType::Control);
        spec.push_token("  own", TokenType::UserDefined);
        Tokenizer::new(spec).expect("the specification is well formed")
    })
});

fn check(tokenizer: &Tokenizer, keeps_bytes: bool, input: &Input) {
    let options = EncodeOptions { add_special: input.add_special, parse_special: input.parse_special };
    let shown = DecodeOptions { show_special: true };
    for text in &input.texts {
        let encoded = tokenizer.encode_bytes(text, options);
        assert!(encoded.iter().all(|&id| (id as usize) < tokenizer.vocab_len()));
        if keeps_bytes && !input.add_special {
            assert_eq!(tokenizer.decode_bytes(&encoded, shown), *text);
        }
        if let Ok(text) = std::str::from_utf8(text) {
            assert_eq!(tokenizer.encode(text, options), encoded);
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
    const PRE: [&str; 4] = ["gpt-2", "qwen2", "smollm", "unknown"];
    let pre = PRE[usize::from(input.pre) % PRE.len()];
    let mut spec = match input.bytes_have_tokens {
        true => TokenizerSpec::byte_level(pre, &[]),
        false => TokenizerSpec { model: "gpt2".to_owned(), pre: pre.to_owned(), ..TokenizerSpec::default() },
    };
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
    let id = |at: usize| input.named[at].map(u32::from);
    (spec.bos, spec.eos, spec.eot, spec.eom, spec.unk, spec.pad) = (id(0), id(1), id(2), id(3), id(4), id(5));
    (spec.add_bos, spec.add_eos) = (input.add[0], input.add[1]);
    (spec, input.bytes_have_tokens && !respelled && input.raw_merges.is_empty())
}
