//! What saved rows depend on, as numbers that can be compared.

use minfer_engine::kv::session::SessionIdentity;
use minfer_formats::gguf::GgufError;
use minfer_models::Model;
use minfer_text::ChatTemplate;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::ModelFile;

/// Bytes of each sample of a weight.
const SAMPLE: u64 = 1024;

/// The fingerprint of a model and its template.
///
/// The model's covers its graphs with every number in them (so the rotation that was chosen), the names, types and shapes of its
/// weights, and the beginning, middle and end of the bytes of each weight. Reading all of them would take as long as loading.
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
