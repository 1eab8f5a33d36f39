//! Parsers of flag values that clap does not have.

use std::ops::RangeInclusive;

use minfer::engine::{ParamError, Stage};
use minfer::graph::KvGranule;
use minfer::models::{OverrideRange, Yarn};
use serde_json::{Map, Value};

use crate::wording;

/// The largest number of tokens of a flag: more than any context, and sums of a few fit a `u32`.
pub(super) const MOST_TOKENS: i64 = 1 << 24;

/// Bytes with an optional suffix: `512M`, `4GiB`, `1.5G`. Suffixes are powers of 1024.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let wanted = || format!("{text:?} is not a size such as 800M, 4G or 4GiB");
    let number: f64 = number.parse().map_err(|_| wanted())?;
    let suffix = suffix.trim().to_ascii_lowercase();
    let power = match suffix.trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(wanted()),
    };
    let bytes = number * 1024f64.powi(power);
    match bytes {
        1.0..9_223_372_036_854_775_808.0 => Ok(bytes as u64),
        1.0.. => Err(format!("{text:?} is too large a size; no machine has as much")),
        _ => Err(wanted()),
    }
}

/// Allocation units: from the smallest page size of any system to the largest.
const GRANULES: RangeInclusive<u64> = 4 << 10..=1 << 30;

/// An allocation unit: a name, or bytes.
pub(super) fn granule(text: &str) -> Result<KvGranule, String> {
    match text.trim() {
        "page" => Ok(KvGranule::Page),
        "huge" => Ok(KvGranule::Huge),
        text => {
            let fits = |bytes: &u64| bytes.is_power_of_two() && GRANULES.contains(bytes);
            let power = bytes(text).ok().filter(fits).map(KvGranule::Bytes);
            power.ok_or_else(|| "page, huge or a power of two from 4k to 1G is needed".to_owned())
        }
    }
}

/// A finite number in a range; `wanted` is the range in words.
pub(super) fn number(
    range: RangeInclusive<f32>,
    wanted: &'static str,
) -> impl Fn(&str) -> Result<f32, String> + Clone {
    move |text| {
        let number = text.trim().parse().unwrap_or(f64::NAN);
        match number as f32 {
            nearest if number.is_finite() && nearest.is_infinite() => {
                Err(format!("{wanted} is needed, and none beyond {:e}", f32::MAX))
            }
            nearest if nearest.is_finite() && range.contains(&nearest) => Ok(nearest),
            _ => Err(format!("{wanted} is needed")),
        }
    }
}

/// A number in the range of a rope setting.
pub(super) fn within(range: OverrideRange) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.trim().parse().ok().filter(|number| range.contains(*number));
        number.ok_or_else(|| format!("{range} is needed"))
    }
}

/// The weight of YaRN's extrapolation.
pub(super) fn ext_factor(text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|number| Yarn::checked_ext_factor(*number).is_some());
    number.ok_or_else(|| format!("{} is needed", Yarn::EXT_FACTOR_WANTED))
}

/// A context length: 0, or room for a token of the prompt and one of the answer.
pub(super) fn positions(text: &str) -> Result<u32, String> {
    let count = text.trim().parse().ok().filter(|count| *count != 1);
    count.ok_or_else(|| format!("0 or a number from 2 to {} is needed", u32::MAX))
}

/// Template variables that come from the conversation and the model.
const OWN_VARIABLES: [&str; 6] =
    ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "strftime_now"];

/// A JSON object of template variables.
pub(super) fn template_variables(text: &str) -> Result<Map<String, Value>, String> {
    let variables: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("a JSON object is needed: {error}"))?;
    match OWN_VARIABLES.iter().find(|name| variables.contains_key(**name)) {
        Some(name) => Err(format!("{name:?} comes from the conversation or the model and cannot be set")),
        None => Ok(variables),
    }
}

/// Stages of sampling, each at most once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stages(pub(super) Vec<Stage>);

/// Names of stages with semicolons between them.
pub(super) fn stages(text: &str) -> Result<Stages, String> {
    let mut stages = Vec::new();
    for name in text.split(';') {
        let stage: Stage = name.trim().parse().map_err(|error: ParamError| wording::text(&error))?;
        if stages.contains(&stage) {
            return Err(wording::text(&ParamError::Repeated(stage)));
        }
        stages.push(stage);
    }
    Ok(Stages(stages))
}

/// A token's id and what is added to its logit; minus infinity bans the token.
pub(super) fn bias(text: &str) -> Result<(u32, f32), String> {
    let pair = text
        .split_once('=')
        .and_then(|(id, bias)| Some((id.trim().parse().ok()?, bias.trim().parse::<f32>().ok()?)));
    match pair {
        Some((_, bias)) if bias.is_nan() || bias == f32::INFINITY => {
            Err(format!("a bias of {bias} has no meaning: below infinity is needed, and -inf bans the token"))
        }
        pair => pair.ok_or_else(|| "ID=BIAS is needed, such as 15=-1.5".to_owned()),
    }
}

/// Replaces `\n`, `\t` and `\\` by a line end, a tab and a backslash; other backslashes stay.
pub(super) fn unescaped(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text.chars());
    while let Some(character) = rest.next() {
        let escaped = match (character, rest.as_str().chars().next()) {
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some('t')) => Some('\t'),
            ('\\', Some('\\')) => Some('\\'),
            _ => None,
        };
        if escaped.is_some() {
            rest.next();
        }
        out.push(escaped.unwrap_or(character));
    }
    out
}

/// A seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seed {
    /// A new one for each run.
    Random,
    Fixed(u64),
}

/// A number, or -1 for a random seed.
pub(super) fn seed(text: &str) -> Result<Seed, String> {
    match text.trim() {
        "-1" => Ok(Seed::Random),
        number => number
            .parse()
            .map(Seed::Fixed)
            .map_err(|_| format!("a number from 0 to {} or -1 is needed", u64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, value) in
            [("1", 1), ("2k", 2048), ("800M", 800 << 20), ("1.5G", 3 << 29), ("4 gb", 4 << 30)]
        {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
        for text in ["", "G", "0", "-1", "4X", "1e3", "1.2.3M", "99999999999T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        for (text, bytes) in [("4096", 4096), ("64k", 65536), ("2M", 2 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(granule(text), Ok(KvGranule::Bytes(bytes)), "{text}");
        }
        for text in ["", "0", "-1", "1", "2k", "96k", "2G", "4E", "large", "nan"] {
            assert!(granule(text).is_err(), "{text}");
        }
    }

    #[test]
    fn texts_are_read() {
        assert_eq!(unescaped(r"a\n\t\\n\x\"), "a\n\t\\n\\x\\");
        assert_eq!((seed("-1"), seed("7")), (Ok(Seed::Random), Ok(Seed::Fixed(7))));
        assert_eq!((bias("15=-1.5"), bias("15=-inf")), (Ok((15, -1.5)), Ok((15, f32::NEG_INFINITY))));
        assert_eq!(stages("top_k; temperature"), Ok(Stages(vec![Stage::TopK, Stage::Temperature])));
    }

    #[test]
    fn a_template_keeps_its_own_variables() {
        assert_eq!(template_variables("{\"a\": 1}").unwrap().len(), 1);
        for name in OWN_VARIABLES {
            let error = template_variables(&format!("{{\"a\": 1, \"{name}\": null}}")).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
    }
}
