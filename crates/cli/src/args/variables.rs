//! Variables: `MINFER_<FLAG>` is the value of a flag that was not typed.

use std::env;

use clap::Arg;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// How all variables begin.
const PREFIX: &str = "MINFER_";
/// How variables begin that only the tests of this project read.
const OF_TESTS: &str = "MINFER_TEST_";

/// Names of all variables.
fn known(definition: &clap::Command) -> Vec<String> {
    let arguments = definition.get_subcommands().flat_map(clap::Command::get_arguments);
    let names = arguments.filter_map(Arg::get_env).map(|name| name.to_string_lossy().into_owned());
    names.chain([minfer_hub::ENV_MODELS.to_owned()]).collect()
}

/// Fails for a variable that no command reads.
pub(super) fn check(definition: &clap::Command) -> Result<(), clap::Error> {
    match unknown(definition, env::vars_os().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name)) {
        Some(text) => Err(definition.clone().error(ErrorKind::UnknownArgument, text)),
        None => Ok(()),
    }
}

/// What to say of the first unknown variable among these.
fn unknown(definition: &clap::Command, set: impl Iterator<Item = std::ffi::OsString>) -> Option<String> {
    let known = known(definition);
    let mut names = set.map(|name| name.to_string_lossy().into_owned());
    let name = names
        .find(|name| name.starts_with(PREFIX) && !name.starts_with(OF_TESTS) && !known.contains(name))?;
    let distance = |other: &&String| strsim::osa_distance(&name, other);
    let nearest = known.iter().min_by_key(distance).filter(|other| distance(other) <= name.len() / 4);
    let hint = nearest.map_or_else(
        || "`minfer doctor --knobs` lists those that it reads".to_owned(),
        |nearest| format!("did you mean {nearest}?"),
    );
    Some(format!("minfer does not read the variable {name}; {hint}"))
}

/// Adds the variable's name to an error about its value.
pub(super) fn name(mut error: clap::Error, definition: &clap::Command) -> clap::Error {
    let Some(ContextValue::String(named)) = error.get(ContextKind::InvalidArg) else { return error };
    let mut arguments = definition.get_subcommands().flat_map(clap::Command::get_arguments);
    let variable = arguments.find(|argument| argument.to_string() == *named).and_then(Arg::get_env);
    if let Some(variable) = variable {
        let tip = format!("the value comes from the variable {}", variable.to_string_lossy());
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_variable_is_named_with_the_nearest() {
        let definition = crate::args::definition();
        let unknown = |name: &str| unknown(&definition, [name.into()].into_iter());
        for (name, nearest) in [
            ("MINFER_THREAD", "MINFER_THREADS"),
            ("MINFER_CACHETYPE", "MINFER_CACHE_TYPE"),
            ("MINFER_CTX", "MINFER_N_CTX"),
            ("MINFER_MODEL", "MINFER_MODELS"),
        ] {
            let text = unknown(name).expect("an error");
            assert!(text.contains(name) && text.ends_with(&format!("did you mean {nearest}?")), "{text}");
        }
        assert!(unknown("MINFER_NOTHING_LIKE_IT").expect("an error").contains("doctor --knobs"));
        for name in ["MINFER_THREADS", "MINFER_MODELS", "MINFER_TEST_MODELS", "HOME", "minfer_x"] {
            assert_eq!(unknown(name), None, "{name}");
        }
    }
}
