//! Flags that have no effect without another one, or beside it. One that was typed for nothing is refused, or noted where
//! command lines have it as a matter of course; a variable waits for a command that has use for it.

use clap::ArgMatches;
use minfer::engine::Stage;

use super::conflicts::{spelling, typed};
use super::spellings::Typed;
use super::values::Stages;

/// Flags that do nothing in some company.
struct Idle {
    flags: &'static [&'static str],
    /// Whether a flag of this name does nothing among these arguments.
    when: fn(&ArgMatches, &str) -> bool,
    /// Of the flag (`{flag}`).
    why: &'static str,
    is_refused: bool,
}

/// Flags of a model and of the memory that it takes.
const OF_MODELS: &[&str] = &[
    "n_ctx",
    "n_batch",
    "cache_type",
    "cache_type_k",
    "cache_type_v",
    "kv_layout",
    "kv_memory",
    "kv_granule",
    "context_shift",
    "override_kv",
    "rope_scaling",
    "rope_scale",
    "rope_freq_base",
    "rope_freq_scale",
    "yarn_orig_ctx",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
];

const PENALTIES: &[&str] = &["repeat_penalty", "presence_penalty", "frequency_penalty"];

const IDLE: [Idle; 7] = [
    Idle {
        flags: &["keep"],
        when: |given, _| !is_on(given, "context_shift"),
        why: "{flag} has no effect without --context-shift",
        is_refused: true,
    },
    Idle {
        flags: &["cache_type"],
        when: |given, _| ["cache_type_k", "cache_type_v"].iter().all(|side| typed(given, side).is_some()),
        why: "{flag} has no effect beside --cache-type-k and --cache-type-v (or their variables)",
        is_refused: true,
    },
    Idle {
        flags: &["threads", "isa", "memory_limit"],
        when: |given, _| is_on(given, "knobs"),
        why: "{flag} has no effect beside --knobs",
        is_refused: true,
    },
    Idle {
        flags: OF_MODELS,
        when: |given, _| is_doctor(given) && typed(given, "model").is_none(),
        why: "{flag} has no effect without MODEL",
        is_refused: true,
    },
    Idle {
        flags: &["n_batch", "memory_limit", "kv_memory", "context_shift"],
        when: |given, _| is_on(given, "kv"),
        why: "{flag} has no effect beside --kv",
        is_refused: true,
    },
    Idle {
        flags: &["repeat_last_n"],
        when: |given, _| PENALTIES.iter().all(|penalty| typed(given, penalty).is_none()),
        why: "{flag} has no effect without --repeat-penalty, --presence-penalty or --frequency-penalty",
        is_refused: false,
    },
    Idle {
        flags: &[
            "top_k",
            "top_p",
            "min_p",
            "temp",
            "repeat_penalty",
            "presence_penalty",
            "frequency_penalty",
        ],
        when: |given, name| !is_off(given, name) && !has_stage(given, stage(name)),
        why: "{flag} has no effect: its stage is not in --samplers",
        is_refused: false,
    },
];

/// What is to be noted of flags that were typed for nothing.
///
/// # Errors
/// What to say of one that is refused.
pub(super) fn notes(given: &ArgMatches, words: &Typed) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    for idle in &IDLE {
        let is_typed = |name: &&&str| typed(given, name) == Some(true);
        for name in idle.flags.iter().filter(is_typed).filter(|name| (idle.when)(given, name)) {
            let text = idle.why.replace("{flag}", &spelling(name, true, words));
            if idle.is_refused {
                return Err(text);
            }
            notes.push(text);
        }
    }
    Ok(notes)
}

fn is_doctor(given: &ArgMatches) -> bool {
    given.try_contains_id("knobs").is_ok()
}

/// Whether a command has a switch, and it is on.
fn is_on(given: &ArgMatches, name: &str) -> bool {
    given.try_get_one::<bool>(name).ok().flatten() == Some(&true)
}

fn stage(name: &str) -> Stage {
    match name {
        "top_k" => Stage::TopK,
        "top_p" => Stage::TopP,
        "min_p" => Stage::MinP,
        "temp" => Stage::Temperature,
        _ => Stage::Penalties,
    }
}

fn has_stage(given: &ArgMatches, stage: Stage) -> bool {
    given.get_one::<Stages>("samplers").is_some_and(|stages| stages.0.contains(&stage))
}

/// Whether a setting's value is the one with which its stage changes nothing. Of temperatures 0 counts without a stage.
fn is_off(given: &ArgMatches, name: &str) -> bool {
    let number = |name| given.try_get_one::<f32>(name).ok().flatten().copied();
    match name {
        "top_k" => given.get_one::<u32>(name) == Some(&0),
        "top_p" | "repeat_penalty" => number(name) == Some(1.0),
        "temp" => [Some(0.0), Some(1.0)].contains(&number(name)),
        _ => number(name) == Some(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_the_table_is_one() {
        let definition = crate::args::definition();
        let known: Vec<&str> = definition
            .get_subcommands()
            .flat_map(clap::Command::get_arguments)
            .map(|argument| argument.get_id().as_str())
            .collect();
        let others = ["context_shift", "knobs", "kv", "model", "samplers"];
        for name in IDLE.iter().flat_map(|idle| idle.flags).chain(&others).chain(PENALTIES) {
            assert!(known.contains(name), "{name}");
        }
    }
}
