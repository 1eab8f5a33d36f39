//! `minfer chat`: a conversation, message by message.

mod conversation;
mod line;
mod typed;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use signal_hook::consts::SIGINT;

use super::facts::Facts;
use super::prompt;
use crate::args::ChatArgs;
use crate::{loading, output};
use conversation::{Conversation, Turn};
use line::Lines;
use typed::Typed;

/// Exit code of a script that was interrupted.
const INTERRUPTED: u8 = 130;

/// Talks until the input ends.
pub(super) fn chat(args: &ChatArgs) -> Result<ExitCode> {
    let answer = &args.answer;
    let (machine, loaded) = prompt::load(answer, loading::find(&args.model)?)?;
    prompt::check_template(&loaded)?;
    if loaded.template.is_none() {
        bail!(
            "{} has no chat template: --chat-template NAME gives it one, and `minfer run --raw` needs none",
            args.model
        );
    }
    let facts = Facts::new(&machine, &loaded);
    let mut lines = Lines::new()?;
    if lines.is_terminal() {
        output::note(&format!(
            "{}: {} positions, {} threads, {}; /help lists commands",
            loaded.model.name,
            loaded.n_ctx,
            machine.threads(),
            machine.isa()
        ));
    }
    let mut conversation = Conversation::new(answer, loaded)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))?;
    let ended = talk(&mut conversation, &mut lines, &interrupted);
    // Whatever ended the conversation, what was said is kept.
    if let Some(path) = &answer.session {
        conversation.save(path)?;
    }
    if answer.facts {
        output::note(&facts.line(&conversation.stats()).to_string());
    }
    ended
}

fn talk(
    conversation: &mut Conversation<'_>,
    lines: &mut Lines,
    interrupted: &AtomicBool,
) -> Result<ExitCode> {
    while let Some(text) = lines.next()? {
        interrupted.store(false, Ordering::Relaxed);
        let done = match Typed::parse(&text) {
            Ok(Typed::Nothing) => continue,
            Ok(Typed::Exit) => break,
            Ok(typed) => carry_out(conversation, typed, interrupted),
            Err(error) => Err(error),
        };
        match done {
            Ok(Some(Turn::Interrupted)) if lines.is_terminal() => output::note("(stopped)"),
            Ok(Some(Turn::Interrupted)) => return Ok(INTERRUPTED.into()),
            Ok(_) => {}
            // A person reads what was wrong and types something else; a script cannot.
            Err(error) if lines.is_terminal() && !conversation.engine_has_stopped() => {
                output::failure(&error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn carry_out(
    conversation: &mut Conversation<'_>,
    typed: Typed,
    interrupted: &AtomicBool,
) -> Result<Option<Turn>> {
    match typed {
        Typed::Message(text) => return conversation.say(&text, interrupted).map(Some),
        Typed::Again => return conversation.answer_again(interrupted).map(Some),
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
