//! `minfer run`: one prompt, one answer.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Result, bail};
use minfer::Loaded;
use minfer::engine::{Engine, Request, RequestId, SessionId};
use minfer::text::{EncodeOptions, Message};
use serde_json::json;

use super::answer::{self, Answer};
use super::context::Longer;
use super::run_stats::RunStats;
use super::session::{self, Meanwhile, SessionFile};
use super::{input, prompt};
use crate::args::{AnswerArgs, RunArgs};
use crate::signals::Interrupts;
use crate::{loading, output};

pub(super) fn run(args: &RunArgs) -> Result<ExitCode> {
    let mut file =
        args.answer.session.as_deref().map(|path| SessionFile::new(path, session::FLAG)).transpose()?;
    let found = loading::find(&args.model)?;
    let text = text(args)?;
    let (machine, loaded) = prompt::load(&args.answer, found, true)?;
    let stats = RunStats::new(&machine, &loaded);
    let longer = Longer::of(&loaded, &args.answer);
    let (ids, keep) = ids(args, &loaded, &longer, &text)?;
    if output::stderr_is_terminal() && !args.json {
        output::note(&prompt::introduction(&machine, &loaded));
    }
    let engine = loaded.into_engine()?;
    let session = file.as_mut().map(|file| open_session(&engine, file)).transpose()?;
    let request = Request { session, ..prompt::request(&args.answer, ids, keep) };
    let mut interrupts = Interrupts::listen().map_err(output::no_signals)?;
    let (id, events) = engine.submit(request).map_err(|error| longer.explain(error.into()))?;
    let leave = || {
        let overdue = interrupts.overdue(|| cancel(&engine, id, session.is_some()));
        // With a session file the rows are saved, so wait for the engine.
        overdue && session.is_none()
    };
    let answer = Answer::read(&events, !args.json, leave)
        .map_err(|error| longer.explain(error))
        .and_then(|answer| finish(args, &engine, &stats, &answer).map(|()| answer));
    if answer.is_err() {
        engine.cancel(id);
    }
    if let (Some(session), Some(file)) = (session, &mut file) {
        interrupts.hold();
        save(&engine, session, file, answer.is_ok())?;
    }
    match (&answer?.finished, interrupts.code()) {
        // The engine may still be in a long forward pass; exiting does not wait for it.
        (None, Some(code)) => std::process::exit(code.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Stops an answer that was interrupted.
fn cancel(engine: &Engine, id: RequestId, is_saved: bool) {
    engine.cancel(id);
    if is_saved && output::stderr_is_terminal() {
        output::note("(saving the conversation; Ctrl-C again ends without)");
    }
}

/// Saves the conversation, also after a failure or an interrupt, unless nothing was computed.
fn save(engine: &Engine, session: SessionId, file: &mut SessionFile, went_well: bool) -> Result<()> {
    let rows = engine.session(session).map_or(0, |known| known.rows);
    if went_well || rows > 0 {
        file.save(engine, session, &json!({"by": "run"}), Meanwhile::Dropped)?;
    }
    Ok(())
}

/// The conversation in the file, or a new one without a file.
fn open_session(engine: &Engine, file: &mut SessionFile) -> Result<SessionId> {
    let Some((session, host)) = file.open(engine)? else { return Ok(engine.open_session()?) };
    match host["by"].as_str() {
        Some("run") => Ok(session),
        _ => bail!(
            "--session {}: it is a conversation of `minfer chat`, which `run` does not overwrite",
            file.path().display()
        ),
    }
}

/// The prompt from the argument, a file or stdin.
fn text(args: &RunArgs) -> Result<String> {
    let text = match (&args.prompt, &args.file, &args.binary_file) {
        (Some(text), ..) => text.clone(),
        (_, Some(file), _) => input::prompt(&input::file_text(file)?).to_owned(),
        (_, _, Some(file)) => input::file_text(file)?,
        _ if std::io::stdin().is_terminal() => {
            bail!("no prompt: give one as an argument, with -f FILE, or on stdin")
        }
        _ => input::prompt(&input::stdin_text()?).to_owned(),
    };
    if text.is_empty() {
        bail!("the prompt is empty");
    }
    Ok(text)
}

/// The ids of the prompt, through the chat template or with `--raw` without it, and the number that
/// a context shift keeps.
fn ids(args: &RunArgs, loaded: &Loaded, longer: &Longer, text: &str) -> Result<(Vec<u32>, u32)> {
    let answer = &args.answer;
    prompt::check_length(&loaded.tokenizer, longer, "prompt", text)?;
    let Some(template) = loaded.template.as_ref().filter(|_| !args.raw) else {
        if !args.raw {
            prompt::check_template(loaded)?;
            note_missing_template(answer)?;
        }
        let options = EncodeOptions { add_special: true, parse_special: true };
        let ids = loaded.tokenizer.encode(text, options)?;
        let keep = prompt::keep(answer, || prompt::beginning(&loaded.tokenizer));
        return Ok((ids, keep));
    };
    let system = answer.system.iter().map(|text| Message::new("system", text.as_str()));
    let messages: Vec<Message> = system.chain([Message::new("user", text)]).collect();
    let ids = prompt::chat_ids(answer, &loaded.tokenizer, template, &messages)?;
    let keep =
        prompt::keep(answer, || prompt::system_tokens(answer, &loaded.tokenizer, template, &messages, &ids));
    Ok((ids, keep))
}

fn note_missing_template(args: &AnswerArgs) -> Result<()> {
    let needs_one = [
        ("--system", args.system.is_some()),
        ("--chat-template-kwargs", args.chat_template_kwargs.is_some()),
    ];
    if let Some((flag, _)) = needs_one.iter().find(|(_, is_given)| *is_given) {
        bail!("this model has no chat template, so {flag} has no effect; use --chat-template or --raw");
    }
    output::note(
        "this model has no chat template; the prompt is used as it is (--raw hides this note, --chat-template NAME sets a \
         template)",
    );
    Ok(())
}

fn finish(args: &RunArgs, engine: &Engine, stats: &RunStats, answer: &Answer) -> Result<()> {
    if let Some(finished) = &answer.finished {
        if args.json {
            output::line(&answer::report(answer, finished))?;
        } else if output::stderr_is_terminal() {
            output::note(&answer::speeds(finished));
        }
    } else if output::stderr_is_terminal() {
        output::note("interrupted");
    }
    if args.answer.facts {
        let mut line = stats.line(&engine.stats());
        line["removed_tokens"] = json!(answer.finished.as_ref().map(|finished| finished.usage.removed));
        output::note(&line.to_string());
    }
    Ok(())
}
