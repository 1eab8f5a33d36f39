//! The handle of a loaded model.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use minfer_engine::{Engine, EngineConfig, EngineStats, Request, RequestId};
use minfer_text::{ChatTemplate, EncodeOptions, Message, RenderInput, TemplateError, Tokenizer, encode_chat};
use serde_json::{Map, Value};

use super::{Chat, Chunks, Completion, Conversation, Error, ModelBuilder};
use crate::{Loaded, Machine};

/// A loaded model: the engine that runs it, its tokenizer and its chat template.
///
/// Clones share the model and may be used from several threads; requests that run at the same
/// time share the steps of the model. The engine ends when the last clone is dropped, together
/// with all [`Chunks`] and [`Conversation`]s; that drop waits for the step that is running.
///
/// ```no_run
/// use minfer::Model;
///
/// # fn main() -> Result<(), minfer::Error> {
/// let model = Model::open("smollm2-135m-instruct-q4_1.gguf")?;
/// println!("{}", model.chat().user("Why is the sky blue?").text()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Model(Arc<Inner>);

/// What the clones of a model share.
pub(super) struct Inner {
    pub(super) engine: Engine,
    pub(super) machine: Machine,
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    template_fault: Option<TemplateError>,
    path: PathBuf,
    n_ctx: u32,
    family: &'static str,
    parameters: u64,
    weight_bytes: u64,
}

impl Model {
    /// Loads a model file with default settings.
    ///
    /// # Errors
    /// The file is missing or not a model that this build runs, or memory does not suffice.
    pub fn open(path: impl Into<PathBuf>) -> Result<Model, Error> {
        Model::builder(path).load()
    }

    /// Settings for loading a model. With the feature `hub`, `model` may also be the name of
    /// a file in the models' cache folder or of the catalogue, such as `smollm2`.
    pub fn builder(model: impl Into<PathBuf>) -> ModelBuilder {
        ModelBuilder::new(model.into())
    }

    pub(super) fn start(loaded: Loaded, machine: Machine, path: PathBuf) -> Result<Model, Error> {
        let config = loaded.engine_config();
        Model::from_loaded(loaded, config, machine, path)
    }

    /// The handle of a model that was loaded on `machine` from the file at `path`; the settings
    /// begin with [`Loaded::engine_config`].
    ///
    /// # Errors
    /// Settings that contradict each other, or the engine's thread could not be started.
    pub fn from_loaded(
        mut loaded: Loaded,
        config: EngineConfig,
        machine: Machine,
        path: impl Into<PathBuf>,
    ) -> Result<Model, Error> {
        let path = path.into();
        let (template, template_fault) = (loaded.template.take(), loaded.template_fault.take());
        let (tokenizer, n_ctx) = (Arc::clone(&loaded.tokenizer), loaded.n_ctx);
        let (family, parameters) = (loaded.model.family.architecture, loaded.model.parameters);
        let weight_bytes = loaded.file_weight_bytes;
        let engine = loaded.into_engine_with(config)?;
        Ok(Model(Arc::new(Inner {
            engine,
            machine,
            tokenizer,
            template,
            template_fault,
            path,
            n_ctx,
            family,
            parameters,
            weight_bytes,
        })))
    }

    /// A request for the answer to a few messages.
    pub fn chat(&self) -> Chat {
        Chat::new(self.clone())
    }

    /// A request to continue a text, without a chat template.
    pub fn complete(&self, prompt: impl Into<String>) -> Completion {
        Completion::new(self.clone(), prompt.into())
    }

    /// A conversation: it keeps its messages, and their rows stay in the KV cache, so each turn
    /// feeds only new tokens.
    pub fn conversation(&self) -> Conversation {
        Conversation::new(self.clone())
    }

    /// Continues a conversation that [`Conversation::save`] or `minfer chat` wrote to a file. Its
    /// rows are read from the file, not computed again.
    ///
    /// # Errors
    /// The file is not a sound session file of this model, its chat template and its cache type.
    pub fn load_conversation(&self, path: impl AsRef<Path>) -> Result<Conversation, Error> {
        Conversation::load(self.clone(), path.as_ref())
    }

    /// Tokens that a prompt and its answer may have together.
    pub fn context(&self) -> u32 {
        self.0.n_ctx
    }

    /// The model file; `(memory)` for one that was read from bytes.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The model's family, as files name it: `llama`, `qwen2`.
    pub fn family(&self) -> &'static str {
        self.0.family
    }

    /// Elements of all weights.
    pub fn parameters(&self) -> u64 {
        self.0.parameters
    }

    /// Bytes of the file's weights.
    pub fn weight_bytes(&self) -> u64 {
        self.0.weight_bytes
    }

    /// How many tokens a text has.
    ///
    /// # Errors
    /// The vocabulary cannot spell the text.
    pub fn count_tokens(&self, text: &str) -> Result<usize, Error> {
        Ok(self.0.tokenizer.encode(text, EncodeOptions::default())?.len())
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.0.tokenizer
    }

    /// The chat template, if there is one that can be used.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.0.template.as_ref()
    }

    /// Counters of the engine as of its last step.
    pub fn stats(&self) -> EngineStats {
        self.0.engine.stats()
    }

    /// The engine, for requests that the methods of this type do not offer.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// The machine that the model runs on; [`ModelBuilder::machine`] loads another on it.
    pub fn machine(&self) -> &Machine {
        &self.0.machine
    }

    pub(super) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    /// Messages as token ids, up to where the answer begins.
    pub(super) fn encode_chat(
        &self,
        messages: &[Message],
        variables: &Map<String, Value>,
    ) -> Result<Vec<u32>, Error> {
        self.encode_rendering(&RenderInput {
            messages: messages.to_vec(),
            add_generation_prompt: true,
            variables: variables.clone(),
            ..RenderInput::default()
        })
    }

    /// The prompt that the chat template makes of messages, tools and variables, as token ids.
    ///
    /// # Errors
    /// There is no chat template, it refuses the messages, or their text cannot be encoded.
    pub fn encode_rendering(&self, input: &RenderInput) -> Result<Vec<u32>, Error> {
        let ids = encode_chat(&self.0.tokenizer, self.usable_template()?, input)?;
        if ids.is_empty() { Err(Error::empty_prompt()) } else { Ok(ids) }
    }

    /// The chat template.
    ///
    /// # Errors
    /// There is none, or the file's cannot be used.
    pub fn usable_template(&self) -> Result<&ChatTemplate, Error> {
        let template = self.0.template.as_ref();
        template.ok_or_else(|| Error::no_template(self.0.template_fault.clone()))
    }

    pub(super) fn submit(&self, request: Request) -> Result<Chunks, Error> {
        let (id, events) = self.0.engine.submit(request)?;
        Ok(Chunks::new(Running { model: self.clone(), id }, events))
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Model")
            .field("path", &self.0.path)
            .field("context", &self.0.n_ctx)
            .finish_non_exhaustive()
    }
}

/// A request that was accepted, with the engine that works on it.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) model: Model,
    pub(super) id: RequestId,
}

impl Running {
    pub(super) fn cancel(&self) {
        self.model.engine().cancel(self.id);
    }
}
