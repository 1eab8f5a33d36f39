//! Tool calls as models spell them: read while they are generated, or as a whole.

use serde_json::Value as Json;

/// Reads the arguments of one call, a JSON object, as they come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CallReader {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl CallReader {
    /// Finds the beginning of a call: its reader, the tool's name, and the text from the arguments
    /// on. `Ok(None)` while more text is needed.
    ///
    /// # Errors
    /// The text does not begin with the name of a known tool and an object of arguments. It may
    /// still be a call that [`parse_calls`] reads.
    pub(super) fn begin(text: &str, tools: &[String]) -> Result<Option<(CallReader, String, String)>, ()> {
        let text = text.trim_start_matches(['[', ',', ';', ']', '}', ' ', '\n', '\t', '\r']);
        let found = match text.strip_prefix('{') {
            Some(inside) => head_of_object(inside, tools)?,
            None => head_of_name(text, tools)?,
        };
        Ok(found.map(|(name, rest)| (CallReader::default(), name, rest.to_owned())))
    }

    /// How much of a text belongs to the arguments, and whether they end there.
    pub(super) fn read(&mut self, text: &str) -> (usize, bool) {
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return (at + 1, true);
                    }
                }
                _ => {}
            }
        }
        (text.len(), false)
    }
}

/// `"name": NAME, "arguments": {`, up to the brace.
fn head_of_object<'a>(inside: &'a str, tools: &[String]) -> Result<Option<(String, &'a str)>, ()> {
    let Some(rest) = word(inside, "\"name\"")? else { return Ok(None) };
    let Some(rest) = word(rest, ":")? else { return Ok(None) };
    let rest = rest.trim_start();
    let Some(name) = rest.strip_prefix('"') else {
        return if rest.is_empty() { Ok(None) } else { Err(()) };
    };
    let Some((name, rest)) = name.split_once('"') else { return Ok(None) };
    if !tools.iter().any(|tool| tool == name) {
        return Err(());
    }
    let Some(rest) = word(rest, ",")? else { return Ok(None) };
    let keys = ["\"arguments\"", "\"parameters\""].map(|key| word(rest, key));
    let rest = match keys {
        [Ok(Some(rest)), _] | [_, Ok(Some(rest))] => rest,
        [Ok(None), _] | [_, Ok(None)] => return Ok(None),
        [Err(()), Err(())] => return Err(()),
    };
    let Some(rest) = word(rest, ":")? else { return Ok(None) };
    Ok(word(rest, "{")?.map(|_| (name.to_owned(), rest.trim_start())))
}

/// `NAME[ARGS]{` or `NAME{`, up to the brace.
fn head_of_name<'a>(text: &'a str, tools: &[String]) -> Result<Option<(String, &'a str)>, ()> {
    let Some(at) = text.find('{') else {
        let known = |tool: &String| {
            let whole = format!("{tool}[ARGS]");
            whole.starts_with(text.trim_end()) || text.starts_with(&whole)
        };
        return if tools.iter().any(known) { Ok(None) } else { Err(()) };
    };
    let (name, rest) = text.split_at(at);
    let name = name.trim().trim_end_matches("[ARGS]").trim();
    if tools.iter().any(|tool| tool == name) { Ok(Some((name.to_owned(), rest))) } else { Err(()) }
}

/// The text after a word, which white space may precede; `Ok(None)` where the text may yet become
/// the word.
fn word<'a>(text: &'a str, word: &str) -> Result<Option<&'a str>, ()> {
    let text = text.trim_start();
    match text.strip_prefix(word) {
        Some(rest) => Ok(Some(rest)),
        None if word.starts_with(text) => Ok(None),
        None => Err(()),
    }
}

/// The calls that a whole text spells, each a name and arguments as JSON text: objects, or lists of
/// them, one after another. `None` where anything else is there, or a tool is unknown.
pub(super) fn parse_calls(text: &str, tools: &[String]) -> Option<Vec<(String, String)>> {
    let mut calls = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Json>();
        match values.next()?.ok()? {
            Json::Array(list) => {
                for value in &list {
                    calls.push(parse_call(value, tools)?);
                }
            }
            value => calls.push(parse_call(&value, tools)?),
        }
        rest = rest[values.byte_offset()..].trim_start_matches([';', ',', ' ', '\n', '\t', '\r']);
    }
    Some(calls).filter(|calls| !calls.is_empty())
}

fn parse_call(value: &Json, tools: &[String]) -> Option<(String, String)> {
    let call = value.get("function").filter(|function| function.is_object()).unwrap_or(value);
    let name = call.get("name")?.as_str().filter(|name| tools.iter().any(|tool| tool == name))?;
    let arguments = call.get("arguments").or_else(|| call.get("parameters"));
    let text = match arguments {
        None | Some(Json::Null) => "{}".to_owned(),
        // Some models write the arguments as text that is JSON.
        Some(Json::String(text)) if serde_json::from_str::<Json>(text).is_ok() => text.clone(),
        Some(arguments) => arguments.to_string(),
    };
    Some((name.to_owned(), text))
}
