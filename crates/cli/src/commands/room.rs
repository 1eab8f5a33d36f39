//! Refusing what the context has no room for, in the words of the flags that ask for it.

use anyhow::{Result, bail};
use minfer::Loaded;
use minfer::models::LayerSet;
use minfer::tensor::counted;

use crate::args::ContextArgs;
use crate::loading;

/// Something that was asked for, and the context that it needs.
pub(super) struct Wanted {
    /// What it is, such as `--window 512`.
    pub(super) what: String,
    /// The tokens that must be in the context together.
    pub(super) tokens: usize,
    /// What would need a smaller context, such as `a smaller --window`.
    pub(super) less: &'static str,
}

impl Wanted {
    /// Refuses what a context that was asked for has no room for. Nothing needs to be loaded for that.
    pub(super) fn check_asked(&self, context: &ContextArgs) -> Result<()> {
        let asked = context.n_ctx as usize;
        if asked == 0 || self.tokens <= asked {
            return Ok(());
        }
        bail!("{}, and -c gives {asked}: give a larger -c, or {}", self.needs(), self.less)
    }

    /// Refuses what the context of a loaded model has no room for.
    pub(super) fn check(&self, loaded: &Loaded, context: &ContextArgs) -> Result<()> {
        let n_ctx = loaded.n_ctx;
        if self.tokens <= n_ctx as usize {
            return Ok(());
        }
        let (has, mut more) = match loaded.context_bound {
            Some(bound) => loading::what_bounds(loaded, bound, loading::kv_options(context)),
            None => ("the model's has", longer(loaded)),
        };
        more.insert(0, self.less.to_owned());
        bail!("{}, and {has} {n_ctx}: give {}", self.needs(), more.join(", or "))
    }

    fn needs(&self) -> String {
        format!("{} needs a context of {}", self.what, counted(self.tokens, "token"))
    }
}

/// How a model's context becomes longer, where it can.
fn longer(loaded: &Loaded) -> Vec<String> {
    match loaded.model.hyperparams.attention.rotated {
        LayerSet::None => Vec::new(),
        _ => vec!["a longer context (--rope-scaling, --rope-scale)".to_owned()],
    }
}
