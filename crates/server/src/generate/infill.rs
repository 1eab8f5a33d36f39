//! Filling the middle of a text, for models that were trained with marks for it.

use minfer::Model;
use minfer::text::EncodeOptions;

use crate::error::ApiError;

/// Control tokens of a model that fills gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks {
    prefix: u32,
    suffix: u32,
    middle: u32,
    /// Between files, where the model has one, and before the name of each.
    separator: Option<u32>,
    /// Before the name of a project.
    repository: Option<u32>,
}

/// Spellings of the marks: Qwen and Gemma, StarCoder, Granite, DeepSeek, Code Llama.
const SPELLINGS: [[&str; 3]; 5] = [
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["▁<PRE>", "▁<SUF>", "▁<MID>"],
];
/// Spellings of the mark before another file.
const SEPARATORS: [&str; 2] = ["<|file_sep|>", "<file_sep>"];
/// Spellings of the mark before the name of a project.
const REPOSITORIES: [&str; 2] = ["<|repo_name|>", "<repo_name>"];

/// What is around a gap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gap {
    pub(crate) prefix: String,
    pub(crate) suffix: String,
    /// The beginning of what fills it.
    pub(crate) beginning: String,
    /// Other files: names and texts.
    pub(crate) files: Vec<(String, String)>,
}

/// The prompt after which a model fills a gap.
///
/// # Errors
/// The model has no marks for it, or its vocabulary cannot spell the text.
pub(crate) fn prompt(model: &Model, gap: &Gap) -> Result<Vec<u32>, ApiError> {
    let marks = marks(model)
        .ok_or_else(|| ApiError::invalid("suffix", "this model has no tokens for filling a gap"))?;
    let tokenizer = model.tokenizer();
    let encode = |text: &str| {
        let ids = tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: false });
        ids.map_err(|error| ApiError::invalid("input_prefix", error.to_string()))
    };
    let mut ids: Vec<u32> = tokenizer.bos().filter(|_| tokenizer.adds_bos()).into_iter().collect();
    if let Some(repository) = marks.repository.filter(|_| !gap.files.is_empty()) {
        ids.push(repository);
        ids.extend(encode("project\n")?);
    }
    for (name, text) in &gap.files {
        match marks.separator {
            Some(separator) => {
                ids.push(separator);
                ids.extend(encode(&format!("{name}\n{text}\n"))?);
            }
            None => ids.extend(encode(&format!("{text}\n"))?),
        }
    }
    if let Some(separator) = marks.separator.filter(|_| !gap.files.is_empty()) {
        ids.push(separator);
        ids.extend(encode("filename\n")?);
    }
    ids.push(marks.prefix);
    ids.extend(encode(&gap.prefix)?);
    ids.push(marks.suffix);
    ids.extend(encode(&gap.suffix)?);
    ids.push(marks.middle);
    ids.extend(encode(&gap.beginning)?);
    Ok(ids)
}

fn marks(model: &Model) -> Option<Marks> {
    let token = |text: &str| model.tokenizer().special_token(text);
    let separator = SEPARATORS.into_iter().find_map(token);
    let repository = REPOSITORIES.into_iter().find_map(token);
    SPELLINGS.into_iter().find_map(|[prefix, suffix, middle]| {
        let (prefix, suffix, middle) = (token(prefix)?, token(suffix)?, token(middle)?);
        Some(Marks { prefix, suffix, middle, separator, repository })
    })
}
