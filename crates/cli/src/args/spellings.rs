//! Flags as users of llama.cpp type them: several letters after one dash, which would otherwise be a short flag with its
//! value.

use std::ffi::OsString;

use clap::Arg;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Forms with one dash whose long form has another name.
const FORMS: [(&str, &str); 3] = [("ctk", "cache-type-k"), ("ctv", "cache-type-v"), ("sys", "system")];

/// Flags that minfer does not have, and what there is instead.
const OTHERS: [(&[&str], &str); 25] = [
    (&["-m", "--model"], "the model is the first word: minfer COMMAND MODEL"),
    (&["-p", "--prompt"], "the prompt is the word after the model, or comes with -f FILE or on stdin"),
    (
        &["-hf", "-hfr", "-hff", "-mu", "-dr", "--hf-repo", "--hf-file", "--model-url"],
        "`minfer pull NAME` brings a model, `minfer list` has the names",
    ),
    (
        &["-cnv", "-i", "-if", "--conversation", "--interactive", "--interactive-first"],
        "`minfer chat MODEL` is a conversation",
    ),
    (&["-st", "--single-turn"], "`minfer run MODEL PROMPT` is a single turn"),
    (
        &["-no-cnv", "-nocnv", "--no-conversation"],
        "`minfer run --raw` goes on with a text, without a conversation",
    ),
    (&["-sysf", "--system-prompt-file"], "--system TEXT has the text itself"),
    (&["-bf", "--binary-file"], "-f FILE reads a prompt"),
    (&["-e", "--escape", "--no-escape"], "a prompt is taken as it is; -f FILE may have line ends"),
    (&["-r", "--reverse-prompt"], "--stop TEXT ends the answer before a text"),
    (&["-l"], "--logit-bias ID=BIAS changes one token's chance"),
    (&["-ub", "--ubatch-size"], "-b N says how many tokens are in one forward"),
    (&["-tb", "--threads-batch"], "-t N is for prompts and answers alike"),
    (&["-fa", "--flash-attn"], "there is one way to compute attention, and nothing to choose"),
    (
        &[
            "-ngl",
            "-sm",
            "-ts",
            "-mg",
            "-dev",
            "-ot",
            "-cmoe",
            "-ncmoe",
            "-nkvo",
            "--gpu-layers",
            "--n-gpu-layers",
            "--split-mode",
            "--tensor-split",
            "--main-gpu",
            "--device",
            "--override-tensor",
            "--no-kv-offload",
        ],
        "the processor computes everything",
    ),
    (
        &["-mmp", "--mmap", "--no-mmap", "--mlock"],
        "weights are packed into memory of their own; --memory-limit bounds it",
    ),
    (&["-np", "-cb", "--parallel", "--cont-batching"], "one answer is made at a time"),
    (&["-gan", "-gaw", "--grp-attn-n", "--grp-attn-w"], "--rope-scaling stretches a context"),
    (
        &["-v", "-lv", "--verbose", "--log-disable", "--log-verbosity"],
        "`minfer --version` has the version, --facts of run, chat and logprobs says what ran",
    ),
    (&["-j", "--json-schema", "--grammar", "--grammar-file"], "an answer cannot be bound to a grammar"),
    (
        &["-co", "--color", "--no-display-prompt", "--simple-io", "--no-perf", "--no-warmup"],
        "stdout has nothing but the answer",
    ),
    (&["--prompt-cache", "--prompt-cache-all"], "--session FILE keeps what was computed"),
    (&["--no-context-shift"], "nothing is forgotten without --context-shift"),
    (&["-pg"], "-p N and -n N measure prompts and answers one by one"),
    (
        &["--jinja", "--no-jinja"],
        "the chat template always counts; --chat-template gives another, --raw none",
    ),
];

/// Forms that were typed, with the long names that stand for them.
#[derive(Debug, Default)]
pub(super) struct Typed(Vec<(String, String)>);

impl Typed {
    /// Puts long names in place of other forms among the words of a command.
    ///
    /// # Errors
    /// What to say of a flag that there is not.
    pub(super) fn rewrite(command: &clap::Command, words: &mut [OsString]) -> Result<Typed, String> {
        let mut typed = Typed::default();
        for word in words.iter_mut().take_while(|word| *word != "--") {
            let Some((form, value)) = word.to_str().and_then(several_letters) else { continue };
            let (form, value) = (form.to_owned(), value.to_owned());
            let letters = &form[1..];
            let other_name = FORMS.iter().find(|(other, _)| *other == letters).map(|(_, long)| *long);
            if let Some(long) = other_name.or_else(|| has_long(command, letters).then_some(letters)) {
                *word = format!("--{long}{value}").into();
                typed.0.push((form.clone(), long.to_owned()));
            } else if let Some(advice) = advice(&form).or_else(|| advice(&format!("-{form}"))) {
                return Err(no_flag(&form, advice));
            }
        }
        Ok(typed)
    }

    /// A flag in the form that was typed.
    pub(super) fn form(&self, long: &str) -> String {
        let form = self.0.iter().find(|(_, name)| name == long).map(|(form, _)| form.clone());
        form.unwrap_or_else(|| format!("--{long}"))
    }

    /// An error that names flags as they were typed, and says what there is in place of one that is unknown.
    pub(super) fn explain(
        &self,
        mut error: clap::Error,
        command: &mut clap::Command,
        words: &[OsString],
    ) -> clap::Error {
        let unknown = unknown_flag(&error, words).map(|flag| {
            let known = self.0.iter().find(|(_, long)| flag == format!("--{long}"));
            known.map_or(flag, |(form, _)| form.clone())
        });
        if let Some(flag) = unknown {
            let is_far = suggested(&error).is_some_and(|other| !is_near(flag.trim_start_matches('-'), other));
            let text = match (advice(&flag), nearest(command, &flag)) {
                (Some(advice), _) => Some(no_flag(&flag, advice)),
                (None, Some(near)) if several_letters(&flag).is_some() => {
                    Some(no_flag(&flag, &format!("did you mean --{near}?")))
                }
                (None, None) if is_far || several_letters(&flag).is_some() => {
                    Some(format!("minfer has no such flag: {flag}"))
                }
                _ => None,
            };
            if let Some(text) = text {
                return command.error(ErrorKind::UnknownArgument, text);
            }
        }
        for kind in [ContextKind::InvalidArg, ContextKind::PriorArg] {
            if let Some(ContextValue::String(named)) = error.get(kind) {
                let named = self.in_text(named);
                error.insert(kind, ContextValue::String(named));
            }
        }
        error
    }

    /// `--long <VALUE>` with the form that was typed.
    fn in_text(&self, named: &str) -> String {
        let (flag, rest) =
            named.split_once(' ').map_or((named, ""), |(flag, _)| (flag, &named[flag.len()..]));
        let form = flag.strip_prefix("--").map_or_else(|| flag.to_owned(), |long| self.form(long));
        format!("{form}{rest}")
    }
}

/// A word with one dash and several letters, as the form and what follows it from `=` on.
fn several_letters(word: &str) -> Option<(&str, &str)> {
    let (form, value) = word.split_at(word.find('=').unwrap_or(word.len()));
    let letters = form.strip_prefix('-')?;
    let several = letters.len() > 1 && letters.starts_with(|first: char| first.is_ascii_alphabetic());
    several.then_some((form, value))
}

/// The flag that an error is about where there is no such flag. Letters after that of a short flag were meant as a flag
/// too, unless they are a value of it.
fn unknown_flag(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let words = || words.iter().filter_map(|word| word.to_str());
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let flag = text(ContextKind::InvalidArg)?;
            // Of several letters clap names the first.
            let whole = words().find(|word| several_letters(word).is_some() && word.starts_with(flag));
            Some(whole.filter(|_| flag.len() == 2).unwrap_or(flag).to_owned())
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value =
                text(ContextKind::InvalidValue).filter(|value| value.starts_with(char::is_alphabetic))?;
            let is_rest = |word: &&str| several_letters(word).is_some() && word.get(2..) == Some(value);
            words().find(is_rest).map(str::to_owned)
        }
        _ => None,
    }
}

/// The flag that clap would have in place of one that it does not know.
fn suggested(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(flag)) => Some(flag.trim_start_matches('-')),
        _ => None,
    }
}

/// The long name that is likest to a flag, where one is like it.
fn nearest(command: &clap::Command, flag: &str) -> Option<String> {
    let letters = flag.trim_start_matches('-');
    let longs = command.get_arguments().filter_map(Arg::get_long).filter(|long| is_near(letters, long));
    longs.min_by_key(|long| strsim::osa_distance(letters, long)).map(str::to_owned)
}

fn is_near(letters: &str, long: &str) -> bool {
    strsim::osa_distance(letters, long) <= (long.len() / 3).max(1)
}

fn advice(flag: &str) -> Option<&'static str> {
    OTHERS.iter().find(|(forms, _)| forms.contains(&flag)).map(|(_, advice)| *advice)
}

fn no_flag(flag: &str, advice: &str) -> String {
    format!("minfer has no such flag: {flag}; {advice}")
}

fn has_long(command: &clap::Command, name: &str) -> bool {
    let aliases =
        |argument: &Arg| argument.get_all_aliases().into_iter().flatten().any(|alias| alias == name);
    command.get_arguments().any(|argument| argument.get_long() == Some(name) || aliases(argument))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longs() -> Vec<String> {
        let definition = crate::args::definition();
        let arguments = definition.get_subcommands().flat_map(clap::Command::get_arguments);
        arguments.filter_map(|argument| Some(argument.get_long()?.to_owned())).collect()
    }

    #[test]
    fn forms_stand_for_flags_and_others_for_none() {
        let longs = longs();
        for (form, long) in FORMS {
            assert!(longs.iter().any(|known| known == long), "{form}: {long}");
        }
        for flag in OTHERS.iter().flat_map(|(flags, _)| *flags) {
            let known = longs.iter().any(|known| format!("--{known}") == *flag);
            assert!(!known, "{flag}");
        }
    }

    #[test]
    fn only_letters_after_one_dash_are_a_form() {
        assert_eq!(several_letters("-ctk"), Some(("-ctk", "")));
        assert_eq!(several_letters("-ctk=f16"), Some(("-ctk", "=f16")));
        for word in ["-c", "-c=4", "-4", "-1.5", "--ctk", "-", "", "ctk", "--"] {
            assert_eq!(several_letters(word), None, "{word}");
        }
    }
}
