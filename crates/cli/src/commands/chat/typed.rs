//! Commands of a conversation, such as `/clear`.

use anyhow::{Result, bail};

use super::line::Input;

/// The answer to `/help`.
pub(super) const HELP: &str = "\
/clear         forget the conversation, but not the system message
/regen         answer the last message again
/system TEXT   set the system message; without TEXT, none
/save FILE     save the conversation with its cached rows
/load FILE     go on with a saved one; with --session that file is saved at the end
/stats         show what is in the cache
/exit          end; so does Ctrl-D
\"\"\"            begins and ends a message of several lines
//             begins a message that starts with one /";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
    Nothing,
    Message(String),
    Help,
    Clear,
    Again,
    System(String),
    Save(String),
    Load(String),
    Stats,
    Exit,
}

impl Typed {
    /// # Errors
    /// An unknown command, or one without the words that it needs or with words that it does not take.
    pub(super) fn parse(input: Input) -> Result<Typed> {
        let text = match input {
            Input::Line(text) | Input::Quoted(text) if text.trim().is_empty() => return Ok(Typed::Nothing),
            Input::Quoted(text) => return Ok(Typed::Message(text)),
            Input::Line(text) => text,
        };
        let Some(command) = text.strip_prefix('/') else { return Ok(Typed::Message(text)) };
        if command.starts_with('/') {
            return Ok(Typed::Message(command.to_owned()));
        }
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        let alone = |typed| if rest.is_empty() { Ok(typed) } else { bail!("/{name} takes nothing after it") };
        match name {
            "help" | "?" => alone(Typed::Help),
            "clear" => alone(Typed::Clear),
            "regen" => alone(Typed::Again),
            "stats" => alone(Typed::Stats),
            "exit" | "quit" | "bye" => alone(Typed::Exit),
            "system" => Ok(Typed::System(rest.to_owned())),
            "save" | "load" if rest.is_empty() => bail!("/{name} needs the name of a file"),
            "save" => Ok(Typed::Save(rest.to_owned())),
            "load" => Ok(Typed::Load(rest.to_owned())),
            _ => bail!(
                "there is no command /{name}; /help lists them, and // begins a message that starts with /"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        let line = |text: &str| Typed::parse(Input::Line(text.to_owned()));
        let parse = |text| line(text).unwrap();
        assert_eq!(parse("  "), Typed::Nothing);
        assert_eq!(parse(" hello /clear"), Typed::Message(" hello /clear".to_owned()));
        assert_eq!(parse("//etc is a folder"), Typed::Message("/etc is a folder".to_owned()));
        assert_eq!(parse("/save  a b.session "), Typed::Save("a b.session".to_owned()));
        assert_eq!(parse("/system"), Typed::System(String::new()));
        assert_eq!(parse("/quit"), Typed::Exit);
        let quoted = |text: &str| Typed::parse(Input::Quoted(text.to_owned())).unwrap();
        assert_eq!(quoted("/quit"), Typed::Message("/quit".to_owned()));
        assert_eq!(quoted(" \n"), Typed::Nothing);
        for (text, words) in [
            ("/nope", "there is no command /nope"),
            ("/save", "/save needs the name of a file"),
            ("/clear all", "/clear takes nothing after it"),
        ] {
            let error = line(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
