use super::*;
use proptest::prelude::*;
use std::sync::LazyLock;

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const PARSED: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };
const ADDED: EncodeOptions = EncodeOptions { add_special: true, parse_special: false };
const SHOWN: DecodeOptions = DecodeOptions { show_special: true };

/// Single bytes, a few merges with the ids 256 to 262, and specials.
fn small_spec() -> TokenizerSpec {
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ċ Ċ"];
    let mut spec = TokenizerSpec::byte_level("gpt-2", &merges);
    spec.bos = Some(spec.push_token("<|start|>", TokenType::Control));
    spec.eos = Some(spec.push_token("<|im_end|>", TokenType::Control));
    spec.push_token("<call>", TokenType::UserDefined);
    spec.push_token("[HOLE]", TokenType::Unused);
    spec.push_token("<unk>", TokenType::Unknown);
    spec
}

const BOS: u32 = 263;
const EOS: u32 = 264;
const CALL: u32 = 265;
const HOLE: u32 = 266;
const UNK: u32 = 267;

fn small() -> Tokenizer {
    Tokenizer::new(small_spec()).unwrap()
}

fn error(change: impl FnOnce(&mut TokenizerSpec)) -> TokenizerError {
    let mut spec = small_spec();
    change(&mut spec);
    Tokenizer::new(spec).unwrap_err()
}

#[test]
fn merges_inside_words_only() {
    let tokenizer = small();
    assert_eq!(tokenizer.encode("hello world", PLAIN).unwrap(), [259, 260, 261, b'l'.into(), b'd'.into()]);
    assert_eq!(tokenizer.encode("hell", PLAIN).unwrap(), [258]);
    assert_eq!(tokenizer.encode("he'll", PLAIN).unwrap(), [256, b'\''.into(), 257]);
    assert_eq!(tokenizer.encode("", PLAIN).unwrap(), [] as [u32; 0]);
}

#[test]
fn control_tokens_are_matched_only_when_parsed_and_user_defined_always() {
    let tokenizer = small();
    assert_eq!(tokenizer.encode("<|im_end|><call>", PARSED).unwrap(), [EOS, CALL]);
    let plain = tokenizer.encode("<|im_end|><call>", PLAIN).unwrap();
    assert_eq!(plain.len(), 11);
    assert_eq!(plain.last(), Some(&CALL));
    assert_eq!(tokenizer.encode("<unk>", PARSED).unwrap(), [UNK]);
    assert!(!tokenizer.encode("<unk>", PLAIN).unwrap().contains(&UNK));
    assert!(!tokenizer.encode("[HOLE]", PARSED).unwrap().contains(&HOLE));
}

#[test]
fn bos_and_eos_are_added_as_the_vocabulary_says() {
    assert_eq!(small().encode("he", ADDED).unwrap(), [256]);
    let mut spec = small_spec();
    spec.add_bos = Some(true);
    spec.add_eos = Some(true);
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(tokenizer.encode("he", ADDED).unwrap(), [BOS, 256, EOS]);
    assert_eq!(tokenizer.encode("", ADDED).unwrap(), [BOS, EOS]);
    assert_eq!(tokenizer.encode("he", PLAIN).unwrap(), [256]);
    assert!(tokenizer.adds_bos() && tokenizer.adds_eos());
}

#[test]
fn decoding_hides_what_readers_do_not_see() {
    let tokenizer = small();
    let ids = [BOS, 259, CALL, HOLE, UNK, EOS, 9999];
    assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()), "hello<call>");
    assert_eq!(tokenizer.decode(&ids, SHOWN), "<|start|>hello<call>[HOLE]<unk><|im_end|>");
    assert_eq!(tokenizer.decode(&[0xe6, 0xad], SHOWN), "\u{fffd}");
    assert_eq!(tokenizer.decode_bytes(&[0xe6, 0xad], SHOWN), [0xe6, 0xad]);
}

#[test]
fn tokens_outside_the_vocabulary_are_empty() {
    let tokenizer = small();
    assert_eq!(tokenizer.token_bytes(9999), b"");
    assert_eq!(tokenizer.token_bytes(u32::MAX), b"");
    assert_eq!(tokenizer.token_type(9999), TokenType::Unused);
    assert_eq!(tokenizer.vocab_len(), 268);
}

#[test]
fn every_end_of_an_answer_is_known() {
    let mut spec = small_spec();
    spec.eot = Some(spec.push_token("<odd>", TokenType::Normal));
    let named_control = spec.push_token("<|eot_id|>", TokenType::Control);
    let ordinary = spec.push_token("</s>", TokenType::Normal);
    let tokenizer = Tokenizer::new(spec).unwrap();
    let ends = tokenizer.end_of_generation();
    assert_eq!(ends.iter().copied().collect::<Vec<_>>(), [EOS, 268, named_control]);
    assert!(tokenizer.is_end_of_generation(named_control));
    assert!(!tokenizer.is_end_of_generation(ordinary));
    assert!(!tokenizer.is_end_of_generation(BOS));
}

#[test]
fn user_defined_tokens_that_end_answers_need_parsing_too() {
    let mut spec = small_spec();
    let end = spec.push_token("<|end|>", TokenType::UserDefined);
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert!(tokenizer.is_end_of_generation(end));
    assert_eq!(tokenizer.encode("<|end|>", PARSED).unwrap(), [end]);
    assert!(!tokenizer.encode("<|end|>", PLAIN).unwrap().contains(&end));
}

#[test]
fn some_ends_are_none_beside_others() {
    let mut spec = small_spec();
    let [end, stop] = ["<|end|>", "</s>"].map(|text| spec.push_token(text, TokenType::Control));
    let ends = |spec: &TokenizerSpec| Tokenizer::new(spec.clone()).unwrap().end_of_generation().clone();
    assert!(ends(&spec).contains(&end) && ends(&spec).contains(&stop));
    for text in ["<|return|>", "<|call|>", "<|tool_response>"] {
        spec.push_token(text, TokenType::Control);
    }
    assert!(!ends(&spec).contains(&end) && !ends(&spec).contains(&stop));
}

#[test]
fn vocabularies_of_characters_spell_the_rest_in_bytes() {
    let mut spec = TokenizerSpec { model: "gemma4".into(), ..TokenizerSpec::default() };
    spec.bos = Some(spec.push_token("<bos>", TokenType::Control));
    for byte in 0..=255u8 {
        spec.push_token(&format!("<0x{byte:02X}>"), TokenType::Byte);
    }
    let texts = ["▁", "a", "b", "ab", "▁ab", "\n", "\n\n"];
    let [space, a, _, ab, space_ab, _, lines] = texts.map(|text| spec.push_token(text, TokenType::Normal));
    spec.merges = vec!["a b".into(), "▁ ab".into()];
    let tokenizer = Tokenizer::new(spec).unwrap();
    let ids = tokenizer.encode("ab ab\n\n  aé", ADDED).unwrap();
    assert_eq!(ids, [0, ab, space_ab, lines, space, space, a, 1 + 0xc3, 1 + 0xa9]);
    assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()), "ab ab\n\n  aé");
}

#[test]
fn words_that_are_tokens_are_taken_whole_where_the_pre_tokenizer_says_so() {
    let mut spec = small_spec();
    let word = spec.push_token("hex", TokenType::Normal);
    assert_eq!(Tokenizer::new(spec.clone()).unwrap().encode("hex", PLAIN).unwrap(), [256, b'x'.into()]);
    spec.pre = "llama-bpe".into();
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(tokenizer.encode("hex", PLAIN).unwrap(), [word]);
    assert_eq!(tokenizer.encode("he", ADDED).unwrap(), [BOS, 256]);
}

#[test]
fn white_space_around_tokens_may_belong_to_them() {
    let mut spec = small_spec();
    (spec.left_stripping, spec.right_stripping) = (vec![EOS], vec![CALL]);
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(
        tokenizer.encode("he \n<|im_end|> <call> \the", PARSED).unwrap(),
        [256, EOS, b' '.into(), CALL, 256]
    );
}

#[test]
fn broken_characters_encode_byte_by_byte() {
    let tokenizer = small();
    assert_eq!(tokenizer.encode_bytes(b"he\xe6\xadhe", PLAIN).unwrap(), [256, 0xe6, 0xad, 256]);
    assert_eq!(tokenizer.encode_bytes(b"\xff", PLAIN).unwrap(), [0xff]);
}

#[test]
fn a_missing_byte_takes_the_byte_token_or_is_an_error() {
    let mut spec = small_spec();
    spec.tokens[7] = "gone".to_owned();
    spec.tokens[0xf1] = "lost".to_owned();
    let tokenizer = Tokenizer::new(spec.clone()).unwrap();
    let unspelled = |bytes: &[u8]| Err(EncodeError::Unspelled { bytes: bytes.to_vec() });
    assert_eq!(tokenizer.encode("a\u{7}b\u{7}", PLAIN), unspelled(&[7]));
    assert_eq!(tokenizer.encode_bytes(b"\xf1 \x07 \xf1", PLAIN), unspelled(&[7, 0xf1]));
    assert_eq!(tokenizer.encode_marked("\u{7}", '\u{f0000}'), unspelled(&[7]));
    assert_eq!(tokenizer.encode("ab", PLAIN), Ok(vec![97, 98]));
    let fallback = spec.push_token("<0x07>", TokenType::Byte);
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(tokenizer.encode("a\u{7}b", PLAIN).unwrap(), [97, fallback, 98]);
    assert_eq!(tokenizer.decode(&[fallback], SHOWN), "\u{7}");
}

#[test]
fn a_beginning_that_the_text_spells_is_not_added_again() {
    let mut spec = small_spec();
    spec.add_bos = Some(true);
    let tokenizer = Tokenizer::new(spec).unwrap();
    let options = EncodeOptions { add_special: true, parse_special: true };
    assert_eq!(tokenizer.encode("<|start|>he", options).unwrap(), [BOS, 256]);
    assert_eq!(tokenizer.encode("<|start|>", options).unwrap(), [BOS]);
    assert_eq!(tokenizer.encode("<|start|><|start|>", options).unwrap(), [BOS, BOS]);
    assert_eq!(tokenizer.encode("he<|start|>", options).unwrap(), [BOS, 256, BOS]);
    assert_eq!(tokenizer.encode("<|start|>", ADDED).unwrap()[0], BOS);
    assert!(tokenizer.encode("<|start|>", ADDED).unwrap().len() > 2, "plain text spells no control token");
}

#[test]
fn lengths_tell_how_few_ids_there_can_be() {
    let fewest = |change: &dyn Fn(&mut TokenizerSpec)| {
        let mut spec = small_spec();
        change(&mut spec);
        Tokenizer::new(spec).unwrap().fewest_ids(100)
    };
    // The longest token is `<|im_end|>`.
    assert_eq!(fewest(&|_| {}), 10);
    assert_eq!(fewest(&|spec| spec.right_stripping = vec![EOS]), 0);
    assert_eq!(small().fewest_ids(0), 0);
    assert_eq!(small().fewest_ids(11), 2);
}

#[test]
fn a_word_that_is_far_too_long_is_refused_with_its_length() {
    let most = encode_error::MOST_WORD_BYTES;
    let mut characters = TokenizerSpec { model: "gemma4".into(), ..TokenizerSpec::default() };
    characters.unk = Some(characters.push_token("<unk>", TokenType::Unknown));
    let mut scored = TokenizerSpec { model: "llama".into(), ..characters.clone() };
    scored.scores = vec![0.0];
    for spec in [small_spec(), characters, scored] {
        let tokenizer = Tokenizer::new(spec).unwrap();
        let text = "a".repeat(most + 1);
        let error = tokenizer.encode(&text, PLAIN).unwrap_err();
        // The one that begins texts with a space has one byte more.
        assert!(matches!(error, EncodeError::WordTooLong { bytes } if bytes - most <= 2), "{error}");
        assert!(error.to_string().contains(&most.to_string()), "{error}");
    }
}

#[test]
fn of_tokens_with_one_text_the_ordinary_one_counts() {
    let mut spec = small_spec();
    spec.token_types[256] = TokenType::Unused;
    let ordinary = spec.push_token("he", TokenType::Normal);
    let later = spec.push_token("he", TokenType::Normal);
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(tokenizer.encode("he", PLAIN).unwrap(), [ordinary]);
    assert_eq!(tokenizer.token_bytes(later), b"he");
}

#[test]
fn plain_text_never_merges_into_a_control_token() {
    let mut spec = small_spec();
    spec.push_token("ct", TokenType::Normal);
    let control = spec.push_token("ctl", TokenType::Control);
    spec.merges.extend(["c t".to_owned(), "ct l".to_owned()]);
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(tokenizer.encode("ctl", PARSED).unwrap(), [control]);
    assert_eq!(tokenizer.encode("ctl", PLAIN).unwrap(), [control - 1, b'l'.into()]);
}

#[test]
fn specials_are_found_by_text() {
    assert_eq!(small().special_token("<call>"), Some(CALL));
    assert_eq!(small().special_token("hello"), None);
}

#[test]
fn memory_is_counted() {
    let bytes = small().memory_bytes();
    assert!((10_000..200_000).contains(&bytes), "{bytes}");
}

#[test]
fn faulty_specifications_are_refused() {
    use TokenizerError as E;
    assert_eq!(error(|spec| spec.model = "odd".into()), E::UnknownModel("odd".into()));
    assert!(matches!(error(|spec| spec.pre = "odd".into()), E::UnknownPre { name, .. } if name == "odd"));
    let empty = TokenizerSpec { model: "gpt2".into(), pre: "gpt-2".into(), ..Default::default() };
    assert_eq!(Tokenizer::new(empty).unwrap_err(), E::EmptyVocabulary);
    assert_eq!(
        error(|spec| {
            spec.token_types.pop();
        }),
        E::EntryCount { key: "token_type", entries: 267, tokens: 268 }
    );
    assert_eq!(error(|spec| spec.pad = Some(268)), E::IdOutOfRange { name: "pad", id: 268, tokens: 268 });
    assert_eq!(
        error(|spec| {
            spec.bos = None;
            spec.add_bos = Some(true);
        }),
        E::MissingToken("bos")
    );
    assert_eq!(
        error(|spec| {
            spec.push_token("<0x1>", TokenType::Byte);
        }),
        E::MalformedByte { id: 268, text: "<0x1>".into() }
    );
}

#[test]
fn lists_of_another_length_than_the_tokens_are_refused_in_every_family() {
    for (model, _) in TOKENIZER_MODELS {
        for length in [1, 267, 269] {
            let faulty = |change: &dyn Fn(&mut TokenizerSpec)| {
                error(|spec| {
                    spec.model = (*model).to_owned();
                    change(spec);
                })
            };
            assert_eq!(
                faulty(&|spec| spec.scores = vec![0.0; length]),
                TokenizerError::EntryCount { key: "scores", entries: length, tokens: 268 }
            );
            assert_eq!(
                faulty(&|spec| spec.token_types = vec![TokenType::Normal; length]),
                TokenizerError::EntryCount { key: "token_type", entries: length, tokens: 268 }
            );
        }
    }
}

#[test]
fn scores_that_are_missing_or_no_numbers_are_refused_where_they_are_read() {
    for model in ["llama", "t5"] {
        let faulty = |scores: Vec<f32>| {
            error(|spec| {
                spec.model = model.to_owned();
                spec.scores = scores;
            })
        };
        assert_eq!(faulty(vec![]), TokenizerError::MissingScores { model: model.into(), tokens: 268 });
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut scores = vec![0.0; 268];
            scores[200] = bad;
            assert_eq!(faulty(scores), TokenizerError::Score { id: 200, score: bad.to_string() });
        }
    }
    let mut unread = small_spec();
    unread.scores = vec![f32::NAN; 268];
    assert_eq!(Tokenizer::new(unread).unwrap().encode("hello", PLAIN).unwrap(), [259]);
}

#[test]
fn tokens_that_only_merges_make_need_merges() {
    assert_eq!(
        error(|spec| spec.merges.clear()),
        TokenizerError::MissingMerges { id: 256, token: "he".into(), more: 6 }
    );
    let bytes = Tokenizer::new(TokenizerSpec::byte_level("gpt-2", &[])).unwrap();
    assert_eq!(bytes.encode("he", PLAIN).unwrap(), [104, 101]);
    let mut characters = TokenizerSpec { model: "gemma4".into(), ..TokenizerSpec::default() };
    characters.unk = Some(characters.push_token("<unk>", TokenType::Unknown));
    for text in ["é", "▁", "\n\n"] {
        characters.push_token(text, TokenType::Normal);
    }
    assert_eq!(Tokenizer::new(characters.clone()).unwrap().encode("é \n\n", PLAIN).unwrap(), [1, 2, 3]);
    characters.push_token("▁é", TokenType::Normal);
    assert!(matches!(Tokenizer::new(characters).unwrap_err(), TokenizerError::MissingMerges { id: 4, .. }));
}

/// A vocabulary of each family that has no token for `!`, and whose unknown token is `unk`.
fn without_a_byte(model: &str, unk: Option<u32>) -> TokenizerSpec {
    let mut spec = TokenizerSpec { model: model.to_owned(), unk, ..TokenizerSpec::default() };
    for byte in (0..=255u8).filter(|byte| *byte != b'!') {
        match model {
            "rwkv" => spec.push_token(&format!("\\x{byte:02x}"), TokenType::Normal),
            _ => spec.push_token(&format!("<0x{byte:02X}>"), TokenType::Byte),
        };
    }
    spec.push_token("?", TokenType::Unknown);
    spec.scores = vec![0.0; 256];
    spec.add_space_prefix = Some(false);
    spec
}

#[test]
fn what_a_vocabulary_cannot_spell_is_its_unknown_token_or_a_refusal() {
    for model in ["gemma4", "llama", "rwkv"] {
        let faulty = Tokenizer::new(without_a_byte(model, None)).unwrap_err();
        assert_eq!(faulty, TokenizerError::MissingBytes { model: model.into(), bytes: vec![b'!'] });
        let tokenizer = Tokenizer::new(without_a_byte(model, Some(255))).unwrap();
        assert_eq!(tokenizer.encode("\u{1}!\u{2}", PLAIN).unwrap(), [1, 255, 2], "{model}");
        assert_eq!(tokenizer.encode_bytes(b"\xff!", PLAIN).unwrap(), [254, 255], "{model}");
    }
    for model in ["bert", "t5"] {
        let faulty = Tokenizer::new(without_a_byte(model, None)).unwrap_err();
        assert_eq!(faulty, TokenizerError::MissingUnknown { model: model.into() });
        let tokenizer = Tokenizer::new(without_a_byte(model, Some(255))).unwrap();
        assert_eq!(tokenizer.encode("!", PLAIN).unwrap(), [255], "{model}");
        assert_eq!(tokenizer.encode_bytes(b"\xff", PLAIN).unwrap(), [255], "{model}");
    }
}

#[test]
fn faulty_merges_are_refused() {
    use TokenizerError as E;
    for text in ["hello", "a b c", " a", "a ", "", " "] {
        let expected = E::MalformedMerge { rank: 7, text: text.into() };
        assert_eq!(error(|spec| spec.merges.push(text.into())), expected);
    }
    for (text, token) in [("zz a", "zz"), ("a zz", "zz"), ("a b", "ab")] {
        let expected = E::UnknownMergeToken { rank: 7, token: token.into() };
        assert_eq!(error(|spec| spec.merges.push(text.into())), expected);
    }
}

#[test]
fn token_types_have_the_numbers_of_gguf() {
    for value in 1..=6 {
        assert_eq!(TokenType::from_gguf(value).unwrap() as i64, value);
    }
    assert_eq!(TokenType::from_gguf(0), None);
    assert_eq!(TokenType::from_gguf(7), None);
}

static SMALL: LazyLock<Tokenizer> = LazyLock::new(small);

proptest! {
    #[test]
    fn decoding_gives_back_every_text(text in "(hello|wor|<call>|<\\|im_end\\|>|[ \n]|é|\\PC){0,12}") {
        let tokenizer = &*SMALL;
        for options in [PLAIN, PARSED] {
            let ids = tokenizer.encode(&text, options).unwrap();
            prop_assert_eq!(tokenizer.decode(&ids, SHOWN), text.as_str());
        }
    }

    #[test]
    fn decoding_gives_back_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let tokenizer = &*SMALL;
        let ids = tokenizer.encode_bytes(&bytes, PARSED).unwrap();
        prop_assert_eq!(tokenizer.decode_bytes(&ids, SHOWN), bytes);
    }
}
