//! The `minfer` binary: local language models in a terminal.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod counted;
mod http;
mod loading;
mod output;
mod progress_line;
mod signals;
mod wording;

use std::process::ExitCode;

use minfer_hub::HubError;

fn main() -> ExitCode {
    output::report_panics_in_one_line();
    signals::let_full_files_be_errors();
    minfer::spare_addresses();
    std::panic::catch_unwind(work).unwrap_or(ExitCode::from(output::FAILED))
}

fn work() -> ExitCode {
    let parsed = match args::parse(std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(error) => return output::usage(&error),
    };
    for note in &parsed.notes {
        output::note(&format!("note: {note}"));
    }
    let unknown = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(HubError::UnknownModel { .. }));
    match (commands::dispatch(parsed.command), parsed.no_command) {
        (Ok(code), _) => code,
        (Err(error), Some(no_command)) if unknown(&error) => output::failure(&error.context(no_command)),
        (Err(error), _) => output::failure(&error),
    }
}
