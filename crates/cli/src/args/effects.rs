//! Flags that have no effect without another one, or beside it. One that was typed is an error;
//! sampling flags, which people pass by habit, only give a note. A variable without effect is
//! ignored.

use clap::ArgMatches;
use minfer::engine::Stage;

use super::parse::{is_given, is_on, is_typed};
use super::values::Stages;

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
pub(super) fn notes(command: &str, given: &ArgMatches) -> Result<Vec<String>, String> {
    let has_both_types = is_given(given, "cache_type_k") && is_given(given, "cache_type_v");
    let beside_types = "beside --cache-type-k and --cache-type-v (or their variables)";
    let errors = [
        ("keep", !is_on(given, "context_shift"), "without --context-shift"),
        ("cache_type", has_both_types, beside_types),
    ];
    let error = errors.into_iter().find(|(name, has_no_effect, _)| *has_no_effect && is_typed(given, name));
    let error = error.map(|(name, _, why)| (name, why)).or_else(|| without_model(command, given));
    if let Some((name, why)) = error {
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
fn without_model<'a>(command: &str, given: &'a ArgMatches) -> Option<(&'a str, &'static str)> {
    if command != "doctor" || is_typed(given, "model") {
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
