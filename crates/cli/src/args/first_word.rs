//! A first word that is no command: a model's name, or a command's, mistyped.

use std::ffi::OsStr;

use clap::error::ErrorKind;
use minfer_hub::HubError;

use super::parse::{conflict, is_command};
use crate::loading;

/// Fails for a word that is near a command's name and names no model.
pub(super) fn check(definition: &clap::Command, word: &OsStr) -> Result<(), clap::Error> {
    let text = word.to_string_lossy();
    match near(definition, &text).filter(|_| !text.starts_with('-') && is_unknown(word)) {
        Some(command) => Err(no_command(
            definition,
            format!("no command `{text}`, did you mean `{command}`? No model has that name either"),
        )),
        None => Ok(()),
    }
}

/// Fails for a command after flags, and for a model after flags where [`check`] fails.
pub(super) fn check_model(
    definition: &clap::Command,
    first: &OsStr,
    model: &OsStr,
) -> Result<(), clap::Error> {
    if is_command(definition, model) {
        let name = model.to_string_lossy();
        let text = format!("flags come after the command: minfer {name} ...");
        return Err(conflict(definition, &name, text));
    }
    if first == model { Ok(()) } else { check(definition, model) }
}

/// An error about flags of `run`, where the first word is perhaps a command of another program.
pub(super) fn explain(error: clap::Error, definition: &clap::Command, word: &OsStr) -> clap::Error {
    if word.to_string_lossy().starts_with('-') || !is_unknown(word) {
        return error;
    }
    no_command(definition, format!("no command `{}`, and no model of that name", word.to_string_lossy()))
}

fn no_command(definition: &clap::Command, text: String) -> clap::Error {
    definition.clone().error(ErrorKind::InvalidSubcommand, text)
}

/// Whether a word is neither a file nor a model's name.
fn is_unknown(word: &OsStr) -> bool {
    let error = loading::find(word).err();
    matches!(error.as_ref().and_then(|error| error.downcast_ref()), Some(HubError::UnknownModel { .. }))
}

/// The command that a word was meant for: one letter in three may be wrong, missing, too many or
/// swapped.
fn near<'d>(definition: &'d clap::Command, word: &str) -> Option<&'d str> {
    let word = word.to_lowercase();
    let names = definition.get_subcommands().map(clap::Command::get_name).filter(|name| name.len() > 2);
    let near = names.map(|name| (strsim::osa_distance(&word, name), name));
    let (_, name) = near.filter(|(distance, name)| *distance <= name.len() / 3).min()?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_near_commands() {
        let definition = crate::args::definition();
        let near = |word: &str| near(&definition, word);
        for (word, command) in [
            ("lst", "list"),
            ("LIST", "list"),
            ("rnu", "run"),
            ("benhc", "bench"),
            ("tokenise", "tokenize"),
            ("detokenise", "detokenize"),
            ("preplexity", "perplexity"),
            ("log-probs", "logprobs"),
            ("completion", "completions"),
            ("server", "serve"),
        ] {
            assert_eq!(near(word), Some(command), "{word}");
        }
        for word in ["smollm2", "smolm2", "llama", "qwen", "gemma", "phi", "mistral", "tiny", "", "./lst"] {
            assert_eq!(near(word), None, "{word}");
        }
    }
}
