//! The `tojson` filter: prints as Python's `json.dumps` does, with its spaces, number formats and
//! key order.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::python::LongFloat;

/// Deeper values end with an error instead of exhausting the stack.
const MAX_DEPTH: usize = 128;

/// `value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(super) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    indent: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let indent: Option<Value> = match indent {
        Some(indent) => Some(indent),
        None => options.get("indent")?,
    };
    let separators: Option<Vec<String>> = options.get("separators")?;
    let mut writer = JsonWriter {
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent: indent.map(|indent| indent_text(&indent)).transpose()?.flatten(),
        separators: None,
        out: String::new(),
        state,
    };
    options.assert_all_used()?;
    writer.separators = separators.map(pair).transpose()?;
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

struct JsonWriter<'a, 'b, 'c> {
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    /// What stands between items, and between a key and its value.
    separators: Option<(String, String)>,
    out: String,
    state: &'a State<'b, 'c>,
}

impl JsonWriter<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.state.consume_fuel(1)?;
        if depth > MAX_DEPTH {
            return Err(invalid("the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => {
                let word = if value.is_true() { "true" } else { "false" };
                self.out.push_str(word);
            }
            ValueKind::Number if value.is_integer() => self.out.push_str(&value.to_string()),
            ValueKind::Number => self.out.push_str(&python_float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.object(value, depth)?,
            kind => match LongFloat::of(value) {
                Some(float) => self.out.push_str(&python_float(float)),
                None => return Err(invalid(format!("{kind} is not JSON serializable"))),
            },
        }
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut count = 0;
        for item in value.try_iter()? {
            self.before_item(count, depth + 1);
            self.value(&item, depth + 1)?;
            count += 1;
        }
        self.close(count, depth, ']');
        Ok(())
    }

    fn object(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('{');
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        for (count, key) in keys.iter().enumerate() {
            self.before_item(count, depth + 1);
            self.key(key)?;
            let colon = self.separators.as_ref().map_or(": ", |pair| &pair.1);
            self.out.push_str(colon);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.close(keys.len(), depth, '}');
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.as_str() {
            Some(text) => self.string(text),
            None => {
                let start = self.out.len();
                self.value(key, MAX_DEPTH)?;
                let spelled = self.out.split_off(start);
                self.string(&spelled)
            }
        }
    }

    fn before_item(&mut self, count: usize, depth: usize) {
        if count > 0 {
            let default = if self.indent.is_some() { "," } else { ", " };
            let comma = self.separators.as_ref().map_or(default, |pair| &pair.0);
            self.out.push_str(comma);
        }
        self.new_line(depth);
    }

    fn close(&mut self, count: usize, depth: usize, bracket: char) {
        if count > 0 {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.push_str(&indent.repeat(depth));
        }
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        self.state.consume_fuel(text.len() as u64 / 64)?;
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                control if control < ' ' => self.escape(control),
                other if self.ensure_ascii && needs_ascii_escape(other) => self.escape(other),
                other => self.out.push(other),
            }
        }
        self.out.push('"');
        Ok(())
    }

    fn escape(&mut self, character: char) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(self.out, "\\u{unit:04x}").expect("writing to a string succeeds");
        }
    }
}

/// The supplementary private-use planes stay as they are even in ASCII output:
/// the marks that keep content apart from control tokens are taken from there
/// and have to be found again.
fn needs_ascii_escape(character: char) -> bool {
    ('\u{7f}'..'\u{f0000}').contains(&character)
}

/// The spelling of Python's `repr` of a float: the shortest digits that read
/// back, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("{:e} prints an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = value.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

/// A number of spaces, or the text itself. Python begins new lines even for
/// an indent of zero, but not for none.
fn indent_text(indent: &Value) -> Result<Option<String>, Error> {
    if indent.is_none() || indent.is_undefined() {
        return Ok(None);
    }
    if let Some(text) = indent.as_str() {
        return Ok(Some(text.to_owned()));
    }
    let width = indent.as_usize().filter(|&width| width <= 64);
    let width = width.ok_or_else(|| invalid("indent must be a small number or text"))?;
    Ok(Some(" ".repeat(width)))
}

fn pair(separators: Vec<String>) -> Result<(String, String), Error> {
    <[String; 2]>::try_from(separators)
        .map(|[item, key]| (item, key))
        .map_err(|_| invalid("separators must be a pair"))
}

fn invalid(detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_spelled_as_python_spells_them() {
        for (value, spelled) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123456.789, "123456.789"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(python_float(value), spelled);
        }
    }
}
