//! Splits an answer's text into reasoning, tool calls and the answer itself, while it is generated.

use std::collections::VecDeque;

use serde_json::Value as Json;

use super::output::Delta;

/// Where reasoning begins and ends.
const THINK: [&str; 2] = ["<think>", "</think>"];
/// Where a tool call begins and ends, in the syntax of Hermes and Qwen.
const CALL: [&str; 2] = ["<tool_call>", "</tool_call>"];

/// Splits text as it comes. Only what may be the beginning of a mark is held back.
#[derive(Debug)]
pub(crate) struct Splitter {
    place: Place,
    splits_reasoning: bool,
    /// Names of the tools that may be called; none means that calls are text.
    tools: Vec<String>,
    held: String,
    calls: u32,
    /// Whether any text of the answer has come.
    has_text: bool,
    most_calls: u32,
}

/// What the text belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The first text, where the answer is perhaps one bare JSON call.
    Start,
    Answer,
    Reasoning,
    Call,
}

impl Splitter {
    /// For an answer that may call these tools. `in_reasoning`: the prompt has opened reasoning.
    pub(crate) fn new(
        splits_reasoning: bool,
        in_reasoning: bool,
        tools: Vec<String>,
        parallel: bool,
    ) -> Splitter {
        Splitter {
            place: if splits_reasoning && in_reasoning { Place::Reasoning } else { Place::Start },
            splits_reasoning,
            tools,
            held: String::new(),
            calls: 0,
            has_text: false,
            most_calls: if parallel { u32::MAX } else { 1 },
        }
    }

    /// Whether a tool was called.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// New text.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Delta> {
        self.held.push_str(text);
        let mut deltas = VecDeque::new();
        while self.advance(&mut deltas) {}
        deltas.into()
    }

    /// What was held back, after the last text.
    pub(crate) fn finish(&mut self) -> Vec<Delta> {
        let held = std::mem::take(&mut self.held);
        let mut deltas = VecDeque::new();
        match self.place {
            Place::Reasoning => push_text(&mut deltas, Delta::Reasoning(held)),
            Place::Call => {
                // A model that ends its answer with the call may leave the closing mark out.
                if !self.call(&held, &mut deltas) {
                    self.text(format!("{}{held}", CALL[0]), &mut deltas);
                }
            }
            Place::Start => {
                if !self.call(held.trim(), &mut deltas) {
                    self.text(held, &mut deltas);
                }
            }
            Place::Answer => self.text(held, &mut deltas),
        }
        deltas.into()
    }

    /// Takes one part of the held text; whether there may be more.
    fn advance(&mut self, deltas: &mut VecDeque<Delta>) -> bool {
        match self.place {
            Place::Start => self.start(),
            Place::Answer => self.answer(deltas),
            Place::Reasoning => {
                let (before, ended) = until(&mut self.held, THINK[1]);
                push_text(deltas, Delta::Reasoning(before));
                self.enter_if(ended, Place::Start)
            }
            Place::Call => {
                let (before, ended) = whole_until(&mut self.held, CALL[1]);
                if !ended {
                    return false;
                }
                if !self.call(&before, deltas) {
                    self.text(format!("{}{before}{}", CALL[0], CALL[1]), deltas);
                }
                self.enter_if(true, Place::Answer)
            }
        }
    }

    fn enter_if(&mut self, ended: bool, place: Place) -> bool {
        if ended {
            self.place = place;
        }
        ended
    }

    /// The first word decides: reasoning, perhaps one bare JSON call, or the answer.
    fn start(&mut self) -> bool {
        let first = self.held.trim_start();
        if let Some(reasoning) = first.strip_prefix(THINK[0]).filter(|_| self.splits_reasoning) {
            self.held = reasoning.to_owned();
            self.place = Place::Reasoning;
            return true;
        }
        let begins_reasoning = self.splits_reasoning && THINK[0].starts_with(first);
        let begins_call = !self.tools.is_empty() && first.starts_with('{');
        if first.is_empty() || begins_reasoning || begins_call {
            return false;
        }
        self.enter_if(true, Place::Answer)
    }

    fn answer(&mut self, deltas: &mut VecDeque<Delta>) -> bool {
        if self.tools.is_empty() {
            let held = std::mem::take(&mut self.held);
            self.text(held, deltas);
            return false;
        }
        let (before, found) = until(&mut self.held, CALL[0]);
        self.text(before, deltas);
        self.enter_if(found, Place::Call)
    }

    /// Text of the answer. White space around calls and reasoning is no content.
    fn text(&mut self, text: String, deltas: &mut VecDeque<Delta>) {
        if !self.has_text && text.trim().is_empty() && (self.splits_reasoning || !self.tools.is_empty()) {
            return;
        }
        if self.calls > 0 && text.trim().is_empty() {
            return;
        }
        self.has_text |= !text.is_empty();
        push_text(deltas, Delta::Text(text));
    }

    /// Reports the calls that `json` spells; `false` where it spells none of a known tool.
    fn call(&mut self, json: &str, deltas: &mut VecDeque<Delta>) -> bool {
        let Some((name, arguments)) = parse_call(json, &self.tools) else { return false };
        if self.calls >= self.most_calls {
            return true;
        }
        let index = self.calls;
        self.calls += 1;
        deltas.push_back(Delta::ToolCall { index, id: crate::id::new("call_"), name });
        deltas.push_back(Delta::ToolArguments { index, fragment: arguments });
        true
    }
}

/// The name and the arguments, as JSON text, of a call of one of the tools.
fn parse_call(json: &str, tools: &[String]) -> Option<(String, String)> {
    let value: Json = serde_json::from_str(json.trim()).ok()?;
    let call = value.get("function").filter(|function| function.is_object()).unwrap_or(&value);
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

fn push_text(deltas: &mut VecDeque<Delta>, delta: Delta) {
    if !matches!(&delta, Delta::Text(text) | Delta::Reasoning(text) if text.is_empty()) {
        deltas.push_back(delta);
    }
}

/// Takes the text before a mark, and the mark; what may begin a mark stays.
fn until(held: &mut String, mark: &str) -> (String, bool) {
    let (end, rest, found) = match held.find(mark) {
        Some(at) => (at, at + mark.len(), true),
        None => {
            let end = held.len() - beginning(held, mark);
            (end, end, false)
        }
    };
    let rest = held.split_off(rest);
    let mut before = std::mem::replace(held, rest);
    before.truncate(end);
    (before, found)
}

/// As [`until`], but takes nothing before the mark is there.
fn whole_until(held: &mut String, mark: &str) -> (String, bool) {
    if held.contains(mark) { until(held, mark) } else { (String::new(), false) }
}

/// Length of the longest end of `text` that is a beginning of `mark`.
fn beginning(text: &str, mark: &str) -> usize {
    let longest = text.len().min(mark.len() - 1);
    (1..=longest).rev().find(|&length| text.as_bytes().ends_with(&mark.as_bytes()[..length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reasoning, text and calls of a text that comes in pieces of `size` characters.
    fn split(text: &str, size: usize, in_reasoning: bool) -> (String, String, Vec<(String, String)>) {
        let mut splitter = Splitter::new(true, in_reasoning, vec!["add".into(), "now".into()], true);
        let characters: Vec<char> = text.chars().collect();
        let mut deltas = Vec::new();
        for piece in characters.chunks(size) {
            deltas.extend(splitter.push(&piece.iter().collect::<String>()));
        }
        deltas.extend(splitter.finish());
        let (mut reasoning, mut answer, mut calls) = (String::new(), String::new(), Vec::new());
        for delta in deltas {
            match delta {
                Delta::Text(text) => answer.push_str(&text),
                Delta::Reasoning(text) => reasoning.push_str(&text),
                Delta::ToolCall { index, name, .. } => {
                    assert_eq!(index as usize, calls.len());
                    calls.push((name, String::new()));
                }
                Delta::ToolArguments { index, fragment } => calls[index as usize].1.push_str(&fragment),
            }
        }
        assert_eq!(splitter.has_calls(), !calls.is_empty());
        (reasoning, answer, calls)
    }

    fn call(name: &str, arguments: &str) -> (String, String) {
        (name.to_owned(), arguments.to_owned())
    }

    #[test]
    fn texts_are_split_the_same_however_they_come() {
        let add = || call("add", r#"{"a":1}"#);
        let cases = [
            ("plain text", false, "", "plain text", vec![]),
            ("a < b <thin", false, "", "a < b <thin", vec![]),
            ("<think>why\n</think>\n\nso", false, "why\n", "\n\nso", vec![]),
            ("why</think>so", true, "why", "so", vec![]),
            ("never ends", true, "never ends", "", vec![]),
            ("so <think>late</think>", false, "", "so <think>late</think>", vec![]),
            (r#"<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>"#, false, "", "", vec![add()]),
            (
                "I add. <tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":1}}\n</tool_call>\n<tool_call>{\"name\":\"now\"}</tool_call>",
                false,
                "",
                "I add. ",
                vec![add(), call("now", "{}")],
            ),
            (r#"<tool_call>{"name":"add","arguments":{"a":1}}"#, false, "", "", vec![add()]),
            (r#"{"name":"add","parameters":{"a":1}}"#, false, "", "", vec![add()]),
            (
                r#"{"name":"sub","parameters":{"a":1}}"#,
                false,
                "",
                r#"{"name":"sub","parameters":{"a":1}}"#,
                vec![],
            ),
            ("{not json", false, "", "{not json", vec![]),
            ("<tool_call>broken</tool_call> text", false, "", "<tool_call>broken</tool_call> text", vec![]),
            (r#"<think>t</think>{"name":"add","arguments":{"a":1}}"#, false, "t", "", vec![add()]),
            ("<tool_call>{\"name\":", false, "", "<tool_call>{\"name\":", vec![]),
        ];
        for (text, in_reasoning, reasoning, answer, calls) in cases {
            for size in [1, 2, 3, 5, 8, 1000] {
                let expected = (reasoning.to_owned(), answer.to_owned(), calls.clone());
                assert_eq!(split(text, size, in_reasoning), expected, "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn ordinary_text_is_not_held_back() {
        let mut splitter = Splitter::new(true, false, vec!["add".into()], true);
        assert_eq!(splitter.push("Hello"), [Delta::Text("Hello".into())]);
        assert_eq!(splitter.push(" <"), [Delta::Text(" ".into())]);
        assert_eq!(splitter.push("b>"), [Delta::Text("<b>".into())]);
    }

    #[test]
    fn one_call_is_all_where_calls_are_not_parallel() {
        let mut splitter = Splitter::new(false, false, vec!["add".into()], false);
        let one = r#"<tool_call>{"name":"add","arguments":{}}</tool_call>"#;
        let deltas = splitter.push(&one.repeat(3));
        assert_eq!(deltas.iter().filter(|delta| matches!(delta, Delta::ToolCall { .. })).count(), 1);
    }

    #[test]
    fn without_tools_calls_are_text() {
        let mut splitter = Splitter::new(false, false, Vec::new(), true);
        let text = r#"{"name":"add"}<tool_call>{}</tool_call><think>"#;
        let mut deltas = splitter.push(text);
        deltas.extend(splitter.finish());
        assert_eq!(deltas, [Delta::Text(text.into())]);
    }
}
