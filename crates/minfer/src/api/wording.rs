//! Error messages in the words of the builder.

use crate::{Setting, Suggestion};

/// Fields of `LoadOptions` that messages name, and the builder's methods that set them.
const METHODS: [(&str, &str); 3] =
    [("`n_ctx`", "`context`"), ("`n_batch`", "`batch`"), ("`n_slots`", "`parallel`")];

/// A message of the loader or the engine with methods in place of fields.
pub(super) fn with_methods(message: &str) -> String {
    METHODS.iter().fold(message.to_owned(), |message, (field, method)| message.replace(field, method))
}

/// Suggestions as a clause with its separator, or nothing.
pub(super) fn clause(suggestions: &[Suggestion]) -> String {
    let each: Vec<String> = suggestions.iter().map(|suggestion| together(suggestion)).collect();
    match each.as_slice() {
        [] => String::new(),
        [only] => format!("; try {only}"),
        [others @ .., last] => format!("; try {} or {last}", others.join(", ")),
    }
}

/// Settings that suffice together.
fn together(suggestion: &[Setting]) -> String {
    suggestion.iter().map(setting).collect::<Vec<_>>().join(" with ")
}

fn setting(setting: &Setting) -> String {
    match setting {
        Setting::NCtx(n_ctx) => format!("context({n_ctx})"),
        Setting::NBatch(n_batch) => format!("batch({n_batch})"),
        Setting::KvFormat(format) => format!("cache_type({format})"),
        Setting::KvMemory(bytes) => format!("kv_memory({bytes})"),
        Setting::Threads(threads) => format!("threads({threads})"),
        Setting::MemoryLimit(bytes) => format!("memory_limit({bytes})"),
        Setting::AddressLimit(kibibytes) => format!("`ulimit -v {kibibytes}`"),
    }
}

#[cfg(test)]
mod tests {
    use minfer_graph::KvFormat;

    use super::*;

    #[test]
    fn suggestions_are_calls_of_the_builder() {
        assert_eq!(clause(&[]), "");
        assert_eq!(clause(&[vec![Setting::Threads(2)]]), "; try threads(2)");
        let several = [
            vec![Setting::NCtx(512)],
            vec![Setting::KvFormat(KvFormat::Q8_0)],
            vec![Setting::KvMemory(9), Setting::NCtx(64)],
        ];
        assert_eq!(clause(&several), "; try context(512), cache_type(q8_0) or kv_memory(9) with context(64)");
    }
}
