//! A model file before its weights are loaded.

use std::path::{Path, PathBuf};

use minfer_formats::gguf;
use minfer_models::{Metadata, MetadataOverride, Model, ModelError, ModelOptions, Overrides};
use minfer_text::{BUILTIN_TEMPLATES, ChatTemplate, PreTokenizerInfo, Tokenizer, builtin_template};

use crate::LoadError;
use crate::vocabulary::{CHAT_TEMPLATE, Fault, tokenizer_spec};

/// Which chat template to use in place of the file's.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateChoice {
    /// Jinja text.
    Source(String),
    /// One of the file's named templates, or a built-in one such as `chatml`.
    Name(String),
}

/// An open GGUF file whose header was checked. No weight is read yet.
#[derive(Debug)]
pub struct ModelFile {
    path: PathBuf,
    file: gguf::File,
}

impl ModelFile {
    /// Opens the file and checks its header. Of a split model, any part may be named.
    ///
    /// # Errors
    /// The file cannot be opened, or its header is not valid.
    pub fn open(path: &Path) -> Result<ModelFile, LoadError> {
        Ok(ModelFile { path: path.to_owned(), file: gguf::File::open(path)? })
    }

    /// A file that is in memory.
    ///
    /// # Errors
    /// The header is not valid.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<ModelFile, LoadError> {
        Ok(ModelFile { path: PathBuf::from("(memory)"), file: gguf::File::parse(bytes)? })
    }

    /// The path; `(memory)` for a file from bytes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Metadata and tensor descriptions.
    pub fn gguf(&self) -> &gguf::File {
        &self.file
    }

    /// Reads the hyperparameters, checks the tensors against them, and builds the graphs.
    ///
    /// # Errors
    /// This build does not know the architecture, or metadata or tensors do not fit it.
    pub fn model(&self, options: &ModelOptions) -> Result<Model, LoadError> {
        Model::read(&self.file, options).map_err(|cause| LoadError::Model { path: self.name(), cause })
    }

    /// The file's tokenizer; `pre` takes the place of its pre-tokenizer's name.
    ///
    /// # Errors
    /// The file has none that this build knows, or one that is not sound.
    pub fn tokenizer(&self, pre: Option<&str>) -> Result<Tokenizer, LoadError> {
        self.tokenizer_with(pre, &[])
    }

    /// As [`tokenizer`](Self::tokenizer), with metadata values in place of the file's.
    ///
    /// # Errors
    /// As there, or an override has the wrong type.
    pub fn tokenizer_with(
        &self,
        pre: Option<&str>,
        overrides: &[MetadataOverride],
    ) -> Result<Tokenizer, LoadError> {
        let unsound = |cause| LoadError::Tokenizer { path: self.name(), cause };
        // A name that was given is checked also where the file's family has no use for it.
        pre.map(PreTokenizerInfo::named).transpose().map_err(unsound)?;
        let of_tokenizer = |entry: &&MetadataOverride| entry.key.starts_with("tokenizer.");
        let overrides: Vec<_> = overrides.iter().filter(of_tokenizer).cloned().collect();
        let overrides = Overrides::new(&overrides);
        let metadata = Metadata::new(&self.file, &overrides);
        let spec = tokenizer_spec(metadata, pre).map_err(|fault| match fault {
            Fault::Metadata(ModelError::File(error)) => LoadError::File(error),
            Fault::Metadata(cause) => LoadError::Model { path: self.name(), cause },
            Fault::Vocabulary(cause) => unsound(cause),
        })?;
        let useless = |cause| LoadError::Model { path: self.name(), cause };
        overrides.refuse_useless(self.file.metadata()).map_err(useless)?;
        Tokenizer::new(spec).map_err(unsound)
    }

    /// The file's own chat template, or the one given in its place; `None` where there is neither.
    ///
    /// # Errors
    /// The template is not sound, or none has the name that was given.
    pub fn chat_template(
        &self,
        tokenizer: &Tokenizer,
        given: Option<&TemplateChoice>,
    ) -> Result<Option<ChatTemplate>, LoadError> {
        let source = match given {
            Some(TemplateChoice::Source(source)) => Some(source.as_str()),
            Some(TemplateChoice::Name(name)) => Some(self.named_template(name)?),
            None => self.file.metadata().string(CHAT_TEMPLATE)?,
        };
        let Some(source) = source else { return Ok(None) };
        let spelling =
            |id: Option<u32>| id.map(|id| String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned());
        let (bos, eos) = (spelling(tokenizer.bos()), spelling(tokenizer.eos()));
        ChatTemplate::new(source, bos.as_deref(), eos.as_deref())
            .map(Some)
            .map_err(|cause| LoadError::Template { path: self.name(), cause })
    }

    /// The file's template of that name, else the built-in one.
    fn named_template(&self, name: &str) -> Result<&str, LoadError> {
        if let Some(own) = self.file.metadata().string(&format!("{CHAT_TEMPLATE}.{name}"))? {
            return Ok(own);
        }
        builtin_template(name).ok_or_else(|| LoadError::UnknownTemplate {
            name: name.to_owned(),
            own: self.template_names(),
            known: BUILTIN_TEMPLATES.iter().map(|(name, _)| (*name).to_owned()).collect(),
        })
    }

    /// Names of the file's templates other than its default one.
    pub fn template_names(&self) -> Vec<String> {
        let name =
            |(key, _): (&str, _)| key.strip_prefix(CHAT_TEMPLATE)?.strip_prefix('.').map(str::to_owned);
        self.file.metadata().iter().filter_map(name).collect()
    }

    /// The path as text, for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }
}
