//! Refusing what the context has no room for, in the words of the flags that ask for it.

use anyhow::{Error, Result, bail};
use minfer::engine::{EngineError, SubmitError};
use minfer::tensor::counted;
use minfer::{Loaded, Stretch};

use crate::args::{AnswerArgs, ContextArgs};
use crate::{loading, refusal};

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
            None => ("the model's has", longer(loaded.stretch)),
        };
        more.insert(0, self.less.to_owned());
        bail!("{}, and {has} {n_ctx}: give {}", self.needs(), more.join(", or "))
    }

    fn needs(&self) -> String {
        format!("{} needs a context of {}", self.what, counted(self.tokens, "token"))
    }
}

/// How a model's context becomes longer, where it can.
fn longer(stretch: Stretch) -> Vec<String> {
    let flags = match stretch {
        Stretch::Never => return Vec::new(),
        Stretch::Scaling => "--rope-scaling, --rope-scale",
        Stretch::Scale => "a larger --rope-scale",
        Stretch::FreqScale => "a smaller --rope-freq-scale",
    };
    vec![format!("a longer context ({flags})")]
}

/// What gives a loaded model a longer context; known also when an engine has taken the model.
pub(super) struct Longer {
    /// Positions that there are.
    pub(super) n_ctx: u32,
    longest: u32,
    stretch: Stretch,
    /// What allows no more of them than there are, and what gives more.
    bound: Option<(&'static str, Vec<String>)>,
    /// Whether the oldest is forgotten where room runs out.
    shifts: bool,
}

impl Longer {
    pub(super) fn of(loaded: &Loaded, args: &AnswerArgs) -> Longer {
        let kv = loading::kv_options(&args.context);
        Longer {
            n_ctx: loaded.n_ctx,
            longest: loaded.longest_n_ctx,
            stretch: loaded.stretch,
            bound: loaded.context_bound.map(|bound| loading::what_bounds(loaded, bound, kv)),
            shifts: args.context_shift,
        }
    }

    /// What gives a context of `needed` positions, as a clause with its separator.
    pub(super) fn clause(&self, needed: usize) -> String {
        if needed <= self.longest as usize {
            return match &self.bound {
                None => "; -c gives a larger one".to_owned(),
                Some((allows, more)) if more.is_empty() => format!("; {allows} no more"),
                Some((allows, more)) => format!("; {allows} no more, {} gives more", more.join(" or ")),
            };
        }
        let most = self.longest;
        match self.stretch {
            Stretch::Never => format!("; the model's own has {most}, and its learned positions end there"),
            Stretch::Scaling => format!(
                "; the model's own has {most}, a longer one needs --rope-scaling with --rope-scale, and -c"
            ),
            Stretch::Scale => {
                format!("; --rope-scale allows {most}, a longer one needs a larger --rope-scale, and -c")
            }
            Stretch::FreqScale => {
                format!(
                    "; --rope-freq-scale allows {most}, a longer one needs a smaller --rope-freq-scale, and -c"
                )
            }
        }
    }

    /// A failure with what helps where it is one of room.
    pub(super) fn advise(&self, error: Error) -> Error {
        match self.advice(&error) {
            None => error,
            Some((text, advice)) => error.context(text + &advice),
        }
    }

    fn advice(&self, error: &Error) -> Option<(String, String)> {
        if let Some(error @ SubmitError::ExceedsContext { n_prompt_tokens, .. }) = error.downcast_ref() {
            return Some((refusal::text(error), self.clause(n_prompt_tokens + 1)));
        }
        let error = error.downcast_ref()?;
        let EngineError::ExceedsContext { n_prompt_tokens, n_new_tokens, n_ctx } = error else { return None };
        let mut advice = self.clause(n_prompt_tokens + 1);
        if n_new_tokens < n_ctx && !self.shifts {
            advice += "; --context-shift forgets the oldest part of a conversation instead";
        }
        Some((refusal::text(error), advice))
    }
}
