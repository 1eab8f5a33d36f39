//! `minfer doctor --knobs`.

use anyhow::Result;
use serde_json::{Value, json};

use crate::args::definition;
use crate::output;

/// Prints every knob, read off the definition of the command line itself.
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
            writeln!(out, "{flag:flags$}  {variable:variables$}  {help}{}", default.unwrap_or_default())?;
        }
        Ok(())
    })
}

/// One row for each flag that has a variable, and one for the variable that has no flag.
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
        "commands": [],
    }));
    knobs
}

fn knob(argument: &clap::Arg, variable: &str, command: &str) -> Value {
    let defaults = argument.get_default_values().iter();
    let default = defaults.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(";");
    json!({
        "flag": argument.get_long().map(|long| format!("--{long}")),
        "variable": variable,
        "default": Some(default).filter(|default| !default.is_empty()),
        "help": argument.get_help().map(ToString::to_string),
        "commands": [command],
    })
}

fn add_command(knob: &mut Value, command: &str) {
    if let Some(commands) = knob["commands"].as_array_mut() {
        commands.push(json!(command));
    }
}
