//! Errors about a context that is too short, with the flags that need less of it or give more.

use anyhow::{Error, Result, bail};
use minfer::engine::{EngineError, SubmitError};
use minfer::{Loaded, Stretch};

use crate::args::{AnswerArgs, ContextArgs};
use crate::counted::counted;
use crate::loading::{self, Bound};
use crate::wording;

/// A request for tokens, and the flags that ask for it.
pub(super) struct Wanted {
    /// What it is, such as `--window 512`.
    pub(super) what: String,
    /// The tokens that must be in the context together.
    pub(super) tokens: usize,
    /// What would need a smaller context, such as `a smaller --window`.
    pub(super) less: &'static str,
}

impl Wanted {
    /// Fails if the context that `-c` asks for is too short. Nothing is loaded yet.
    pub(super) fn check_asked(&self, context: &ContextArgs) -> Result<()> {
        match context.n_ctx {
            0 => Ok(()),
            n_ctx => self.fits(n_ctx, "-c gives", "a larger -c"),
        }
    }

    /// Fails if the context of a loaded model is too short.
    pub(super) fn check(&self, loaded: &Loaded, context: &ContextArgs) -> Result<()> {
        if let Some(bound) = loaded.context_bound {
            let Bound { allows, more } = Bound::of(loaded, bound, loading::kv_options(context));
            return self.fits(loaded.n_ctx, allows, &more);
        }
        let hint = wording::stretch_hint(loaded.stretch);
        let longer = hint.map(|hint| format!("a longer context ({hint})")).unwrap_or_default();
        self.fits(loaded.n_ctx, "the model's has", &longer)
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

/// What gives a longer context than a loaded model has.
pub(super) struct Longer {
    pub(super) n_ctx: u32,
    longest: u32,
    stretch: Stretch,
    bound: Option<Bound>,
    /// Whether there is a context shift.
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

    /// A suggestion for a context of `needed` positions, with its separator.
    pub(super) fn clause(&self, needed: usize) -> String {
        if needed <= self.longest as usize {
            return match &self.bound {
                None => "; -c gives a larger one".to_owned(),
                Some(Bound { allows, more }) if more.is_empty() => format!("; {allows} no more"),
                Some(Bound { allows, more }) => format!("; {allows} no more, {more} gives more"),
            };
        }
        let (most, limit) = (
            self.longest,
            match self.stretch {
                Stretch::Never | Stretch::Scaling => "the model's own has",
                Stretch::Scale => "--rope-scale allows",
                Stretch::FreqScale => "--rope-freq-scale allows",
            },
        );
        match wording::stretch_hint(self.stretch) {
            None => format!("; {limit} {most}, and its learned positions end there"),
            Some(hint) => format!("; {limit} {most}, a longer one needs {hint}, and -c"),
        }
    }

    /// Adds a suggestion to an error about a context that is too short.
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
