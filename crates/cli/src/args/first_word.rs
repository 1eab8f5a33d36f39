//! A first word that is no command: a model's name, or that of a command, mistyped.

use minfer_hub::HubError;

use crate::loading;

/// What other programs call a command.
const OTHER_NAMES: [(&str, &str); 18] = [
    ("ask", "run"),
    ("benchmark", "bench"),
    ("decode", "detokenize"),
    ("del", "rm"),
    ("delete", "rm"),
    ("download", "pull"),
    ("encode", "tokenize"),
    ("fetch", "pull"),
    ("generate", "run"),
    ("get", "pull"),
    ("info", "show"),
    ("inspect", "show"),
    ("ls", "list"),
    ("models", "list"),
    ("ppl", "perplexity"),
    ("remove", "rm"),
    ("talk", "chat"),
    ("version", "--version"),
];

/// What to say of a word that is near a command's name while no model or file has it; `None` where it is a model, or like
/// one rather than like a command.
pub(super) fn mistyped(definition: &clap::Command, word: &str) -> Option<String> {
    let (distance, commands) = near(definition, word)?;
    let models = unknown_model(word)?;
    let nearer = |model: &String| strsim::osa_distance(word, model) < distance;
    if models.first().is_some_and(nearer) {
        return None;
    }
    Some(format!("no command `{word}`, did you mean {}? No model has that name either", listed(&commands)))
}

/// What to say of a word after `help` that is no command; `None` where it is like none.
pub(super) fn mistyped_after_help(definition: &clap::Command, word: &str) -> Option<String> {
    let (_, commands) = near(definition, word)?;
    Some(format!("no command `{word}`, did you mean {}?", listed(&commands)))
}

/// What to say of a word that is neither command nor model; `None` where it is a model.
pub(super) fn unknown(word: &str) -> Option<String> {
    unknown_model(word).map(|_| format!("no command `{word}`, and no model of that name"))
}

/// The models that look like a word, where it is none.
fn unknown_model(word: &str) -> Option<Vec<String>> {
    match loading::find(word).err()?.downcast() {
        Ok(HubError::UnknownModel { near, .. }) => Some(near),
        _ => None,
    }
}

/// The commands that a word is likest to, and how many slips of the keyboard away; `None` where it is like none.
fn near(definition: &clap::Command, word: &str) -> Option<(usize, Vec<String>)> {
    let word = word.to_lowercase();
    if let Some((_, name)) = OTHER_NAMES.iter().find(|(other, _)| *other == word) {
        return Some((0, vec![(*name).to_owned()]));
    }
    // Names of models have digits, points, colons; those of commands have letters alone.
    let is_name =
        word.len() >= 2 && word.chars().all(|letter| letter.is_alphabetic() || "-_".contains(letter));
    let names = definition.get_subcommands().map(clap::Command::get_name).filter(|_| is_name);
    let near: Vec<_> = names.filter_map(|name| Some((slips(&word, name)?, name))).collect();
    let best = near.iter().map(|(distance, _)| *distance).min()?;
    let names = near.iter().filter(|(distance, _)| *distance == best).map(|(_, name)| (*name).to_owned());
    Some((best, names.collect()))
}

/// How far a word is from a name that may have been meant: few letters that are wrong, missing, too many or swapped, all of
/// them in another order, or a beginning.
fn slips(word: &str, name: &str) -> Option<usize> {
    let begins = word.len() >= 3 && name.starts_with(word) || name.len() >= 4 && word.starts_with(name);
    let distance = strsim::osa_distance(word, name);
    // Two letters at least must be right.
    let is_near = distance <= name.len().div_ceil(3).min(3) && word.len().max(name.len()) - distance >= 2;
    match is_near {
        true => Some(distance),
        false => (begins || letters(word) == letters(name)).then_some(1),
    }
}

/// The letters of a word in their order in the alphabet.
fn letters(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters
}

fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_near_commands() {
        let definition = crate::args::definition();
        let near = |word: &str| near(&definition, word).map(|(_, names)| names.join(" "));
        for (word, command) in [
            ("lst", "list"),
            ("lsit", "list"),
            ("ls", "list"),
            ("LIST", "list"),
            ("rnu", "run"),
            ("nru", "run"),
            ("mr", "rm"),
            ("rmm", "rm"),
            ("remove", "rm"),
            ("benhc", "bench"),
            ("bnehc", "bench"),
            ("benchmark", "bench"),
            ("tokenise", "tokenize"),
            ("detokenise", "detokenize"),
            ("tok", "tokenize"),
            ("perp", "perplexity"),
            ("preplexity", "perplexity"),
            ("log-probs", "logprobs"),
            ("completion", "completions"),
            ("version", "--version"),
        ] {
            assert_eq!(near(word).as_deref(), Some(command), "{word}");
        }
        for word in [
            "smollm2", "smolm2", "llama", "qwen", "gemma", "phi", "mistral", "tiny", "serve", "m", "", "l",
            "run1", "./lst", "ab",
        ] {
            assert_eq!(near(word), None, "{word}");
        }
    }

    #[test]
    fn other_names_are_of_commands_and_no_commands() {
        let definition = crate::args::definition();
        for (other, name) in OTHER_NAMES {
            assert!(definition.find_subcommand(other).is_none(), "{other}");
            assert!(name.starts_with("--") || definition.find_subcommand(name).is_some(), "{name}");
        }
    }
}
