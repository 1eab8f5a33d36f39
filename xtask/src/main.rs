//! Development commands, run as `cargo xtask COMMAND`. One module for each command.
#![forbid(unsafe_code)]

mod ci;
mod clients;
mod compare;
mod docs;
mod models;
mod mutants;
mod peer;
mod size;
mod sound;
mod spec;
mod support;
mod test;
mod vectors;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Test(test::Args),
    Ci(ci::Args),
    Clients(clients::Args),
    FetchModels(models::Args),
    Compare(compare::Args),
    Size(size::Args),
    Docs(docs::Args),
    Mutants(mutants::Args),
    Sound(sound::Args),
}

fn main() -> ExitCode {
    match dispatch(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Test(args) => test::run(args),
        Command::Ci(args) => ci::run(args),
        Command::Clients(args) => clients::run(args),
        Command::FetchModels(args) => models::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Size(args) => size::run(args),
        Command::Docs(args) => docs::run(args),
        Command::Mutants(args) => mutants::run(args),
        Command::Sound(args) => sound::run(args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
