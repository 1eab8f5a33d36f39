//! What holds for any template, whoever wrote it.

use super::{ChatTemplate, DecodeOptions, RenderInput, TemplateError, Tokenizer, encode_chat};

/// It renders the same twice or is refused, and its ids are some of the vocabulary's.
pub(crate) fn render(
    source: &str,
    input: &RenderInput,
    tokenizer: &Tokenizer,
) -> Result<String, TemplateError> {
    let template = ChatTemplate::new(source, Some("<s>"), Some("</s>"))?;
    let rendered = template.render(input);
    assert_eq!(template.render(input), rendered);
    if let Ok(ids) = encode_chat(tokenizer, &template, input) {
        assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_len()));
        tokenizer.decode(&ids, DecodeOptions { show_special: true });
    }
    rendered
}
