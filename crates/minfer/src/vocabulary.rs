//! From a file's `tokenizer.ggml.*` metadata to the `TokenizerSpec` of the text crate.

use minfer_models::{Metadata, ModelError};
use minfer_text::{TokenType, TokenizerError, TokenizerSpec};

/// Key of the file's chat template.
pub(crate) const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

/// Why a file's metadata is no vocabulary.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A key has the wrong type.
    Metadata(ModelError),
    /// The lists have different lengths, or a token has an unknown type.
    Vocabulary(TokenizerError),
}

impl From<ModelError> for Fault {
    fn from(error: ModelError) -> Fault {
        Fault::Metadata(error)
    }
}

/// Reads the `tokenizer.ggml.*` keys. `pre` replaces the name of the pre-tokenizer.
///
/// # Errors
/// A key has the wrong type, a token has an unknown type, or a list with one entry for each token
/// has another length.
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

/// A list with one entry for each token; empty where the file has none.
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

/// The normalisation table: an array of signed or unsigned bytes.
fn charsmap(metadata: Metadata<'_>, key: &str) -> Result<Vec<u8>, Fault> {
    let bytes = metadata.i32_array(key)?.unwrap_or_default();
    let byte = |number: i32| u8::try_from(number).or(i8::try_from(number).map(i8::cast_unsigned));
    let malformed = |_| Fault::Vocabulary(TokenizerError::MalformedCharsmap);
    bytes.into_iter().map(byte).collect::<Result<_, _>>().map_err(malformed)
}
