//! `minfer pull`, `minfer list` and `minfer rm`.

use std::path::Path;

use anyhow::Result;
use minfer::formats::gguf::Cause;
use minfer::models::ModelOptions;
use minfer::{LoadError, ModelFile};
use minfer_hub::{CATALOG, CacheDir, CachedModel, PullTarget};
use serde_json::{Value, json};

use super::show::reason;
use crate::args::{ListArgs, PullArgs, RmArgs};
use crate::counted::counted;
use crate::{loading, output};

/// Names of the files of a model that are printed.
const NAMES_SHOWN: usize = 4;

pub(super) fn pull(args: &PullArgs) -> Result<()> {
    let cache = loading::cache()?;
    let target = minfer_hub::pull_target(&args.name, &cache)?;
    if let PullTarget::Catalog(entry) = target
        && let Some(reason) = loading::not_run(entry.name)
    {
        output::note(&format!("warning: this build does not run {}: {reason}", entry.name));
    }
    let pulled = loading::pull(&target, &cache)?;
    let state = if pulled.already { "is there" } else { "pulled" };
    output::note(&format!("{state}: {} ({})", pulled.path.display(), output::bytes(pulled.bytes)));
    Ok(())
}

pub(super) fn list(args: &ListArgs) -> Result<()> {
    let listing = listing(&loading::cache()?)?;
    if args.json {
        return output::line(&listing);
    }
    output::answer(|out| {
        for group in ["models", "unfinished", "available"] {
            for row in listing[group].as_array().into_iter().flatten() {
                writeln!(out, "{}", line(group, row))?;
            }
        }
        Ok(())
    })
}

/// Models in the cache, interrupted pulls, and models that can be pulled.
fn listing(cache: &CacheDir) -> Result<Value> {
    let models = minfer_hub::list(cache)?;
    let missing = CATALOG.iter().filter(|entry| models.iter().all(|model| model.file != entry.file));
    let available: Vec<_> = missing
        .map(|entry| json!({"name": entry.name, "bytes": entry.bytes, "not_run": loading::not_run(entry.name)}))
        .collect();
    let unfinished: Vec<_> = minfer_hub::list_partials(cache)?
        .into_iter()
        .map(|partial| json!({"name": partial.file, "bytes": partial.bytes, "running": partial.running}))
        .collect();
    let models: Vec<_> = models
        .into_iter()
        .map(|model| {
            let (not_run, not_read) = match damage(&model) {
                Some(damage) => (Some(damage), None),
                None => faults(&model.path),
            };
            json!({
                "name": model.name,
                "file": model.file,
                "path": model.path.to_string_lossy(),
                "files": model.files,
                "bytes": model.bytes,
                "not_run": not_run,
                "not_read": not_read,
            })
        })
        .collect();
    Ok(json!({
        "folder": cache.path().to_string_lossy(),
        "models": models,
        "unfinished": unfinished,
        "available": available,
    }))
}

/// Why a catalogue file is not used: its size is wrong.
fn damage(model: &CachedModel) -> Option<String> {
    let entry = minfer_hub::find_in_catalog(model.catalog?)?;
    let differs = model.bytes != entry.bytes;
    differs.then(|| {
        format!(
            "it has {} and not {}: it is damaged; pull `{}` again",
            counted(model.bytes, "byte"),
            entry.bytes,
            entry.name
        )
    })
}

/// Why this build does not run a file, or why the file could not be read. Only the header is read.
fn faults(path: &Path) -> (Option<String>, Option<String>) {
    let read = |file: ModelFile| file.model(&ModelOptions::default());
    let Err(error) = ModelFile::open(path).and_then(read) else { return (None, None) };
    let reason = Some(reason(&error, path));
    match &error {
        LoadError::File(file) if matches!(file.cause(), Cause::Io(_)) => (None, reason),
        _ => (reason, None),
    }
}

fn line(group: &str, row: &Value) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    let name = text("name");
    let rest = match group {
        "models" => match row["files"].as_array().map_or(1, Vec::len) {
            1 => text("path").to_owned(),
            count => format!("{} and {}", text("path"), counted(count - 1, "more file")),
        },
        "unfinished" if row["running"] == true => "(being pulled by another process)".to_owned(),
        "unfinished" => "(an unfinished pull; pull again to go on, or remove it)".to_owned(),
        _ => format!("(minfer pull {name})"),
    };
    let mark = |key: &str, words: &str| row[key].as_str().map(|reason| format!("  [{words}: {reason}]"));
    let mark = mark("not_run", "cannot run").or_else(|| mark("not_read", "cannot be read now"));
    let bytes = output::bytes(row["bytes"].as_u64().unwrap_or_default());
    output::one_line(&format!("{name:24} {bytes:>12}  {rest}{}", mark.unwrap_or_default()))
}

pub(super) fn remove(args: &RmArgs) -> Result<()> {
    let removed = minfer_hub::remove(&args.name, &loading::cache()?)?;
    let bytes = output::bytes(removed.bytes);
    output::note(&output::one_line(&match removed.files.as_slice() {
        [] | [_] => format!("removed {}: {bytes} freed", removed.name),
        files => {
            format!("removed the {} parts of {}: {}; {bytes} freed", files.len(), removed.name, named(files))
        }
    }));
    Ok(())
}

/// Names of files; the first and the last of many.
fn named(files: &[String]) -> String {
    match files {
        [first, .., last] if files.len() > NAMES_SHOWN => format!("{first} to {last}"),
        files => files.join(", "),
    }
}
