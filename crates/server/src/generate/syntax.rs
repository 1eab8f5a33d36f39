//! How models write tool calls.

use llguidance::api::TopLevelGrammar;
use minfer::text::Tokenizer;
use serde_json::Value as Json;

use super::chat::Tool;
use super::grammar::with_white_space;

/// The syntax of a model's tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallSyntax {
    /// `<tool_call>{"name": ..., "arguments": ...}</tool_call>`, of Hermes and Qwen, and of models
    /// whose template knows no tools.
    Hermes,
    /// `{"name": ..., "parameters": ...}` as the whole answer, of Llama 3.
    Llama,
    /// `[TOOL_CALLS][{"name": ..., "arguments": ...}]`, of Mistral.
    MistralList,
    /// `[TOOL_CALLS]name[ARGS]{...}`, of Mistral's later models.
    MistralArgs,
}

impl CallSyntax {
    /// The syntax that a chat template speaks of.
    pub(crate) fn of_template(source: &str) -> CallSyntax {
        match () {
            () if source.contains("<tool_call>") => CallSyntax::Hermes,
            () if source.contains("[TOOL_CALLS]") && source.contains("[ARGS]") => CallSyntax::MistralArgs,
            () if source.contains("[TOOL_CALLS]") => CallSyntax::MistralList,
            () if source.contains("<|python_tag|>") || source.contains("\"parameters\":") => {
                CallSyntax::Llama
            }
            () => CallSyntax::Hermes,
        }
    }

    /// A grammar of one call of one of the tools or, with `several`, of one or more.
    pub(crate) fn grammar(self, tools: &[&Tool], several: bool, tokenizer: &Tokenizer) -> TopLevelGrammar {
        let mark = |text: &str| mark(tokenizer, text);
        let call = match self {
            CallSyntax::Hermes => {
                format!("{} \"\\n\" function \"\\n\" {}", mark("<tool_call>"), mark("</tool_call>"))
            }
            CallSyntax::Llama | CallSyntax::MistralList => "function".to_owned(),
            CallSyntax::MistralArgs => format!("{} function", mark("[TOOL_CALLS]")),
        };
        let start = match (self, several) {
            (CallSyntax::Hermes, true) => "call (\"\\n\" call)*".to_owned(),
            (CallSyntax::MistralArgs, true) => "call+".to_owned(),
            (CallSyntax::MistralList, true) => {
                format!("{} \"[\" call (\", \" call)* \"]\"", mark("[TOOL_CALLS]"))
            }
            (CallSyntax::MistralList, false) => format!("{} \"[\" call \"]\"", mark("[TOOL_CALLS]")),
            (CallSyntax::Llama, _) | (_, false) => "call".to_owned(),
        };
        let functions = tools.iter().enumerate().map(|(index, tool)| {
            let schema = with_white_space(tool.parameters.clone(), true);
            let (before, after) = self.around(tool, &mark);
            format!("function_{index}: {before} arguments_{index} {after}\narguments_{index}: %json {schema}")
        });
        let names: Vec<String> = (0..tools.len()).map(|index| format!("function_{index}")).collect();
        let lines = [
            format!("start: {start}"),
            format!("call: {call}"),
            format!("function: {}", names.join(" | ")),
            functions.collect::<Vec<_>>().join("\n"),
        ];
        TopLevelGrammar::from_lark(lines.join("\n"))
    }

    /// What stands before and after a call's arguments.
    fn around(self, tool: &Tool, mark: &impl Fn(&str) -> String) -> (String, String) {
        let name = Json::from(tool.name.as_str());
        let object = |key: &str| (literal(&format!("{{\"name\": {name}, \"{key}\": ")), literal("}"));
        match self {
            CallSyntax::Hermes | CallSyntax::MistralList => object("arguments"),
            CallSyntax::Llama => object("parameters"),
            CallSyntax::MistralArgs => (format!("{} {}", literal(&tool.name), mark("[ARGS]")), String::new()),
        }
    }
}

/// The grammar of an answer that goes on with reasoning before it takes its form.
pub(crate) fn after_reasoning(grammar: TopLevelGrammar) -> TopLevelGrammar {
    let Some(first) = grammar.grammars.first() else { return grammar };
    let form = match (&first.lark_grammar, &first.json_schema) {
        (Some(lark), _) => format!("%lark {{\n{lark}\n}}"),
        (None, Some(schema)) => format!("%json {schema}"),
        (None, None) => return grammar,
    };
    TopLevelGrammar::from_lark(format!(
        "start: reasoning /\\n{{0,2}}/ form\nreasoning[suffix=\"</think>\"]: /(?s:.*)/\nform: {form}"
    ))
}

fn literal(text: &str) -> String {
    Json::from(text).to_string()
}

/// A mark in a grammar: the control token of that text, where there is one.
fn mark(tokenizer: &Tokenizer, text: &str) -> String {
    match tokenizer.special_token(text).filter(|&id| !tokenizer.is_shown(id)) {
        Some(id) => format!("<[{id}]>"),
        None => literal(text),
    }
}
