//! Options of a request, in Ollama's names.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::error::ApiError;
use crate::generate::options::{Options, OutputFormat};
use crate::json::JsonBody;
use crate::openai;

#[derive(Deserialize)]
struct Fields {
    options: Option<Map<String, Json>>,
    format: Option<Json>,
    think: Option<Json>,
    stream: Option<bool>,
    model: Option<String>,
}

/// What requests of several routes have in common.
pub(super) struct Common {
    pub(super) model: Option<String>,
    pub(super) options: Options,
    pub(super) format: OutputFormat,
    pub(super) template_variables: Map<String, Json>,
    pub(super) stream: bool,
}

/// Reads the common fields; `slots` is how many answers run at once.
pub(super) fn read(body: &JsonBody, slots: usize) -> Result<Common, ApiError> {
    let fields: Fields = body.read()?;
    let mut options = fields.options.unwrap_or_default();
    if let Some(most) = options.remove("num_predict") {
        // -2 fills the context, as -1 does here.
        let most = if most == -2 { (-1).into() } else { most };
        options.insert("n_predict".to_owned(), most);
    }
    let options = openai::options::read(&JsonBody::of(options), slots)?;
    let mut template_variables = Map::new();
    match fields.think {
        Some(Json::Bool(think)) => {
            template_variables.insert("enable_thinking".to_owned(), think.into());
        }
        Some(Json::String(effort)) => {
            template_variables.insert("reasoning_effort".to_owned(), effort.into());
        }
        _ => {}
    }
    Ok(Common {
        model: fields.model,
        options: Options { n: 1, ..options },
        format: format(fields.format)?,
        template_variables,
        stream: fields.stream.unwrap_or(true),
    })
}

fn format(format: Option<Json>) -> Result<OutputFormat, ApiError> {
    match format {
        None | Some(Json::Null) => Ok(OutputFormat::Text),
        Some(Json::String(word)) if word.is_empty() => Ok(OutputFormat::Text),
        Some(Json::String(word)) if word == "json" => Ok(OutputFormat::JsonObject),
        Some(schema @ Json::Object(_)) => Ok(OutputFormat::JsonSchema(schema)),
        Some(_) => Err(ApiError::invalid("format", "`format` must be \"json\" or a JSON schema")),
    }
}
