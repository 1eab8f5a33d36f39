//! Fields of requests that say how tokens are chosen and when an answer ends.

use minfer::SamplingParams;
use minfer::engine::Stage;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::error::ApiError;
use crate::generate::options::{Options, OutputFormat};
use crate::json::JsonBody;

#[derive(Deserialize)]
struct Fields {
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    n_predict: Option<i64>,
    min_tokens: Option<u32>,
    temperature: Option<f32>,
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    repetition_penalty: Option<f32>,
    repeat_last_n: Option<i32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    samplers: Option<Vec<String>>,
    logit_bias: Option<Json>,
    seed: Option<i64>,
    stop: Option<Stop>,
    n: Option<u32>,
    ignore_eos: Option<bool>,
    cache_prompt: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum Stop {
    One(String),
    Several(Vec<String>),
}

/// Samplers of other engines that this one does not have, with the values that switch them off.
const OTHER_SAMPLERS: [(&str, &[f64]); 8] = [
    ("typical_p", &[1.0]),
    ("top_n_sigma", &[-1.0, 0.0]),
    ("xtc_probability", &[0.0]),
    ("dry_multiplier", &[0.0]),
    ("dynatemp_range", &[0.0]),
    ("mirostat", &[0.0]),
    ("tfs_z", &[1.0]),
    ("length_penalty", &[1.0]),
];

/// Stop strings of one request at most.
const MOST_STOPS: usize = 64;

/// Reads the options; `slots` is how many answers run at once.
pub(crate) fn read(body: &JsonBody, slots: usize) -> Result<Options, ApiError> {
    refuse_other_samplers(body)?;
    let fields: Fields = body.read()?;
    let n = fields.n.unwrap_or(1);
    if n == 0 || n as usize > slots {
        return Err(ApiError::invalid("n", format!("`n` is {n}, but must be from 1 to {slots}")));
    }
    let options = Options {
        sampling: sampling(&fields)?,
        max_tokens: most_tokens(&fields)?,
        min_tokens: fields.min_tokens.unwrap_or(0),
        // Clients of other engines send -1 for a random one.
        seed: fields.seed.filter(|seed| *seed != -1).map(|seed| seed as u64),
        stop: match fields.stop {
            None => Vec::new(),
            Some(Stop::One(stop)) => vec![stop],
            Some(Stop::Several(stops)) => stops,
        },
        ignore_eos: fields.ignore_eos.unwrap_or(false),
        n,
        logprobs: None,
        cache_prompt: fields.cache_prompt.unwrap_or(true),
    };
    if options.stop.len() > MOST_STOPS {
        return Err(ApiError::invalid("stop", format!("more than {MOST_STOPS} stop strings")));
    }
    Ok(options)
}

/// `max_tokens` under any of its names; -1 is no limit.
fn most_tokens(fields: &Fields) -> Result<Option<u32>, ApiError> {
    let names = [
        ("max_completion_tokens", fields.max_completion_tokens),
        ("max_tokens", fields.max_tokens),
        ("n_predict", fields.n_predict),
    ];
    let Some((name, value)) = names.into_iter().find_map(|(name, value)| Some((name, value?))) else {
        return Ok(None);
    };
    match value {
        -1 => Ok(None),
        0.. => Ok(Some(u32::try_from(value).unwrap_or(u32::MAX))),
        _ => Err(ApiError::invalid(name, format!("`{name}` is {value}, but must be at least 0, or -1"))),
    }
}

fn sampling(fields: &Fields) -> Result<SamplingParams, ApiError> {
    let default = SamplingParams::default();
    let top_k = match fields.top_k {
        None => default.top_k,
        // 0 and -1 switch it off.
        Some(-1) => 0,
        Some(top_k) => u32::try_from(top_k).map_err(|_| {
            ApiError::invalid("top_k", format!("`top_k` is {top_k}, but must be at least 0, or -1"))
        })?,
    };
    Ok(SamplingParams {
        temperature: fields.temperature.unwrap_or(default.temperature),
        top_k,
        top_p: fields.top_p.unwrap_or(default.top_p),
        min_p: fields.min_p.unwrap_or(default.min_p),
        repeat_penalty: fields.repeat_penalty.or(fields.repetition_penalty).unwrap_or(default.repeat_penalty),
        repeat_last_n: fields.repeat_last_n.unwrap_or(default.repeat_last_n),
        presence_penalty: fields.presence_penalty.unwrap_or(default.presence_penalty),
        frequency_penalty: fields.frequency_penalty.unwrap_or(default.frequency_penalty),
        logit_bias: fields.logit_bias.as_ref().map_or(Ok(Vec::new()), logit_bias)?,
        order: fields.samplers.as_deref().map_or(Ok(default.order), stages)?,
    })
}

fn stages(names: &[String]) -> Result<Vec<Stage>, ApiError> {
    let stage = |(index, name): (usize, &String)| {
        name.parse()
            .map_err(|_| ApiError::invalid(format!("samplers[{index}]"), format!("no sampler {name:?}")))
    };
    names.iter().enumerate().map(stage).collect()
}

/// An object of ids and biases, or a list of pairs; a bias of false bans the token.
fn logit_bias(value: &Json) -> Result<Vec<(u32, f32)>, ApiError> {
    let wrong = |at: &str| {
        ApiError::invalid(format!("logit_bias{at}"), "`logit_bias` must give a number for each token id")
    };
    let bias = |at: &str, value: &Json| match value {
        Json::Bool(false) => Ok(f32::NEG_INFINITY),
        // OpenAI's range is -100 to 100, and -100 bans.
        _ => value.as_f64().map(|bias| bias as f32).ok_or_else(|| wrong(at)),
    };
    match value {
        Json::Object(biases) => biases
            .iter()
            .map(|(id, value)| {
                let at = format!(".{id}");
                Ok((id.parse().map_err(|_| wrong(&at))?, bias(&at, value)?))
            })
            .collect(),
        Json::Array(pairs) => pairs
            .iter()
            .enumerate()
            .map(|(index, pair)| {
                let at = format!("[{index}]");
                let [id, value] = pair.as_array().map(Vec::as_slice).ok_or_else(|| wrong(&at))? else {
                    return Err(wrong(&at));
                };
                let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                Ok((id.ok_or_else(|| wrong(&at))?, bias(&at, value)?))
            })
            .collect(),
        _ => Err(wrong("")),
    }
}

fn refuse_other_samplers(body: &JsonBody) -> Result<(), ApiError> {
    let fields: Map<String, Json> = body.read()?;
    for (name, off) in OTHER_SAMPLERS {
        let value = fields.get(name).filter(|value| !value.is_null());
        if value.is_some_and(|value| value.as_f64().is_none_or(|value| !off.contains(&value))) {
            return Err(ApiError::not_supported(name, format!("`{name}` is not supported")));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct FormatFields {
    response_format: Option<ResponseFormat>,
    grammar: Option<String>,
    json_schema: Option<Json>,
    guided_json: Option<Json>,
    guided_regex: Option<String>,
    guided_grammar: Option<String>,
    guided_choice: Option<Vec<String>>,
    structured_outputs: Option<Structured>,
}

/// The form in vLLM's words.
#[derive(Deserialize)]
struct Structured {
    json: Option<Json>,
    regex: Option<String>,
    grammar: Option<String>,
    choice: Option<Vec<String>>,
    json_object: Option<bool>,
}

impl Structured {
    fn format(self) -> Option<OutputFormat> {
        // A schema may come as JSON in a text.
        let schema = self.json.map(|json| match &json {
            Json::String(text) => serde_json::from_str(text).unwrap_or(json),
            _ => json,
        });
        let choice = self.choice.map(|texts| {
            let texts: Vec<String> = texts.iter().map(|text| Json::from(text.as_str()).to_string()).collect();
            format!("start: {}", texts.join(" | "))
        });
        None.or(schema.map(OutputFormat::JsonSchema))
            .or(self.regex.map(OutputFormat::Regex))
            .or(self.grammar.or(choice).map(OutputFormat::Lark))
            .or(self.json_object.unwrap_or(false).then_some(OutputFormat::JsonObject))
    }
}

#[derive(Deserialize)]
struct ResponseFormat {
    r#type: String,
    json_schema: Option<JsonSchema>,
    schema: Option<Json>,
}

#[derive(Deserialize)]
struct JsonSchema {
    schema: Option<Json>,
}

/// The form that the answer must have.
pub(super) fn format(body: &JsonBody) -> Result<OutputFormat, ApiError> {
    let fields: FormatFields = body.read()?;
    let structured = fields.structured_outputs.unwrap_or(Structured {
        json: fields.guided_json.or(fields.json_schema),
        regex: fields.guided_regex,
        grammar: fields.guided_grammar.or(fields.grammar.filter(|grammar| !grammar.is_empty())),
        choice: fields.guided_choice,
        json_object: None,
    });
    if let Some(format) = structured.format() {
        return Ok(format);
    }
    let Some(format) = fields.response_format else { return Ok(OutputFormat::Text) };
    let schema = format.json_schema.and_then(|named| named.schema).or(format.schema);
    match (format.r#type.as_str(), schema) {
        ("text", _) => Ok(OutputFormat::Text),
        ("json_object", None) => Ok(OutputFormat::JsonObject),
        ("json_object" | "json_schema", Some(schema)) => Ok(OutputFormat::JsonSchema(schema)),
        ("json_schema", None) => Err(ApiError::invalid(
            "response_format.json_schema.schema",
            "`response_format.json_schema.schema` is missing",
        )),
        (other, _) => Err(ApiError::invalid(
            "response_format.type",
            format!("`response_format.type` is {other:?}, but must be text, json_object or json_schema"),
        )),
    }
}
