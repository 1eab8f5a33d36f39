//! Chat templates: renders a conversation to the prompt format of the model.
//!
//! Model files contain a Jinja template written for Python's jinja2. `environment` sets up the
//! template engine, with jinja2's filters (`filters`), Python's methods (`text_methods`) and `%`
//! formatting (`percent`). `message` holds the conversation. `encode` encodes the rendering;
//! message content never becomes control tokens.

mod builtin;
mod clock;
mod deep_stack;
mod encode;
mod environment;
mod filters;
mod json;
mod message;
mod namespaces;
mod percent;
mod probe;
mod python;
mod statements;
mod text_methods;

pub use builtin::{BUILTIN_TEMPLATES, builtin_template};
pub use deep_stack::TEMPLATE_STACK_BYTES;
pub use encode::encode_chat;
pub use message::{Message, RenderInput};

use std::sync::OnceLock;

use minijinja::{Environment, ErrorKind, Value};

use crate::EncodeError;
use message::{Identity, Shape, TextMapper};

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos_token: Option<String>,
    eos_token: Option<String>,
    shape: OnceLock<Shape>,
}

const NAME: &str = "chat_template";

/// Templates that people write stay below a tenth of this.
const MAX_SOURCE_BYTES: usize = 256 << 10;

impl ChatTemplate {
    /// Compiles `source`, which sees the spelling of the special tokens as
    /// `bos_token` and `eos_token`.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Syntax`] when `source` is not a Jinja template, and
    /// [`TemplateError::TooLong`] when it is far longer than any real one.
    pub fn new(
        source: &str,
        bos_token: Option<&str>,
        eos_token: Option<&str>,
    ) -> Result<Self, TemplateError> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(TemplateError::TooLong { bytes: source.len() });
        }
        Ok(Self {
            environment: deep_stack::run(|| Ok(environment::compile(NAME, source)?))?,
            source: source.to_owned(),
            bos_token: bos_token.map(str::to_owned),
            eos_token: eos_token.map(str::to_owned),
            shape: OnceLock::new(),
        })
    }

    /// The text of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation, for showing it. To feed it to a model use
    /// [`encode_chat`], which keeps content and markup apart.
    ///
    /// # Errors
    ///
    /// The template may refuse the conversation ([`TemplateError::Raised`]),
    /// fail, or take too long.
    pub fn render(&self, input: &RenderInput) -> Result<String, TemplateError> {
        self.render_mapped(input, &Identity, self.shape())
    }

    /// The forms that the template prints: found once, by rendering short conversations.
    fn shape(&self) -> Shape {
        *self.shape.get_or_init(|| probe::shape(self))
    }

    /// Renders with every text of the conversation passed through `mapper`.
    fn render_mapped(
        &self,
        input: &RenderInput,
        mapper: &dyn TextMapper,
        shape: Shape,
    ) -> Result<String, TemplateError> {
        let Some(tag) = self.continuation_tag(input)? else {
            return self.render_once(input, mapper, shape, None);
        };
        let rendering = self.render_once(input, mapper, shape, Some(tag))?;
        cut_at_tag(rendering, tag)
    }

    fn render_once(
        &self,
        input: &RenderInput,
        mapper: &dyn TextMapper,
        shape: Shape,
        tag: Option<char>,
    ) -> Result<String, TemplateError> {
        deep_stack::run(|| {
            let variables = message::variables(input, mapper, shape, tag);
            let context = Value::from_pairs(variables.chain(self.constants(input)));
            let template = self.environment.get_template(NAME)?;
            Ok(template.render(context)?)
        })
    }

    /// The variables that no request can replace.
    fn constants(&self, input: &RenderInput) -> impl Iterator<Item = (Value, Value)> {
        let token = |text: &Option<String>| text.as_deref().map(Value::from);
        let constants = [
            ("bos_token", token(&self.bos_token)),
            ("eos_token", token(&self.eos_token)),
            ("strftime_now", Some(environment::strftime_now(input.now))),
        ];
        constants.into_iter().filter_map(|(key, value)| Some((Value::from(key), value?)))
    }

    /// The character that marks the end of the last message while it is to be
    /// continued.
    fn continuation_tag(&self, input: &RenderInput) -> Result<Option<char>, TemplateError> {
        if !input.continue_final_message {
            return Ok(None);
        }
        if input.add_generation_prompt {
            return Err(TemplateError::GenerationPromptAndContinuation);
        }
        // The last of the free characters, so that it differs from the mark
        // of `encode_chat`, which takes the first.
        let tag = encode::private_characters(self, input).next_back();
        tag.ok_or(TemplateError::NoPrivateCharacter).map(Some)
    }
}

/// Ends the rendering where the last message ends. The tag was followed by a
/// space; if that is gone, the template trims messages.
fn cut_at_tag(mut rendering: String, tag: char) -> Result<String, TemplateError> {
    let at = rendering.rfind(tag).ok_or(TemplateError::NothingToContinue)?;
    let trimmed = !rendering[at + tag.len_utf8()..].starts_with(' ');
    rendering.truncate(at);
    if trimmed {
        rendering.truncate(rendering.trim_end().len());
    }
    Ok(rendering)
}

/// Why a template cannot be compiled or a conversation not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template is not valid Jinja.
    #[error("chat template, line {line}: {message}")]
    Syntax {
        /// The line of the template, from 1; 0 if unknown.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// The template itself refused the conversation with these words.
    #[error("{0}")]
    Raised(String),
    /// The template did something that cannot be done.
    #[error("chat template, line {line}: {message}")]
    Render {
        /// The line of the template, from 1; 0 if unknown.
        line: usize,
        /// What cannot be done.
        message: String,
    },
    /// The template is far longer than any real one.
    #[error("the chat template has {bytes} bytes; at most {MAX_SOURCE_BYTES} are accepted")]
    TooLong {
        /// The length of the template.
        bytes: usize,
    },
    /// The system refused the thread that templates run on.
    #[error("no thread for the chat template: {0}")]
    NoThread(String),
    /// The template ran for too long or made too much text.
    #[error("the chat template takes too many steps")]
    OutOfFuel,
    /// A generation prompt cannot be added to a message that goes on.
    #[error("add_generation_prompt and continue_final_message exclude each other")]
    GenerationPromptAndContinuation,
    /// There is no last message, or the template does not print its content.
    #[error("the last message has no content in the prompt that could be continued")]
    NothingToContinue,
    /// The rendering has no ids.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The conversation uses every private-use character of Unicode.
    #[error("the conversation leaves no private-use character free")]
    NoPrivateCharacter,
    /// A message is not an object with a role.
    #[error("message {index}: {reason}")]
    InvalidMessage {
        /// The position of the message.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl From<minijinja::Error> for TemplateError {
    fn from(error: minijinja::Error) -> Self {
        if let Some(words) = environment::raised(&error) {
            return Self::Raised(words);
        }
        let line = error.line().unwrap_or(0);
        let message = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        match error.kind() {
            ErrorKind::OutOfFuel => Self::OutOfFuel,
            ErrorKind::SyntaxError => Self::Syntax { line, message },
            _ => Self::Render { line, message },
        }
    }
}

#[cfg(test)]
mod expressions;
#[cfg(test)]
mod references;
#[cfg(test)]
mod tests;
