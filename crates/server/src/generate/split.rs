//! Splits an answer's text into reasoning, tool calls and the answer itself, while it is generated.

use std::collections::VecDeque;

use super::call::{CallReader, parse_calls};
use super::output::Delta;

/// Where reasoning begins and ends.
const THINK: [&str; 2] = ["<think>", "</think>"];
/// Where a tool call begins and ends, in the syntax of Hermes and Qwen.
const CALL: [&str; 2] = ["<tool_call>", "</tool_call>"];
/// Control tokens after which the rest of an answer is tool calls, of Mistral and Llama.
const CALLS: [&str; 2] = ["[TOOL_CALLS]", "<|python_tag|>"];
/// Control tokens inside of calls, of Mistral.
const IN_CALLS: [&str; 1] = ["[ARGS]"];

/// Splits text as it comes. Only what may be the beginning of a mark is held back.
#[derive(Debug)]
pub(crate) struct Splitter {
    place: Place,
    splits_reasoning: bool,
    /// Names of the tools that may be called; none means that calls are text.
    tools: Vec<String>,
    held: String,
    /// The call whose arguments are being reported.
    reader: Option<CallReader>,
    /// The call at this place was reported, so that only its end is left.
    reported: bool,
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
    /// A call up to its closing mark.
    Call,
    /// Calls up to the end of the answer, after this text.
    Calls(&'static str),
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
            reader: None,
            reported: false,
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

    /// A control token of this spelling. It is no text, but it may be a mark.
    pub(crate) fn push_control(&mut self, spelling: &str) -> Vec<Delta> {
        if THINK.contains(&spelling) || CALL.contains(&spelling) {
            return self.push(spelling);
        }
        let mark = CALLS.into_iter().find(|mark| *mark == spelling && !self.tools.is_empty());
        let in_calls = matches!(self.place, Place::Calls(_));
        match mark {
            // A further call of Mistral's: what was before it is complete.
            Some(_) if in_calls => {
                let deltas = self.finish();
                self.place = Place::Calls(CALLS[0]);
                deltas
            }
            Some(mark) => {
                let deltas = self.finish();
                self.place = Place::Calls(mark);
                deltas
            }
            None if in_calls && IN_CALLS.contains(&spelling) => self.push(spelling),
            None => Vec::new(),
        }
    }

    /// What was held back, after the last text.
    pub(crate) fn finish(&mut self) -> Vec<Delta> {
        let held = std::mem::take(&mut self.held);
        let mut deltas = VecDeque::new();
        if self.reader.take().is_some() {
            // The arguments broke off; what there is of them was reported.
            return Vec::new();
        }
        match self.place {
            Place::Reasoning => push_text(&mut deltas, Delta::Reasoning(held)),
            Place::Call => {
                // A model that ends its answer with the call may leave the closing mark out.
                if !self.reported && !self.whole_calls(&held, &mut deltas) {
                    self.text(format!("{}{held}", CALL[0]), &mut deltas);
                }
            }
            Place::Start => {
                if !self.whole_calls(&held, &mut deltas) {
                    self.text(held, &mut deltas);
                }
            }
            Place::Calls(mark) => {
                if self.calls == 0 && !self.whole_calls(&held, &mut deltas) {
                    self.text(format!("{mark}{held}"), &mut deltas);
                }
            }
            Place::Answer => self.text(held, &mut deltas),
        }
        deltas.into()
    }

    /// Takes one part of the held text; whether there may be more.
    fn advance(&mut self, deltas: &mut VecDeque<Delta>) -> bool {
        if self.reader.is_some() {
            return self.read_arguments(deltas);
        }
        match self.place {
            Place::Start => self.start(),
            Place::Answer => self.answer(deltas),
            Place::Reasoning => {
                let (before, ended) = until(&mut self.held, THINK[1]);
                push_text(deltas, Delta::Reasoning(before));
                self.enter_if(ended, Place::Start)
            }
            Place::Call => self.begin_call(deltas) || self.end_call(deltas),
            Place::Calls(_) => self.begin_call(deltas),
        }
    }

    fn enter_if(&mut self, ended: bool, place: Place) -> bool {
        if ended {
            self.place = place;
        }
        ended
    }

    /// The first word decides: reasoning, perhaps bare JSON calls, or the answer.
    fn start(&mut self) -> bool {
        let first = self.held.trim_start();
        if let Some(reasoning) = first.strip_prefix(THINK[0]).filter(|_| self.splits_reasoning) {
            self.held = reasoning.to_owned();
            self.place = Place::Reasoning;
            return true;
        }
        let begins_reasoning = self.splits_reasoning && THINK[0].starts_with(first);
        if !self.tools.is_empty() && first.starts_with('{') {
            return match CallReader::begin(first, &self.tools) {
                Ok(Some(_)) => self.enter_if(true, Place::Calls("")),
                Ok(None) => false,
                // It may still be a call in another shape.
                Err(()) => false,
            };
        }
        if first.is_empty() || begins_reasoning {
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

    /// Reports a call once its name is there; its arguments follow as they come.
    fn begin_call(&mut self, deltas: &mut VecDeque<Delta>) -> bool {
        let Ok(Some((reader, name, rest))) = CallReader::begin(&self.held, &self.tools) else {
            return false;
        };
        self.held = rest;
        self.reader = Some(reader);
        if self.calls < self.most_calls {
            deltas.push_back(Delta::ToolCall { index: self.calls, id: crate::id::new("call_"), name });
        }
        self.calls += 1;
        self.reported = true;
        true
    }

    fn read_arguments(&mut self, deltas: &mut VecDeque<Delta>) -> bool {
        let Some(reader) = &mut self.reader else { return false };
        let (length, ended) = reader.read(&self.held);
        let rest = self.held.split_off(length);
        let fragment = std::mem::replace(&mut self.held, rest);
        if !fragment.is_empty() && self.calls <= self.most_calls {
            deltas.push_back(Delta::ToolArguments { index: self.calls - 1, fragment });
        }
        if ended {
            self.reader = None;
        }
        ended
    }

    /// Leaves a call at its closing mark. One that was not reported yet is read as a whole.
    fn end_call(&mut self, deltas: &mut VecDeque<Delta>) -> bool {
        let Some(at) = self.held.find(CALL[1]) else { return false };
        let rest = self.held.split_off(at + CALL[1].len());
        let mut before = std::mem::replace(&mut self.held, rest);
        before.truncate(at);
        // What is left of a call that was reported closes its object.
        if !std::mem::take(&mut self.reported) && !self.whole_calls(&before, deltas) {
            self.text(format!("{}{before}{}", CALL[0], CALL[1]), deltas);
        }
        self.enter_if(true, Place::Answer)
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

    /// Reports the calls that a text spells; `false` where it is no list of calls of known tools.
    fn whole_calls(&mut self, text: &str, deltas: &mut VecDeque<Delta>) -> bool {
        let Some(calls) = parse_calls(text, &self.tools) else { return false };
        for (name, arguments) in calls {
            let index = self.calls;
            if index < self.most_calls {
                deltas.push_back(Delta::ToolCall { index, id: crate::id::new("call_"), name });
                deltas.push_back(Delta::ToolArguments { index, fragment: arguments });
            }
            self.calls += 1;
        }
        true
    }
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

/// Length of the longest end of `text` that is a beginning of `mark`.
fn beginning(text: &str, mark: &str) -> usize {
    let longest = text.len().min(mark.len() - 1);
    (1..=longest).rev().find(|&length| text.as_bytes().ends_with(&mark.as_bytes()[..length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reasoning, text and calls of a text that comes in pieces of `size` characters. Control
    /// tokens stand between `\u{1}` and `\u{2}`.
    fn split(text: &str, size: usize, in_reasoning: bool) -> (String, String, Vec<(String, String)>) {
        let mut splitter = Splitter::new(true, in_reasoning, vec!["add".into(), "now".into()], true);
        let mut deltas = Vec::new();
        for part in text.split_inclusive(['\u{1}', '\u{2}']) {
            if let Some(control) = part.strip_suffix('\u{2}') {
                deltas.extend(splitter.push_control(control));
                continue;
            }
            let characters: Vec<char> = part.trim_end_matches('\u{1}').chars().collect();
            for piece in characters.chunks(size) {
                deltas.extend(splitter.push(&piece.iter().collect::<String>()));
            }
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
            // Braces and quotes inside of strings, and arguments before the name.
            (
                r#"<tool_call>{"name": "add", "arguments": {"a": "}\" {", "b": [{}]}}</tool_call>"#,
                false,
                "",
                "",
                vec![call("add", r#"{"a": "}\" {", "b": [{}]}"#)],
            ),
            (r#"<tool_call>{"arguments":{"a":1},"name":"add"}</tool_call>"#, false, "", "", vec![add()]),
            (r#"<tool_call>{"name":"add","arguments":"{\"a\":1}"}</tool_call>"#, false, "", "", vec![add()]),
            // Llama: several, and behind a control token.
            (
                r#"{"name":"add","parameters":{"a":1}}; {"name":"now","parameters":{}}"#,
                false,
                "",
                "",
                vec![add(), call("now", "{}")],
            ),
            (
                "\u{1}<|python_tag|>\u{2}{\"name\":\"add\",\"parameters\":{\"a\":1}}",
                false,
                "",
                "",
                vec![add()],
            ),
            // Mistral, both ways.
            (
                "Yes.\u{1}[TOOL_CALLS]\u{2}[{\"name\": \"add\", \"arguments\": {\"a\":1}}, {\"name\": \"now\", \"arguments\": {}}]",
                false,
                "",
                "Yes.",
                vec![add(), call("now", "{}")],
            ),
            (
                "\u{1}[TOOL_CALLS]\u{2}add\u{1}[ARGS]\u{2}{\"a\":1}\u{1}[TOOL_CALLS]\u{2}now\u{1}[ARGS]\u{2}{}",
                false,
                "",
                "",
                vec![add(), call("now", "{}")],
            ),
            ("\u{1}[TOOL_CALLS]\u{2}what is this", false, "", "[TOOL_CALLS]what is this", vec![]),
            // Control tokens that are no marks are nothing.
            ("one\u{1}<|pad|>\u{2} two", false, "", "one two", vec![]),
        ];
        for (text, in_reasoning, reasoning, answer, calls) in cases {
            for size in [1, 2, 3, 5, 8, 1000] {
                let expected = (reasoning.to_owned(), answer.to_owned(), calls.clone());
                assert_eq!(split(text, size, in_reasoning), expected, "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn arguments_are_reported_as_they_come() {
        let mut splitter = Splitter::new(false, false, vec!["add".into()], true);
        let mut fragments = Vec::new();
        for piece in
            ["<tool_call>\n{\"name\": \"add\", \"arg", "uments\": {\"a\": ", "12", "3}", "}\n</tool_call>"]
        {
            let deltas = splitter.push(piece);
            fragments.push(
                deltas
                    .into_iter()
                    .filter_map(|delta| match delta {
                        Delta::ToolArguments { fragment, .. } => Some(fragment),
                        _ => None,
                    })
                    .collect::<String>(),
            );
        }
        assert_eq!(fragments, ["", "{\"a\": ", "12", "3}", ""]);
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
