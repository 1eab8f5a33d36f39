//! Reads synthetic models.

use minfer_formats::gguf;
use minfer_models::{Model, ModelError, ModelOptions};
use minfer_testkit::synthetic::ModelFile;

pub(crate) fn open(model: &ModelFile) -> gguf::File {
    gguf::File::parse(model.to_bytes()).expect("synthetic files are well formed")
}

pub(crate) fn read(model: &ModelFile) -> Result<Model, ModelError> {
    Model::read(&open(model), &ModelOptions::default())
}
