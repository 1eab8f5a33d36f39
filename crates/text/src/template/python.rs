//! Tests, filters and printing of values as in Python, where minijinja differs.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};

use super::json::python_float;
use super::namespaces;

/// Registers tests, filters and the formatter.
pub(super) fn register(environment: &mut Environment<'static>) {
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", is_sequence);
    environment.add_test("number", |value: &Value| is_float(value) || is_number(value));
    environment.add_test("float", is_float);
    environment.add_filter("string", to_text);
    environment.add_filter(MARKUP_FILTER, |text: &str| format!("{MARKUP_START}{text}{MARKUP_END}"));
    environment.set_formatter(write_value);
}

/// A value with a length and subscripts: lists, text and mappings.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Undefined | ValueKind::Seq | ValueKind::Map | ValueKind::String)
}

fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
}

fn is_float(value: &Value) -> bool {
    LongFloat::of(value).is_some() || (value.kind() == ValueKind::Number && !value.is_integer())
}

/// `value | int(default=0, base=10)`: the default where there is no number. The base is that of
/// text.
pub(super) fn to_int(value: &Value, default: Option<Value>, base: Option<u32>) -> Value {
    let number = number(value);
    let whole = match value.as_str() {
        Some(text) => whole(text, base.unwrap_or(10)),
        None => value.as_i64(),
    };
    match (whole, number) {
        (Some(whole), _) => Value::from(whole),
        (None, Some(number)) if number.is_finite() => Value::from(number.trunc() as i128),
        _ => default.unwrap_or_else(|| Value::from(0)),
    }
}

/// The whole number that `text` spells in the base `base`, with the prefix that Python allows
/// there.
fn whole(text: &str, base: u32) -> Option<i64> {
    let text = text.trim().replace('_', "").to_ascii_lowercase();
    let digits = text.trim_start_matches(['+', '-']);
    let prefix = [(16, "0x"), (8, "0o"), (2, "0b")].into_iter().find(|&(of, _)| of == base);
    let digits = prefix.and_then(|(_, prefix)| digits.strip_prefix(prefix)).unwrap_or(digits);
    let sign = if text.starts_with('-') { "-" } else { "" };
    (2..=36).contains(&base).then(|| i64::from_str_radix(&format!("{sign}{digits}"), base).ok())?
}

/// `value | float(default=0.0)`.
pub(super) fn to_float(value: &Value, default: Option<Value>) -> Value {
    number(value).map_or_else(|| default.unwrap_or_else(|| Value::from(0.0)), float_value)
}

/// The number that a value is, or that its text spells.
fn number(value: &Value) -> Option<f64> {
    match (value.as_str(), LongFloat::of(value)) {
        (Some(text), _) => text.trim().parse::<f64>().ok(),
        (None, Some(number)) => Some(number),
        (None, None) => match value.kind() {
            ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
            _ => f64::try_from(value.clone()).ok(),
        },
    }
}

/// A float as templates see it.
///
/// One that Python prints with an exponent becomes an object with Python's spelling. minijinja
/// would print all its digits.
pub(super) fn float_value(number: f64) -> Value {
    if number.is_finite() && python_float(number).contains('e') {
        Value::from_object(LongFloat(number))
    } else {
        Value::from(number)
    }
}

/// A float that Python prints with an exponent.
pub(super) struct LongFloat(f64);

impl LongFloat {
    pub(super) fn of(value: &Value) -> Option<f64> {
        value.downcast_object_ref::<Self>().map(|float| float.0)
    }
}

impl fmt::Debug for LongFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&python_float(self.0))
    }
}

impl Object for LongFloat {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&python_float(self.0))
    }
}

/// Text marked as safe that is added to other text makes Python escape the other for HTML. These
/// noncharacters enclose the safe text of such sums until they are written; [`without_markers`]
/// keeps them out of conversations.
const MARKUP_START: char = '\u{fdd0}';
const MARKUP_END: char = '\u{fdd1}';
const MARKUP_FILTER: &str = "safe_in_a_sum";

/// The template with `|safe +` spelled as the filter that encloses.
pub(super) fn with_markup_sums(source: &str) -> String {
    let mut source = source.to_owned();
    for spelled in ["|safe +", "| safe +"] {
        source = source.replace(spelled, &format!("|{MARKUP_FILTER} +"));
    }
    source
}

/// Text of a conversation, without the noncharacters that this module uses.
pub(super) fn without_markers(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains([MARKUP_START, MARKUP_END]) {
        text.replace([MARKUP_START, MARKUP_END], "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// Writes what `{{ }}` holds.
fn write_value(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) if text.contains(MARKUP_START) => out.write_str(&escaped(text)).map_err(no_room),
        _ if value.kind() == ValueKind::Number && !value.is_integer() => {
            let number = f64::try_from(value.clone())?;
            out.write_str(&spelled(number)).map_err(no_room)
        }
        _ => {
            namespaces::charge(state, value)?;
            minijinja::escape_formatter(out, state, value)
        }
    }
}

/// A float as Python prints it.
fn spelled(number: f64) -> String {
    if number.is_finite() { python_float(number) } else { number.to_string().to_lowercase() }
}

/// `value | string`.
fn to_text(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => Ok(Value::from(spelled(f64::try_from(value.clone())?))),
        _ => minijinja::filters::string(state, value),
    }
}

fn no_room(_: fmt::Error) -> Error {
    Error::from(ErrorKind::WriteFailure)
}

/// Escapes text outside of the markers, and drops the markers.
fn escaped(text: &str) -> String {
    let (mut result, mut safe) = (String::with_capacity(text.len()), false);
    for character in text.chars() {
        match character {
            MARKUP_START => safe = true,
            MARKUP_END => safe = false,
            '&' if !safe => result.push_str("&amp;"),
            '<' if !safe => result.push_str("&lt;"),
            '>' if !safe => result.push_str("&gt;"),
            '\'' if !safe => result.push_str("&#39;"),
            '"' if !safe => result.push_str("&#34;"),
            other => result.push(other),
        }
    }
    result
}
