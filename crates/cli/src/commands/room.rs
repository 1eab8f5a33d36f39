//! Errors about a context that is too short, with the flags that need less of it or give more.

use anyhow::{Error, Result, bail};
use minfer::engine::{EngineError, SubmitError};
use minfer::tensor::counted;
use minfer::{Loaded, Stretch};

use crate::args::{AnswerArgs, ContextArgs};
use crate::loading::{self, Bound};
use crate::wording;

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
    /// Refuses what does not fit the context that flags ask for. Nothing needs to be loaded for that.
    pub(super) fn check_asked(&self, context: &ContextArgs) -> Result<()> {
        match context.n_ctx {
            0 => Ok(()),
            n_ctx => self.fits(n_ctx, "-c gives", "a larger -c"),
        }
    }

    /// Refuses what does not fit the context of a loaded model.
    pub(super) fn check(&self, loaded: &Loaded, context: &ContextArgs) -> Result<()> {
        if let Some(bound) = loaded.context_bound {
            let Bound { allows, more } = Bound::of(loaded, bound, loading::kv_options(context));
            return self.fits(loaded.n_ctx, allows, &more);
        }
        let longer = match loaded.stretch {
            Stretch::Never => "",
            Stretch::Scaling => "a longer context (--rope-scaling, --rope-scale)",
            Stretch::Scale => "a longer context (a larger --rope-scale)",
            Stretch::FreqScale => "a longer context (a smaller --rope-freq-scale)",
        };
        self.fits(loaded.n_ctx, "the model's has", longer)
    }

    fn fits(&self, n_ctx: u32, has: &str, more: &str) -> Result<()> {
        let Wanted { what, tokens, less } = self;
        if *tokens <= n_ctx as usize {
            return Ok(());
        }
        let more = if more.is_empty() { String::new() } else { format!(", or {more}") };
        bail!("{what} needs a context of {}, and {has} {n_ctx}: give {less}{more}", counted(*tokens, "token"))
    }
}

/// What gives a loaded model a longer context; known also when an engine has taken the model.
pub(super) struct Longer {
    /// Positions that there are.
    pub(super) n_ctx: u32,
    longest: u32,
    stretch: Stretch,
    /// What allows no more of them than there are.
    bound: Option<Bound>,
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
            bound: loaded.context_bound.map(|bound| Bound::of(loaded, bound, kv)),
            shifts: args.context_shift,
        }
    }

    /// What gives a context of `needed` positions, as a clause with its separator.
    pub(super) fn clause(&self, needed: usize) -> String {
        if needed <= self.longest as usize {
            return match &self.bound {
                None => "; -c gives a larger one".to_owned(),
                Some(Bound { allows, more }) if more.is_empty() => format!("; {allows} no more"),
                Some(Bound { allows, more }) => format!("; {allows} no more, {more} gives more"),
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
    pub(super) fn explain(&self, error: Error) -> Error {
        match self.explained(&error) {
            None => error,
            Some(text) => error.context(text),
        }
    }

    fn explained(&self, error: &Error) -> Option<String> {
        if let Some(error @ SubmitError::ExceedsContext { n_prompt_tokens, .. }) = error.downcast_ref() {
            return Some(wording::text(error) + &self.clause(n_prompt_tokens + 1));
        }
        let error = error.downcast_ref()?;
        let EngineError::ExceedsContext { n_prompt_tokens, n_new_tokens, n_ctx } = error else { return None };
        let mut text = wording::text(error) + &self.clause(n_prompt_tokens + 1);
        if n_new_tokens < n_ctx && !self.shifts {
            text += "; --context-shift forgets the oldest part of a conversation instead";
        }
        Some(text)
    }
}
