//! From words and variables to a command.

use std::env;
use std::ffi::OsString;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches};

use super::spellings::Typed;
use super::{Cli, Command, conflicts, effects, first_word};

/// Words that are no command and yet no model.
const OWN_WORDS: [&str; 5] = ["help", "-h", "--help", "-V", "--version"];

/// A command line that is understood.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// The command.
    pub(crate) command: Command,
    /// What to say of the first word, taken for a model, if there is no such model.
    pub(crate) no_command: Option<String>,
    /// What to say of flags that have no effect.
    pub(crate) notes: Vec<String>,
}

/// The command line as clap knows it. The help does not depend on variables, and a number may be negative, so that one
/// out of range is refused as such.
pub(crate) fn definition() -> clap::Command {
    each_argument(Cli::command(), &|argument| {
        let takes_values = argument.get_action().takes_values();
        argument.hide_env_values(true).allow_negative_numbers(takes_values)
    })
}

/// An empty variable is one that is not set.
fn without_empty_variables(argument: Arg) -> Arg {
    let empty = argument.get_env().and_then(env::var_os).is_some_and(|value| value.is_empty());
    if empty { without_variable(argument) } else { argument }
}

fn without_variable(argument: Arg) -> Arg {
    argument.env(Resettable::Reset)
}

fn each_argument(command: clap::Command, change: &dyn Fn(Arg) -> Arg) -> clap::Command {
    command.mut_subcommands(|command| command.mut_args(change))
}

/// Reads a command line. One that begins with no command is that of `run`.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Parsed, clap::Error> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let first = words.get(1).map(|word| word.to_string_lossy().into_owned());
    if first.as_deref() == Some("help") {
        // All that can follow is a command; help on help is help.
        words.retain(|word| word != "-h" && word != "--help");
        check_help(words.get(2))?;
    }
    let lists_knobs = first.as_deref() == Some("doctor") && words.iter().any(|word| word == "--knobs");
    let change = if lists_knobs { without_variable } else { without_empty_variables };
    let definition = each_argument(definition(), &change);
    let short_form =
        first.filter(|word| !is_command(&definition, word) && !OWN_WORDS.contains(&word.as_str()));
    let Some(word) = short_form else {
        let (matches, notes) = spelled(&definition, &mut words)?;
        let Cli { command } = Cli::from_arg_matches(&matches)?;
        return Ok(Parsed { command, no_command: None, notes });
    };
    words.insert(1, "run".into());
    parse_short(&definition, &word, &mut words)
}

/// Refuses help on a command whose name is mistyped.
fn check_help(command: Option<&OsString>) -> Result<(), clap::Error> {
    let mut definition = definition();
    let word = command.and_then(|word| word.to_str()).filter(|word| !is_command(&definition, word));
    match word.and_then(|word| first_word::mistyped_after_help(&definition, word)) {
        Some(text) => Err(definition.error(ErrorKind::InvalidSubcommand, text)),
        None => Ok(()),
    }
}

/// Reads a command line without a command, to which that of `run` has been added. `first` is the word after it.
fn parse_short(
    definition: &clap::Command,
    first: &str,
    words: &mut [OsString],
) -> Result<Parsed, clap::Error> {
    let no_command = |text| definition.clone().error(ErrorKind::InvalidSubcommand, text);
    let has_flags_first = first.starts_with('-');
    if !has_flags_first && let Some(text) = first_word::mistyped(definition, first) {
        return Err(no_command(text));
    }
    let read = spelled(definition, words)
        .and_then(|(matches, notes)| Ok((Cli::from_arg_matches(&matches)?.command, notes)));
    let (command, notes) = read.map_err(|error| match first_word::unknown(first) {
        Some(text) if error.kind() == ErrorKind::UnknownArgument && !has_flags_first => no_command(text),
        _ => error,
    })?;
    let Command::Run(run) = &command else { return Ok(Parsed { command, no_command: None, notes }) };
    if is_command(definition, &run.model) {
        let text = format!("flags come after the command: minfer {} ...", run.model);
        return Err(of_command(definition, &run.model).error(ErrorKind::ArgumentConflict, text));
    }
    if let Some(text) = first_word::mistyped(definition, &run.model).filter(|_| has_flags_first) {
        return Err(no_command(text));
    }
    let no_command = Some(format!("no command `{}`", run.model));
    Ok(Parsed { command, no_command, notes })
}

/// The arguments, whatever the spelling of their flags, and what is to be noted of them.
fn spelled(
    definition: &clap::Command,
    words: &mut [OsString],
) -> Result<(ArgMatches, Vec<String>), clap::Error> {
    let Some(name) = words.get(1).and_then(|word| word.to_str()).filter(|word| is_command(definition, word))
    else {
        return matches(definition, words, &Typed::default()).map(|matches| (matches, Vec::new()));
    };
    let typed_words = words.to_vec();
    let mut command = of_command(definition, name);
    let typed = Typed::rewrite(&command, words.get_mut(2..).unwrap_or_default())
        .map_err(|text| command.error(ErrorKind::UnknownArgument, text))?;
    let matches = matches(definition, words, &typed)
        .map_err(|error| typed.explain(error, &mut command, &typed_words))?;
    let Some((_, given)) = matches.subcommand() else { return Ok((matches, Vec::new())) };
    let notes =
        effects::notes(given, &typed).map_err(|text| command.error(ErrorKind::ArgumentConflict, text))?;
    Ok((matches, notes))
}

/// A command as errors about it need it, with its own usage.
fn of_command(definition: &clap::Command, name: &str) -> clap::Command {
    let mut built = definition.clone();
    built.build();
    built.find_subcommand(name).cloned().unwrap_or(built)
}

/// The arguments of words that are spelled as clap knows them; without those of variables that a flag beats.
fn matches(definition: &clap::Command, words: &[OsString], typed: &Typed) -> Result<ArgMatches, clap::Error> {
    let matches = definition
        .clone()
        .try_get_matches_from(words)
        .map_err(|error| name_variable(error, definition, words))?;
    let Some((name, given)) = matches.subcommand() else { return Ok(matches) };
    let conflict = |text| of_command(definition, name).error(ErrorKind::ArgumentConflict, text);
    let beaten = conflicts::beaten(given, typed).map_err(conflict)?;
    if beaten.is_empty() {
        return Ok(matches);
    }
    let without = |argument: Arg| {
        let is_beaten = beaten.contains(&argument.get_id().as_str());
        if is_beaten { without_variable(argument) } else { argument }
    };
    self::matches(&each_argument(definition.clone(), &without), words, typed)
}

/// Why the value that a variable has now is of no use to a command that reads it; `None` where it is.
pub(crate) fn variable_fault(command: &str, variable: &str) -> Option<String> {
    let only_this = |argument: Arg| {
        let is_this = argument.get_env().is_some_and(|name| name == variable);
        if is_this { argument } else { without_variable(argument) }
    };
    // Words that the command lacks are another matter, and found after its variables are read.
    let error = each_argument(definition(), &only_this).try_get_matches_from(["minfer", command]).err()?;
    let of_value =
        matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8);
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    of_value.then(|| line.trim_start_matches("error: ").to_owned())
}

fn is_command(definition: &clap::Command, word: &str) -> bool {
    definition.find_subcommand(word).is_some()
}

/// Adds the variable's name to an error about a value that nobody typed.
fn name_variable(mut error: clap::Error, definition: &clap::Command, words: &[OsString]) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let Some(argument) = text(ContextKind::InvalidArg) else { return error };
    // An argument has its spelling only once its command is built.
    let mut built = definition.clone();
    built.build();
    let all = built.get_subcommands().flat_map(clap::Command::get_arguments);
    let mut known = all.filter(|known| known.to_string() == argument && !is_typed(known, words));
    let found = known.find_map(Arg::get_env);
    if let Some(variable) = found {
        let tip = format!("the value comes from the variable {}", variable.to_string_lossy());
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Whether one of the words after the program's name is a spelling of the flag.
fn is_typed(flag: &Arg, words: &[OsString]) -> bool {
    let long = flag
        .get_long_and_visible_aliases()
        .into_iter()
        .flatten()
        .chain(flag.get_all_aliases().into_iter().flatten());
    let long: Vec<String> = long.map(|name| format!("--{name}")).collect();
    let short: Vec<String> = flag
        .get_short_and_visible_aliases()
        .into_iter()
        .flatten()
        .map(|letter| format!("-{letter}"))
        .collect();
    words.iter().skip(1).map(|word| word.to_string_lossy()).any(|word| {
        let name = word.split_once('=').map_or(&*word, |(name, _)| name);
        long.iter().any(|long| long == name) || short.iter().any(|short| word.starts_with(short.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Result<Command, clap::Error> {
        parse(["minfer"].iter().chain(words).map(OsString::from)).map(|parsed| parsed.command)
    }

    fn refusal(words: &[&str]) -> String {
        let error = command(words).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string()
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn a_model_alone_is_run() {
        for words in [
            ["smollm2", "hello", "-n", "3"],
            ["-n", "3", "smollm2", "hello"],
            ["-n=3", "smollm2", "--", "hello"],
        ] {
            let Ok(Command::Run(run)) = command(&words) else { panic!("not run: {words:?}") };
            assert_eq!(
                (run.model.as_str(), run.prompt.as_deref(), run.answer.n_predict),
                ("smollm2", Some("hello"), Some(3))
            );
        }
    }

    #[test]
    fn flags_before_a_command_are_refused() {
        let text = refusal(&["-t", "2", "bench", "smollm2"]);
        assert!(
            text.contains("minfer bench ...") && text.contains("Usage: minfer bench [OPTIONS] <MODEL>"),
            "{text}"
        );
    }

    #[test]
    fn counts_of_tokens_are_checked() {
        for (given, good) in [("-1", true), ("0", true), ("-2", false), ("x", false), ("4294967296", false)] {
            assert_eq!(command(&["run", "m", "p", "-n", given]).is_ok(), good, "{given}");
        }
        assert!(refusal(&["run", "m", "p", "-n", "-2"]).contains("-2 is not in -1..="));
        assert!(refusal(&["bench", "m", "-p", "4294967295"]).contains("4294967295 is not in"));
    }

    #[test]
    fn values_out_of_range_are_refused_as_such() {
        for (words, wanted) in [
            (["run", "m", "--temp", "-1"], "a number from 0 on is needed"),
            (["run", "m", "--top-p", "2"], "a number from 0 to 1 is needed"),
            (["run", "m", "--repeat-last-n", "-2"], "-2 is not in -1..="),
            (["run", "m", "--stop", ""], "a value is required"),
            (["run", "m", "--threads", "0"], "0 is not in 1..=1024"),
            (["run", "m", "--chat-template-kwargs", "[1]"], "a JSON object is needed"),
            (["detokenize", "m", "5", "-1"], "-1 is not in 0..="),
        ] {
            let text = refusal(&words);
            assert!(text.contains(wanted), "{words:?}: {text}");
        }
    }

    #[test]
    fn unknown_values_name_the_choices() {
        assert!(refusal(&["run", "m", "--isa", "sse"]).contains("avx512"));
        assert!(refusal(&["run", "m", "--cache-type", "q2"]).contains("bf16"));
        assert!(refusal(&["run", "m", "--samplers", "luck"]).contains("top_k"));
    }

    #[test]
    fn a_raw_prompt_has_no_template() {
        let text = refusal(&["run", "m", "p", "--raw", "--system", "s"]);
        assert!(text.contains("--system needs the chat template"), "{text}");
        assert!(
            text.contains("Usage: minfer run [OPTIONS] <MODEL> [PROMPT]"),
            "the command's own usage: {text}"
        );
        assert!(
            refusal(&["run", "m", "--raw", "--chat-template-kwargs", "{}"])
                .contains("--chat-template-kwargs")
        );
    }
}
