//! From flags to a loaded model and a request, for `run` and `chat`.

use anyhow::{Context, Result, anyhow, bail};
use minfer::engine::{ContextShift, Request};
use minfer::text::{
    ChatTemplate, EncodeOptions, Message, RenderInput, TemplateError, Tokenizer, encode_chat,
};
use minfer::{LoadError, LoadOptions, Loaded, Machine, TemplateChoice};

use super::context::Longer;
use super::input;
use crate::args::AnswerArgs;
use crate::counted::counted;
use crate::loading::Found;
use crate::{loading, output};

/// Loads a model with the chat template that flags give.
pub(super) fn load(args: &AnswerArgs, found: Found, prefix_cache: bool) -> Result<(Machine, Loaded)> {
    let options = LoadOptions {
        prefix_cache,
        speculation: !args.no_speculation,
        chat_template: args.chat_template.as_deref().map(template_choice).transpose()?,
        context_shift: args.context_shift,
        ..loading::load_options(&args.model_args, &args.tokenizer, &args.context)
    };
    let (machine, loaded) =
        loading::load(found, &args.context, &options).map_err(|error| match error.downcast_ref() {
            Some(LoadError::Template { cause, .. }) if args.chat_template.is_some() => {
                anyhow!("--chat-template: {cause}")
            }
            Some(LoadError::UnknownTemplate { .. }) => {
                output::Wrong(format!("--chat-template: no such file, and {error}")).into()
            }
            _ => error,
        })?;
    if args.context.n_ctx == 0 && loaded.n_ctx < 2 {
        let longer = Longer::of(&loaded, args).clause(2);
        bail!("the context of {} leaves no room for an answer{longer}", counted(loaded.n_ctx, "position"));
    }
    note_unknown_variables(args, &loaded);
    Ok((machine, loaded))
}

/// The model and what runs it, in one line.
pub(super) fn introduction(machine: &Machine, loaded: &Loaded) -> String {
    format!(
        "{}: {}, {}, {}",
        loaded.model.name,
        counted(loaded.n_ctx, "position"),
        counted(machine.threads(), "thread"),
        machine.isa()
    )
}

/// Notes variables that the chat template does not mention.
fn note_unknown_variables(args: &AnswerArgs, loaded: &Loaded) {
    let Some(source) = loaded.template.as_ref().map(ChatTemplate::source) else { return };
    let given = args.chat_template_kwargs.iter().flat_map(|variables| variables.keys());
    for name in given.filter(|name| !source.contains(name.as_str())) {
        output::note(&format!(
            "note: --chat-template-kwargs {name:?} has no effect: the chat template has no such variable"
        ));
    }
}

/// Fails where the file's own template cannot be used.
pub(super) fn check_template(loaded: &Loaded) -> Result<()> {
    match &loaded.template_fault {
        Some(fault @ TemplateError::NoThread(_)) => {
            bail!("{fault}{}, and `minfer run --raw` needs none", output::THREAD_SUGGESTION)
        }
        Some(fault) => bail!("{fault}; --chat-template gives another, and `minfer run --raw` needs none"),
        None => Ok(()),
    }
}

/// A value with Jinja markup is the template itself; otherwise it is a file if there is one, else a
/// name.
pub(super) fn template_choice(given: &str) -> Result<TemplateChoice> {
    if given.contains("{{") || given.contains("{%") {
        return Ok(TemplateChoice::Source(given.to_owned()));
    }
    if !std::path::Path::new(given).exists() {
        return Ok(TemplateChoice::Name(given.to_owned()));
    }
    let text = input::file_text(given.as_ref()).context("--chat-template")?;
    let source = input::without_mark(&text).to_owned();
    if source.trim().is_empty() {
        bail!("--chat-template: {given} is empty; --raw does without a template");
    }
    Ok(TemplateChoice::Source(source))
}

/// The ids of a conversation, with the beginning of the answer.
pub(super) fn chat_ids(
    args: &AnswerArgs,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    messages: &[Message],
) -> Result<Vec<u32>> {
    let input = RenderInput {
        messages: messages.to_vec(),
        add_generation_prompt: true,
        variables: args.chat_template_kwargs.clone().unwrap_or_default(),
        ..RenderInput::default()
    };
    let ids = encode_chat(tokenizer, template, &input).map_err(|error| match error {
        TemplateError::Encode(error) => error.into(),
        error => anyhow::Error::new(error).context("the chat template refuses the conversation"),
    })?;
    if ids.is_empty() {
        bail!(
            "the chat template renders the conversation as an empty text; set another one with --chat-template, or use --raw"
        );
    }
    Ok(ids)
}

/// The request for a prompt.
pub(super) fn request(args: &AnswerArgs, ids: Vec<u32>, keep: u32) -> Request {
    Request {
        // -1 is no bound; without the flag the engine has a default.
        max_tokens: args.n_predict.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX)),
        sampling: args.sampling.params(),
        seed: args.sampling.seed(),
        stop: args.stop.clone(),
        ignore_eos: args.ignore_eos,
        context_shift: args.context_shift.then_some(ContextShift { keep }),
        ..Request::new(ids)
    }
}

/// The number of first tokens that a context shift keeps: that of `--keep`, or `own` for -1.
pub(super) fn keep(args: &AnswerArgs, own: impl FnOnce() -> u32) -> u32 {
    if !args.context_shift {
        return 0;
    }
    u32::try_from(args.keep).unwrap_or_else(|_| own())
}

/// The number of first tokens that are the system message and its markup, or without one the tokens
/// that begin every text.
pub(super) fn system_tokens(
    args: &AnswerArgs,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    messages: &[Message],
    ids: &[u32],
) -> u32 {
    let system: Vec<Message> =
        messages.iter().take_while(|message| message.role == "system").cloned().collect();
    let input = RenderInput {
        messages: system,
        variables: args.chat_template_kwargs.clone().unwrap_or_default(),
        ..RenderInput::default()
    };
    // A template may refuse a conversation without a user message.
    let Ok(alone) = encode_chat(tokenizer, template, &input) else { return beginning(tokenizer) };
    let equal = alone.iter().zip(ids).take_while(|(a, b)| a == b).count() as u32;
    equal.max(beginning(tokenizer))
}

/// The number of tokens that begin every text, such as BOS.
pub(super) fn beginning(tokenizer: &Tokenizer) -> u32 {
    let none = tokenizer.encode("", EncodeOptions { add_special: true, parse_special: false });
    none.map_or(0, |ids| ids.len() as u32)
}

/// Fails before tokenization where a text cannot fit the context. Templates may trim white space at
/// its ends.
pub(super) fn check_length(tokenizer: &Tokenizer, context: &Longer, what: &str, text: &str) -> Result<()> {
    let (fewest, bytes) = (tokenizer.fewest_ids(text.trim().len()), text.len());
    if fewest > context.n_ctx as usize {
        bail!(
            "the {what} of {} has at least {}; the context has {}{}",
            counted(bytes, "byte"),
            counted(fewest, "token"),
            counted(context.n_ctx, "position"),
            context.clause(fewest + 1)
        );
    }
    Ok(())
}
