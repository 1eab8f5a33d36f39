//! The page of what is read and how it is verified.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use minfer_cpu::{CpuBackend, Isa, Pool};
use minfer_graph::Backend;
use minfer_hub::CATALOG;
use minfer_models::FAMILIES;
use minfer_tensor::DType;
use minfer_testkit::op_cases::{self, OpCase, OpCoverage};
use minfer_testkit::synthetic::{self, Value};
use minfer_text::{BUILTIN_TEMPLATES, PRE_TOKENIZERS, PreTokenizerInfo, TOKENIZER_MODELS};

use crate::workspace;

/// Types whose blocks are verified otherwise than by recorded vectors.
const OTHER_VECTORS: &[(&str, &str)] =
    &[("Q8_K", "its own formula: the `gguf` package has no decoder for it")];

/// The whole page.
///
/// # Errors
/// A row of a table has no verification on record.
pub(crate) fn page() -> Result<String> {
    let sections = [families()?, types()?, operations()?, tokenizers(), templates()?];
    Ok(format!("{HEAD}{}", sections.concat()))
}

const HEAD: &str = "\
# What minfer reads, and how it was verified

Made by `cargo xtask docs` from the code's own tables; the CI checks that it is current.
";

fn families() -> Result<String> {
    let mut text = String::from(
        "\n## Families\n\n\
         Each tiny model has log-probabilities recorded with llama.cpp. The engine agrees with them within\n\
         2e-5 on every instruction set, or 2e-3 where the model has GELU, which llama.cpp computes in f16.\n\
         Bits do not depend on threads, chunks, batch or instruction set (contract test). Real models are\n\
         those of the catalogue.\n\n\
         | family | recorded tiny models | real models |\n| --- | --- | --- |\n",
    );
    for family in FAMILIES {
        let recorded: Vec<&str> = synthetic::Family::ALL
            .iter()
            .filter(|tiny| architecture(**tiny) == family.architecture)
            .map(|tiny| tiny.name())
            .collect();
        ensure!(!recorded.is_empty(), "family {} has no recorded tiny model", family.architecture);
        let real = CATALOG.iter().filter(|entry| entry.architecture == family.architecture);
        let real: Vec<&str> = real.map(|entry| entry.name).collect();
        row(&mut text, &[family.architecture, &recorded.join(", "), &real.join(", ")]);
    }
    Ok(text)
}

/// What the tiny model's file says that it is.
fn architecture(tiny: synthetic::Family) -> String {
    let metadata = tiny.model().metadata;
    let value = metadata.into_iter().find(|(key, _)| key == "general.architecture");
    match value {
        Some((_, Value::Text(name))) => name,
        _ => String::new(),
    }
}

fn types() -> Result<String> {
    let mut text = String::from(
        "\n## Types of weights\n\n\
         Decoders are compared with the `gguf` Python package on recorded random blocks, bit for bit.\n\
         Kernels are compared with f64 sums over the decoded weights. The logits of a tiny model of each\n\
         type are recorded (`crates/minfer/tests/bits.json`) and take part in the contract test.\n\n\
         | type | weights of a block | bytes of a block | decoder | kernels |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    let bits = read("crates/minfer/tests/bits.json")?;
    let bits: serde_json::Value = serde_json::from_str(&bits).context("bits.json is not JSON")?;
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_real()) {
        let name = dtype.name();
        ensure!(!bits[format!("{name} f16")].is_null(), "type {name} has no recorded bits");
        let (len, bytes) = (dtype.block_len().to_string(), dtype.block_bytes().to_string());
        row(&mut text, &[name, &len, &bytes, decoder(name)?, "contract, recorded bits"]);
    }
    Ok(text)
}

fn decoder(name: &str) -> Result<&'static str> {
    if let Some((_, how)) = OTHER_VECTORS.iter().find(|(known, _)| *known == name) {
        return Ok(how);
    }
    let path = format!("crates/tensor/tests/vectors/{}.txt", name.to_ascii_lowercase());
    ensure!(workspace::root().join(&path).is_file(), "type {name} has no recorded blocks in {path}");
    Ok("vectors of the `gguf` package")
}

/// Which backend runs which operation on which types, by the cases that every backend is tested
/// with.
fn operations() -> Result<String> {
    let cpu = CpuBackend::new(Isa::Scalar, Arc::new(Pool::new(1)?));
    let backends: [&dyn Backend; 1] = [&cpu];
    let mut text = String::from(
        "\n## Operations\n\n\
         Every backend runs one list of cases (`crates/testkit/src/op_cases`): an operation with operand\n\
         types and shapes. Results are compared with f64 arithmetic on the decoded weights. Types are those\n\
         of the weights, or of the rows of the KV cache.\n\n| operation | types | cases |",
    );
    backends.iter().for_each(|backend| text.push_str(&format!(" {} |", backend.name())));
    text.push_str("\n| --- | --- | --- |");
    text.push_str(&" --- |".repeat(backends.len()));
    text.push('\n');
    for OpCoverage { op, cases, excuse } in op_cases::all() {
        for group in groups(&cases, &backends) {
            let cells = [op.to_owned(), group.types.join(", "), group.cases.to_string()];
            let cells: Vec<String> = cells.into_iter().chain(group.answers).collect();
            row(&mut text, &cells.iter().map(String::as_str).collect::<Vec<_>>());
        }
        if let Some(reason) = excuse {
            text.push_str(&format!("| {op} | not tested: {reason} | 0 |{}\n", "  |".repeat(backends.len())));
        }
    }
    Ok(text)
}

/// Neighbouring types of an operation that get the same answer of every backend.
struct Group<'a> {
    types: Vec<&'a str>,
    cases: usize,
    answers: Vec<String>,
}

fn groups<'a>(cases: &'a [OpCase], backends: &[&dyn Backend]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for case in cases {
        let answer = |backend: &&dyn Backend| match case.refusal(*backend) {
            None => "yes".to_owned(),
            Some(reason) => format!("no: {reason}"),
        };
        let answers: Vec<String> = backends.iter().map(answer).collect();
        match groups.last_mut() {
            Some(group) if group.answers == answers => {
                if !group.types.contains(&case.types.as_str()) {
                    group.types.push(&case.types);
                }
                group.cases += 1;
            }
            _ => groups.push(Group { types: vec![&case.types], cases: 1, answers }),
        }
    }
    groups
}

fn tokenizers() -> String {
    let mut text = String::from(
        "\n## Tokenizers\n\n\
         Token ids are compared with ids recorded with the published tokenizers, and with llama.cpp where it\n\
         agrees with them. An unknown pre-tokenizer is an error that lists the known ones.\n\n\
         | `tokenizer.ggml.model` | what it is |\n| --- | --- |\n",
    );
    for (name, what) in TOKENIZER_MODELS {
        row(&mut text, &[name, what]);
    }
    let all = |_: &PreTokenizerInfo| true;
    text.push_str(&format!(
        "\nPre-tokenizers of `gpt2` by name (`tokenizer.ggml.pre`, `--tokenizer-pre`): {}.\n",
        pre_tokenizers(all)
    ));
    text.push_str(&format!(
        "\nText is normalised to NFC before these pre-tokenizers, as their published tokenizers do and llama.cpp\n\
         does not: {}.\n",
        pre_tokenizers(|info| info.composes)
    ));
    text.push_str("\nThese split text as their published tokenizers do, which llama.cpp does not:\n\n");
    row(&mut text, &["names", "difference"]);
    row(&mut text, &["---", "---"]);
    let differences: BTreeSet<&str> = PRE_TOKENIZERS.iter().map(|info| info.unlike_llama_cpp).collect();
    for difference in differences.into_iter().filter(|difference| !difference.is_empty()) {
        row(&mut text, &[&pre_tokenizers(|info| info.unlike_llama_cpp == difference), difference]);
    }
    text.push_str(
        "\n`bert` text keeps its whole decomposition without nonspacing marks, and words over 100 characters are\n\
         unknown, as in the published tokenizer. llama.cpp keeps the first character of each decomposition.\n",
    );
    text
}

/// The names of the rows that `wanted` admits.
fn pre_tokenizers(wanted: impl Fn(&PreTokenizerInfo) -> bool) -> String {
    let names = PRE_TOKENIZERS.iter().filter(|info| wanted(info)).map(|info| format!("`{}`", info.name));
    names.collect::<Vec<_>>().join(", ")
}

fn templates() -> Result<String> {
    let references = read("crates/text/data/templates/references.json")?;
    let references: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&references).context("references.json is not JSON")?;
    let mut text = String::from(
        "\n## Chat templates\n\n\
         Templates of real models are rendered with a fixed set of conversations and compared with Python's\n\
         jinja2, byte for byte: those of llama.cpp's source package and those inside the catalogue's files.\n\
         Where a template refuses a conversation, minfer refuses it with the same words. Where Python itself\n\
         fails inside the template, there is nothing to compare.\n\n\
         | template | equal | refused | Python fails |\n| --- | --- | --- | --- |\n",
    );
    for (name, template) in &references {
        let outcomes =
            template["renderings"].as_object().with_context(|| format!("{name}: no renderings"))?;
        let count = |mark: Option<char>| {
            let begins = |value: &&serde_json::Value| value.as_str().and_then(|text| text.chars().next());
            let is = |value: &&serde_json::Value| begins(value).filter(|first| "!?".contains(*first)) == mark;
            outcomes.values().filter(is).count().to_string()
        };
        row(&mut text, &[name, &count(None), &count(Some('!')), &count(Some('?'))]);
    }
    let names: Vec<String> = BUILTIN_TEMPLATES.iter().map(|(name, _)| format!("`{name}`")).collect();
    writeln!(text, "\nFormats by name, for `--chat-template`: {}.", names.join(", "))?;
    Ok(text)
}

fn row(text: &mut String, cells: &[&str]) {
    text.push_str(&format!("| {} |\n", cells.join(" | ")));
}

fn read(path: &str) -> Result<String> {
    let path = workspace::root().join(path);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}
