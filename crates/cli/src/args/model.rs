//! Flags of models, contexts and the machine.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use minfer::cpu::Isa;
use minfer::graph::{KvFormat, KvGranule, KvLayout, passes};
use minfer::models::{MetadataOverride, ModelOptions, RopeOverrides, RopeScalingKind};

use super::values;

/// Help heading of flags for checks and measurements; they change no answer.
pub(super) const DEVELOPER: &str = "Developer options";

/// Flags of the tokenizer.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct TokenizerArgs {
    /// Pre-tokenizer in place of the file's, by name.
    #[arg(long, value_name = "NAME", env = "MINFER_TOKENIZER_PRE")]
    pub(crate) tokenizer_pre: Option<String>,
}

/// Flags of commands that use the tokenizer alone.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct VocabularyArgs {
    #[command(flatten)]
    pub(crate) tokenizer: TokenizerArgs,
    /// Metadata in place of the file's: KEY=TYPE:VAL with the types int, float, bool, str; may be repeated.
    #[arg(long, value_name = "KEY=TYPE:VAL", env = "MINFER_OVERRIDE_KV")]
    pub(crate) override_kv: Vec<MetadataOverride>,
}

/// Overrides of the file's metadata.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Metadata in place of the file's: KEY=TYPE:VAL with the types int, float, bool, str; may be
    /// repeated.
    #[arg(long, value_name = "KEY=TYPE:VAL", env = "MINFER_OVERRIDE_KV")]
    pub(crate) override_kv: Vec<MetadataOverride>,
    /// Rope scaling beyond the trained context; linear and yarn need a factor, the file's or
    /// --rope-scale.
    #[arg(long, value_name = "METHOD", env = "MINFER_ROPE_SCALING", value_parser = rope_scaling())]
    pub(crate) rope_scaling: Option<RopeScalingKind>,
    /// How many times longer the context becomes.
    #[arg(long, value_name = "N", env = "MINFER_ROPE_SCALE", value_parser = values::within(RopeOverrides::FACTOR))]
    pub(crate) rope_scale: Option<f64>,
    /// Base of the rope frequencies.
    #[arg(long, value_name = "N", env = "MINFER_ROPE_FREQ_BASE", value_parser = values::within(RopeOverrides::BASE))]
    pub(crate) rope_freq_base: Option<f64>,
    /// Factor of the rope frequencies, the inverse of --rope-scale.
    #[arg(long, value_name = "N", env = "MINFER_ROPE_FREQ_SCALE", conflicts_with = "rope_scale", value_parser = values::within(RopeOverrides::FACTOR))]
    pub(crate) rope_freq_scale: Option<f64>,
    /// YaRN: the context length of training.
    #[arg(long, value_name = "N", env = "MINFER_YARN_ORIG_CTX", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) yarn_orig_ctx: Option<u32>,
    /// YaRN: weight of extrapolation.
    #[arg(long, value_name = "N", env = "MINFER_YARN_EXT_FACTOR", value_parser = values::ext_factor)]
    pub(crate) yarn_ext_factor: Option<f64>,
    /// YaRN: factor on the magnitude.
    #[arg(long, value_name = "N", env = "MINFER_YARN_ATTN_FACTOR", value_parser = values::within(RopeOverrides::MAGNITUDE))]
    pub(crate) yarn_attn_factor: Option<f64>,
    /// YaRN: turns above which a pair keeps its frequency.
    #[arg(long, value_name = "N", env = "MINFER_YARN_BETA_FAST", value_parser = values::within(RopeOverrides::TURNS))]
    pub(crate) yarn_beta_fast: Option<f64>,
    /// YaRN: turns below which a pair is fully interpolated.
    #[arg(long, value_name = "N", env = "MINFER_YARN_BETA_SLOW", value_parser = values::within(RopeOverrides::TURNS))]
    pub(crate) yarn_beta_slow: Option<f64>,
}

impl ModelArgs {
    /// The overrides as the models crate takes them.
    pub(crate) fn options(&self) -> ModelOptions {
        ModelOptions {
            metadata: self.override_kv.clone(),
            rope: RopeOverrides {
                scaling: self.rope_scaling,
                scale: self.rope_scale,
                freq_base: self.rope_freq_base,
                freq_scale: self.rope_freq_scale,
                yarn_original_context: self.yarn_orig_ctx,
                yarn_ext_factor: self.yarn_ext_factor,
                yarn_attn_factor: self.yarn_attn_factor,
                yarn_beta_fast: self.yarn_beta_fast,
                yarn_beta_slow: self.yarn_beta_slow,
            },
            ..ModelOptions::default()
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsaArg {
    /// The widest that the processor has.
    Auto,
    /// Portable code.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 with VNNI.
    Avx512,
}

impl IsaArg {
    /// `None` is the widest.
    pub(crate) fn isa(self) -> Option<Isa> {
        match self {
            IsaArg::Auto => None,
            IsaArg::Scalar => Some(Isa::Scalar),
            IsaArg::Avx2 => Some(Isa::Avx2),
            IsaArg::Avx512 => Some(Isa::Avx512),
        }
    }
}

/// Flags of the context and the machine.
#[derive(Debug, Args)]
#[command(next_help_heading = "Context and machine")]
pub(crate) struct ContextArgs {
    /// Number of threads; by default one for each physical core.
    #[arg(short = 't', long, value_name = "N", env = "MINFER_THREADS",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Instruction set.
    #[arg(long, value_name = "SET", default_value = "auto", env = "MINFER_ISA", help_heading = DEVELOPER)]
    pub(crate) isa: IsaArg,
    /// Context length in tokens; 0 = the model's, or what memory allows.
    #[arg(
        short = 'c',
        long,
        visible_alias = "ctx-size",
        value_name = "N",
        default_value_t = 0,
        env = "MINFER_N_CTX",
        value_parser = values::positions
    )]
    pub(crate) n_ctx: u32,
    /// Most tokens in one forward pass (batch).
    #[arg(short = 'b', long, visible_alias = "batch-size", value_name = "N", default_value_t = 512,
          env = "MINFER_N_BATCH", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) n_batch: u32,
    /// Format of the KV cache, both K and V.
    #[arg(long, value_name = "TYPE", env = "MINFER_CACHE_TYPE", value_parser = kv_format())]
    pub(crate) cache_type: Option<KvFormat>,
    /// Format of K in the KV cache; also -ctk.
    #[arg(long, alias = "ctk", value_name = "TYPE", env = "MINFER_CACHE_TYPE_K", value_parser = kv_format())]
    pub(crate) cache_type_k: Option<KvFormat>,
    /// Format of V in the KV cache; also -ctv.
    #[arg(long, alias = "ctv", value_name = "TYPE", env = "MINFER_CACHE_TYPE_V", value_parser = kv_format())]
    pub(crate) cache_type_v: Option<KvFormat>,
    /// Order of the elements in the KV cache.
    #[arg(long, value_name = "LAYOUT", default_value = "lane-major", env = "MINFER_KV_LAYOUT",
          value_parser = kv_layout(), help_heading = DEVELOPER)]
    pub(crate) kv_layout: KvLayout,
    /// Most memory for weights, tokenizer, workspace and KV cache together (800M, 4G); by default
    /// what is free.
    #[arg(long, value_name = "BYTES", env = "MINFER_MEMORY_LIMIT", value_parser = values::bytes)]
    pub(crate) memory_limit: Option<u64>,
    /// Most memory for the KV cache (200M, 1G); by default that of the whole context.
    #[arg(long, value_name = "BYTES", env = "MINFER_KV_MEMORY", value_parser = values::bytes)]
    pub(crate) kv_memory: Option<u64>,
    /// Allocation unit of the KV cache (granularity): page, huge (the system's huge page), or bytes
    /// (64k).
    #[arg(long, value_name = "UNIT", default_value = "page", env = "MINFER_KV_GRANULE", value_parser = values::granule,
          help_heading = DEVELOPER)]
    pub(crate) kv_granule: KvGranule,
    /// Graph rewrites to leave out, by name, or all; answers stay the same in every bit.
    #[arg(long, value_name = "NAMES", env = "MINFER_REWRITES_OFF", value_delimiter = ',',
          value_parser = rewrite_names(), help_heading = DEVELOPER)]
    pub(crate) rewrites_off: Vec<String>,
}

impl ContextArgs {
    /// Names of the rewrites that are left out.
    pub(crate) fn rewrites_off(&self) -> Vec<String> {
        if self.rewrites_off.iter().any(|name| name == ALL_REWRITES) {
            return passes::names().into_iter().map(str::to_owned).collect();
        }
        self.rewrites_off.clone()
    }
}

/// Stands for every rewrite.
const ALL_REWRITES: &str = "all";

fn rewrite_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(passes::names().into_iter().chain([ALL_REWRITES]))
}

fn kv_format() -> impl TypedValueParser<Value = KvFormat> {
    PossibleValuesParser::new(KvFormat::ALL.map(KvFormat::name)).try_map(|name| name.parse::<KvFormat>())
}

fn kv_layout() -> impl TypedValueParser<Value = KvLayout> {
    PossibleValuesParser::new(KvLayout::ALL.map(KvLayout::name)).try_map(|name| name.parse::<KvLayout>())
}

fn rope_scaling() -> impl TypedValueParser<Value = RopeScalingKind> {
    let names = RopeScalingKind::ALL.map(RopeScalingKind::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<RopeScalingKind>())
}
