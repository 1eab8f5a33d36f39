//! Answers of a given form: JSON, schemas, regular expressions, grammars and forced tool calls, as
//! constraints on the tokens of an answer.

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use minfer::engine::constraint::{Ahead, Constraint, ConstraintError, TextState};
use minfer::text::Tokenizer;
use serde_json::{Value as Json, json};

use super::options::OutputFormat;

/// White space between the parts of JSON. A bound keeps small models from writing nothing else.
const WHITE_SPACE: &str = r"[\x20\x0A\x0D\x09]{0,20}";

/// A model's vocabulary, prepared for grammars.
pub(crate) struct Vocabulary(ParserFactory);

impl Vocabulary {
    /// Takes a moment for a large vocabulary.
    ///
    /// # Errors
    /// The vocabulary cannot be used.
    pub(crate) fn new(tokenizer: &Tokenizer) -> Result<Vocabulary, String> {
        let words: Vec<Vec<u8>> = (0..tokenizer.vocab_len() as u32).map(|id| word(tokenizer, id)).collect();
        let ends: Vec<u32> = tokenizer.end_of_generation().iter().copied().collect();
        let info = TokRxInfo::new(words.len() as u32, ends.first().copied().unwrap_or_default());
        let trie = TokTrie::from(&info, &words);
        let trie = if ends.is_empty() { trie } else { trie.with_eos_tokens(&ends) };
        let environment = std::sync::Arc::new(ApproximateTokEnv::new(trie));
        let mut factory =
            ParserFactory::new_simple(&(environment as _)).map_err(|error| error.to_string())?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits::default();
        Ok(Vocabulary(factory))
    }

    /// Compiles a grammar.
    ///
    /// # Errors
    /// The grammar or schema is wrong, too large, or asks for what is not supported.
    pub(crate) fn compile(&self, grammar: TopLevelGrammar) -> Result<Grammar, String> {
        let parser = self.0.create_parser(grammar).map_err(|error| format!("{error:#}"))?;
        let mut matcher = Matcher::new(Ok(parser));
        match matcher.get_error() {
            Some(error) => Err(error),
            // A grammar that allows no text at all is found here.
            None => matcher.compute_mask().map(|_| Grammar(matcher)).map_err(|error| format!("{error:#}")),
        }
    }
}

/// The bytes of a token as grammars see them: control tokens begin with a byte that is in no text.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id);
    if tokenizer.is_shown(id) && !tokenizer.is_end_of_generation(id) {
        let marked = bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER);
        return if marked { Vec::new() } else { bytes.to_vec() };
    }
    [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat()
}

/// The grammar of a form; `None` for free text.
pub(crate) fn of_format(format: &OutputFormat) -> Option<TopLevelGrammar> {
    match format {
        OutputFormat::Text => None,
        OutputFormat::JsonObject => {
            Some(TopLevelGrammar::from_json_schema(with_white_space(json!({"type": "object"}), false)))
        }
        OutputFormat::JsonSchema(schema) => {
            Some(TopLevelGrammar::from_json_schema(with_white_space(schema.clone(), false)))
        }
        OutputFormat::Regex(pattern) => Some(TopLevelGrammar::from_regex(pattern)),
        OutputFormat::Lark(text) => Some(TopLevelGrammar::from_lark(text.clone())),
    }
}

/// A schema with bounded white space, unless it says itself what is allowed. `lenient`: keywords
/// that cannot be kept are ignored.
pub(crate) fn with_white_space(mut schema: Json, lenient: bool) -> Json {
    if let Some(schema) = schema.as_object_mut() {
        let guidance = json!({"whitespace_pattern": WHITE_SPACE, "lenient": lenient});
        schema.entry("x-guidance").or_insert(guidance);
    }
    schema
}

/// A compiled grammar at some place of a text.
pub(crate) struct Grammar(Matcher);

impl Grammar {
    /// Another one at the same place.
    pub(crate) fn copy(&self) -> Grammar {
        Grammar(self.0.deep_clone())
    }
}

fn failed(error: impl std::fmt::Display) -> ConstraintError {
    ConstraintError(error.to_string())
}

impl Constraint for Grammar {
    fn mask(&mut self, allowed: &mut [u32]) -> Result<(), ConstraintError> {
        let mask = self.0.compute_mask_or_eos().map_err(failed)?;
        allowed.iter_mut().zip(mask.as_slice()).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    fn commit(&mut self, token: u32) -> Result<TextState, ConstraintError> {
        self.0.consume_token(token).map_err(failed)?;
        Ok(if self.0.is_stopped() { TextState::Complete } else { TextState::Open })
    }

    fn can_end(&mut self) -> bool {
        self.0.is_stopped() || self.0.is_accepting().unwrap_or(false)
    }

    fn ahead(&mut self) -> Option<&mut dyn Ahead> {
        Some(self)
    }
}

impl Ahead for Grammar {
    fn take_back(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        self.0.rollback(tokens).map_err(failed)
    }

    fn forced(&mut self) -> Vec<u32> {
        self.0.compute_ff_tokens()
    }
}
