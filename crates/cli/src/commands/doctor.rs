//! `minfer doctor`: the machine, and the memory that a model would take.

use anyhow::Result;
use minfer::cpu::Isa;
use minfer::models::Model;
use minfer::{Footprint, LoadOptions, Machine, available_memory, resident_memory};
use serde_json::{Value, json};

use super::{knobs, kv};
use crate::args::DoctorArgs;
use crate::counted::{Counted, counted};
use crate::{loading, output, wording};

pub(super) fn doctor(args: &DoctorArgs) -> Result<()> {
    if args.knobs {
        return knobs::print(args.json);
    }
    if let (true, Some(model)) = (args.kv, &args.model) {
        return kv::print(args, model);
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
        "models_folder": loading::cache()?.path().to_string_lossy(),
        "model": model,
    }))
}

fn model_report(args: &DoctorArgs, machine: &Machine, model: &std::ffi::OsStr) -> Result<Value> {
    let file = loading::find(model)?.open()?;
    let read = file.model(&args.model_args.options())?;
    let kv = kv::spec(&read, loading::kv_options(&args.context), 1)?;
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

/// The memory that a run with these flags would take, or why it would fail.
fn as_set(args: &DoctorArgs, machine: &Machine, model: &Model) -> Value {
    let options = LoadOptions {
        context_shift: args.context_shift,
        ..loading::footprint_options(&args.model_args, &args.context)
    };
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
        Err(error) => json!({"error": wording::text(&error)}),
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
        writeln!(
            out,
            "processor   {}, {} (of {})",
            of(&report["threads"], "thread"),
            text("isa"),
            sets.join(", ")
        )?;
        writeln!(out, "memory      {available} available{limit}, {resident} held by this process")?;
        writeln!(out, "devices     cpu")?;
        writeln!(out, "models      {}", text("models_folder"))?;
        if let Some(name) = model["name"].as_str() {
            writeln!(
                out,
                "model       {}: weights {}, KV cache {} a token, {} at its full context of {}",
                output::one_line(name),
                bytes(&model["weight_bytes"]),
                of(&model["kv_bytes_per_token"], "byte"),
                bytes(&model["bytes_at_full_context"]),
                of(&model["context_length"], "position")
            )?;
            writeln!(out, "as set      {}", as_set_line(&model["as_set"]))?;
        }
        Ok(())
    })
}

fn of<'n>(value: &Value, noun: &'n str) -> Counted<'n> {
    counted(value.as_u64().unwrap_or_default(), noun)
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
        "{}{wanted}: weights {} + tokenizer {} + workspace {} + KV cache {} = {}",
        of(&report["n_ctx"], "position"),
        bytes("weight_bytes"),
        bytes("tokenizer_bytes"),
        bytes("workspace_bytes"),
        bytes("kv_bytes"),
        bytes("bytes")
    )
}
