//! `minfer tokenize` and `minfer detokenize`.

use std::io::{BufRead, BufWriter, Write};

use anyhow::{Context, Result};
use minfer::text::{DecodeOptions, EncodeOptions, Tokenizer};

use super::input;
use crate::args::{DetokenizeArgs, TokenizeArgs};
use crate::loading;

/// Text to ids.
pub(super) fn tokenize(args: &TokenizeArgs) -> Result<()> {
    let tokenizer = loading::open(&args.model)?.tokenizer(args.tokenizer_pre.as_deref())?;
    let options = EncodeOptions { add_special: args.add_special, parse_special: !args.no_parse_special };
    let mut out = BufWriter::new(std::io::stdout().lock());
    if args.jsonl {
        return lines(&tokenizer, options, &mut out);
    }
    let text = args.text.clone().map_or_else(input::stdin_text, Ok)?;
    let ids = tokenizer.encode(&text, options);
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&ids)?)?;
    } else {
        for id in ids {
            writeln!(out, "{id:>7}  {:?}", tokenizer.piece(id))?;
        }
    }
    Ok(out.flush()?)
}

/// One line of `--jsonl`.
#[derive(serde::Deserialize)]
struct Line {
    text: String,
    add_special: Option<bool>,
    parse_special: Option<bool>,
}

fn lines(tokenizer: &Tokenizer, default: EncodeOptions, out: &mut impl Write) -> Result<()> {
    for (index, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.with_context(|| format!("line {} of stdin", index + 1))?;
        if line.trim().is_empty() {
            continue;
        }
        let line: Line =
            serde_json::from_str(&line).with_context(|| format!("line {} of stdin", index + 1))?;
        let options = EncodeOptions {
            add_special: line.add_special.unwrap_or(default.add_special),
            parse_special: line.parse_special.unwrap_or(default.parse_special),
        };
        let ids = tokenizer.encode(&line.text, options);
        writeln!(out, "{{\"ids\":{}}}", serde_json::to_string(&ids)?)?;
    }
    Ok(out.flush()?)
}

/// Ids to text.
pub(super) fn detokenize(args: &DetokenizeArgs) -> Result<()> {
    let tokenizer = loading::open(&args.model)?.tokenizer(None)?;
    let ids = if args.ids.is_empty() { input::stdin_ids()? } else { args.ids.clone() };
    input::check_ids(&ids, tokenizer.vocab_len())?;
    let bytes = tokenizer.decode_bytes(&ids, DecodeOptions { show_special: !args.hide_special });
    Ok(std::io::stdout().lock().write_all(&bytes)?)
}
