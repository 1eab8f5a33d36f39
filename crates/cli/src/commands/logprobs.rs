//! `minfer logprobs`: the most probable tokens after every token of a prompt.

use std::io::Write;

use anyhow::{Result, bail};
use minfer::engine::event::PromptRow;
use minfer::{ContextLength, LoadOptions};

use super::context::Wanted;
use super::run_stats::RunStats;
use super::{input, scores};
use crate::args::LogprobsArgs;
use crate::counted::counted;
use crate::{loading, output};

/// Prints one line of JSON for each position.
pub(super) fn logprobs(args: &LogprobsArgs) -> Result<()> {
    let found = loading::find(&args.model)?;
    let ids = input::stdin_ids()?;
    if ids.is_empty() {
        bail!("stdin has no token ids");
    }
    let what = format!("an array of {} on stdin", counted(ids.len(), "id"));
    let wanted = Wanted { what, tokens: ids.len(), less: "fewer ids" };
    wanted.check_asked(&args.context)?;
    let options = options(args, ids.len())?;
    let (machine, loaded) = loading::load(found, &args.context, &options)?;
    wanted.check(&loaded, &args.context)?;
    let stats = RunStats::new(&machine, &loaded);
    let engine = loaded.into_engine()?;
    input::check_ids(&ids, engine.vocab())?;
    output::answer(|out| scores::score(&engine, ids, args.top, |row| Ok(write_row(out, &row)?)))?;
    if args.facts {
        output::note(&stats.line(&engine.stats()).to_string());
    }
    Ok(())
}

/// Without `-c` the context has room for the ids and one token more.
fn options(args: &LogprobsArgs, ids: usize) -> Result<LoadOptions> {
    let mut options = loading::load_options(&args.model_args, &args.tokenizer, &args.context);
    let wanted = u32::try_from(ids + 1)?;
    if options.n_ctx == ContextLength::Auto {
        options.n_ctx = ContextLength::AtMost(wanted);
    }
    Ok(options)
}

/// Writes numbers in the shortest form that reads back to the same `f32`, so equal bits are equal
/// text.
fn write_row(out: &mut dyn Write, row: &PromptRow) -> std::io::Result<()> {
    let next = row.next_logprob.map_or("null".to_owned(), number);
    write!(out, "{{\"pos\":{},\"token\":{},\"next_logprob\":{next},\"top\":[", row.position, row.token)?;
    for (index, token) in row.top.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(out, "{comma}[{},{}]", token.id, number(token.logprob))?;
    }
    writeln!(out, "]}}")
}

/// A number as JSON; null if it is not finite.
fn number(value: f32) -> String {
    if value.is_finite() { format!("{value:?}") } else { "null".to_owned() }
}
