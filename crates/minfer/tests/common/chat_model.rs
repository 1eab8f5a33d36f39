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
    file(2048)
}

fn file(context: u32) -> ModelFile {
    let mut model = Family::Llama.model();
    model.set_context_length(context);
    model.set("tokenizer.chat_template", TEMPLATE);
    ModelFile::from_bytes(model.to_bytes()).expect("a sound file")
}

pub(crate) fn builder() -> ModelBuilder {
    ModelBuilder::from_file(chat_file()).threads(2)
}

/// As [`builder`], with room for an answer of [`ENDLESS`] tokens.
#[allow(dead_code)]
pub(crate) fn long_builder() -> ModelBuilder {
    ModelBuilder::from_file(file(ENDLESS + 1000)).threads(2)
}

/// Tokens of an answer that no test waits for: it runs for longer than a thread of a busy machine
/// is kept waiting.
#[allow(dead_code)]
pub(crate) const ENDLESS: u32 = 1 << 18;
