//! `minfer show`: metadata, tensors, memory and graph of a model file.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::Builder;

use anyhow::{Context, Result, bail};
use minfer::formats::gguf::{Array, File, Tensor, Value};
use minfer::graph::{Graph, KvFormat, ModelGraph, dot};
use minfer::models::Model;
use minfer::{LoadError, LoadOptions, Machine, MachineOptions, ModelFile};
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::args::{GraphFormat, ShowArgs};
use crate::counted::counted;
use crate::{loading, output};

/// Elements of a metadata array that are printed.
const ARRAY_SHOWN: usize = 6;
/// Characters of a metadata text that are printed.
const TEXT_SHOWN: usize = 120;

/// Prints what a file contains, also of a model that this build does not run.
pub(super) fn show(args: &ShowArgs) -> Result<()> {
    let file = loading::find(&args.model)?.open()?;
    if let Some(format) = args.graph {
        return draw(args, &file, format);
    }
    let model = file.model(&args.model_args.options()).map_err(|error| reason(&error, file.path()));
    if args.json {
        return output::answer(|out| {
            serde_json::to_writer(&mut *out, &described(&file, &model)).map_err(std::io::Error::from)?;
            Ok(writeln!(out)?)
        });
    }
    output::answer(|out| {
        print_head(out, &file, &model)?;
        writeln!(out, "\nmetadata")?;
        for (key, value) in file.gguf().metadata().iter() {
            writeln!(out, "  {} = {}", output::one_line(key), brief(&value))?;
        }
        if args.tensors {
            writeln!(out, "\ntensors")?;
            for tensor in file.gguf().tensors() {
                let name = output::one_line(tensor.name());
                writeln!(out, "  {name:40} {:>8}  {}", tensor.tensor_type(), shape(tensor))?;
            }
        }
        Ok(())
    })
}

/// The message of an error about a file, without the file's name.
pub(super) fn reason(error: &LoadError, path: &Path) -> String {
    let text = error.to_string();
    text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text).to_owned()
}

fn print_head(out: &mut dyn Write, file: &ModelFile, model: &Result<Model, String>) -> Result<()> {
    let gguf = file.gguf();
    writeln!(out, "{}", output::one_line(&file.path().to_string_lossy()))?;
    writeln!(
        out,
        "  GGUF version {}, {}, {}",
        gguf.version(),
        output::bytes(gguf.total_bytes()),
        counted(gguf.tensors().len(), "tensor")
    )?;
    print_parts(out, file)?;
    match model {
        Err(reason) => {
            writeln!(out, "  this build does not run it: {}", output::one_line(reason))?;
            Ok(())
        }
        Ok(model) => print_model(out, file, model),
    }
}

/// The files of a split model.
fn print_parts(out: &mut dyn Write, file: &ModelFile) -> Result<()> {
    let parts = file.gguf().parts();
    for part in parts.iter().filter(|_| parts.len() > 1) {
        let path = part.path().unwrap_or(file.path());
        let name = output::one_line(&path.file_name().unwrap_or_default().to_string_lossy());
        let (bytes, tensors) = (output::bytes(part.total_bytes()), counted(part.n_tensors(), "tensor"));
        writeln!(out, "  part {name}: {bytes}, {tensors}")?;
    }
    Ok(())
}

fn print_model(out: &mut dyn Write, file: &ModelFile, model: &Model) -> Result<()> {
    let numbers = &model.hyperparams;
    let name = output::one_line(&model.name);
    writeln!(
        out,
        "  {name}: family {}, {}",
        model.family.architecture,
        counted(model.parameters, "parameter")
    )?;
    writeln!(
        out,
        "  {}, hidden size {}, {}, {}, feed-forward {}, vocabulary {}, context {}",
        counted(numbers.n_layers, "layer"),
        numbers.hidden_size,
        counted(numbers.heads, "head"),
        counted(numbers.kv_heads, "KV head"),
        numbers.feed_forward,
        numbers.vocab,
        numbers.context_length
    )?;
    let weights = output::bytes(model.weights(file.gguf()).total_bytes());
    writeln!(out, "  memory: weights {weights}; KV cache of 1000 positions {}", kv_estimates(model))?;
    Ok(())
}

/// Bytes of 1000 positions in the KV cache, for each format.
fn kv_estimates(model: &Model) -> String {
    let estimate = |format: KvFormat| {
        let spec = model.kv_spec(format, format, minfer::KvOptions::default().layout, 64, 1).ok()?;
        Some(format!("{} ({format})", output::bytes(1000 * spec.bytes_per_token())))
    };
    KvFormat::ALL.into_iter().filter_map(estimate).collect::<Vec<_>>().join(", ")
}

/// A file as JSON.
#[derive(Serialize)]
struct Described<'a> {
    path: std::borrow::Cow<'a, str>,
    version: u32,
    bytes: u64,
    parts: Vec<serde_json::Value>,
    model: Option<serde_json::Value>,
    not_run: Option<&'a String>,
    metadata: Metadata<'a>,
    tensors: Vec<serde_json::Value>,
}

fn described<'a>(file: &'a ModelFile, model: &'a Result<Model, String>) -> Described<'a> {
    let gguf = file.gguf();
    let tensors = gguf.tensors().iter().map(|tensor| {
        json!({
            "name": tensor.name(),
            "type": tensor.tensor_type().to_string(),
            "dims": tensor.dims(),
            "bytes": tensor.byte_len(),
        })
    });
    let parts = gguf
        .parts()
        .iter()
        .map(|part| json!({"path": part.path().map(Path::to_string_lossy), "bytes": part.total_bytes(), "tensors": part.n_tensors()}));
    let summary = model.as_ref().ok().map(|model| {
        json!({
            "name": model.name,
            "family": model.family.architecture,
            "parameters": model.parameters,
            "n_layers": model.hyperparams.n_layers,
            "hidden_size": model.hyperparams.hidden_size,
            "width": model.hyperparams.hidden_size,
            "vocabulary": model.hyperparams.vocab,
            "context_length": model.hyperparams.context_length,
            "weight_bytes": model.weights(gguf).total_bytes(),
        })
    });
    Described {
        path: file.path().to_string_lossy(),
        version: gguf.version(),
        bytes: gguf.total_bytes(),
        parts: parts.collect(),
        model: summary,
        not_run: model.as_ref().err(),
        metadata: Metadata(gguf),
        tensors: tensors.collect(),
    }
}

/// The metadata, serialized as it is read: an array may be larger than memory.
struct Metadata<'a>(&'a File);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.metadata().iter().map(|(key, value)| (key, Written(value))))
    }
}

/// A metadata value.
struct Written<'a>(Value<'a>);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::String(bytes) => serializer.serialize_str(&String::from_utf8_lossy(bytes)),
            Value::Array(array) => serializer.collect_seq(array.iter().map(Written)),
            // By way of text, so that the number is as short as the f32 allows; one that is not
            // finite is null.
            Value::F32(value) => value.to_string().parse::<f64>().ok().serialize(serializer),
            number => match (number.as_integer(), number.as_float()) {
                (Some(integer), _) => match i64::try_from(integer) {
                    Ok(integer) => serializer.serialize_i64(integer),
                    Err(_) => serializer.serialize_u64(integer as u64),
                },
                (None, float) => float.serialize(serializer),
            },
        }
    }
}

/// A value in one short line.
fn brief(value: &Value<'_>) -> String {
    match value {
        Value::String(bytes) => quoted(&String::from_utf8_lossy(bytes)),
        Value::Array(array) => brief_array(array),
        Value::Bool(value) => value.to_string(),
        Value::F32(value) => value.to_string(),
        number => match (number.as_integer(), number.as_float()) {
            (Some(integer), _) => integer.to_string(),
            (None, float) => float.unwrap_or_default().to_string(),
        },
    }
}

fn quoted(text: &str) -> String {
    let short: String = text.chars().take(TEXT_SHOWN).collect();
    let rest = text.chars().count() - short.chars().count();
    if rest == 0 {
        format!("{short:?}")
    } else {
        format!("{short:?} and {} more", counted(rest, "character"))
    }
}

fn brief_array(array: &Array<'_>) -> String {
    let shown: Vec<_> = array.iter().take(ARRAY_SHOWN).map(|element| brief(&element)).collect();
    let rest = array.len() - shown.len();
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("[{}]{more}", shown.join(", "))
}

fn shape(tensor: &Tensor) -> String {
    tensor.dims().iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

fn draw(args: &ShowArgs, file: &ModelFile, format: GraphFormat) -> Result<()> {
    let model = file.model(&args.model_args.options())?;
    if let Some(layer) = args.layer.filter(|&layer| layer >= model.hyperparams.n_layers) {
        bail!("--layer {layer}: the model has layers 0 to {}", model.hyperparams.n_layers - 1);
    }
    let model_graph = if args.before {
        model.graph
    } else {
        let machine = Machine::new(&MachineOptions { threads: Some(1), ..MachineOptions::default() })?;
        minfer::prepared_graph(&machine, &model, &LoadOptions::default())?
    };
    let prefix = args.layer.map(|layer| format!("blk.{layer}.")).unwrap_or_default();
    let source = dot::render(&model_graph.body, &model_graph.weights, &prefix);
    let bytes = match format {
        GraphFormat::Dot => source.into_bytes(),
        GraphFormat::Json => format!("{}\n", graph_json(&model_graph, &prefix)).into_bytes(),
        GraphFormat::Svg => svg(&source)?,
    };
    output::answer(|out| Ok(out.write_all(&bytes)?))
}

/// The model graph as JSON; only nodes of the body whose names begin with `prefix`.
fn graph_json(model_graph: &ModelGraph, prefix: &str) -> serde_json::Value {
    if prefix.is_empty() {
        return minfer::graph::json::model_graph(model_graph);
    }
    let nodes = model_graph.body.nodes.iter().filter(|node| node.name.starts_with(prefix)).cloned().collect();
    minfer::graph::json::graph(&Graph { nodes, ..model_graph.body.clone() }, &model_graph.weights)
}

/// Runs Graphviz.
fn svg(source: &str) -> Result<Vec<u8>> {
    let mut child = Command::new("dot")
        .arg("-Tsvg")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("Graphviz's `dot` cannot be run; install the package graphviz, or use --graph dot")?;
    let mut input = child.stdin.take().context("dot has no stdin")?;
    // A thread writes while this one reads, so that no pipe stays full.
    let output = std::thread::scope(|scope| {
        let written = Builder::new().spawn_scoped(scope, move || input.write_all(source.as_bytes()));
        if let Err(error) = written {
            // Its input is closed, so it ends.
            let _ = child.wait();
            return Err(output::no_thread(error));
        }
        Ok(child.wait_with_output()?)
    })?;
    if !output.status.success() {
        bail!("dot: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}
