//! `minfer doctor --knobs`: every flag that has a variable.

use anyhow::Result;
use serde_json::{Value, json};

use crate::args::{definition, variable_fault};
use crate::output;

pub(super) fn print(as_json: bool) -> Result<()> {
    let knobs = knobs();
    if as_json {
        return output::line(&Value::from(knobs));
    }
    let text = |knob: &Value, key: &str| knob[key].as_str().unwrap_or_default().to_owned();
    let width = |key| knobs.iter().map(|knob| text(knob, key).len()).max().unwrap_or_default();
    let (flags, variables) = (width("flag"), width("variable"));
    output::answer(|out| {
        for knob in &knobs {
            let (flag, variable, help) = (text(knob, "flag"), text(knob, "variable"), text(knob, "help"));
            let default = knob["default"].as_str().map(|default| format!(" [default: {default}]"));
            let default = default.unwrap_or_default();
            writeln!(out, "{flag:flags$}  {variable:variables$}  {help}{default}{}", now(knob))?;
        }
        Ok(())
    })
}

/// The value of the variable, and why it cannot be used.
fn now(knob: &Value) -> String {
    let text = match (knob["value"].as_str(), knob["fault"].as_str()) {
        (Some(value), None) => format!(" [now: {value}]"),
        (Some(_), Some(fault)) => format!(" [now of no use: {fault}]"),
        (None, _) => String::new(),
    };
    output::one_line(&text)
}

/// The value of a variable that is set and not empty.
fn value(variable: &str) -> Option<String> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty())?;
    Some(value.to_string_lossy().into_owned())
}

/// One row for each flag with a variable, and one for the variable without a flag.
fn knobs() -> Vec<Value> {
    let mut knobs: Vec<Value> = Vec::new();
    for command in definition().get_subcommands() {
        for argument in command.get_arguments() {
            let Some(variable) = argument.get_env().map(|name| name.to_string_lossy().into_owned()) else {
                continue;
            };
            match knobs.iter_mut().find(|knob| knob["variable"] == variable) {
                Some(known) => add_command(known, command.get_name()),
                None => knobs.push(knob(argument, &variable, command.get_name())),
            }
        }
    }
    knobs.push(json!({
        "flag": null,
        "variable": minfer_hub::ENV_MODELS,
        "default": "~/.cache/minfer/models",
        "help": "Folder of the models",
        "value": value(minfer_hub::ENV_MODELS),
        "fault": null,
        "commands": [],
    }));
    knobs
}

fn knob(argument: &clap::Arg, variable: &str, command: &str) -> Value {
    let defaults = argument.get_default_values().iter();
    let default = defaults.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(";");
    let value = value(variable);
    let fault = value.as_ref().and_then(|_| variable_fault(command, variable));
    json!({
        "flag": argument.get_long().map(|long| format!("--{long}")),
        "variable": variable,
        "default": Some(default).filter(|default| !default.is_empty()),
        "help": argument.get_help().map(ToString::to_string),
        "value": value,
        "fault": fault,
        "commands": [command],
    })
}

fn add_command(knob: &mut Value, command: &str) {
    if let Some(commands) = knob["commands"].as_array_mut() {
        commands.push(json!(command));
    }
}
