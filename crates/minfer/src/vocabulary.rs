//! A file's tokenizer metadata as the plain description that the text crate takes.

use minfer_formats::gguf::{GgufError, Metadata};
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
    Ok(TokenizerSpec {
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
        add_bos: metadata.bool(&key("add_bos_token"))?,
        add_eos: metadata.bool(&key("add_eos_token"))?,
        add_space_prefix: metadata.bool(&key("add_space_prefix"))?,
    })
}

/// Files hold numbers of other engines' making; one that has no meaning here is text like any other.
fn token_type(number: i32) -> TokenType {
    TokenType::from_gguf(i64::from(number)).unwrap_or_default()
}
