//! `minfer doctor --kv`: the geometry of a model's KV cache. No weight is read.

use std::io::Write;

use anyhow::Result;
use minfer::KvOptions;
use minfer::graph::{KvArrangement, KvFormat, KvGroupSpec, KvSpec, commit_geometry, json as graph_json};
use minfer::models::Model;
use minfer::tensor::counted;
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::{loading, output};

/// The granule of devices, and of systems with huge pages.
const LARGE_GRANULE: u64 = 2 << 20;

/// A block size that is compared with the cache's own.
const SMALL_BLOCK: u32 = 16;

/// Shows what a model's KV cache takes, and what other arrangements of it would.
pub(super) fn print(args: &DoctorArgs, model: &str) -> Result<()> {
    let read = loading::find(model)?.open()?.model(&args.model_args.options())?;
    let n_ctx = if args.context.n_ctx == 0 { read.context_length() } else { args.context.n_ctx };
    let granule = loading::machine(&args.context)?.backend().kv_granule_bytes(args.context.kv_granule)?;
    let report = report(&read, loading::kv_options(&args.context), n_ctx, granule)?;
    if args.json { output::line(&report) } else { output::answer(|out| table(out, &read.name, &report)) }
}

/// The groups of a model's cache of `n_ctx` positions.
pub(super) fn spec(model: &Model, options: KvOptions, n_ctx: u32) -> Result<KvSpec> {
    let KvOptions { k_format, v_format, layout, block_tokens } = options;
    Ok(model.kv_spec(k_format, v_format, layout, block_tokens, n_ctx.div_ceil(block_tokens))?)
}

/// The KV cache of `n_ctx` positions in the form that was asked for, its size in every other, and what one sequence of it
/// commits.
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

/// What one sequence commits at one token and at the whole context, in each arrangement.
fn compared(spec: &KvSpec, block_tokens: u32, granule: u64, n_ctx: u32) -> Vec<Value> {
    let mut rows = Vec::new();
    let granules = if granule == LARGE_GRANULE { vec![granule] } else { vec![LARGE_GRANULE, granule] };
    for granule in granules {
        for arrangement in [
            KvArrangement::Blocks(block_tokens),
            KvArrangement::Blocks(SMALL_BLOCK),
            KvArrangement::SeqMajorBuffers,
            KvArrangement::HeadMajorBuffers,
        ] {
            let at = |tokens| {
                let found = commit_geometry(spec, arrangement, granule, tokens, n_ctx);
                json!({"tokens": tokens, "granules": found.granules, "bytes": found.bytes()})
            };
            let (name, block_tokens) = match arrangement {
                KvArrangement::Blocks(block_tokens) => ("blocks", Some(block_tokens)),
                KvArrangement::SeqMajorBuffers => ("seq-major buffers", None),
                KvArrangement::HeadMajorBuffers => ("head-major buffers", None),
            };
            rows.push(json!({
                "arrangement": name,
                "block_tokens": block_tokens,
                "granule": granule,
                "at": [at(1), at(n_ctx)],
            }));
        }
    }
    rows
}

fn table(out: &mut dyn Write, name: &str, report: &Value) -> Result<()> {
    writeln!(
        out,
        "{}: {} a token, {} a block of {}; {} {}",
        output::one_line(name),
        counted(number(&report["bytes_per_token"]), "byte"),
        counted(number(&report["bytes_per_block"]), "byte"),
        counted(number(&report["block_tokens"]), "position"),
        counted(number(&report["n_ctx"]), "position").with("takes", "take"),
        bytes(&report["bytes_at_n_ctx"])
    )?;
    writeln!(
        out,
        "arena       {} of addresses for one sequence; memory comes in granules of {}",
        bytes(&report["reserved_bytes"]),
        bytes(&report["granule"])
    )?;
    for (index, group) in rows(&report["groups"]).enumerate() {
        writeln!(out, "group {index:<5} {}", group_line(group))?;
    }
    for format in rows(&report["formats"]) {
        let name = format["kv_format"].as_str().unwrap_or_default();
        match format["error"].as_str() {
            None => writeln!(
                out,
                "{name:11} {:>8} bytes a token, {}",
                format["bytes_per_token"].to_string(),
                bytes(&format["bytes_at_n_ctx"])
            )?,
            Some(error) => writeln!(out, "{name:11} {error}")?,
        }
    }
    comparison(out, report)
}

fn group_line(group: &Value) -> String {
    let layers = counted(rows(&group["layers"]).count(), "layer");
    let text = |key: &str| group[key].as_str().unwrap_or_default().to_owned();
    let heads = counted(number(&group["kv_heads"]), "head");
    let heads = match (&group["k_dim"], &group["v_dim"]) {
        (k_dim, v_dim) if k_dim == v_dim => format!("{heads} of {k_dim}"),
        (k_dim, v_dim) => format!("{heads} of {k_dim} (K) and {v_dim} (V)"),
    };
    let window = group["window"].as_u64().map_or_else(String::new, |window| format!(", window of {window}"));
    format!(
        "{layers}, {heads}, K {}, V {}, {}{window}: {} a token",
        text("k_format"),
        text("v_format"),
        text("layout"),
        counted(number(&group["bytes_per_token"]), "byte")
    )
}

/// The arrangements, a line for each.
fn comparison(out: &mut dyn Write, report: &Value) -> Result<()> {
    let n_ctx = counted(number(&report["n_ctx"]), "position").to_string();
    writeln!(out, "\n{:42} {:>22} {n_ctx:>24}", "granules that one sequence commits", "1 position")?;
    for row in rows(&report["compared"]) {
        let blocks = row["block_tokens"].as_u64().map_or_else(String::new, |tokens| format!(" of {tokens}"));
        let name = row["arrangement"].as_str().unwrap_or_default();
        let name = format!("{name}{blocks}, granule {}", bytes(&row["granule"]));
        let cell = |index: usize| {
            let at = &row["at"][index];
            format!("{} = {}", at["granules"], bytes(&at["bytes"]))
        };
        writeln!(out, "{name:42} {:>22} {:>24}", cell(0), cell(1))?;
    }
    Ok(())
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn bytes(value: &Value) -> String {
    output::bytes(number(value))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}
