//! A tiny model with a chat template.

use minfer::{ModelBuilder, ModelFile};
use minfer_testkit::synthetic::Family;

/// The token of the letter x, which is part of no merge.
#[allow(dead_code)]
pub(crate) const X: u32 = b'x' as u32;

/// Begin and end tokens around each message; one word is refused.
#[allow(dead_code)]
pub(crate) const TEMPLATE: &str = "\
{%- for m in messages -%}
{%- if m.content == 'raise' %}{{ raise_exception('not this word') }}{% endif -%}
{{ '<|bos|>' + m.role + '\\n' + m.content + '<|eos|>' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|bos|>assistant\\n' }}{% endif -%}";

/// A model of a few hundred tokens and a context of 2048.
pub(crate) fn chat_file() -> ModelFile {
    let mut model = Family::Llama.model();
    model.set_context_length(2048);
    model.set("tokenizer.chat_template", TEMPLATE);
    ModelFile::from_bytes(model.to_bytes()).expect("a sound file")
}

pub(crate) fn builder() -> ModelBuilder {
    ModelBuilder::from_file(chat_file()).threads(2)
}
