//! `minfer tokenize` and `minfer detokenize`.

use std::io::Write;

use anyhow::Result;
use minfer::text::{DecodeOptions, EncodeOptions, Tokenizer};

use super::{input, lines};
use crate::args::{DetokenizeArgs, TokenizeArgs};
use crate::{loading, output};

pub(super) fn tokenize(args: &TokenizeArgs) -> Result<()> {
    let tokenizer = loading::find(&args.model)?.tokenizer(&args.vocabulary)?;
    let options = EncodeOptions { add_special: args.add_special, parse_special: !args.no_parse_special };
    if args.jsonl {
        return output::answer(|out| lines(tokenizer, options, out));
    }
    let text = args.text.clone().map_or_else(input::stdin_text, Ok)?;
    let ids = tokenizer.encode(&text, options)?;
    output::answer(|out| {
        if args.json {
            serde_json::to_writer(&mut *out, &ids).map_err(std::io::Error::from)?;
            return Ok(writeln!(out)?);
        }
        for id in ids {
            writeln!(out, "{id:>7}  {:?}", tokenizer.piece(id))?;
        }
        Ok(())
    })
}

/// One line of `--jsonl`.
#[derive(serde::Deserialize)]
struct Line {
    text: String,
    add_special: Option<bool>,
    parse_special: Option<bool>,
}

fn lines(tokenizer: Tokenizer, default: EncodeOptions, out: &mut dyn Write) -> Result<()> {
    lines::answer_each(out, move |line, answer| {
        let line: Line = lines::object(line, r#"{"text": "hi"}"#)?;
        let options = EncodeOptions {
            add_special: line.add_special.unwrap_or(default.add_special),
            parse_special: line.parse_special.unwrap_or(default.parse_special),
        };
        let ids = tokenizer.encode(&line.text, options)?;
        answer.push_str("{\"ids\":");
        answer.push_str(&serde_json::to_string(&ids)?);
        answer.push_str("}\n");
        Ok(())
    })
}

/// One line of `--jsonl`.
#[derive(serde::Deserialize)]
struct IdsLine {
    ids: Vec<u32>,
}

fn id_lines(tokenizer: Tokenizer, options: DecodeOptions, out: &mut dyn Write) -> Result<()> {
    lines::answer_each(out, move |line, answer| {
        let IdsLine { ids } = lines::object(line, r#"{"ids": [1, 2]}"#)?;
        input::check_ids(&ids, tokenizer.vocab_len())?;
        answer.push_str("{\"text\":");
        answer.push_str(&serde_json::to_string(&tokenizer.decode(&ids, options))?);
        answer.push_str("}\n");
        Ok(())
    })
}

/// Writes the text byte for byte; no line end is added.
pub(super) fn detokenize(args: &DetokenizeArgs) -> Result<()> {
    let tokenizer = loading::find(&args.model)?.tokenizer(&args.vocabulary)?;
    let options = DecodeOptions { show_special: !args.hide_special };
    if args.jsonl {
        return output::answer(|out| id_lines(tokenizer, options, out));
    }
    let ids = if args.ids.is_empty() { input::stdin_ids()? } else { args.ids.clone() };
    input::check_ids(&ids, tokenizer.vocab_len())?;
    let bytes = tokenizer.decode_bytes(&ids, options);
    output::answer(|out| Ok(out.write_all(&bytes)?))
}
