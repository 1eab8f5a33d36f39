//! End-of-generation (EOG) tokens.

use std::collections::BTreeSet;

use super::NamedTokens;
use super::special::Specials;

/// Special tokens that end an answer whatever the metadata says: ends of
/// text, turn and message, and the separators that code models put before
/// the next file.
const KNOWN: &[&str] = &[
    "</s>",
    "<EOT>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "<file_sep>",
    "<repo_name>",
    "<reponame>",
    "<|call|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|file_sep|>",
    "<|fim_pad|>",
    "<|im_end|>",
    "<|repo_name|>",
    "<|return|>",
    "<turn|>",
    "<|calls|>",
    "<|flush|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[EOS]",
    "[EOT]",
    "[e~[",
    "_<EOT>",
];

/// Whether special tokens of this text end an answer.
pub(super) fn is_known(text: &str) -> bool {
    KNOWN.contains(&text)
}

/// Texts of [`KNOWN`] that end only a part of an answer where the vocabulary
/// has all the others.
const RESERVED: &[(&str, &[&str])] =
    &[("<|end|>", &["<|return|>", "<|call|>"]), ("</s>", &["<|tool_response>"])];

/// The named end tokens, and the specials that are in [`KNOWN`].
///
/// An ordinary token with such a text is no end: the model may be writing
/// about it.
pub(super) fn find(specials: &Specials, named: &NamedTokens) -> BTreeSet<u32> {
    let known = specials.iter();
    let known = known.filter(|special| is_known(&special.text));
    let mut ends: BTreeSet<u32> = known.map(|special| special.id).collect();
    for (reserved, by) in RESERVED {
        if let (Some(id), true) = (specials.id(reserved), by.iter().all(|text| specials.id(text).is_some())) {
            ends.remove(&id);
        }
    }
    ends.extend([named.eos, named.eot, named.eom].into_iter().flatten());
    ends
}
