//! `minfer run`.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use minfer::engine::{Engine, Request};
use minfer::text::{ChatTemplate, EncodeOptions, Message, RenderInput, TemplateError, encode_chat};
use minfer::{LoadError, LoadOptions, Loaded, Machine, TemplateChoice};

use super::answer::{self, Answer};
use super::facts::Facts;
use super::input;
use super::interrupt::Interrupts;
use crate::args::RunArgs;
use crate::loading::Found;
use crate::{loading, output};

/// Answers one prompt.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode> {
    let found = loading::find(&args.model)?;
    let prompt = prompt(args)?;
    let (machine, loaded) = load(args, found)?;
    let facts = Facts::new(&machine, &loaded);
    let request = request(args, &loaded, &prompt)?;
    introduce(args, &machine, &loaded);
    let engine = loaded.into_engine()?;
    let mut interrupts = Interrupts::listen()?;
    let (id, events) = engine.submit(request)?;
    let answer = Answer::read(&events, !args.json, || interrupts.overdue(|| engine.cancel(id)))?;
    finish(args, &engine, &facts, &answer)?;
    if let (None, Some(code)) = (&answer.finished, interrupts.code()) {
        // The engine may be deep in a forward, and nobody waits for that.
        std::process::exit(code.into());
    }
    Ok(ExitCode::SUCCESS)
}

/// The prompt from the argument, a file or stdin.
fn prompt(args: &RunArgs) -> Result<String> {
    let text = match (&args.prompt, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => input::file_text(file)?,
        (None, None) if std::io::stdin().is_terminal() => {
            bail!("no prompt: give one as an argument, with -f FILE, or on stdin")
        }
        (None, None) => input::stdin_text()?,
    };
    if text.is_empty() {
        bail!("the prompt is empty");
    }
    Ok(text)
}

/// Opens and loads, with the chat template that was given.
fn load(args: &RunArgs, found: Found) -> Result<(Machine, Loaded)> {
    let options = LoadOptions {
        chat_template: args.chat_template.as_deref().map(template_choice).transpose()?,
        ..loading::load_options(&args.model_args, &args.tokenizer, &args.context)
    };
    loading::load(found, &args.context, &options).map_err(|error| match error.downcast_ref() {
        Some(LoadError::Template { cause, .. }) if args.chat_template.is_some() => {
            anyhow!("--chat-template: {cause}")
        }
        Some(LoadError::UnknownTemplate { .. }) => {
            output::Wrong(format!("--chat-template: no such file, and {error}")).into()
        }
        _ => error,
    })
}

/// A template is the text itself where it has Jinja markup, else a file where there is one, else a name.
fn template_choice(given: &str) -> Result<TemplateChoice> {
    if given.contains("{{") || given.contains("{%") {
        return Ok(TemplateChoice::Source(given.to_owned()));
    }
    if !std::path::Path::new(given).exists() {
        return Ok(TemplateChoice::Name(given.to_owned()));
    }
    let source = input::file_text(given.as_ref()).context("--chat-template")?;
    if source.trim().is_empty() {
        bail!("--chat-template: {given} is empty; --raw does without a template");
    }
    Ok(TemplateChoice::Source(source))
}

/// The prompt as ids: through the chat template, or as it is.
fn request(args: &RunArgs, loaded: &Loaded, prompt: &str) -> Result<Request> {
    check_length(loaded, prompt)?;
    let ids = match &loaded.template {
        Some(template) if !args.raw => chat_ids(args, loaded, template, prompt)?,
        template => {
            if template.is_none() && !args.raw {
                say_that_there_is_no_template(args)?;
            }
            loaded.tokenizer.encode(prompt, EncodeOptions { add_special: true, parse_special: true })?
        }
    };
    Ok(Request {
        max_tokens: u32::try_from(args.n_predict).ok(),
        sampling: args.sampling.params(),
        seed: args.sampling.seed(),
        stop: args.stop.clone(),
        ignore_eos: args.ignore_eos,
        ..Request::new(ids)
    })
}

/// Refuses a prompt that cannot fit before time is spent on its tokens. Templates may take off white space at its ends.
fn check_length(loaded: &Loaded, prompt: &str) -> Result<()> {
    let (fewest, most) = (loaded.tokenizer.fewest_ids(prompt.trim().len()), loaded.n_ctx);
    if fewest > most as usize {
        let bytes = prompt.len();
        bail!("the prompt of {bytes} bytes has at least {fewest} tokens; the context has {most} positions");
    }
    Ok(())
}

fn chat_ids(args: &RunArgs, loaded: &Loaded, template: &ChatTemplate, prompt: &str) -> Result<Vec<u32>> {
    let system = args.system.iter().map(|text| Message::new("system", text.as_str()));
    let input = RenderInput {
        messages: system.chain([Message::new("user", prompt)]).collect(),
        add_generation_prompt: true,
        variables: args.chat_template_kwargs.clone().unwrap_or_default(),
        ..RenderInput::default()
    };
    let ids = encode_chat(&loaded.tokenizer, template, &input).map_err(|error| match error {
        TemplateError::Encode(error) => error.into(),
        error => anyhow::Error::new(error).context("the chat template refuses the conversation"),
    })?;
    if ids.is_empty() {
        bail!(
            "the chat template makes nothing of the conversation; --chat-template gives another, --raw does without"
        );
    }
    Ok(ids)
}

fn say_that_there_is_no_template(args: &RunArgs) -> Result<()> {
    if args.system.is_some() {
        bail!("this model has no chat template, so --system has no place; use --chat-template or --raw");
    }
    output::note(
        "this model has no chat template; the prompt is fed as it is (--raw does so without a word, --chat-template NAME \
         gives it one)",
    );
    Ok(())
}

fn introduce(args: &RunArgs, machine: &Machine, loaded: &Loaded) {
    if output::stderr_is_terminal() && !args.json {
        output::note(&format!(
            "{}: {} positions, {} threads, {}",
            loaded.model.name,
            loaded.n_ctx,
            machine.threads(),
            machine.isa()
        ));
    }
}

fn finish(args: &RunArgs, engine: &Engine, facts: &Facts, answer: &Answer) -> Result<()> {
    if let Some(finished) = &answer.finished {
        if args.json {
            output::line(&answer::report(answer, finished))?;
        } else if output::stderr_is_terminal() {
            output::note(&answer::speeds(finished));
        }
    } else if output::stderr_is_terminal() {
        output::note("interrupted");
    }
    if args.facts {
        output::note(&facts.line(&engine.stats()).to_string());
    }
    Ok(())
}
