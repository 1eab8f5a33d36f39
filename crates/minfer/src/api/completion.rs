//! A request to continue a text.

use minfer_text::EncodeOptions;

use super::generation::generation_setters;
use super::{Answer, Chunks, Error, GenerationOptions, Model};

/// A text to continue, made by [`Model::complete`]. No chat template is used.
///
/// ```
/// # use minfer::{ModelBuilder, ModelFile};
/// # use minfer_testkit::synthetic::{Family, file};
/// # fn main() -> Result<(), minfer::Error> {
/// # let model = ModelBuilder::from_file(ModelFile::from_bytes(file(Family::Llama))?).load()?;
/// for chunk in model.complete("Once upon a time").max_tokens(16).seed(7).stream()? {
///     print!("{}", chunk?.text);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing runs before `text`, `answer` or `stream`"]
pub struct Completion {
    model: Model,
    prompt: String,
    parse_special: bool,
    options: GenerationOptions,
}

impl Completion {
    pub(super) fn new(model: Model, prompt: String) -> Completion {
        Completion { model, prompt, parse_special: true, options: GenerationOptions::default() }
    }

    /// Whether special tokens that the text spells, such as `<|im_end|>`, become those tokens
    /// (default: true). Switch it off for untrusted text.
    pub fn parse_special(mut self, parse: bool) -> Self {
        self.parse_special = parse;
        self
    }

    generation_setters!();

    /// The text as token ids, with the tokens that the model expects at the beginning of a text.
    ///
    /// # Errors
    /// The vocabulary cannot spell the text.
    pub fn prompt_tokens(&self) -> Result<Vec<u32>, Error> {
        let options = EncodeOptions { add_special: true, parse_special: self.parse_special };
        Ok(self.model.tokenizer().encode(&self.prompt, options)?)
    }

    /// Waits for the whole continuation and returns its text, without the prompt.
    ///
    /// # Errors
    /// As [`stream`](Self::stream), or the generation failed.
    pub fn text(&self) -> Result<String, Error> {
        self.answer().map(String::from)
    }

    /// Waits for the whole continuation.
    ///
    /// # Errors
    /// As [`stream`](Self::stream), or the generation failed.
    pub fn answer(&self) -> Result<Answer, Error> {
        self.stream()?.answer()
    }

    /// Starts the generation and returns its chunks as they come.
    ///
    /// # Errors
    /// The text cannot be encoded, an option is out of its range, the prompt is empty or too long,
    /// or the queue is full.
    pub fn stream(&self) -> Result<Chunks, Error> {
        self.model.submit(self.options.request(self.prompt_tokens()?, None))
    }

    /// As [`stream`](Self::stream), for async code.
    ///
    /// # Errors
    /// As [`stream`](Self::stream).
    #[cfg(feature = "stream")]
    pub fn stream_async(&self) -> Result<super::ChunkStream, Error> {
        self.model.submit_async(self.options.request(self.prompt_tokens()?, None))
    }
}
