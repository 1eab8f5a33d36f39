//! One file for each command.

mod answer;
mod bench;
mod chat;
mod completions;
mod context;
mod doctor;
mod input;
mod knobs;
mod kv;
mod lines;
mod list;
mod logprobs;
mod perplexity;
mod prompt;
mod run;
mod run_stats;
mod scores;
mod serve;
mod session;
mod show;
mod tokenize;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Command;

/// Carries out a command.
pub(crate) fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(args) => return run::run(&args),
        Command::Chat(args) => return chat::chat(&args),
        Command::Serve(args) => serve::serve(*args),
        Command::Pull(args) => list::pull(&args),
        Command::List(args) => list::list(&args),
        Command::Rm(args) => list::remove(&args),
        Command::Show(args) => show::show(&args),
        Command::Tokenize(args) => tokenize::tokenize(&args),
        Command::Detokenize(args) => tokenize::detokenize(&args),
        Command::Logprobs(args) => logprobs::logprobs(&args),
        Command::Perplexity(args) => perplexity::perplexity(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Completions(args) => completions::completions(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}
