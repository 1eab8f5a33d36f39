//! What the library refuses, in the words of the command line: it knows fields, a user has typed flags.

use std::error::Error;

use minfer::LoadError;
use minfer::engine::kv::session::SessionError;
use minfer::engine::{ConfigError, EngineError, ParamError, RequestError, SubmitError};
use minfer::models::ModelError;
use minfer::tensor::counted;
use minfer_hub::HubError;

use crate::output;

/// Fields, which the library's messages name in backticks, and the flags that set them.
const FLAGS: [(&str, &str); 31] = [
    ("n_ctx", "--n-ctx (-c)"),
    ("n_batch", "--n-batch (-b)"),
    ("kv", "--cache-type"),
    ("kv_memory", "--kv-memory"),
    ("threads", "--threads (-t)"),
    ("memory_limit", "--memory-limit"),
    ("context_shift", "--context-shift"),
    ("tokenizer_pre", "--tokenizer-pre"),
    ("chat_template", "--chat-template"),
    ("metadata", "--override-kv"),
    ("rope.scaling", "--rope-scaling"),
    ("rope.scale", "--rope-scale"),
    ("rope.freq_base", "--rope-freq-base"),
    ("rope.freq_scale", "--rope-freq-scale"),
    ("rope.yarn_original_context", "--yarn-orig-ctx"),
    ("rope.yarn_ext_factor", "--yarn-ext-factor"),
    ("rope.yarn_attn_factor", "--yarn-attn-factor"),
    ("rope.yarn_beta_fast", "--yarn-beta-fast"),
    ("rope.yarn_beta_slow", "--yarn-beta-slow"),
    ("keep", "--keep"),
    ("stop", "--stop"),
    ("prompt_logprobs", "--top"),
    ("temperature", "--temp"),
    ("top_p", "--top-p"),
    ("min_p", "--min-p"),
    ("presence_penalty", "--presence-penalty"),
    ("frequency_penalty", "--frequency-penalty"),
    ("repeat_penalty", "--repeat-penalty"),
    ("repeat_last_n", "--repeat-last-n"),
    ("logit_bias", "--logit-bias"),
    ("samplers", "--samplers"),
];

/// What a cause says, with flags in place of fields and what else a flag would change.
pub(crate) fn text(cause: &(dyn Error + 'static)) -> String {
    let advised = None
        .or_else(|| cause.downcast_ref().map(of_submit))
        .or_else(|| cause.downcast_ref().map(of_engine))
        .or_else(|| cause.downcast_ref().map(of_session))
        .or_else(|| cause.downcast_ref().map(of_hub));
    match advised {
        Some(text) => with_flags(text),
        None if names_fields(cause) => with_flags(cause.to_string()),
        None => cause.to_string(),
    }
}

/// Whether backticks in a message stand round fields. Those of a template that is at fault are its own.
fn names_fields(cause: &(dyn Error + 'static)) -> bool {
    let of_load = cause.downcast_ref().is_some_and(|error| !matches!(error, LoadError::Template { .. }));
    of_load
        || cause.is::<ModelError>()
        || cause.is::<RequestError>()
        || cause.is::<ParamError>()
        || cause.is::<ConfigError>()
}

fn with_flags(text: String) -> String {
    FLAGS.iter().fold(text, |text, (field, flag)| text.replace(&format!("`{field}`"), flag))
}

fn of_submit(error: &SubmitError) -> String {
    match error {
        SubmitError::ExceedsContext { n_prompt_tokens, n_ctx } if n_prompt_tokens == n_ctx => format!(
            "the prompt of {} leaves no room for an answer in the context of {}",
            counted(*n_prompt_tokens, "token"),
            counted(*n_ctx, "token")
        ),
        SubmitError::ExceedsKv { .. } => format!("{error}; --kv-memory gives a larger one"),
        _ => error.to_string(),
    }
}

fn of_engine(error: &EngineError) -> String {
    match error {
        EngineError::NothingToForget { .. } => format!("{error}; a smaller --keep leaves something"),
        _ => error.to_string(),
    }
}

fn of_session(error: &SessionError) -> String {
    match error {
        SessionError::Format { .. } => format!("{error} (--cache-type-k and --cache-type-v choose)"),
        SessionError::TooLong { .. } => format!("{error} (--n-ctx)"),
        SessionError::Io { source, .. } => format!("{error}{}", output::write_advice(source)),
        _ => error.to_string(),
    }
}

fn of_hub(error: &HubError) -> String {
    match error {
        HubError::Io { source, .. } => format!("{error}{}", output::write_advice(source)),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use minfer::engine::{Request, SamplingParams};

    use super::*;

    #[test]
    fn fields_are_named_as_flags() {
        let refused = |sampling| {
            let request = Request { sampling, ..Request::new(vec![1]) };
            text(&SubmitError::from(request.validate(10).unwrap_err()))
        };
        let default = SamplingParams::default;
        let bias = refused(SamplingParams { logit_bias: vec![(10, 0.0)], ..default() });
        assert_eq!(bias, "--logit-bias names token 10, which is outside the vocabulary of 10 tokens");
        let cold = refused(SamplingParams { temperature: -1.0, ..default() });
        assert!(cold.starts_with("--temp is -1"), "{cold}");
        let last = refused(SamplingParams { repeat_last_n: -2, ..default() });
        assert!(last.starts_with("--repeat-last-n is -2"), "{last}");
        let keep = text(&RequestError::KeepsTooMuch { keep: 9, n_ctx: 8 });
        assert!(keep.starts_with("--keep: 9 tokens"), "{keep}");
        let small = text(&ConfigError::TooSmall { field: "n_ctx", value: 1, least: 2 });
        assert_eq!(small, "--n-ctx (-c) is 1, but must be at least 2");
        let long = text(&SessionError::TooLong { length: 48, n_ctx: 32 });
        assert_eq!(long, "it holds 48 positions, the context has 32 (--n-ctx)");
        let key = ModelError::UselessOverride { key: "a.b".to_owned(), nearest: None };
        let load = text(&LoadError::Model { path: "m.gguf".to_owned(), cause: key });
        assert!(load.starts_with("m.gguf: --override-kv a.b: the file has no"), "{load}");
    }

    #[test]
    fn every_flag_of_the_table_is_one() {
        let command = crate::args::definition();
        let known: Vec<String> = command
            .get_subcommands()
            .flat_map(|command| command.get_arguments())
            .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
            .collect();
        for (field, flag) in FLAGS {
            let flag = flag.split(' ').next().expect("a word");
            assert!(known.iter().any(|known| known == flag), "{field}: {flag}");
        }
    }
}
