//! `minfer doctor`.

use anyhow::Result;
use minfer::cpu::Isa;
use minfer::graph::{KvSpec, json as graph_json};
use minfer::{available_memory, resident_memory};
use serde_json::{Value, json};

use crate::args::{DoctorArgs, definition};
use crate::{loading, output};

/// Shows what this machine has, what knobs there are, or what a model's KV cache takes.
pub(super) fn doctor(args: &DoctorArgs) -> Result<()> {
    if args.knobs {
        return print_knobs(args.json);
    }
    if let (true, Some(model)) = (args.kv, &args.model) {
        return kv(args, model);
    }
    let report = report(args)?;
    if args.json {
        println!("{report}");
    } else {
        print_report(&report);
    }
    Ok(())
}

fn report(args: &DoctorArgs) -> Result<Value> {
    let machine = loading::machine(&args.context)?;
    let memory = |bytes: Result<u64, minfer::MemoryError>| match bytes {
        Ok(bytes) => json!(bytes),
        Err(error) => json!({"error": error.to_string()}),
    };
    let model = args.model.as_deref().map(|model| model_report(args, model)).transpose()?;
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "isa": machine.isa().name(),
        "isa_available": Isa::available().map(Isa::name).collect::<Vec<_>>(),
        "threads": machine.threads(),
        "memory_available": memory(available_memory()),
        "memory_resident": memory(resident_memory()),
        "devices": ["cpu"],
        "models_folder": loading::cache()?.path(),
        "model": model,
    }))
}

fn model_report(args: &DoctorArgs, model: &str) -> Result<Value> {
    let file = loading::open(model)?;
    let read = file.model(&args.model_args.options())?;
    let options = loading::load_options(&args.model_args, &args.context)?;
    let kv = read.kv_spec(
        options.kv.k_format,
        options.kv.v_format,
        options.kv.layout,
        options.kv.block_tokens,
        1,
    )?;
    let weights = read.weights(file.gguf()).total_bytes();
    Ok(json!({
        "name": read.name,
        "family": read.family.architecture,
        "weight_bytes": weights,
        "kv_bytes_per_token": kv.bytes_per_token(),
        "context_length": read.context_length(),
        "bytes_at_full_context": weights + kv.bytes_per_token() * u64::from(read.context_length()),
    }))
}

fn print_report(report: &Value) {
    let bytes = |value: &Value| value.as_u64().map_or_else(|| value["error"].to_string(), output::bytes);
    let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
    let sets: Vec<_> =
        report["isa_available"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    println!("minfer {}", text("version"));
    println!("processor   {} threads, {} (of {})", report["threads"], text("isa"), sets.join(", "));
    println!(
        "memory      {} available, {} held by this process",
        bytes(&report["memory_available"]),
        bytes(&report["memory_resident"])
    );
    println!("devices     cpu");
    println!("models      {}", text("models_folder"));
    let model = &report["model"];
    if let Some(name) = model["name"].as_str() {
        println!(
            "model       {name}: weights {}, KV cache {} bytes a token, {} at its full context of {} positions",
            bytes(&model["weight_bytes"]),
            model["kv_bytes_per_token"],
            bytes(&model["bytes_at_full_context"]),
            model["context_length"]
        );
    }
}

fn kv(args: &DoctorArgs, model: &str) -> Result<()> {
    let read = loading::open(model)?.model(&args.model_args.options())?;
    let options = loading::load_options(&args.model_args, &args.context)?;
    let n_ctx = if args.context.n_ctx == 0 { read.context_length() } else { args.context.n_ctx };
    let kv = options.kv;
    let blocks = n_ctx.div_ceil(kv.block_tokens);
    let spec = read.kv_spec(kv.k_format, kv.v_format, kv.layout, kv.block_tokens, blocks)?;
    let geometry = geometry(&spec, n_ctx);
    if args.json {
        println!("{geometry}");
    } else {
        println!(
            "{}: {} bytes a token, {} bytes a block of {} positions; {n_ctx} positions take {}",
            read.name,
            geometry["bytes_per_token"],
            geometry["bytes_per_block"],
            geometry["block_tokens"],
            output::bytes(geometry["bytes_at_n_ctx"].as_u64().unwrap_or_default())
        );
    }
    Ok(())
}

fn geometry(spec: &KvSpec, n_ctx: u32) -> Value {
    let blocks = spec.groups.iter().zip(&spec.max_blocks);
    json!({
        "bytes_per_token": spec.bytes_per_token(),
        "bytes_per_block": spec.groups.iter().map(|group| group.bytes_per_block()).sum::<u64>(),
        "block_tokens": spec.groups.first().map(|group| group.block_tokens),
        "n_ctx": n_ctx,
        "bytes_at_n_ctx": blocks.map(|(group, &blocks)| group.bytes_per_block() * u64::from(blocks)).sum::<u64>(),
        "groups": graph_json::kv_spec(spec),
    })
}

/// Every knob, read off the definition of the command line itself.
fn print_knobs(as_json: bool) -> Result<()> {
    let mut knobs: Vec<Value> = Vec::new();
    for command in definition().get_subcommands() {
        for argument in command.get_arguments().filter(|argument| argument.get_env().is_some()) {
            let flag = argument.get_long().map(|long| format!("--{long}")).unwrap_or_default();
            if let Some(known) = knobs.iter_mut().find(|knob| knob["flag"] == flag) {
                known["commands"]
                    .as_array_mut()
                    .into_iter()
                    .for_each(|list| list.push(json!(command.get_name())));
                continue;
            }
            let default = argument.get_default_values().first().map(|value| value.to_string_lossy());
            knobs.push(json!({
                "flag": flag,
                "variable": argument.get_env().map(|name| name.to_string_lossy()),
                "default": default,
                "help": argument.get_help().map(ToString::to_string),
                "commands": [command.get_name()],
            }));
        }
    }
    if as_json {
        println!("{}", Value::from(knobs));
        return Ok(());
    }
    for knob in &knobs {
        let text = |key: &str| knob[key].as_str().unwrap_or_default().to_owned();
        println!("{:22} {:28} {:12} {}", text("flag"), text("variable"), text("default"), text("help"));
    }
    Ok(())
}
