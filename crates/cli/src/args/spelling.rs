//! Flags as users of llama.cpp type them: several letters after one dash.

use std::ffi::OsString;

use clap::Arg;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags of llama.cpp that minfer does not have, and what there is instead.
const ABSENT: [(&[&str], &str); 16] = [
    (&["m", "model"], "the model is the first word: minfer COMMAND MODEL"),
    (&["p", "prompt"], "the prompt is the word after the model, or comes with -f FILE or on stdin"),
    (&["hf", "hf-repo", "mu", "model-url"], "`minfer pull NAME` brings a model, `minfer list` has the names"),
    (&["cnv", "conversation", "i", "interactive"], "`minfer chat MODEL` is a conversation"),
    (&["no-cnv", "no-conversation"], "`minfer run --raw` goes on with a text, without a conversation"),
    (&["e", "escape", "no-escape"], "a prompt is taken as it is; -f FILE may have line ends"),
    (&["r", "reverse-prompt"], "--stop TEXT ends the answer before a text"),
    (&["ub", "ubatch-size"], "-b N says how many tokens are in one forward"),
    (&["tb", "threads-batch"], "-t N is for prompts and answers alike"),
    (&["fa", "flash-attn"], "there is one way to compute attention, and nothing to choose"),
    (&["ngl", "gpu-layers", "n-gpu-layers", "dev", "device"], "the processor computes everything"),
    (&["mmap", "no-mmap", "mlock"], "weights are packed into memory of their own; --memory-limit bounds it"),
    (&["np", "parallel"], "one answer is made at a time"),
    (&["j", "json-schema", "grammar"], "an answer cannot be bound to a grammar"),
    (&["prompt-cache"], "--session FILE keeps what was computed"),
    (&["jinja", "no-jinja"], "the chat template always counts; --chat-template gives another, --raw none"),
];

/// Short flags whose value may be letters, so that `-fprompt` is `-f prompt`.
const OF_LETTERS: [char; 2] = ['f', 'o'];

/// Writes flags of several letters with two dashes, as clap knows them.
pub(super) fn rewrite(command: &clap::Command, words: &mut [OsString]) {
    for word in words.iter_mut().take_while(|word| *word != "--") {
        let Some(name) = word.to_str().and_then(several_letters) else { continue };
        let is_plain = name.chars().all(|letter| letter.is_ascii_alphabetic() || "-_".contains(letter));
        let may_be_value = !is_plain || name.starts_with(OF_LETTERS);
        if has_long(command, name) || instead(name).is_some() || !may_be_value {
            let mut dashed = OsString::from("-");
            dashed.push(&*word);
            *word = dashed;
        }
    }
}

/// The letters of a flag with one dash, where there are several.
fn several_letters(word: &str) -> Option<&str> {
    let name = word.strip_prefix('-')?.split('=').next()?;
    (name.len() > 1 && name.starts_with(|first: char| first.is_ascii_alphabetic())).then_some(name)
}

fn has_long(command: &clap::Command, name: &str) -> bool {
    let is_alias = |argument: &Arg| argument.get_all_aliases().is_some_and(|aliases| aliases.contains(&name));
    command.get_arguments().any(|argument| argument.get_long() == Some(name) || is_alias(argument))
}

fn instead(name: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(names, _)| names.contains(&name)).map(|(_, instead)| *instead)
}

/// Says what there is instead of a flag of llama.cpp.
pub(super) fn explain(
    error: clap::Error,
    command: Option<&clap::Command>,
    typed: &[OsString],
) -> clap::Error {
    let (Some(command), ErrorKind::UnknownArgument) = (command, error.kind()) else { return error };
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return error };
    let name = flag.trim_start_matches('-');
    let Some(instead) = instead(name) else { return error };
    let words = typed.iter().filter_map(|word| word.to_str()).filter_map(|word| word.split('=').next());
    let flag = words.into_iter().find(|word| word.starts_with('-') && word.trim_start_matches('-') == name);
    let text = format!("minfer has no such flag: {}; {instead}", flag.unwrap_or(name));
    command.clone().error(ErrorKind::UnknownArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_several_letters_get_two_dashes() {
        let definition = crate::args::definition();
        let run = definition.find_subcommand("run").expect("a command");
        for (word, wanted) in [
            ("-temp", "--temp"),
            ("-ctk=f16", "--ctk=f16"),
            ("-ngl", "--ngl"),
            ("-fa", "--fa"),
            ("-xyz", "--xyz"),
            ("-n1", "-n1"),
            ("-fp.txt", "-fp.txt"),
            ("-fprompt", "-fprompt"),
            ("-c", "-c"),
            ("-1.5", "-1.5"),
            ("--ctk", "--ctk"),
            ("-", "-"),
            ("ctk", "ctk"),
        ] {
            let mut words = [OsString::from(word), "--".into(), "-temp".into()];
            rewrite(run, &mut words);
            assert_eq!(words, [wanted, "--", "-temp"], "{word}");
        }
    }

    #[test]
    fn absent_flags_are_absent() {
        let definition = crate::args::definition();
        let run = definition.find_subcommand("run").expect("a command");
        for name in ABSENT.iter().flat_map(|(names, _)| *names) {
            assert!(!has_long(run, name), "{name}");
        }
    }
}
