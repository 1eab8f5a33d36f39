//! `minfer chat`: a conversation, message by message.

mod conversation;
mod line;
mod remote;
mod terminal;
mod typed;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use super::prompt;
use super::run_stats::RunStats;
use super::session::{self, SessionFile};
use crate::args::ChatArgs;
use crate::signals::Interrupts;
use crate::{loading, output};
use conversation::{Conversation, Turn};
use line::{Lines, Next};
use typed::Typed;

pub(super) fn chat(args: &ChatArgs) -> Result<ExitCode> {
    let answer = &args.answer;
    if let Some(url) = &args.url {
        return remote::chat(url, answer);
    }
    let model = args.model.as_deref().unwrap_or_default();
    let file = answer.session.as_deref().map(|path| SessionFile::new(path, session::FLAG)).transpose()?;
    let (machine, loaded) = prompt::load(answer, loading::find(model)?, !args.no_prefix_cache)?;
    prompt::check_template(&loaded)?;
    if loaded.template.is_none() {
        bail!(
            "{} has no chat template: --chat-template NAME gives it one, and `minfer run --raw` needs none",
            model.display()
        );
    }
    let stats = RunStats::new(&machine, &loaded);
    let mut lines = Lines::new()?;
    if lines.is_terminal() {
        output::note(&format!("{}; /help lists commands", prompt::introduction(&machine, &loaded)));
    }
    let mut conversation = Conversation::new(answer, loaded, file)?;
    let mut interrupts = Interrupts::listen().map_err(output::no_signals)?;
    let ended = talk(&mut conversation, &mut lines, &mut interrupts);
    // The conversation is saved also after a failure or a signal.
    interrupts.hold();
    conversation.save_own()?;
    if answer.facts {
        output::note(&stats.line(&conversation.stats()).to_string());
    }
    let Some(code) = interrupts.code() else { return ended.map(|()| ExitCode::SUCCESS) };
    if let Err(error) = ended {
        output::failure(&error);
    }
    // The engine may still be in a long forward pass; exiting does not wait for it.
    std::process::exit(code.into())
}

fn talk(conversation: &mut Conversation<'_>, lines: &mut Lines, interrupts: &mut Interrupts) -> Result<()> {
    while let Next::Input(input) = lines.next(interrupts)? {
        let done = match Typed::parse(input) {
            Ok(Typed::Nothing) => continue,
            Ok(Typed::Exit) => break,
            Ok(typed) => carry_out(conversation, typed, lines.is_terminal(), interrupts),
            Err(error) => Err(error),
        };
        match done {
            // In a terminal Ctrl-C stops one answer; in a script it ends the command.
            Ok(Some(Turn::Interrupted)) if lines.is_terminal() && interrupts.take_ctrl_c() => {
                output::note("(stopped)");
            }
            Ok(Some(Turn::Interrupted)) => break,
            Ok(_) => {}
            // In a terminal the conversation goes on after an error; a script ends.
            Err(error) if lines.is_terminal() && !conversation.engine_has_stopped() => {
                output::failure(&error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn carry_out(
    conversation: &mut Conversation<'_>,
    typed: Typed,
    is_terminal: bool,
    interrupts: &mut Interrupts,
) -> Result<Option<Turn>> {
    match typed {
        Typed::Message(text) => return conversation.say(&text, is_terminal, interrupts).map(Some),
        Typed::Again => return conversation.answer_again(is_terminal, interrupts).map(Some),
        Typed::Clear => conversation.clear()?,
        Typed::System(text) => conversation.set_system(&text),
        Typed::Save(path) => {
            let bytes = conversation.save(Path::new(&path))?;
            output::note(&format!("saved to {path} ({})", output::bytes(bytes)));
        }
        Typed::Load(path) => {
            conversation.load(Path::new(&path))?;
            output::note(&conversation.described());
        }
        Typed::Stats => output::note(&conversation.described()),
        Typed::Help => output::note(typed::HELP),
        Typed::Nothing | Typed::Exit => {}
    }
    Ok(None)
}
