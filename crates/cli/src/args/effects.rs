//! Flags that have no effect without another one, or beside it. One that was typed is an error; sampling flags, which people
//! pass by habit, only give a note. A variable without effect is ignored.

use clap::ArgMatches;
use minfer::engine::Stage;

use super::parse::{is_given, is_on, is_typed};
use super::values::Stages;

/// Flags that do nothing among these arguments.
struct Idle {
    flags: &'static [&'static str],
    when: fn(&ArgMatches) -> bool,
    why: &'static str,
}

const ERRORS: [Idle; 4] = [
    Idle { flags: &["keep"], when: |given| !is_on(given, "context_shift"), why: "without --context-shift" },
    Idle {
        flags: &["cache_type"],
        when: |given| is_given(given, "cache_type_k") && is_given(given, "cache_type_v"),
        why: "beside --cache-type-k and --cache-type-v (or their variables)",
    },
    Idle {
        flags: &["threads", "isa", "memory_limit"],
        when: |given| is_on(given, "knobs"),
        why: "beside --knobs",
    },
    Idle {
        flags: &["n_batch", "memory_limit", "kv_memory", "context_shift"],
        when: |given| is_on(given, "kv"),
        why: "beside --kv",
    },
];

/// Flags of `doctor` that count without a model.
const OF_MACHINE: [&str; 5] = ["knobs", "json", "threads", "isa", "memory_limit"];

const PENALTIES: [&str; 3] = ["repeat_penalty", "presence_penalty", "frequency_penalty"];

const STAGES: [(&str, Stage); 7] = [
    ("top_k", Stage::TopK),
    ("top_p", Stage::TopP),
    ("min_p", Stage::MinP),
    ("temp", Stage::Temperature),
    ("repeat_penalty", Stage::Penalties),
    ("presence_penalty", Stage::Penalties),
    ("frequency_penalty", Stage::Penalties),
];

/// Notes about typed flags without effect.
///
/// # Errors
/// What to say of one that is an error.
pub(super) fn notes(given: &ArgMatches) -> Result<Vec<String>, String> {
    let idle = ERRORS.iter().filter(|idle| (idle.when)(given));
    let mut idle = idle.flat_map(|idle| idle.flags.iter().map(move |flag| (*flag, idle.why)));
    if let Some((name, why)) = idle.find(|(name, _)| is_typed(given, name)).or_else(|| without_model(given)) {
        return Err(no_effect(name, why));
    }
    let samplers = given.try_get_one::<Stages>("samplers").ok().flatten();
    let is_listed = |stage: Stage| samplers.is_none_or(|stages| stages.0.contains(&stage));
    // Temperature 0 counts without its stage.
    let is_greedy = |name| name == "temp" && given.try_get_one::<f32>("temp").ok().flatten() == Some(&0.0);
    let unlisted = STAGES
        .into_iter()
        .filter(|(name, stage)| is_typed(given, name) && !is_listed(*stage) && !is_greedy(*name))
        .map(|(name, _)| no_effect(name, "since its stage is not in --samplers"));
    let no_penalty = is_typed(given, "repeat_last_n") && !PENALTIES.iter().any(|name| is_given(given, name));
    let why = "without --repeat-penalty, --presence-penalty or --frequency-penalty";
    Ok(no_penalty.then(|| no_effect("repeat_last_n", why)).into_iter().chain(unlisted).collect())
}

/// A typed flag of `doctor` that needs a model.
fn without_model(given: &ArgMatches) -> Option<(&str, &'static str)> {
    let is_doctor = given.try_contains_id("knobs").is_ok();
    if !is_doctor || is_typed(given, "model") {
        return None;
    }
    // Among the ids are those of groups, which have names of types.
    let names = given.ids().map(clap::Id::as_str).filter(|name| !name.starts_with(char::is_uppercase));
    let mut typed = names.filter(|name| is_typed(given, name));
    typed.find(|name| !OF_MACHINE.contains(name)).map(|name| (name, "without MODEL"))
}

fn no_effect(name: &str, why: &str) -> String {
    format!("--{} has no effect {why}", name.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_the_tables_is_one() {
        let definition = crate::args::definition();
        let arguments: Vec<_> = definition.get_subcommands().flat_map(clap::Command::get_arguments).collect();
        let of_stages = STAGES.iter().map(|(name, _)| *name);
        let all = ERRORS.iter().flat_map(|idle| idle.flags).copied().chain(OF_MACHINE).chain(of_stages);
        for name in all {
            assert!(arguments.iter().any(|argument| argument.get_id() == name), "{name}");
        }
    }
}
