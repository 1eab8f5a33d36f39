//! A file's tokenizer metadata as the plain description that the text crate takes.

use minfer_formats::gguf::{GgufError, Metadata};
use minfer_text::{TokenType, TokenizerError, TokenizerSpec};

/// Key of the model's own chat template.
pub(crate) const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

/// What keeps a file's keys from being a vocabulary.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A key has another type than its meaning needs.
    File(GgufError),
    /// The lists do not fit each other, or hold numbers that mean nothing.
    Vocabulary(TokenizerError),
}

impl From<GgufError> for Fault {
    fn from(error: GgufError) -> Fault {
        Fault::File(error)
    }
}

/// Reads the `tokenizer.ggml.*` keys. `pre` takes the place of the file's pre-tokenizer name.
///
/// # Errors
/// A key has another type than its meaning needs, a token has a type that there is not, or a list that describes tokens
/// has another length than the list of tokens.
pub(crate) fn tokenizer_spec(metadata: Metadata<'_>, pre: Option<&str>) -> Result<TokenizerSpec, Fault> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let string = |name: &str| metadata.string(&key(name));
    let id = |name: &str| metadata.u32(&key(name));
    let owned = |strings: Vec<&str>| strings.into_iter().map(str::to_owned).collect();
    let tokens: Vec<String> = metadata.strings(&key("tokens"))?.map(owned).unwrap_or_default();
    let types = per_token("token_type", tokens.len(), metadata.i32_array(&key("token_type"))?)?;
    let scores = per_token("scores", tokens.len(), metadata.f32_array(&key("scores"))?)?;
    let mut spec = TokenizerSpec {
        model: string("model")?.unwrap_or_default().to_owned(),
        pre: pre.or(string("pre")?).unwrap_or("default").to_owned(),
        tokens,
        token_types: token_types(&types)?,
        scores,
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
    let name = metadata.string("general.name")?.unwrap_or_default();
    spec.mark_stripping(name, metadata.string("general.architecture")?.unwrap_or_default());
    Ok(spec)
}

/// The entries of a list that describes tokens, one for each, or none where the file has no such list.
fn per_token<T>(key: &'static str, tokens: usize, list: Option<Vec<T>>) -> Result<Vec<T>, Fault> {
    let Some(list) = list else { return Ok(Vec::new()) };
    if list.len() != tokens {
        let entries = list.len();
        return Err(Fault::Vocabulary(TokenizerError::EntryCount { key, entries, tokens }));
    }
    Ok(list)
}

fn token_types(numbers: &[i32]) -> Result<Vec<TokenType>, Fault> {
    let token_type = |(id, number): (usize, &i32)| {
        let number = i64::from(*number);
        TokenType::from_gguf(number).ok_or(TokenizerError::UnknownType { id: id as u32, number })
    };
    numbers.iter().enumerate().map(token_type).collect::<Result<_, _>>().map_err(Fault::Vocabulary)
}

/// The bytes of a table that is stored as an array of bytes, signed or not.
fn charsmap(metadata: Metadata<'_>, key: &str) -> Result<Vec<u8>, Fault> {
    let bytes = metadata.i32_array(key)?.unwrap_or_default();
    let byte = |number: i32| u8::try_from(number).or(i8::try_from(number).map(i8::cast_unsigned));
    let malformed = |_| Fault::Vocabulary(TokenizerError::MalformedCharsmap);
    bytes.into_iter().map(byte).collect::<Result<_, _>>().map_err(malformed)
}
