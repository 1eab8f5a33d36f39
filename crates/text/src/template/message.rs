//! The input of a chat template: messages, tools, options and variables.

use std::borrow::Cow;
use std::time::SystemTime;

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::{TemplateError, python};

/// One message of a conversation, in the shape of OpenAI's chat API.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Message {
    /// The author: `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text, or `null`, or a list of parts. A list that holds only parts
    /// of type `text` reaches the template as their texts on lines of their
    /// own, any other list as it is. A template that prints only lists is
    /// given a text as a list of one part.
    pub content: Json,
    /// Everything else: `name`, `tool_calls`, `tool_call_id`,
    /// `reasoning_content`. Arguments of tool calls that are given as JSON
    /// text reach the template as the object they spell; a template that
    /// prints them only as text is given JSON text.
    pub fields: Map<String, Json>,
}

impl Message {
    /// A message with text content only.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Json::String(content.into()), fields: Map::new() }
    }

    /// Reads a list of messages as a chat request holds it.
    ///
    /// # Errors
    ///
    /// [`TemplateError::InvalidMessage`] for a message that is not an object,
    /// has no role, or has content of another kind than described at
    /// [`content`](Self::content).
    pub fn list_from_json(messages: &[Json]) -> Result<Vec<Self>, TemplateError> {
        let message = |(index, json)| {
            Self::from_json(json).map_err(|reason| TemplateError::InvalidMessage { index, reason })
        };
        messages.iter().enumerate().map(message).collect()
    }

    fn from_json(json: &Json) -> Result<Self, &'static str> {
        let mut fields = json.as_object().ok_or("not an object")?.clone();
        let Some(Json::String(role)) = fields.shift_remove("role") else {
            return Err("has no role");
        };
        let content = fields.shift_remove("content").unwrap_or_default();
        match content {
            Json::Null | Json::String(_) | Json::Array(_) => Ok(Self { role, content, fields }),
            _ => Err("content must be text or a list of parts"),
        }
    }
}

/// A conversation to be rendered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RenderInput {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// Ends with the opening of the assistant's next message.
    pub add_generation_prompt: bool,
    /// Ends inside the last message, so that the model continues it.
    pub continue_final_message: bool,
    /// The functions that the model may call, in the shape of OpenAI's API;
    /// none at all reach the template as `none`.
    pub tools: Vec<Json>,
    /// More variables for the template, such as `enable_thinking`.
    pub variables: Map<String, Json>,
    /// The time that `strftime_now` prints, in UTC. Absent means the current time.
    pub now: Option<SystemTime>,
}

/// The forms in which a template is given content and the arguments of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) content: Content,
    pub(super) arguments: Arguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// As it came.
    #[cfg_attr(not(test), expect(dead_code, reason = "templates are compared in this form"))]
    AsGiven,
    /// Lists of text parts as one text.
    Text,
    /// Texts as lists of one part.
    Parts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arguments {
    /// As they came.
    #[cfg_attr(not(test), expect(dead_code, reason = "templates are compared in this form"))]
    AsGiven,
    /// JSON text as the object that it spells.
    Object,
    /// Objects as JSON text.
    Text,
}

impl Shape {
    /// What most templates expect.
    pub(super) const PLAIN: Self = Self { content: Content::Text, arguments: Arguments::Object };

    fn content(self, content: &Json) -> Cow<'_, Json> {
        let text = match (self.content, content) {
            (Content::AsGiven, _) | (Content::Text, Json::String(_)) => return Cow::Borrowed(content),
            _ => joined_text(content),
        };
        match (self.content, text) {
            (_, None) => Cow::Borrowed(content),
            (Content::Parts, Some(_)) if content.is_array() => Cow::Borrowed(content),
            (Content::Parts, Some(text)) => Cow::Owned(serde_json::json!([{"type": "text", "text": text}])),
            (_, Some(text)) => Cow::Owned(Json::String(text.into_owned())),
        }
    }

    fn call(self, call: &Json) -> Cow<'_, Json> {
        let mut call = Cow::Borrowed(call);
        let place = match call.pointer("/function/arguments") {
            Some(_) => "/function/arguments",
            None => "/arguments",
        };
        let changed = match (self.arguments, call.pointer(place)) {
            (Arguments::Object, Some(Json::String(text))) => {
                serde_json::from_str(text).ok().filter(Json::is_object)
            }
            (Arguments::Text, Some(object @ Json::Object(_))) => Some(Json::String(object.to_string())),
            _ => None,
        };
        if let Some(changed) = changed
            && let Some(arguments) = call.to_mut().pointer_mut(place)
        {
            *arguments = changed;
        }
        call
    }
}

/// The author of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The operator: system messages, tool definitions and extra variables.
    Operator,
    /// Earlier answers of the model.
    Assistant,
    /// Users and tool results.
    Outside,
}

impl Origin {
    fn of_role(role: &str) -> Self {
        match role {
            "system" | "developer" => Self::Operator,
            "assistant" => Self::Assistant,
            _ => Self::Outside,
        }
    }
}

/// Changes each text on its way into the template.
pub(super) trait TextMapper: Sync {
    /// The text to use in place of `text`.
    fn map<'t>(&self, text: &'t str, origin: Origin) -> Cow<'t, str>;
}

/// Leaves every text as it is.
pub(super) struct Identity;

impl TextMapper for Identity {
    fn map<'t>(&self, text: &'t str, _: Origin) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }
}

/// The variables of a rendering. With a `tag`, the content of the last
/// message ends with it and a space.
pub(super) fn variables<'a>(
    input: &'a RenderInput,
    mapper: &'a dyn TextMapper,
    shape: Shape,
    tag: Option<char>,
) -> impl Iterator<Item = (Value, Value)> + 'a {
    let operator = Converter { mapper, origin: Origin::Operator };
    let last = input.messages.len().saturating_sub(1);
    let messages = input.messages.iter().enumerate().map(|(index, message)| {
        let tag = tag.filter(|_| index == last);
        message_value(message, mapper, shape, tag)
    });
    let tools = match input.tools.as_slice() {
        [] => Value::from(()),
        tools => tools.iter().map(|tool| operator.value(tool)).collect(),
    };
    let own = [
        ("messages", messages.collect()),
        ("tools", tools),
        ("add_generation_prompt", input.add_generation_prompt.into()),
    ];
    let extra = input.variables.iter();
    let extra = extra.map(move |(key, value)| (Value::from(key.as_str()), operator.value(value)));
    let defaults = [(Value::from("documents"), Value::from(()))];
    defaults.into_iter().chain(extra).chain(own.map(|(key, value)| (Value::from(key), value)))
}

/// Calls `visit` with every text that `input` holds.
pub(super) fn each_text(input: &RenderInput, visit: &mut dyn FnMut(&str)) {
    for message in &input.messages {
        visit(&message.role);
        each_text_of(&message.content, visit);
        message.fields.iter().for_each(|entry| each_text_of_entry(entry, visit));
    }
    input.tools.iter().for_each(|tool| each_text_of(tool, visit));
    input.variables.iter().for_each(|entry| each_text_of_entry(entry, visit));
}

fn each_text_of(json: &Json, visit: &mut dyn FnMut(&str)) {
    match json {
        Json::String(text) => visit(text),
        Json::Array(items) => items.iter().for_each(|item| each_text_of(item, visit)),
        Json::Object(entries) => {
            entries.iter().for_each(|entry| each_text_of_entry(entry, visit));
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn each_text_of_entry((key, value): (&String, &Json), visit: &mut dyn FnMut(&str)) {
    visit(key);
    each_text_of(value, visit);
}

fn message_value(message: &Message, mapper: &dyn TextMapper, shape: Shape, tag: Option<char>) -> Value {
    let converter = Converter { mapper, origin: Origin::of_role(&message.role) };
    let mut content = shape.content(&message.content);
    if let Some(tag) = tag {
        continue_at(content.to_mut(), tag);
    }
    let content = converter.value(&content);
    let fields = message.fields.iter().map(|(key, value)| {
        let value = match (key.as_str(), value) {
            ("tool_calls", Json::Array(calls)) => {
                calls.iter().map(|call| converter.value(&shape.call(call))).collect()
            }
            _ => converter.value(value),
        };
        (converter.text(key), value)
    });
    let own = [(Value::from("role"), converter.text(&message.role)), (Value::from("content"), content)];
    Value::from_pairs(own.into_iter().chain(fields))
}

/// The content as one text; `None` if a part is not text.
fn joined_text(content: &Json) -> Option<Cow<'_, str>> {
    match content {
        Json::String(text) => Some(Cow::Borrowed(text)),
        Json::Array(parts) if !parts.is_empty() => {
            let text_of = |part: &Json| match part.get("type")?.as_str()? {
                "text" => Some(part.get("text")?.as_str()?.to_owned()),
                _ => None,
            };
            let texts: Option<Vec<String>> = parts.iter().map(text_of).collect();
            Some(Cow::Owned(texts?.join("\n")))
        }
        _ => None,
    }
}

/// Ends a text, or the last text of a list of parts, with `tag` and a space.
fn continue_at(content: &mut Json, tag: char) {
    let text = match content {
        Json::Array(parts) => parts.iter_mut().rev().find_map(|part| part.get_mut("text")),
        other => Some(other),
    };
    if let Some(Json::String(text)) = text {
        text.push(tag);
        text.push(' ');
    }
}

/// Turns JSON into template values, every text mapped.
#[derive(Clone, Copy)]
struct Converter<'a> {
    mapper: &'a dyn TextMapper,
    origin: Origin,
}

impl Converter<'_> {
    fn value(&self, json: &Json) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(value) => Value::from(*value),
            Json::Number(number) => number_value(number),
            Json::String(text) => self.text(text),
            Json::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Json::Object(entries) => {
                let entries = entries.iter();
                Value::from_pairs(entries.map(|(key, value)| (self.text(key), self.value(value))))
            }
        }
    }

    fn text(&self, text: &str) -> Value {
        Value::from(&*self.mapper.map(&python::without_markers(text), self.origin))
    }
}

fn number_value(number: &serde_json::Number) -> Value {
    if let Some(integer) = number.as_i64() {
        return Value::from(integer);
    }
    match number.as_u64() {
        Some(integer) => Value::from(integer),
        None => python::float_value(number.as_f64().unwrap_or(f64::NAN)),
    }
}
