//! A file's tokenizer metadata as the plain description that the text crate takes.

use minfer_formats::gguf::{GgufError, Metadata, Value};
use minfer_text::{TokenType, TokenizerSpec};

/// Key of the model's own chat template.
pub(crate) const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

/// Reads the `tokenizer.ggml.*` keys. `pre` takes the place of the file's pre-tokenizer name.
///
/// # Errors
/// A key has another type than its meaning needs.
pub(crate) fn tokenizer_spec(metadata: Metadata<'_>, pre: Option<&str>) -> Result<TokenizerSpec, GgufError> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let string = |name: &str| metadata.string(&key(name));
    let id = |name: &str| metadata.u32(&key(name));
    let owned = |strings: Vec<&str>| strings.into_iter().map(str::to_owned).collect();
    let types = metadata.i32_array(&key("token_type"))?.unwrap_or_default();
    let mut spec = TokenizerSpec {
        model: string("model")?.unwrap_or_default().to_owned(),
        pre: pre.or(string("pre")?).unwrap_or("default").to_owned(),
        tokens: metadata.strings(&key("tokens"))?.map(owned).unwrap_or_default(),
        token_types: types.into_iter().map(token_type).collect(),
        scores: metadata.f32_array(&key("scores"))?.unwrap_or_default(),
        merges: metadata.strings(&key("merges"))?.map(owned).unwrap_or_default(),
        bos: id("bos_token_id")?,
        eos: id("eos_token_id")?,
        eot: id("eot_token_id")?,
        eom: id("eom_token_id")?,
        unk: id("unknown_token_id")?,
        pad: id("padding_token_id")?,
        sep: id("seperator_token_id")?,
        add_bos: metadata.bool(&key("add_bos_token"))?,
        add_eos: metadata.bool(&key("add_eos_token"))?,
        add_space_prefix: metadata.bool(&key("add_space_prefix"))?,
        remove_extra_whitespaces: metadata.bool(&key("remove_extra_whitespaces"))?.unwrap_or(false),
        lowercase: metadata.bool(&key("normalizer.lowercase"))?,
        strip_accents: metadata.bool(&key("normalizer.strip_accents"))?,
        precompiled_charsmap: charsmap(metadata, &key("precompiled_charsmap"))?,
        ..TokenizerSpec::default()
    };
    mark_stripping(metadata, &mut spec)?;
    Ok(spec)
}

/// The bytes of a table that is stored as an array of bytes, signed or not.
fn charsmap(metadata: Metadata<'_>, key: &str) -> Result<Vec<u8>, GgufError> {
    let Some(array) = metadata.array(key)? else { return Ok(Vec::new()) };
    let byte = |value: Value<'_>| match value {
        Value::U8(byte) => Some(byte),
        Value::I8(byte) => Some(byte.cast_unsigned()),
        _ => None,
    };
    Ok(array.iter().filter_map(byte).collect())
}

/// Marks the tokens that take white space with them. Files do not say which; the models that need it are known by name.
fn mark_stripping(metadata: Metadata<'_>, spec: &mut TokenizerSpec) -> Result<(), GgufError> {
    let name = metadata.string("general.name")?.unwrap_or_default().to_ascii_lowercase();
    let family = metadata.string("general.architecture")?.unwrap_or_default();
    let ids = |wanted: &dyn Fn(usize, &str) -> bool| {
        let tokens = spec.tokens.iter().enumerate().filter(|(id, text)| wanted(*id, text));
        tokens.map(|(id, _)| id as u32).collect::<Vec<_>>()
    };
    if spec.pre.starts_with("jina-v2-") || ["nomic-bert-moe", "jina-bert-v3"].contains(&family) {
        spec.left_stripping = ids(&|_, text| text == "<mask>");
    } else if name.contains("modern-bert") {
        spec.left_stripping = ids(&|_, text| text == "[MASK]");
    } else if name.contains("phi-3") || name.contains("phi3") {
        let plain =
            |id: usize| matches!(spec.token_types.get(id), None | Some(TokenType::Normal | TokenType::Byte));
        let kept = ["<unk>", "<s>", "<|endoftext|>"];
        spec.right_stripping = ids(&|id, text| text == "</s>" || !plain(id) && !kept.contains(&text));
    }
    Ok(())
}

/// Files hold numbers of other engines' making; one that has no meaning here is text like any other.
fn token_type(number: i32) -> TokenType {
    TokenType::from_gguf(i64::from(number)).unwrap_or_default()
}
