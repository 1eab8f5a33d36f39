//! `minfer doctor --kv`: the geometry of a model's KV cache. No weight is read.

use std::io::Write;

use anyhow::Result;
use minfer::KvOptions;
use minfer::graph::{KvArrangement, KvFormat, KvGroupSpec, KvSpec, commit_geometry, json as graph_json};
use minfer::models::Model;
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::counted::counted;
use crate::{loading, output};

/// The granularity of devices, and of systems with huge pages.
const LARGE_GRANULE: u64 = 2 << 20;

pub(super) fn print(args: &DoctorArgs, model: &std::ffi::OsStr) -> Result<()> {
    let read = loading::find(model)?.open()?.model(&args.model_args.options())?;
    let n_ctx = if args.context.n_ctx == 0 { read.default_context() } else { args.context.n_ctx };
    let granule = loading::machine(&args.context)?.backend().kv_granule_bytes(args.context.kv_granule)?;
    let report = report(&read, loading::kv_options(&args.context), n_ctx, granule)?;
    if args.json { output::line(&report) } else { output::answer(|out| table(out, &read.name, &report)) }
}

/// The groups of a model's cache of `n_ctx` positions.
pub(super) fn spec(model: &Model, options: KvOptions, n_ctx: u32) -> Result<KvSpec> {
    let KvOptions { k_format, v_format, layout, block_tokens } = options;
    Ok(model.kv_spec(k_format, v_format, layout, block_tokens, n_ctx.div_ceil(block_tokens))?)
}

/// The KV cache of `n_ctx` positions, and its size in every format.
fn report(model: &Model, options: KvOptions, n_ctx: u32, granule: u64) -> Result<Value> {
    let asked = spec(model, options, n_ctx)?;
    asked.validate()?;
    let formats = KvFormat::ALL.map(|format| {
        let options = KvOptions { k_format: format, v_format: format, ..options };
        match spec(model, options, n_ctx).and_then(|spec| Ok(spec.validate().map(|()| spec)?)) {
            Ok(spec) => json!({
                "kv_format": format.name(),
                "bytes_per_token": spec.bytes_per_token(),
                "bytes_at_n_ctx": spec.arena_bytes(1),
            }),
            Err(error) => json!({"kv_format": format.name(), "error": error.to_string()}),
        }
    });
    Ok(json!({
        "bytes_per_token": asked.bytes_per_token(),
        "bytes_per_block": asked.groups.iter().map(KvGroupSpec::bytes_per_block).sum::<u64>(),
        "block_tokens": options.block_tokens,
        "n_ctx": n_ctx,
        "bytes_at_n_ctx": asked.arena_bytes(1),
        "granule": granule,
        "reserved_bytes": asked.arena_bytes(granule),
        "groups": groups(&asked),
        "formats": formats,
        "compared": compared(&asked, options.block_tokens, granule, n_ctx),
    }))
}

fn groups(spec: &KvSpec) -> Value {
    let mut groups = graph_json::kv_spec(spec);
    for (value, group) in groups.as_array_mut().into_iter().flatten().zip(&spec.groups) {
        value["window"] = json!(group.window);
        value["bytes_per_token"] = json!(group.bytes_per_token());
        value["bytes_per_block"] = json!(group.bytes_per_block());
    }
    groups
}

/// What a sequence of one token and one of the whole context commit, in blocks and in contiguous
/// buffers.
fn compared(spec: &KvSpec, block_tokens: u32, granule: u64, n_ctx: u32) -> Vec<Value> {
    let arrangements = [
        ("blocks", Some(block_tokens), KvArrangement::Blocks(block_tokens)),
        ("blocks", Some(16), KvArrangement::Blocks(16)),
        ("seq-major buffers", None, KvArrangement::SeqMajorBuffers),
        ("head-major buffers", None, KvArrangement::HeadMajorBuffers),
    ];
    let mut granules = vec![LARGE_GRANULE, granule];
    granules.dedup();
    let row = |granule, (name, block_tokens, arrangement): (&str, Option<u32>, KvArrangement)| {
        let at = [1, n_ctx].map(|tokens| {
            let found = commit_geometry(spec, arrangement, granule, tokens, n_ctx);
            json!({"tokens": tokens, "granules": found.granules, "bytes": found.bytes()})
        });
        json!({"arrangement": name, "block_tokens": block_tokens, "granule": granule, "at": at})
    };
    granules
        .into_iter()
        .flat_map(|granule| arrangements.map(|arrangement| row(granule, arrangement)))
        .collect()
}

fn table(out: &mut dyn Write, name: &str, report: &Value) -> Result<()> {
    let number = |key: &str| report[key].as_u64().unwrap_or_default();
    writeln!(
        out,
        "{}: {} a token, {} a block of {}; {} {}",
        output::one_line(name),
        counted(number("bytes_per_token"), "byte"),
        counted(number("bytes_per_block"), "byte"),
        counted(number("block_tokens"), "position"),
        counted(number("n_ctx"), "position").with("takes", "take"),
        output::bytes(number("bytes_at_n_ctx"))
    )?;
    writeln!(
        out,
        "arena       {} of addresses for one sequence; memory comes in granules of {}",
        output::bytes(number("reserved_bytes")),
        output::bytes(number("granule"))
    )?;
    if let Some(own) = rows(&report["compared"]).find(|row| row["granule"] == report["granule"]) {
        let commits = |index: usize| {
            let number = |key: &str| own["at"][index][key].as_u64().unwrap_or_default();
            format!("{} ({})", output::bytes(number("bytes")), counted(number("granules"), "granule"))
        };
        let all = counted(number("n_ctx"), "position");
        writeln!(out, "commits     {} for 1 position, {} for {all}", commits(0), commits(1))?;
    }
    for (index, group) in rows(&report["groups"]).enumerate() {
        writeln!(out, "group {index:<5} {}", group_line(group))?;
    }
    for format in rows(&report["formats"]) {
        let name = format["kv_format"].as_str().unwrap_or_default();
        match (format["error"].as_str(), &format["bytes_per_token"], format["bytes_at_n_ctx"].as_u64()) {
            (None, Value::Number(bytes), Some(all)) => {
                writeln!(out, "{name:11} {:>8} bytes a token, {}", bytes.to_string(), output::bytes(all))?;
            }
            (error, ..) => writeln!(out, "{name:11} {}", error.unwrap_or_default())?,
        }
    }
    Ok(())
}

fn group_line(group: &Value) -> String {
    let layers = counted(rows(&group["layers"]).count(), "layer");
    let text = |key: &str| group[key].as_str().unwrap_or_default();
    let number = |key: &str| group[key].as_u64().unwrap_or_default();
    let dims = match (number("k_dim"), number("v_dim")) {
        (k_dim, v_dim) if k_dim == v_dim => k_dim.to_string(),
        (k_dim, v_dim) => format!("{k_dim} (K) and {v_dim} (V)"),
    };
    let window = group["window"].as_u64().map_or_else(String::new, |window| format!(", window of {window}"));
    format!(
        "{layers}, {} of {dims}, K {}, V {}, {}{window}: {} a token",
        counted(number("kv_heads"), "head"),
        text("k_format"),
        text("v_format"),
        text("layout"),
        counted(number("bytes_per_token"), "byte")
    )
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
