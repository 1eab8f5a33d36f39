//! Errors and suggestions of the libraries in the words of the command line: each setting is named
//! by its flag.

use std::error::Error;

use minfer::engine::kv::session::SessionError;
use minfer::engine::{EngineError, Param, ParamError, RequestError, SubmitError};
use minfer::models::{ModelError, RopeNeed, RopeSetting};
use minfer::{BudgetError, LoadError, MemoryBound, Setting, Stretch, Suggestion};
use minfer_hub::HubError;

use crate::counted::counted;
use crate::output;

/// The message of one error of a chain.
pub(crate) fn text(error: &(dyn Error + 'static)) -> String {
    let worded = None
        .or_else(|| error.downcast_ref().and_then(load_error))
        .or_else(|| error.downcast_ref().and_then(model_error))
        .or_else(|| error.downcast_ref().and_then(submit_error))
        .or_else(|| error.downcast_ref().and_then(request_error))
        .or_else(|| error.downcast_ref().and_then(param_error))
        .or_else(|| error.downcast_ref().and_then(engine_error))
        .or_else(|| error.downcast_ref().and_then(session_error))
        .or_else(|| error.downcast_ref().and_then(hub_error));
    worded.unwrap_or_else(|| error.to_string())
}

fn setting(setting: Setting) -> String {
    match setting {
        Setting::NCtx(n_ctx) => format!("--n-ctx (-c) {n_ctx}"),
        Setting::NBatch(n_batch) => format!("--n-batch (-b) {n_batch}"),
        Setting::KvFormat(format) => format!("--cache-type {format}"),
        Setting::KvMemory(bytes) => format!("--kv-memory {bytes}"),
        Setting::Threads(threads) => format!("--threads (-t) {threads}"),
        Setting::MemoryLimit(bytes) => format!("--memory-limit {bytes}"),
        Setting::AddressLimit(kibibytes) => format!("`ulimit -v {kibibytes}`"),
    }
}

fn rope(setting: RopeSetting) -> &'static str {
    match setting {
        RopeSetting::Scaling => "--rope-scaling",
        RopeSetting::Scale => "--rope-scale",
        RopeSetting::FreqBase => "--rope-freq-base",
        RopeSetting::FreqScale => "--rope-freq-scale",
        RopeSetting::YarnOriginalContext => "--yarn-orig-ctx",
        RopeSetting::YarnExtFactor => "--yarn-ext-factor",
        RopeSetting::YarnAttnFactor => "--yarn-attn-factor",
        RopeSetting::YarnBetaFast => "--yarn-beta-fast",
        RopeSetting::YarnBetaSlow => "--yarn-beta-slow",
    }
}

fn param(param: Param) -> &'static str {
    match param {
        Param::Temperature => "--temp",
        Param::TopP => "--top-p",
        Param::MinP => "--min-p",
        Param::RepeatPenalty => "--repeat-penalty",
        Param::RepeatLastN => "--repeat-last-n",
        Param::PresencePenalty => "--presence-penalty",
        Param::FrequencyPenalty => "--frequency-penalty",
        Param::LogitBias => "--logit-bias",
    }
}

/// What makes the longest context of a model longer.
pub(crate) fn stretch_hint(stretch: Stretch) -> Option<&'static str> {
    match stretch {
        Stretch::Never => None,
        Stretch::Scaling => Some("--rope-scaling with --rope-scale"),
        Stretch::Scale => Some("a larger --rope-scale"),
        Stretch::FreqScale => Some("a smaller --rope-freq-scale"),
    }
}

/// `; try A, B with C or D`; empty without suggestions.
fn suggested(suggestions: &[Suggestion], other: Option<&str>) -> String {
    let words = |suggestion: &Suggestion| suggestion.iter().copied().map(setting).collect::<Vec<_>>();
    let mut ways: Vec<String> =
        suggestions.iter().map(|suggestion| words(suggestion).join(" with ")).collect();
    ways.extend(other.map(str::to_owned));
    match ways.split_last() {
        None => String::new(),
        Some((last, [])) => format!("; try {last}"),
        Some((last, rest)) => format!("; try {} or {last}", rest.join(", ")),
    }
}

fn load_error(error: &LoadError) -> Option<String> {
    Some(match error {
        LoadError::Memory { refused, suggestions } => {
            let is_limit =
                |setting: &Setting| matches!(setting, Setting::MemoryLimit(_) | Setting::AddressLimit(_));
            let needs_less = suggestions.iter().flatten().all(is_limit);
            let smaller_model =
                (needs_less && matches!(refused, BudgetError::Exceeded { .. })).then_some("a smaller model");
            format!("not enough memory: {}{}", budget_error(refused), suggested(suggestions, smaller_model))
        }
        LoadError::KvMemory { n_ctx, needed, allowed, suggestions } => format!(
            "not enough memory for the KV cache: {} {}, --kv-memory allows {allowed}{}",
            counted(*n_ctx, "position").with("takes", "take"),
            counted(*needed, "byte"),
            suggested(suggestions, None)
        ),
        LoadError::ContextTooLong { asked, most, stretch } => {
            let longer = match stretch_hint(*stretch) {
                None => ", and its learned positions end there".to_owned(),
                Some(hint) => format!("; longer needs {hint}"),
            };
            format!("a context of {asked} positions is asked for, the model has {most}{longer}")
        }
        LoadError::LearnedPositions => {
            "the positions of this model are learned, so --context-shift is impossible".to_owned()
        }
        LoadError::Model { path, cause } => format!("{path}: {}", model_error(cause)?),
        LoadError::Tokenizer { .. } => error.to_string().replace("`metadata`", "--override-kv"),
        _ => return None,
    })
}

fn budget_error(error: &BudgetError) -> String {
    match error {
        BudgetError::Exceeded { what, needed, held, most, bound: MemoryBound::Limit } => format!(
            "{what} would take {}; {held} of the {} that --memory-limit allows are in use or promised",
            counted(*needed, "byte"),
            counted(*most, "byte")
        ),
        BudgetError::Unknown(cause) => format!("{cause}; say how much may be taken with --memory-limit"),
        BudgetError::Exceeded { .. } => error.to_string(),
    }
}

fn model_error(error: &ModelError) -> Option<String> {
    Some(match error {
        ModelError::TokenizerOverride { key } => format!(
            "--override-kv {key}: lists of the tokenizer and chat templates cannot be overridden; --tokenizer-pre and \
             --chat-template replace the pre-tokenizer and the chat template"
        ),
        ModelError::UselessOverride { key, nearest } => {
            let hint = nearest.as_ref().map(|name| format!(" (did you mean {name}?)")).unwrap_or_default();
            format!("--override-kv {key}: the file has no such key, and the model reads none{hint}")
        }
        ModelError::BadOverride { key, value, wanted } => {
            format!("--override-kv {key} is {value}: {wanted} is needed")
        }
        ModelError::BadRope { setting, value, needs } => {
            format!("{} is {value}: {} is needed", rope(*setting), rope_need(*needs))
        }
        _ => return None,
    })
}

fn rope_need(need: RopeNeed) -> String {
    match need {
        RopeNeed::NoFactor => {
            "no factor with --rope-scaling none, or --rope-scaling linear or yarn".to_owned()
        }
        RopeNeed::OneFactor { scale } => format!("only one of it and --rope-scale (now {scale})"),
        RopeNeed::Factor => "a factor with it, --rope-scale (the model has none)".to_owned(),
        RopeNeed::Yarn { found } => {
            format!("--rope-scaling yarn with it (the model's rope scaling is {})", found.name())
        }
        RopeNeed::Within(_)
        | RopeNeed::Method
        | RopeNeed::ContextLength
        | RopeNeed::ExtFactor
        | RopeNeed::RotatedPositions => need.to_string(),
    }
}

fn submit_error(error: &SubmitError) -> Option<String> {
    Some(match error {
        SubmitError::Invalid(error) => return request_error(error),
        SubmitError::ExceedsContext { n_prompt_tokens, n_ctx } if n_prompt_tokens == n_ctx => format!(
            "the prompt of {} leaves no room for an answer in the context of {}",
            counted(*n_prompt_tokens, "token"),
            counted(*n_ctx, "token")
        ),
        SubmitError::ExceedsKv { .. } => format!("{error}; --kv-memory gives a larger one"),
        _ => return None,
    })
}

fn request_error(error: &RequestError) -> Option<String> {
    Some(match error {
        RequestError::Stop(cause) => format!("--stop: {cause}"),
        RequestError::TooManyLogprobs { top, vocab, .. } => {
            format!("--top: {top} alternatives are more than the vocabulary of {}", counted(*vocab, "token"))
        }
        RequestError::KeepsTooMuch { keep, n_ctx } => format!(
            "--keep: {} no room in a context of {}",
            counted(*keep, "token").with("that is never forgotten leaves", "that are never forgotten leave"),
            counted(*n_ctx, "token")
        ),
        RequestError::Sampling(error) => return param_error(error),
        _ => return None,
    })
}

fn param_error(error: &ParamError) -> Option<String> {
    Some(match error {
        ParamError::OutOfRange { param: named, value, range } => {
            format!("{} is {value}, but must be {range}", param(*named))
        }
        ParamError::BiasToken { id, vocab } => format!(
            "--logit-bias names token {id}, which is outside the vocabulary of {}",
            counted(*vocab, "token")
        ),
        ParamError::Repeated(stage) => format!("--samplers lists {stage} twice"),
        ParamError::UnknownStage { name, choices } => {
            format!("--samplers names {name:?}, which is none of {choices}")
        }
        _ => return None,
    })
}

fn engine_error(error: &EngineError) -> Option<String> {
    match error {
        EngineError::NothingToForget { .. } => Some(format!("{error}; a smaller --keep leaves something")),
        _ => None,
    }
}

fn session_error(error: &SessionError) -> Option<String> {
    Some(match error {
        SessionError::Format { .. } => format!("{error} (--cache-type-k and --cache-type-v choose)"),
        SessionError::TooLong { .. } => format!("{error} (--n-ctx)"),
        SessionError::Io { source, .. } => format!("{error}{}", output::write_suggestion(source)),
        _ => return None,
    })
}

fn hub_error(error: &HubError) -> Option<String> {
    match error {
        HubError::Io { source, .. } => Some(format!("{error}{}", output::write_suggestion(source))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that begin with two dashes.
    fn flags(text: &str) -> impl Iterator<Item = &str> {
        text.split_whitespace().filter(|word| word.starts_with("--"))
    }

    #[test]
    fn every_setting_is_named_by_a_flag() {
        let settings = [
            Setting::NCtx(1),
            Setting::NBatch(1),
            Setting::KvFormat(minfer::graph::KvFormat::F16),
            Setting::KvMemory(1),
            Setting::Threads(1),
            Setting::MemoryLimit(1),
        ];
        let ropes = [
            RopeSetting::Scaling,
            RopeSetting::Scale,
            RopeSetting::FreqBase,
            RopeSetting::FreqScale,
            RopeSetting::YarnOriginalContext,
            RopeSetting::YarnExtFactor,
            RopeSetting::YarnAttnFactor,
            RopeSetting::YarnBetaFast,
            RopeSetting::YarnBetaSlow,
        ];
        let params = [
            Param::Temperature,
            Param::TopP,
            Param::MinP,
            Param::RepeatPenalty,
            Param::RepeatLastN,
            Param::PresencePenalty,
            Param::FrequencyPenalty,
            Param::LogitBias,
        ];
        let named = settings.map(setting).join(" ")
            + " "
            + &ropes.map(rope).join(" ")
            + " "
            + &params.map(param).join(" ");
        assert_eq!(flags(&named).count(), settings.len() + ropes.len() + params.len());
        let definition = crate::args::definition();
        let arguments: Vec<_> = definition.get_subcommands().flat_map(clap::Command::get_arguments).collect();
        for flag in flags(&named) {
            assert!(arguments.iter().any(|known| known.get_long() == Some(&flag[2..])), "{flag}");
        }
    }

    #[test]
    fn suggestions_are_a_list_of_ways() {
        let limit = vec![Setting::MemoryLimit(7)];
        let several = vec![Setting::NCtx(64), Setting::NBatch(16)];
        assert_eq!(suggested(&[], None), "");
        assert_eq!(
            suggested(std::slice::from_ref(&limit), Some("a smaller model")),
            "; try --memory-limit 7 or a smaller model"
        );
        assert_eq!(
            suggested(&[several, vec![Setting::Threads(1)], limit], None),
            "; try --n-ctx (-c) 64 with --n-batch (-b) 16, --threads (-t) 1 or --memory-limit 7"
        );
    }
}
