//! What is wrong with a text that should be JSON, in words for people.

use serde_json::error::{Category, Error};

/// Characters of a value that a message shows.
const SHOWN: usize = 40;

/// A fault and where it is.
#[derive(Debug)]
pub(crate) struct Fault {
    /// What is wrong there.
    pub(crate) what: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// The column in bytes, from 1.
    pub(crate) column: usize,
    /// Whether it is JSON, but not what is wanted.
    pub(crate) is_json: bool,
}

impl Fault {
    /// What `error` says of a text.
    pub(crate) fn of(text: &str, error: &Error) -> Fault {
        let (line, column) = (error.line().max(1), error.column().max(1));
        let (message, place) =
            (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
        let message = message.strip_suffix(&place).unwrap_or(&message);
        let what = match error.classify() {
            Category::Eof => "the text ends too early".to_owned(),
            Category::Data => unfit(message),
            Category::Syntax | Category::Io => out_of_place(text, line, column, message),
        };
        Fault { what, line, column, is_json: error.is_data() }
    }

    /// The fault with its line and column in front.
    pub(crate) fn placed(&self) -> String {
        format!("line {} column {}: {}", self.line, self.column, self.what)
    }
}

/// What does not fit in JSON that is otherwise sound.
fn unfit(message: &str) -> String {
    let named = |prefix: &str| message.strip_prefix(prefix);
    if let Some(field) = named("missing field ") {
        return format!("{field} is missing");
    }
    if let Some(field) = named("duplicate field ") {
        return format!("{field} is there twice");
    }
    let parts = named("invalid type: ").or_else(|| named("invalid value: "));
    match parts.and_then(|parts| parts.rsplit_once(", expected ")) {
        Some((found, wanted)) => format!("{} is needed, not {}", needed(wanted), value(found)),
        None => "this is not what is needed".to_owned(),
    }
}

fn needed(wanted: &str) -> String {
    match wanted {
        "a map" => "an object".to_owned(),
        "a sequence" => "an array".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        other => other.to_owned(),
    }
}

/// A value as JSON has it, or its kind.
fn value(found: &str) -> String {
    let quoted = |prefix: &str| found.strip_prefix(prefix).map(|text| text.trim_matches('`'));
    match found {
        "map" => "an object".to_owned(),
        "sequence" => "an array".to_owned(),
        _ => {
            let text =
                quoted("integer ").or_else(|| quoted("floating point ")).or_else(|| quoted("boolean "));
            let text = text.or_else(|| quoted("string ")).unwrap_or(found);
            let short: String = text.chars().take(SHOWN).collect();
            if short.len() < text.len() { format!("{short}...") } else { short }
        }
    }
}

/// What keeps a text from being JSON.
fn out_of_place(text: &str, line: usize, column: usize, message: &str) -> String {
    if message.starts_with("recursion limit") {
        return "arrays and objects stand in each other too deep".to_owned();
    }
    if message.starts_with("number out of range") {
        return "a number is too large".to_owned();
    }
    let here = text.split('\n').nth(line - 1).and_then(|line| line.get(column - 1..)?.chars().next());
    match here {
        Some(character) if character.is_control() => {
            format!("`{}` must be written as an escape", character.escape_default())
        }
        Some(character) => format!("`{character}` does not belong there"),
        None => "this is not JSON".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Line {
        #[serde(rename = "text")]
        _text: String,
        #[serde(rename = "flag")]
        _flag: Option<bool>,
    }

    #[test]
    fn faults_are_in_words_for_people() {
        let ids = |text: &str| Fault::of(text, &serde_json::from_str::<Vec<u32>>(text).unwrap_err()).placed();
        let line = |text: &str| Fault::of(text, &serde_json::from_str::<Line>(text).unwrap_err()).placed();
        let whole = "a whole number from 0 to 4294967295 is needed, not";
        for (found, wanted) in [
            (ids("{}"), "line 1 column 1: an array is needed, not an object".to_owned()),
            (ids("[1,"), "line 1 column 3: the text ends too early".to_owned()),
            (ids(""), "line 1 column 1: the text ends too early".to_owned()),
            (ids("x"), "line 1 column 1: `x` does not belong there".to_owned()),
            (ids("[1 2]"), "line 1 column 4: `2` does not belong there".to_owned()),
            (ids("[1,\n2,\n]"), "line 3 column 1: `]` does not belong there".to_owned()),
            (ids("[1]é"), "line 1 column 4: `é` does not belong there".to_owned()),
            (ids("[-1]"), format!("line 1 column 3: {whole} -1")),
            (ids("[1.5]"), format!("line 1 column 4: {whole} 1.5")),
            (ids("[\"a, expected b\"]"), format!("line 1 column 16: {whole} \"a, expected b\"")),
            (ids("[[]]"), format!("line 1 column 1: {whole} an array")),
            (ids("[null]"), format!("line 1 column 5: {whole} null")),
            (ids("[true]"), format!("line 1 column 5: {whole} true")),
            (line("{\"text\":1}"), "line 1 column 9: a string is needed, not 1".to_owned()),
            (line("{}"), "line 1 column 2: `text` is missing".to_owned()),
            (line("{\"text\":\"\",\"text\":\"\"}"), "line 1 column 17: `text` is there twice".to_owned()),
            (line("{\"flag\":{}}"), "line 1 column 8: true or false is needed, not an object".to_owned()),
            (line("{\"text\":\"\t\"}"), "line 1 column 10: `\\t` must be written as an escape".to_owned()),
            (ids("[1e999]"), "line 1 column 6: a number is too large".to_owned()),
        ] {
            assert_eq!(found, wanted);
        }
        let deep = "[".repeat(1000);
        let fault = Fault::of(&deep, &serde_json::from_str::<serde_json::Value>(&deep).unwrap_err());
        assert!(fault.what.contains("too deep") && !fault.is_json, "{fault:?}");
        let long = format!("[\"{}\"]", "é".repeat(99));
        assert!(ids(&long).ends_with(&format!("\"{}...", "é".repeat(39))), "{}", ids(&long));
    }
}
