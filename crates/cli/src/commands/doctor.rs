//! `minfer doctor`.

use anyhow::Result;
use minfer::cpu::Isa;
use minfer::graph::{KvFormat, KvSpec, json as graph_json};
use minfer::models::Model;
use minfer::{Footprint, KvOptions, Machine, available_memory, resident_memory};
use serde_json::{Value, json};

use super::knobs;
use crate::args::DoctorArgs;
use crate::{loading, output};

/// Shows what this machine has, what knobs there are, or what a model's KV cache takes.
pub(super) fn doctor(args: &DoctorArgs) -> Result<()> {
    if args.knobs {
        return knobs::print(args.json);
    }
    if let (true, Some(model)) = (args.kv, &args.model) {
        return kv(args, model);
    }
    let report = report(args)?;
    if args.json { output::line(&report) } else { print_report(&report) }
}

fn report(args: &DoctorArgs) -> Result<Value> {
    let machine = loading::machine(&args.context)?;
    let memory = |bytes: Result<u64, minfer::MemoryError>| match bytes {
        Ok(bytes) => json!(bytes),
        Err(error) => json!({"error": error.to_string()}),
    };
    let model = args.model.as_deref().map(|model| model_report(args, &machine, model)).transpose()?;
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "isa": machine.isa().name(),
        "isa_available": Isa::available().map(Isa::name).collect::<Vec<_>>(),
        "threads": machine.threads(),
        "memory_available": memory(available_memory()),
        "memory_limit": args.context.memory_limit,
        "memory_resident": memory(resident_memory()),
        "devices": ["cpu"],
        "models_folder": loading::cache()?.path(),
        "model": model,
    }))
}

fn model_report(args: &DoctorArgs, machine: &Machine, model: &str) -> Result<Value> {
    let file = loading::find(model)?.open()?;
    let read = file.model(&args.model_args.options())?;
    let kv = spec(&read, loading::kv_options(&args.context), 1)?;
    let weights = read.weights(file.gguf()).total_bytes();
    Ok(json!({
        "name": read.name,
        "family": read.family.architecture,
        "weight_bytes": weights,
        "kv_bytes_per_token": kv.bytes_per_token(),
        "context_length": read.context_length(),
        "bytes_at_full_context": weights + kv.bytes_per_token() * u64::from(read.context_length()),
        "as_set": as_set(args, machine, &read),
    }))
}

/// What a run with these flags would take, or why there is none.
fn as_set(args: &DoctorArgs, machine: &Machine, model: &Model) -> Value {
    let options = loading::footprint_options(&args.model_args, &args.context);
    match Footprint::of(machine, model, &options) {
        Ok(found) => json!({
            "n_ctx": found.n_ctx,
            "wanted_n_ctx": found.wanted_n_ctx,
            "weight_bytes": found.weight_bytes,
            "kv_bytes": found.kv_bytes,
            "workspace_bytes": found.workspace_bytes,
            "tokenizer_bytes": found.tokenizer_bytes,
            "bytes": found.total_bytes,
        }),
        Err(error) => json!({"error": error.to_string()}),
    }
}

fn print_report(report: &Value) -> Result<()> {
    let bytes = |value: &Value| value.as_u64().map_or_else(|| value["error"].to_string(), output::bytes);
    let text = |key: &str| report[key].as_str().unwrap_or_default();
    let sets: Vec<_> =
        report["isa_available"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (available, resident) = (bytes(&report["memory_available"]), bytes(&report["memory_resident"]));
    let limit = report["memory_limit"]
        .as_u64()
        .map(|limit| format!(", of which {} may be taken", output::bytes(limit)));
    let limit = limit.unwrap_or_default();
    let model = &report["model"];
    output::answer(|out| {
        writeln!(out, "minfer      {}", text("version"))?;
        writeln!(out, "processor   {} threads, {} (of {})", report["threads"], text("isa"), sets.join(", "))?;
        writeln!(out, "memory      {available} available{limit}, {resident} held by this process")?;
        writeln!(out, "devices     cpu")?;
        writeln!(out, "models      {}", text("models_folder"))?;
        if let Some(name) = model["name"].as_str() {
            writeln!(
                out,
                "model       {}: weights {}, KV cache {} bytes a token, {} at its full context of {} positions",
                output::one_line(name),
                bytes(&model["weight_bytes"]),
                model["kv_bytes_per_token"],
                bytes(&model["bytes_at_full_context"]),
                model["context_length"]
            )?;
            writeln!(out, "as set      {}", as_set_line(&model["as_set"]))?;
        }
        Ok(())
    })
}

fn as_set_line(report: &Value) -> String {
    if let Some(error) = report["error"].as_str() {
        return error.to_owned();
    }
    let bytes = |key: &str| output::bytes(report[key].as_u64().unwrap_or_default());
    let wanted = match (&report["n_ctx"], &report["wanted_n_ctx"]) {
        (n_ctx, wanted) if n_ctx == wanted => String::new(),
        (_, wanted) => format!(" (of {wanted}, which memory does not allow)"),
    };
    format!(
        "{} positions{wanted}: weights {} + tokenizer {} + workspace {} + KV cache {} = {}",
        report["n_ctx"],
        bytes("weight_bytes"),
        bytes("tokenizer_bytes"),
        bytes("workspace_bytes"),
        bytes("kv_bytes"),
        bytes("bytes")
    )
}

fn kv(args: &DoctorArgs, model: &str) -> Result<()> {
    let read = loading::find(model)?.open()?.model(&args.model_args.options())?;
    let n_ctx = if args.context.n_ctx == 0 { read.context_length() } else { args.context.n_ctx };
    let options = loading::kv_options(&args.context);
    let geometry = geometry(&read, options, n_ctx)?;
    if args.json {
        return output::line(&geometry);
    }
    let bytes = |value: &Value| output::bytes(value.as_u64().unwrap_or_default());
    output::answer(|out| {
        writeln!(
            out,
            "{}: {} bytes a token, {} bytes a block of {} positions; {n_ctx} positions take {}",
            output::one_line(&read.name),
            geometry["bytes_per_token"],
            geometry["bytes_per_block"],
            geometry["block_tokens"],
            bytes(&geometry["bytes_at_n_ctx"])
        )?;
        for other in geometry["compared"].as_array().into_iter().flatten() {
            let (format, token) =
                (other["kv_format"].as_str().unwrap_or_default(), &other["bytes_per_token"]);
            writeln!(out, "  {format:5} {token:>8} bytes a token, {}", bytes(&other["bytes_at_n_ctx"]))?;
        }
        Ok(())
    })
}

/// The KV cache of `n_ctx` positions in the form that was asked for, and its size in every other.
fn geometry(model: &Model, options: KvOptions, n_ctx: u32) -> Result<Value> {
    let asked = spec(model, options, n_ctx)?;
    let compared = KvFormat::ALL.into_iter().map(|format| {
        let spec = spec(model, KvOptions { k_format: format, v_format: format, ..options }, n_ctx)?;
        Ok(json!({
            "kv_format": format.name(),
            "bytes_per_token": spec.bytes_per_token(),
            "bytes_at_n_ctx": total_bytes(&spec),
        }))
    });
    Ok(json!({
        "bytes_per_token": asked.bytes_per_token(),
        "bytes_per_block": asked.groups.iter().map(|group| group.bytes_per_block()).sum::<u64>(),
        "block_tokens": options.block_tokens,
        "n_ctx": n_ctx,
        "bytes_at_n_ctx": total_bytes(&asked),
        "groups": graph_json::kv_spec(&asked),
        "compared": compared.collect::<Result<Vec<_>>>()?,
    }))
}

fn spec(model: &Model, options: KvOptions, n_ctx: u32) -> Result<KvSpec> {
    let KvOptions { k_format, v_format, layout, block_tokens } = options;
    Ok(model.kv_spec(k_format, v_format, layout, block_tokens, n_ctx.div_ceil(block_tokens))?)
}

fn total_bytes(spec: &KvSpec) -> u64 {
    let blocks = spec.groups.iter().zip(&spec.max_blocks);
    blocks.map(|(group, &blocks)| group.bytes_per_block() * u64::from(blocks)).sum()
}
