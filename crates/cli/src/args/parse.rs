//! From words and variables to a command.
//!
//! The words are read twice: alone, so that an error is about what was typed, and then with the
//! variables that no typed flag overrides.

use std::env;
use std::ffi::{OsStr, OsString};

use clap::builder::{BoolishValueParser, Resettable, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches};

use super::{Cli, Command, effects, first_word, spelling, variables};

/// First words that are neither a command nor a model.
const OWN_WORDS: [&str; 5] = ["help", "-h", "--help", "-V", "--version"];

/// A command line.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// The command.
    pub(crate) command: Command,
    /// What to say of the first word, taken for a model, if there is no such model.
    pub(crate) no_command: Option<String>,
    /// Flags without effect that are no error.
    pub(crate) notes: Vec<String>,
}

/// The command line as clap knows it. The help does not show values of variables, and a number may
/// be negative, so that one out of range is an error about its range.
pub(crate) fn definition() -> clap::Command {
    each_argument(Cli::command(), &|argument| {
        let takes_values = argument.get_action().takes_values();
        argument.hide_env_values(true).allow_negative_numbers(takes_values)
    })
}

fn each_argument(command: clap::Command, change: &dyn Fn(Arg) -> Arg) -> clap::Command {
    command.mut_subcommands(|command| command.mut_args(change))
}

fn without_variable(argument: Arg) -> Arg {
    argument.env(Resettable::Reset)
}

/// Reads a command line. One that begins with no command is that of `run`.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Parsed, clap::Error> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    if words.get(1).is_some_and(|word| word == "help") {
        // Help on help is help.
        words.retain(|word| word != "-h" && word != "--help");
    }
    let mut definition = definition();
    // Arguments have their spelling, and errors their usage, once it is built.
    definition.build();
    let is_own = |word: &OsString| OWN_WORDS.iter().any(|own| word == own);
    let first = words.get(1).filter(|word| !is_command(&definition, word) && !is_own(word)).cloned();
    if let Some(first) = &first {
        first_word::check(&definition, first)?;
        words.insert(1, "run".into());
    }
    let given = read(&definition, &mut words).map_err(|error| match &first {
        Some(first) if error.kind() == ErrorKind::UnknownArgument => {
            first_word::explain(error, &definition, first)
        }
        _ => error,
    })?;
    let notes = match given.subcommand() {
        Some((name, given)) => {
            effects::notes(name, given).map_err(|text| conflict(&definition, name, text))?
        }
        None => Vec::new(),
    };
    let command = Cli::from_arg_matches(&given)?.command;
    let no_command = match (&first, &command) {
        (Some(first), Command::Run(run)) => {
            first_word::check_model(&definition, first, &run.model)?;
            Some(format!("no command `{}`", run.model.to_string_lossy()))
        }
        _ => None,
    };
    Ok(Parsed { command, no_command, notes })
}

/// The arguments of a command line that begins with a command.
fn read(definition: &clap::Command, words: &mut [OsString]) -> Result<ArgMatches, clap::Error> {
    let typed_words = words.to_vec();
    let command = words.get(1).and_then(|name| definition.find_subcommand(name));
    if let Some(command) = command {
        spelling::rewrite(command, words.get_mut(2..).unwrap_or_default());
    }
    let typed = match each_argument(self::definition(), &without_variable).try_get_matches_from(&*words) {
        // The help names the variables.
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            self::definition().try_get_matches_from(&*words)
        }
        typed => typed,
    };
    let typed = typed.map_err(|error| spelling::explain(error, command, &typed_words))?;
    let (Some(command), Some((_, given))) = (command, typed.subcommand()) else { return Ok(typed) };
    if is_on(given, "knobs") {
        return Ok(typed);
    }
    variables::check(definition)?;
    let is_unused = |argument: &Arg| is_off(argument) || is_overridden(command, given, argument);
    let change = |argument: Arg| if is_unused(&argument) { without_variable(argument) } else { argument };
    each_argument(self::definition(), &change)
        .try_get_matches_from(&*words)
        .map_err(|error| variables::name(error, definition))
}

/// Whether a variable is empty, or switches something off.
fn is_off(argument: &Arg) -> bool {
    let Some(value) = argument.get_env().and_then(env::var_os) else { return false };
    let is_false = || {
        let value = BoolishValueParser::new().parse_ref(&clap::Command::new("minfer"), None, &value);
        matches!(argument.get_action(), ArgAction::SetTrue) && matches!(value, Ok(false))
    };
    value.is_empty() || is_false()
}

/// Whether a typed flag conflicts with a flag that only its variable sets.
fn is_overridden(command: &clap::Command, given: &ArgMatches, argument: &Arg) -> bool {
    let conflict = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|found| found.get_id() == other.get_id())
    };
    let Some(argument) = command.get_arguments().find(|known| known.get_id() == argument.get_id()) else {
        return false;
    };
    command
        .get_arguments()
        .filter(|other| is_typed(given, other.get_id().as_str()))
        .any(|other| conflict(argument, other) || conflict(other, argument))
}

/// Whether a flag was typed.
pub(super) fn is_typed(given: &ArgMatches, name: &str) -> bool {
    given.try_contains_id(name).is_ok() && given.value_source(name) == Some(ValueSource::CommandLine)
}

/// Whether a flag was typed or has a variable.
pub(super) fn is_given(given: &ArgMatches, name: &str) -> bool {
    let source = given.try_contains_id(name).ok().and_then(|_| given.value_source(name));
    matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

/// Whether a command has a switch, and it is on.
pub(super) fn is_on(given: &ArgMatches, name: &str) -> bool {
    given.try_get_one::<bool>(name).ok().flatten() == Some(&true)
}

pub(super) fn is_command(definition: &clap::Command, word: &OsStr) -> bool {
    definition.find_subcommand(word).is_some()
}

/// A usage error that shows the usage of a command.
pub(super) fn conflict(definition: &clap::Command, name: &str, text: String) -> clap::Error {
    let command = definition.find_subcommand(name).unwrap_or(definition);
    command.clone().error(ErrorKind::ArgumentConflict, text)
}

/// Why the value that a variable has now cannot be used by a command that reads it; `None` where it
/// can.
pub(crate) fn variable_fault(command: &str, variable: &str) -> Option<String> {
    let only_this = |argument: Arg| {
        let is_this = argument.get_env().is_some_and(|name| name == variable);
        if is_this { argument } else { without_variable(argument) }
    };
    // Words that the command lacks are found after its variables are read.
    let error = each_argument(definition(), &only_this).try_get_matches_from(["minfer", command]).err()?;
    let of_value =
        matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8);
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    of_value.then(|| line.trim_start_matches("error: ").to_owned())
}
