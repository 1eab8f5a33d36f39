//! `minfer perplexity`: exp of the mean negative log-likelihood over windows of a text.

use anyhow::{Result, bail};
use minfer::ContextLength;
use minfer::text::EncodeOptions;
use serde_json::json;

use super::context::Wanted;
use super::{input, scores};
use crate::args::PerplexityArgs;
use crate::counted::counted;
use crate::{loading, output};

pub(super) fn perplexity(args: &PerplexityArgs) -> Result<()> {
    let wanted = Wanted {
        what: format!("--window {}", args.window),
        tokens: args.window as usize,
        less: "a smaller --window",
    };
    wanted.check_asked(&args.context)?;
    let found = loading::find(&args.model)?;
    let text = input::file_text(&args.file)?;
    if text.is_empty() {
        bail!("{} is empty; a text of at least {} tokens is needed", args.file.display(), args.window);
    }
    let mut options = loading::load_options(&args.model_args, &args.tokenizer, &args.context);
    if options.n_ctx == ContextLength::Auto {
        options.n_ctx = ContextLength::AtMost(args.window + 1);
    }
    let (_, loaded) = loading::load(found, &args.context, &options)?;
    wanted.check(&loaded, &args.context)?;
    let ids = loaded.tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false })?;
    let bos = loaded.tokenizer.bos().filter(|_| loaded.tokenizer.adds_bos());
    let engine = loaded.into_engine()?;
    let window = args.window as usize;
    if ids.len() < window {
        bail!(
            "{} has {}, and a window needs {window}: give a longer text or a smaller --window",
            args.file.display(),
            counted(ids.len(), "token")
        );
    }
    let windows: Vec<_> = ids.chunks_exact(window).collect();
    let mut losses = Vec::new();
    for (index, tokens) in windows.iter().enumerate() {
        let mut tokens = tokens.to_vec();
        // A model that was trained with BOS gets it at the start of every window.
        if let Some(bos) = bos {
            tokens[0] = bos;
        }
        scores::score(&engine, tokens, 0, |row| {
            if row.position as usize >= window / 2 {
                losses.extend(row.next_logprob.map(|logprob| -f64::from(logprob)));
            }
            Ok(())
        })?;
        if output::stderr_is_terminal() {
            let all = counted(windows.len(), "window");
            output::note(&format!("{} of {all}: {:.4}", index + 1, mean(&losses).exp()));
        }
    }
    output::line(&report(args, &losses, windows.len()))
}

fn report(args: &PerplexityArgs, losses: &[f64], windows: usize) -> String {
    let (mean, count, window) = (mean(losses), losses.len(), args.window);
    let perplexity = mean.exp();
    if args.json {
        let row = json!({"perplexity": perplexity, "nll": mean, "tokens": count, "windows": windows, "window": window});
        row.to_string()
    } else {
        format!(
            "perplexity {perplexity:.4} (loss {mean:.5} over {} in {} of {window})",
            counted(count, "token"),
            counted(windows, "window")
        )
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
