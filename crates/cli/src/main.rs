//! The `minfer` binary: local language models in a terminal.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod loading;
mod output;

use std::process::ExitCode;

fn main() -> ExitCode {
    output::report_panics_in_one_line();
    let cli = match args::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    match commands::dispatch(cli.command) {
        Ok(code) => code,
        Err(error) => output::failure(&error),
    }
}
