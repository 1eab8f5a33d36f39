//! Fingerprints that a session file stores, so that it is used with the same model only.

use minfer_engine::kv::session::SessionIdentity;
use minfer_formats::gguf::GgufError;
use minfer_models::Model;
use minfer_text::ChatTemplate;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::ModelFile;

/// Bytes that are hashed at the beginning, middle and end of a weight.
const SAMPLE: u64 = 1024;

/// The fingerprints of a model and its chat template.
///
/// The model's covers its graphs with every constant (rope factors too), the names, types and
/// shapes of its weights, and samples of the bytes of each weight. Hashing all bytes would take as
/// long as loading.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn identity(
    file: &ModelFile,
    model: &Model,
    template: Option<&ChatTemplate>,
) -> Result<SessionIdentity, GgufError> {
    let mut sum = Xxh3::new();
    sum.update(format!("{:?}", model.graph).as_bytes());
    for id in model.graph.used_weights() {
        let tensor = file.gguf().require(&model.graph.weight(id).name)?;
        let bytes = tensor.byte_len();
        let last = bytes.saturating_sub(SAMPLE);
        for start in [0, last / 2, last] {
            let mut sample = vec![0; (bytes - start).min(SAMPLE) as usize];
            file.gguf().read(tensor, start, &mut sample)?;
            sum.update(&sample);
        }
    }
    let template = template.map_or(0, |template| xxh3_128(template.source().as_bytes()));
    Ok(SessionIdentity { model: sum.digest128(), template })
}
