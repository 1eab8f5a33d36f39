//! Flags that cannot both count. A flag that was typed beats a variable; two of a kind are refused.

use clap::ArgMatches;
use clap::parser::ValueSource;
use minfer::models::RopeScalingKind;

use super::spellings::Typed;

/// A flag and those that have no place beside it.
struct Conflict {
    flag: &'static str,
    /// Whether the flag's value is one that leaves no place.
    when: fn(&ArgMatches) -> bool,
    others: &'static [&'static str],
    /// Of the flag (`{flag}`) and one of the others (`{other}`).
    why: &'static str,
}

const CONFLICTS: [Conflict; 4] = [
    Conflict {
        flag: "raw",
        when: |given| given.get_flag("raw"),
        others: &["system", "chat_template", "chat_template_kwargs"],
        why: "{other} needs the chat template, which {flag} leaves out",
    },
    Conflict {
        flag: "rope_freq_scale",
        when: |_| true,
        others: &["rope_scale"],
        why: "{other} and {flag} are two ways to say the same; only one of them can be given",
    },
    Conflict {
        flag: "rope_scaling",
        when: |given| scaling_is(given, &[RopeScalingKind::None]),
        others: &["rope_scale", "rope_freq_scale"],
        why: "{other} stretches the context, and {flag} is none",
    },
    Conflict {
        flag: "rope_scaling",
        when: |given| scaling_is(given, &[RopeScalingKind::None, RopeScalingKind::Linear]),
        others: &["yarn_orig_ctx", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow"],
        why: "{other} is a setting of yarn, and {flag} is another method",
    },
];

fn scaling_is(given: &ArgMatches, kinds: &[RopeScalingKind]) -> bool {
    given.get_one("rope_scaling").is_some_and(|kind| kinds.contains(kind))
}

/// Names of the arguments whose variables have no place beside a flag that was typed.
///
/// # Errors
/// What cannot both be: two flags that were typed, or two variables.
pub(super) fn beaten(given: &ArgMatches, words: &Typed) -> Result<Vec<&'static str>, String> {
    let mut beaten = Vec::new();
    for conflict in &CONFLICTS {
        let Some(flag_typed) = typed(given, conflict.flag).filter(|_| (conflict.when)(given)) else {
            continue;
        };
        for &other in conflict.others {
            match typed(given, other) {
                None => {}
                Some(other_typed) if other_typed == flag_typed => {
                    let (flag, other) =
                        (spelling(conflict.flag, flag_typed, words), spelling(other, flag_typed, words));
                    return Err(conflict.why.replace("{flag}", &flag).replace("{other}", &other));
                }
                Some(true) => beaten.push(conflict.flag),
                Some(false) => beaten.push(other),
            }
        }
    }
    Ok(beaten)
}

/// Whether an argument was typed (`true`) or comes from its variable; `None` where it does neither.
pub(super) fn typed(given: &ArgMatches, name: &str) -> Option<bool> {
    given.try_contains_id(name).ok()?;
    match given.value_source(name)? {
        ValueSource::CommandLine => Some(true),
        ValueSource::EnvVariable => Some(false),
        _ => None,
    }
}

/// The flag as it was typed, or the variable.
pub(super) fn spelling(name: &str, typed: bool, words: &Typed) -> String {
    if typed { words.form(&name.replace('_', "-")) } else { format!("MINFER_{}", name.to_uppercase()) }
}
