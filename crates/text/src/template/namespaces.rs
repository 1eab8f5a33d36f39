//! Checks assignments to namespaces (`{% set ns.x = ... %}`).
//!
//! A namespace is the only mutable value. Without checks it could contain itself, or nested lists
//! of exponential size, and printing it would not end.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

/// The filter that checks the assigned value.
pub(super) const FILTER: &str = "kept_in_a_namespace";

/// Values for one unit of fuel.
const VALUES_A_STEP: u64 = 16;
/// The most values that one value may contain.
const MAX_VALUES: u64 = 1 << 18;
/// Deeper values end with an error instead of exhausting the stack.
const MAX_DEPTH: usize = 200;

/// Checks a value that is assigned, and returns it. An iterator becomes a list.
///
/// # Errors
/// The value contains a namespace or too many values, is nested too deeply, or the fuel is used up.
pub(super) fn kept(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    let value = match value.kind() {
        ValueKind::Iterable => Value::from(value.try_iter()?.collect::<Vec<_>>()),
        _ => value,
    };
    let mut walk = Walk { state, may_hold_namespaces: false, values: 0 };
    walk.value(&value, 0)?;
    Ok(value)
}

/// Charges the fuel that printing a value takes.
///
/// # Errors
/// The fuel is used up, or the value holds too many values, or is nested too deeply.
pub(super) fn charge(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    Walk { state, may_hold_namespaces: true, values: 0 }.value(value, 0)
}

struct Walk<'w, 's, 'e> {
    state: &'w State<'s, 'e>,
    may_hold_namespaces: bool,
    /// How many values it came to.
    values: u64,
}

impl Walk<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.values += 1;
        if self.values.is_multiple_of(VALUES_A_STEP) {
            self.state.consume_fuel(1)?;
        }
        if depth > MAX_DEPTH {
            return Err(invalid("the value is nested too deeply"));
        }
        if self.values > MAX_VALUES {
            return Err(invalid("the value holds too many values"));
        }
        match value.kind() {
            ValueKind::Map if is_namespace(value) && !self.may_hold_namespaces => {
                Err(invalid("a namespace cannot hold a namespace"))
            }
            ValueKind::Map => value.try_iter()?.try_for_each(|key| {
                self.value(&key, depth + 1)?;
                self.value(&value.get_item(&key)?, depth + 1)
            }),
            ValueKind::Seq | ValueKind::Iterable => {
                value.try_iter()?.try_for_each(|item| self.value(&item, depth + 1))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a value is a namespace, whose type has no other sign.
fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

fn invalid(words: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, words)
}

/// A statement with [`FILTER`] on what it assigns, if it is an assignment to an attribute.
pub(super) fn with_filter(statement: &str) -> Option<String> {
    let words = statement.trim_start_matches(['-', '+']).trim_start();
    let assignment = words.strip_prefix("set").filter(|rest| rest.starts_with([' ', '\t', '\n']))?;
    let (target, _) = assignment.split_once('=')?;
    let is_name = |c: char| c.is_alphanumeric() || "_., ()\t\n".contains(c);
    if !target.contains('.') || !target.chars().all(is_name) {
        return None;
    }
    let start = statement.len() - assignment.len() + target.len() + 1;
    let value = statement[start..].trim_end_matches(['-', '+']);
    let control = &statement[start + value.len()..];
    Some(format!("{}({value})|{FILTER} {control}", &statement[..start]))
}

#[cfg(test)]
mod tests {
    use super::super::statements;
    use super::*;

    #[test]
    fn assignments_to_attributes_are_guarded() {
        let guarded = |source| statements::rewritten(source, with_filter, |_| None);
        for (source, wanted) in [
            ("a{% set ns.x = 1 %}b", "a{% set ns.x =( 1 )|kept_in_a_namespace %}b"),
            ("{%- set ns.x=y -%}", "{%- set ns.x=(y )|kept_in_a_namespace -%}"),
            ("{% set ns.x, b = 1, 2 %}", "{% set ns.x, b =( 1, 2 )|kept_in_a_namespace %}"),
        ] {
            assert_eq!(guarded(source), wanted);
        }
        for same in [
            "{% set x = a.b %}",
            "{% set ns.x %}a{% endset %}",
            "{% if ns.x == 1 %}{% endif %}",
            "{% settle ns.x = 1 %}",
            "{% set f('.') = 1 %}",
        ] {
            assert_eq!(guarded(same), same);
        }
    }
}
