//! `minfer perplexity`.

use anyhow::{Context, Result, bail};
use minfer::ContextLength;
use minfer::text::EncodeOptions;
use serde_json::json;

use super::scores;
use crate::args::PerplexityArgs;
use crate::{loading, output};

/// Scores a text window by window and prints exp of the mean loss.
pub(super) fn perplexity(args: &PerplexityArgs) -> Result<()> {
    let text = std::fs::read_to_string(&args.file).with_context(|| args.file.display().to_string())?;
    let mut options = loading::load_options(&args.model_args, &args.context)?;
    if options.n_ctx == ContextLength::Auto {
        options.n_ctx = ContextLength::AtMost(args.window + 1);
    }
    let (_, loaded) = loading::load_with(&args.model, &args.context, &options)?;
    let ids = loaded.tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false });
    let engine = loaded.into_engine()?;
    let window = args.window as usize;
    if ids.len() < window {
        bail!("{} has {} tokens, a window needs {window}; try --window", args.file.display(), ids.len());
    }
    let windows: Vec<_> = ids.chunks_exact(window).collect();
    let mut losses = Vec::new();
    for (index, tokens) in windows.iter().enumerate() {
        scores::score(&engine, tokens.to_vec(), 0, |row| {
            if row.position as usize + 1 >= window / 2 {
                losses.extend(row.next_logprob.map(|logprob| -f64::from(logprob)));
            }
            Ok(())
        })?;
        if output::stderr_is_terminal() {
            output::note(&format!("{} of {} windows: {:.4}", index + 1, windows.len(), mean(&losses).exp()));
        }
    }
    print(args, &losses, windows.len());
    Ok(())
}

fn print(args: &PerplexityArgs, losses: &[f64], windows: usize) {
    let (mean, count) = (mean(losses), losses.len());
    if args.json {
        let row = json!({"perplexity": mean.exp(), "nll": mean, "tokens": count, "windows": windows, "window": args.window});
        println!("{row}");
    } else {
        println!(
            "perplexity {:.4} (loss {mean:.5} over {count} tokens in {windows} windows of {})",
            mean.exp(),
            args.window
        );
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
