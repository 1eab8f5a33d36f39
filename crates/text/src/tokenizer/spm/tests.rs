use super::*;
use crate::{DecodeOptions, EncodeOptions, Tokenizer};
use proptest::prelude::*;
use std::sync::LazyLock;

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const ADDED: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };
const SHOWN: DecodeOptions = DecodeOptions { show_special: true };

/// `<unk>`, `<s>`, `</s>`, the bytes from id 3 on, and `pieces` with their scores from id 259 on.
fn spec(pieces: &[(&str, f32)]) -> TokenizerSpec {
    let mut spec = TokenizerSpec { model: "llama".into(), ..TokenizerSpec::default() };
    spec.unk = Some(spec.push_token("<unk>", TokenType::Unknown));
    spec.bos = Some(spec.push_token("<s>", TokenType::Control));
    spec.eos = Some(spec.push_token("</s>", TokenType::Control));
    for byte in 0..=255u8 {
        spec.push_token(&format!("<0x{byte:02X}>"), TokenType::Byte);
    }
    spec.scores = vec![0.0; spec.tokens.len()];
    for (text, score) in pieces {
        spec.push_token(text, TokenType::Normal);
        spec.scores.push(*score);
    }
    spec
}

const LETTERS: &[(&str, f32)] = &[
    ("▁", -90.0),
    ("a", -91.0),
    ("b", -92.0),
    ("c", -93.0),
    ("ab", -2.0),
    ("bc", -1.0),
    ("abc", -3.0),
    ("▁a", -4.0),
    ("▁▁", -5.0),
    ("aa", -2.0),
    ("a▁", -6.0),
];
const SPACE: u32 = 259;
const A: u32 = 260;
const B: u32 = 261;
const AB: u32 = 263;
const BC: u32 = 264;
const ABC: u32 = 265;
const SPACE_A: u32 = 266;
const SPACES: u32 = 267;
const AA: u32 = 268;

fn bare(pieces: &[(&str, f32)]) -> Tokenizer {
    let mut spec = spec(pieces);
    spec.add_space_prefix = Some(false);
    Tokenizer::new(spec).unwrap()
}

#[test]
fn the_highest_score_merges_first_and_the_leftmost_among_equals() {
    let tokenizer = bare(LETTERS);
    assert_eq!(tokenizer.encode("abc", PLAIN).unwrap(), [ABC]);
    assert_eq!(tokenizer.encode("abbc", PLAIN).unwrap(), [AB, BC]);
    assert_eq!(tokenizer.encode("aaa", PLAIN).unwrap(), [AA, A]);
    assert_eq!(tokenizer.encode("aab", PLAIN).unwrap(), [AA, B]);
    assert_eq!(tokenizer.encode("   a", PLAIN).unwrap(), [SPACES, SPACE_A]);
    assert_eq!(tokenizer.encode("b a", PLAIN).unwrap(), [B, SPACE_A]);
}

#[test]
fn a_space_is_put_before_what_begins_or_follows_a_special_token() {
    let mut spec = spec(LETTERS);
    let own = spec.push_token("<own>", TokenType::UserDefined);
    spec.scores.push(0.0);
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(tokenizer.encode("a", ADDED).unwrap(), [1, SPACE_A]);
    assert_eq!(
        tokenizer.encode("a</s>a<own> a", ADDED).unwrap(),
        [1, SPACE_A, 2, SPACE_A, own, SPACE, SPACE_A]
    );
    assert_eq!(tokenizer.encode("", ADDED).unwrap(), [1]);
    let ids = tokenizer.encode("a</s>a<own> a", ADDED).unwrap();
    assert_eq!(tokenizer.decode(&ids, SHOWN), "<s>a</s>a<own> a");
    assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()), "aa<own> a");
    assert_eq!(tokenizer.decode(&[SPACE_A, SPACE_A], SHOWN), "a a");
}

#[test]
fn what_is_no_token_is_spelled_in_bytes() {
    let tokenizer = bare(LETTERS);
    assert_eq!(tokenizer.encode("é\n", PLAIN).unwrap(), [3 + 0xc3, 3 + 0xa9, 3 + 0x0a]);
    assert_eq!(tokenizer.encode_bytes(b"a\xffb", PLAIN).unwrap(), [A, 3 + 0xff, B]);
    assert_eq!(tokenizer.token_bytes(3 + 0xff), [0xff]);
}

#[test]
fn without_byte_tokens_the_unknown_token_stands_for_each_byte() {
    let mut spec = spec(&[("a", 0.0)]);
    spec.tokens.drain(3..259);
    spec.token_types.drain(3..259);
    spec.scores.drain(3..259);
    spec.add_space_prefix = Some(false);
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(tokenizer.encode("aéa", PLAIN).unwrap(), [3, 0, 0, 3]);
}

#[test]
fn text_merges_into_no_control_or_byte_token() {
    let tokenizer = bare(&[
        ("<", 0.0),
        ("s", 0.0),
        (">", 0.0),
        ("<s", 9.0),
        ("0", 0.0),
        ("x", 0.0),
        ("<0", 1.0),
        ("<0x", 1.0),
        ("00", 1.0),
        ("<0x00", 2.0),
    ]);
    assert_eq!(tokenizer.decode(&tokenizer.encode("<s>", PLAIN).unwrap(), DecodeOptions::default()), "<s>");
    assert_eq!(tokenizer.encode("<0x00>", PLAIN).unwrap(), [268, 261]);
}

#[test]
fn marked_text_has_one_bos_and_its_broken_specials_are_text() {
    let mark = '\u{f0000}';
    let tokenizer = &*PREFIXED;
    assert_eq!(tokenizer.encode_marked("a</s>", mark).unwrap(), [1, SPACE_A, 2]);
    assert_eq!(tokenizer.encode_marked("<s>a</s>", mark).unwrap(), [1, SPACE_A, 2]);
    let ids = tokenizer.encode_marked("<s>a<\u{f0000}/s></s>", mark).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id == 2).count(), 1);
    assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()), "a</s>");
}

#[test]
fn one_bos_by_default_if_there_is_one() {
    assert!(bare(LETTERS).adds_bos() && !bare(LETTERS).adds_eos());
    let mut spec = spec(LETTERS);
    (spec.bos, spec.eos, spec.unk) = (None, None, None);
    let tokenizer = Tokenizer::new(spec.clone()).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.unk()), (Some(1), Some(2), Some(0)));
    spec.token_types[1] = TokenType::Normal;
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.adds_bos()), (None, false));
}

/// Merges by looking at every pair each time.
fn by_definition(spec: &TokenizerSpec, text: &str) -> Vec<String> {
    let mut parts: Vec<String> = text.replace(' ', "▁").chars().map(String::from).collect();
    loop {
        let score = |at: usize| {
            let joined = format!("{}{}", parts[at], parts[at + 1]);
            let id = spec.tokens.iter().position(|token| *token == joined)?;
            Some((spec.scores[id], std::cmp::Reverse(at)))
        };
        let found = (0..parts.len().saturating_sub(1)).filter_map(score);
        let Some((_, std::cmp::Reverse(at))) = found.max_by(|a, b| a.partial_cmp(b).unwrap()) else {
            return parts;
        };
        let right = parts.remove(at + 1);
        parts[at].push_str(&right);
    }
}

static LETTER_SPEC: LazyLock<TokenizerSpec> = LazyLock::new(|| spec(LETTERS));
static BARE: LazyLock<Tokenizer> = LazyLock::new(|| bare(LETTERS));
static PREFIXED: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::new(spec(LETTERS)).unwrap());

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn merges_are_those_of_the_definition(text in "[abc ]{0,40}") {
        let ids = BARE.encode(&text, PLAIN).unwrap();
        let texts: Vec<String> = ids.iter().map(|&id| LETTER_SPEC.tokens[id as usize].clone()).collect();
        prop_assert_eq!(texts, by_definition(&LETTER_SPEC, &text));
    }

    #[test]
    fn decoding_gives_back_any_bytes(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b' '), Just(b'a')], 0..40)) {
        // U+2581 is a space to these vocabularies.
        prop_assume!(!bytes.windows(3).any(|three| three == SPACE_MARK.to_string().as_bytes()));
        for tokenizer in [&*BARE, &*PREFIXED] {
            let ids = tokenizer.encode_bytes(&bytes, PLAIN).unwrap();
            prop_assert_eq!(tokenizer.decode_bytes(&ids, SHOWN), bytes.clone());
        }
    }

    #[test]
    fn any_scores_do(scores in prop::collection::vec(-f32::MAX..f32::MAX, 270), text in "[abc é]{0,20}") {
        let mut spec = LETTER_SPEC.clone();
        spec.scores = scores;
        let tokenizer = Tokenizer::new(spec).unwrap();
        prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text, PLAIN).unwrap(), SHOWN), text);
    }
}
