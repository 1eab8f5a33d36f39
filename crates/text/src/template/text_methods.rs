//! The methods of Python's values that templates call and minijinja's `pycompat` lacks or has
//! otherwise.

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use crate::tokenizer::CharSet;

/// Calls a method that minijinja's values do not have.
pub(super) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    let own = match (value.as_str(), value.kind()) {
        (Some(text), _) => of_text(state, text, name, arguments)?,
        (None, ValueKind::Seq) => of_list(state, value, name, arguments)?,
        (None, ValueKind::Map) if name == "copy" => from_args(arguments).map(|()| Some(value.clone()))?,
        _ => None,
    };
    own.map_or_else(|| pycompat::unknown_method_callback(state, value, name, arguments), Ok)
}

fn of_list(
    state: &State<'_, '_>,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<Option<Value>, Error> {
    match name {
        "copy" => from_args(arguments).map(|()| Some(value.clone())),
        "index" => {
            let (wanted,): (&Value,) = from_args(arguments)?;
            state.consume_fuel(value.len().unwrap_or(0) as u64 / 16)?;
            let found = value.try_iter()?.position(|item| item == *wanted);
            found
                .map(|at| Some(Value::from(at)))
                .ok_or_else(|| invalid(format!("{wanted} is not in the list")))
        }
        _ => Ok(None),
    }
}

fn of_text(
    state: &State<'_, '_>,
    text: &str,
    name: &str,
    arguments: &[Value],
) -> Result<Option<Value>, Error> {
    // Each method reads the text once. Building a class of characters costs about as much as 6 kB of text.
    let class = if matches!(name, "isdecimal" | "isdigit") { 100 } else { 0 };
    state.consume_fuel(text.len() as u64 / 64 + class)?;
    if let Some(changed) = changed(state, text, name, arguments)? {
        return Ok(Some(Value::from(changed)));
    }
    if let Some(answer) = about(text, name) {
        return from_args(arguments).map(|()| Some(Value::from(answer)));
    }
    Ok(match name {
        "split" => Some(split(text, arguments, false)?),
        "rsplit" => Some(split(text, arguments, true)?),
        "partition" | "rpartition" => Some(partition(text, name == "rpartition", arguments)?),
        "splitlines" => {
            let (keepends, names): (Option<bool>, Kwargs) = from_args(arguments)?;
            let keepends =
                keepends.map_or_else(|| names.get::<Option<bool>>("keepends"), |given| Ok(Some(given)))?;
            names.assert_all_used()?;
            Some(lines(text, keepends.unwrap_or(false)).map(Value::from).collect())
        }
        "find" | "rfind" | "index" | "rindex" | "count" => Some(search(text, name, arguments)?),
        "startswith" | "endswith" if arguments.len() > 1 => {
            let (part, start, end): (&Value, Option<i64>, Option<i64>) = from_args(arguments)?;
            let (_, within) = range(text, start, end);
            let parts = part
                .as_str()
                .map_or_else(|| part.try_iter().map(Iterator::collect), |_| Ok(vec![part.clone()]))?;
            let mut parts = parts.iter().filter_map(Value::as_str);
            let found = match name {
                "startswith" => parts.any(|part| within.starts_with(part)),
                _ => parts.any(|part| within.ends_with(part)),
            };
            Some(Value::from(found))
        }
        _ => None,
    })
}

/// The methods that make one text of another.
fn changed(
    state: &State<'_, '_>,
    text: &str,
    name: &str,
    arguments: &[Value],
) -> Result<Option<String>, Error> {
    let part = || from_args::<(&str,)>(arguments).map(|(part,)| part);
    Ok(Some(match name {
        "removeprefix" => part().map(|part| text.strip_prefix(part).unwrap_or(text).to_owned())?,
        "removesuffix" => part().map(|part| text.strip_suffix(part).unwrap_or(text).to_owned())?,
        "center" | "ljust" | "rjust" => {
            let (width, fill): (usize, Option<char>) = from_args(arguments)?;
            let fill = fill.unwrap_or(' ');
            match name {
                "center" => centered(state, text, width, fill)?,
                "ljust" => format!("{text}{}", filling(state, text, width, fill)?),
                _ => format!("{}{text}", filling(state, text, width, fill)?),
            }
        }
        "zfill" => {
            let (width,): (usize,) = from_args(arguments)?;
            let digits = text.trim_start_matches(['+', '-']);
            let (sign, digits) = if text.len() - digits.len() == 1 { text.split_at(1) } else { ("", text) };
            format!("{sign}{}{digits}", filling(state, text, width, '0')?)
        }
        "swapcase" => from_args(arguments).map(|()| text.chars().flat_map(swapped).collect())?,
        "expandtabs" => {
            let (size, names): (Option<usize>, Kwargs) = from_args(arguments)?;
            let size = size.map_or_else(|| names.get::<Option<usize>>("tabsize"), |given| Ok(Some(given)))?;
            names.assert_all_used()?;
            expanded(state, text, size.unwrap_or(8))?
        }
        "title" => from_args(arguments).map(|()| titled(text))?,
        _ => return Ok(None),
    }))
}

/// The methods that tell something about a text.
fn about(text: &str, name: &str) -> Option<bool> {
    let all_decimal = |or: fn(char) -> bool| {
        let decimal = CharSet::new(r"\p{Nd}");
        !text.is_empty() && text.chars().all(|c| decimal.contains(c) || or(c))
    };
    let all = |holds: fn(char) -> bool| !text.is_empty() && text.chars().all(holds);
    Some(match name {
        "isdecimal" => all_decimal(|_| false),
        "isdigit" => all_decimal(is_digit),
        "isidentifier" => all(|c| c.is_alphanumeric() || c == '_') && !text.starts_with(char::is_numeric),
        "isprintable" => text.chars().all(|c| c == ' ' || !(c.is_control() || c.is_whitespace())),
        "istitle" => titled(text) == text && text.chars().any(char::is_alphabetic),
        _ => return None,
    })
}

/// Superscripts, subscripts and digits in circles.
fn is_digit(character: char) -> bool {
    matches!(character, '²' | '³' | '¹' | '⁰' | '⁴'..='⁹' | '₀'..='₉' | '①'..='⑨' | '⑴'..='⑼' | '⒈'..='⒐' | '⓪')
}

fn swapped(character: char) -> Box<dyn Iterator<Item = char>> {
    match character.is_uppercase() {
        true => Box::new(character.to_lowercase()),
        false => Box::new(character.to_uppercase()),
    }
}

/// The first letter of each run of letters in upper case, the others in lower case.
fn titled(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut inside = false;
    for character in text.chars() {
        match inside {
            true => result.extend(character.to_lowercase()),
            false => result.extend(character.to_uppercase()),
        }
        inside = character.is_alphabetic();
    }
    result
}

/// What fills `text` up to `width` characters.
fn filling(state: &State<'_, '_>, text: &str, width: usize, fill: char) -> Result<String, Error> {
    let count = width.saturating_sub(text.chars().count());
    state.consume_fuel(count as u64 / 16)?;
    Ok(std::iter::repeat_n(fill, count).collect())
}

/// `text` in the middle of `width` characters; of an odd number more are before it where the width
/// is odd.
pub(super) fn centered(state: &State<'_, '_>, text: &str, width: usize, fill: char) -> Result<String, Error> {
    let filling: Vec<char> = filling(state, text, width, fill)?.chars().collect();
    let before = filling.len() / 2 + (filling.len() & width & 1);
    let (before, after) = filling.split_at(before);
    Ok(before.iter().copied().chain(text.chars()).chain(after.iter().copied()).collect())
}

fn expanded(state: &State<'_, '_>, text: &str, size: usize) -> Result<String, Error> {
    let (mut result, mut column) = (String::new(), 0);
    for character in text.chars() {
        match character {
            '\t' if size > 0 => {
                let count = size - column % size;
                state.consume_fuel(count as u64 / 16)?;
                result.extend(std::iter::repeat_n(' ', count));
                column += count;
            }
            '\t' => {}
            other => {
                result.push(other);
                column = if matches!(other, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    Ok(result)
}

/// `split(sep=none, maxsplit=-1)`, from the right end for `rsplit`.
fn split(text: &str, arguments: &[Value], from_right: bool) -> Result<Value, Error> {
    let (separator, most, names): (Option<Value>, Option<i64>, Kwargs) = from_args(arguments)?;
    let separator = separator.map_or_else(|| names.get::<Option<Value>>("sep"), |given| Ok(Some(given)))?;
    let most = most.map_or_else(|| names.get::<Option<i64>>("maxsplit"), |given| Ok(Some(given)))?;
    names.assert_all_used()?;
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX - 1) + 1;
    let separator = separator.filter(|separator| !separator.is_none() && !separator.is_undefined());
    let Some(separator) = separator else { return Ok(split_at_spaces(text, most, from_right)) };
    let separator = separator.as_str().filter(|text| !text.is_empty());
    let separator = separator.ok_or_else(|| invalid("the separator is no text, or empty"))?;
    let mut parts: Vec<&str> = match from_right {
        true => text.rsplitn(most, separator).collect(),
        false => text.splitn(most, separator).collect(),
    };
    if from_right {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// At most `most` parts between runs of white space.
fn split_at_spaces(text: &str, most: usize, from_right: bool) -> Value {
    let mut rest = text.trim();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let cut = match from_right {
            _ if parts.len() + 1 == most => None,
            true => rest.rfind(char::is_whitespace),
            false => rest.find(char::is_whitespace),
        };
        let Some(cut) = cut else {
            parts.push(rest);
            break;
        };
        let (before, after) = rest.split_at(cut);
        match from_right {
            true => {
                parts.push(after.trim_start());
                rest = before.trim_end();
            }
            false => {
                parts.push(before);
                rest = after.trim_start();
            }
        }
    }
    if from_right {
        parts.reverse();
    }
    parts.into_iter().map(Value::from).collect()
}

fn partition(text: &str, from_right: bool, arguments: &[Value]) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(arguments)?;
    if separator.is_empty() {
        return Err(invalid("the separator is empty"));
    }
    let parts = match (from_right, text.split_once(separator), text.rsplit_once(separator)) {
        (true, _, Some((before, after))) | (false, Some((before, after)), _) => [before, separator, after],
        (true, ..) => ["", "", text],
        (false, ..) => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

/// The lines of a text as Python tells them.
fn lines(text: &str, keep_ends: bool) -> impl Iterator<Item = &str> {
    const ENDS: [char; 10] =
        ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(ENDS).unwrap_or(rest.len());
        let ending = match rest[end..].starts_with("\r\n") {
            true => 2,
            false => rest[end..].chars().next().map_or(0, char::len_utf8),
        };
        let line = &rest[..if keep_ends { end + ending } else { end }];
        rest = &rest[end + ending..];
        Some(line)
    })
}

fn search(text: &str, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (part, start, end): (&str, Option<i64>, Option<i64>) = from_args(arguments)?;
    let (skipped, within) = range(text, start, end);
    if name == "count" {
        return Ok(Value::from(within.matches(part).count()));
    }
    let found = if name.starts_with('r') { within.rfind(part) } else { within.find(part) };
    match found {
        Some(at) => Ok(Value::from(skipped + within[..at].chars().count())),
        None if name.ends_with("find") => Ok(Value::from(-1)),
        None => Err(invalid("substring not found")),
    }
}

/// The characters from `start` to `end`, which count from the right end if negative, and how many
/// are before them.
fn range(text: &str, start: Option<i64>, end: Option<i64>) -> (usize, &str) {
    let count = text.chars().count();
    let place = |index: i64| match usize::try_from(index) {
        Ok(index) => index.min(count),
        Err(_) => count.saturating_sub(index.unsigned_abs() as usize),
    };
    let (start, end) = (start.map_or(0, place), end.map_or(count, place));
    let byte = |index: usize| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    (start, if start < end { &text[byte(start)..byte(end)] } else { "" })
}

fn invalid(words: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, words)
}
