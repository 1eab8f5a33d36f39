//! What the library refuses, in the words of the command line: it knows fields, a user has typed flags.

use std::error::Error;

use minfer::engine::{ConfigError, EngineError, ParamError, RequestError, SubmitError};

/// What a cause says, with flags in place of fields.
pub(crate) fn text(cause: &(dyn Error + 'static)) -> String {
    let known = None
        .or_else(|| cause.downcast_ref().map(of_submit))
        .or_else(|| cause.downcast_ref().map(of_engine))
        .or_else(|| cause.downcast_ref().map(of_request))
        .or_else(|| cause.downcast_ref().map(of_parameter))
        .or_else(|| cause.downcast_ref().map(of_config));
    known.unwrap_or_else(|| cause.to_string())
}

fn of_submit(error: &SubmitError) -> String {
    match error {
        SubmitError::Invalid(error) => of_request(error),
        SubmitError::ExceedsContext { n_prompt_tokens, n_ctx } if n_prompt_tokens == n_ctx => format!(
            "the prompt of {n_prompt_tokens} tokens fills the context of {n_ctx} tokens and leaves no room for an answer; -c gives a \
             larger context"
        ),
        SubmitError::ExceedsContext { .. } => format!("{error}; -c gives a larger one"),
        SubmitError::ExceedsKv { .. } => format!("{error}; --kv-memory gives a larger one"),
        _ => error.to_string(),
    }
}

fn of_engine(error: &EngineError) -> String {
    match error {
        EngineError::ExceedsContext { .. } => format!(
            "{error}; -c gives a larger one, and --context-shift forgets the oldest part of a conversation instead"
        ),
        EngineError::NothingToForget { .. } => format!("{error}; a smaller --keep leaves something"),
        _ => error.to_string(),
    }
}

fn of_request(error: &RequestError) -> String {
    match error {
        RequestError::Sampling(error) => of_parameter(error),
        RequestError::KeepsTooMuch { .. } => with_flag(error, "keep", "--keep"),
        RequestError::TooManyLogprobs { .. } => with_flag(error, "prompt_logprobs", "--top"),
        RequestError::Stop(_) => with_flag(error, "stop", "--stop"),
        _ => error.to_string(),
    }
}

fn of_parameter(error: &ParamError) -> String {
    match error {
        ParamError::OutOfRange { field: "temperature", .. } => with_flag(error, "temperature", "--temp"),
        ParamError::OutOfRange { field, .. } => {
            with_flag(error, field, &format!("--{}", field.replace('_', "-")))
        }
        ParamError::BiasToken { .. } => with_flag(error, "logit_bias", "--logit-bias"),
        ParamError::Repeated(_) | ParamError::UnknownStage { .. } => {
            with_flag(error, "samplers", "--samplers")
        }
        _ => error.to_string(),
    }
}

fn of_config(error: &ConfigError) -> String {
    let field = match error {
        ConfigError::TooSmall { field, .. } | ConfigError::TooLarge { field, .. } => *field,
        _ => return error.to_string(),
    };
    match field {
        "n_ctx" => with_flag(error, field, "the context (-c)"),
        "n_batch" => with_flag(error, field, "--n-batch (-b)"),
        _ => error.to_string(),
    }
}

/// A message that begins with a field, with its flag instead.
fn with_flag(error: &dyn Error, field: &str, flag: &str) -> String {
    let text = error.to_string();
    text.strip_prefix(field).map_or(text.clone(), |rest| format!("{flag}{rest}"))
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
        assert_eq!(small, "the context (-c) is 1, but must be at least 2");
    }
}
