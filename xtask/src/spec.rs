//! Tests (`pp512`) and targets (`pp512=2.5`) of `compare`, parsed from the command line.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

/// One measurement: `pp512` (prefill 512 tokens), `tg128` (generate 128 tokens one by one),
/// `tg32@4096` (the same after 4096 cached tokens).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    /// How many tokens are timed.
    pub(crate) tokens: u32,
    /// How many tokens are cached before the clock starts.
    pub(crate) depth: u32,
}

/// What kind of work is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A prompt's tokens together.
    Prefill,
    /// Tokens one after the other.
    Decode,
}

impl Spec {
    /// The name without the depth, as a row of `minfer bench` has it.
    pub(crate) fn row_name(&self) -> String {
        let kind = match self.kind {
            Kind::Prefill => "pp",
            Kind::Decode => "tg",
        };
        format!("{kind}{}", self.tokens)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.depth {
            0 => f.write_str(&self.row_name()),
            depth => write!(f, "{}@{depth}", self.row_name()),
        }
    }
}

impl FromStr for Spec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (kind, rest) = (text.get(..2)?, text.get(2..)?);
            let kind = match kind {
                "pp" => Kind::Prefill,
                "tg" => Kind::Decode,
                _ => return None,
            };
            let (tokens, depth) = rest.split_once('@').unwrap_or((rest, "0"));
            Some(Spec { kind, tokens: number(tokens)?, depth: number(depth)? })
        };
        let spec: Spec =
            parse().with_context(|| format!("`{text}` is not a test; write ppN, tgN, ppN@D or tgN@D"))?;
        ensure!(spec.tokens > 0, "`{text}` measures no tokens");
        Ok(spec)
    }
}

/// A ratio to reach on a test: `pp512=2.5`, or `tg128=1.3|0.88` where a share of the machine's own
/// limit will do instead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Want {
    pub(crate) spec: Spec,
    ratio: f64,
    share: Option<f64>,
}

impl Want {
    /// Whether the figures are good enough.
    pub(crate) fn reached(&self, ratio: f64, share: f64) -> bool {
        ratio >= self.ratio || self.share.is_some_and(|wanted| share >= wanted)
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.ratio)?;
        self.share.map_or(Ok(()), |share| write!(f, " or {share:.2} of the limit"))
    }
}

impl FromStr for Want {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((spec, figures)) = text.split_once('=') else {
            bail!("`{text}` is not a want; write test=ratio or test=ratio|share, such as pp512=2.0");
        };
        let figure = |text: &str| match text.parse::<f64>() {
            Ok(figure) if figure.is_finite() && figure > 0.0 => Ok(figure),
            _ => bail!("`{text}` is not a positive number"),
        };
        let (ratio, share) = match figures.split_once('|') {
            Some((ratio, share)) => (figure(ratio)?, Some(figure(share)?)),
            None => (figure(figures)?, None),
        };
        Ok(Want { spec: spec.parse()?, ratio, share })
    }
}

/// A number in plain digits.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_and_written() {
        for text in ["pp512", "tg128", "tg32@4096", "pp1@7"] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
        assert_eq!(
            "tg32@4096".parse::<Spec>().unwrap(),
            Spec { kind: Kind::Decode, tokens: 32, depth: 4096 }
        );
        for text in ["", "pp", "xx5", "pp0", "tg-1", "tg1@", "tg1@x", "pp+5", "é5", "pp99999999999"] {
            assert!(text.parse::<Spec>().is_err(), "{text}");
        }
    }

    #[test]
    fn wants() {
        let want: Want = "tg128=1.3|0.88".parse().unwrap();
        assert!(want.reached(1.3, 0.0) && want.reached(0.5, 0.88) && !want.reached(1.29, 0.87));
        assert_eq!(want.to_string(), "1.30 or 0.88 of the limit");
        let want: Want = "pp512=2".parse().unwrap();
        assert!(want.reached(2.0, 0.0) && !want.reached(1.99, 1.0));
        for text in ["pp512", "pp512=", "pp512=x", "=2", "pp512=-1", "pp512=NaN", "pp512=1|"] {
            assert!(text.parse::<Want>().is_err(), "{text}");
        }
    }
}
