//! Encodes a conversation to token ids. Special tokens in message content stay plain text (prompt
//! injection).
//!
//! A template renders one string, in which the `<|im_end|>` of its markup and one typed by a user
//! look alike. Before rendering, a mark is inserted into every special token that content spells.
//! The mark is a private-use character that occurs neither in the conversation nor in the template.
//! The rendering is then split at special tokens without a mark, the marks are removed, and the
//! text between is encoded as plain text.
//!
//! Which tokens are marked depends on the author of the text:
//!
//! * Control tokens: in every text, also a beginning of one at the end of a text.
//! * User-defined tokens that look like markup, such as `<tool_call>`: in the texts of users and
//!   tools only. System prompts may name them, and the assistant's messages are tokens that the
//!   model produced.
//! * Reasoning marks, such as `</think>`: not in the assistant's messages, because templates search
//!   for them there.

use std::borrow::Cow;
use std::collections::HashSet;

use super::message::{self, Origin, RenderInput, TextMapper};
use super::{ChatTemplate, TemplateError};
use crate::Tokenizer;
use crate::tokenizer::special::{Special, Specials};

/// Spellings that begin or end reasoning inside an assistant's message.
const REASONING_MARKS: &[&str] = &[
    "<think>",
    "</think>",
    "<thinking>",
    "</thinking>",
    "<reasoning>",
    "</reasoning>",
    "<seed:think>",
    "</seed:think>",
    "[THINK]",
    "[/THINK]",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
];

/// Renders `input` and encodes the rendering.
///
/// Only the template's own markup becomes control tokens. Messages, tools and variables are plain
/// text; in them the noncharacters U+FDD0 and U+FDD1 become U+FFFD. The result begins with exactly
/// one BOS if the tokenizer adds one, whether or not the template prints it.
///
/// # Errors
///
/// Those of [`ChatTemplate::render`] and [`Tokenizer::encode`].
pub fn encode_chat(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    input: &RenderInput,
) -> Result<Vec<u32>, TemplateError> {
    let specials = tokenizer.specials();
    let mark = private_characters(template, input)
        .find(|&mark| specials.iter().all(|special| !special.text.contains(mark)))
        .ok_or(TemplateError::NoPrivateCharacter)?;
    let breaker = Breaker { specials, mark };
    let rendering = template.render_mapped(input, &breaker, template.shape())?;
    Ok(tokenizer.encode_marked(&rendering, mark)?)
}

/// The characters of the two private-use planes that occur neither in the
/// template nor in the conversation.
pub(super) fn private_characters(
    template: &ChatTemplate,
    input: &RenderInput,
) -> impl DoubleEndedIterator<Item = char> + use<> {
    let mut used = HashSet::new();
    let mut note = |text: &str| used.extend(text.chars().filter(|&c| c >= '\u{f0000}'));
    note(&template.source);
    note(template.bos_token.as_deref().unwrap_or_default());
    note(template.eos_token.as_deref().unwrap_or_default());
    message::each_text(input, &mut note);
    let planes = ('\u{f0000}'..='\u{ffffd}').chain('\u{100000}'..='\u{10fffd}');
    planes.filter(move |character| !used.contains(character))
}

/// Breaks special-token spellings by a mark after their first character.
struct Breaker<'a> {
    specials: &'a Specials,
    mark: char,
}

impl TextMapper for Breaker<'_> {
    fn map<'t>(&self, text: &'t str, origin: Origin) -> Cow<'t, str> {
        let starts = self.specials.spelling_starts(text, |special| is_broken(special, origin));
        if starts.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut broken = String::with_capacity(text.len() + 4 * starts.len());
        let mut copied = 0;
        for start in starts {
            let first = text[start..].chars().next().map_or(0, char::len_utf8);
            broken.push_str(&text[copied..start + first]);
            broken.push(self.mark);
            copied = start + first;
        }
        broken.push_str(&text[copied..]);
        Cow::Owned(broken)
    }
}

/// Whether `special` may not be spelled in text of this origin.
fn is_broken(special: &Special, origin: Origin) -> bool {
    match origin {
        Origin::Outside => special.control || looks_like_markup(&special.text),
        Origin::Operator => special.control,
        Origin::Assistant => special.control && !REASONING_MARKS.contains(&&*special.text),
    }
}

/// User-defined tokens are also runs of spaces and other plain text, which
/// must encode in content as they do anywhere.
fn looks_like_markup(text: &str) -> bool {
    let bracketed = |open, close| text.starts_with(open) && text.ends_with(close);
    text.len() > 2 && (bracketed('<', '>') || bracketed('[', ']'))
}

#[cfg(test)]
mod tests;
