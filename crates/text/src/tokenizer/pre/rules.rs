//! The splitting rules: each is a list of passes.
//!
//! The expressions are those of the models' published tokenizers. `data/tokenizers/splits.json` has
//! what the `tokenizers` library makes of texts with them.

use super::scan::Words;

/// One pass. It splits each piece of the previous pass into matches and the text between them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pass {
    /// A regular expression.
    Regex(&'static str),
    /// An expression for words that is followed by hand.
    Words(Words),
    /// Each number character is a piece.
    Numbers,
    /// Runs of numbers fall into threes from the right.
    NumbersInThrees,
    /// A cut before every third decimal digit, counted from the right end of each run:
    /// `(?=(\d{3})+(?!\d))`.
    DigitCuts,
    /// Decimal digits in threes from the right, unless a word goes on behind them:
    /// `\d{1,3}(?=(?:\d{3})*\b)`.
    DigitsBeforeBoundary,
    /// Runs of line feeds, and runs of anything else.
    Lines,
}

pub(super) const DEFAULT: &[Pass] = &[
    Pass::Regex(r"[\p{P}$+<=>^~|]+"),
    Pass::Words(Words::GPT2),
    Pass::Regex(r"\p{N}+"),
    Pass::Regex("[0-9][0-9][0-9]"),
];

pub(super) const GPT2: &[Pass] = &[Pass::Words(Words::GPT2)];

pub(super) const NUMBERS_THEN_GPT2: &[Pass] = &[Pass::Numbers, Pass::Words(Words::GPT2)];

pub(super) const LLAMA3: &[Pass] = &[Pass::Words(Words::LLAMA3)];

pub(super) const QWEN2: &[Pass] = &[Pass::Words(Words::QWEN2)];

pub(super) const UFAKZEKA: &[Pass] = &[Pass::Words(Words::UFAKZEKA)];

pub(super) const LAGUNA: &[Pass] = &[Pass::Lines, Pass::Words(Words::QWEN2)];

pub(super) const LINES: &[Pass] = &[Pass::Lines];

pub(super) const MINICPM5: &[Pass] = &[
    Pass::Regex(r"\p{N}{1,3}"),
    Pass::Regex(concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )),
];

pub(super) const QWEN35: &[Pass] = &[Pass::Regex(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
))];

pub(super) const JAIS2: &[Pass] = &[Pass::Regex(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)",
    r"|\s{4}(?!\S)|\s{1,2}(?!\S)|\s"
))];

pub(super) const SEED_CODER: &[Pass] = &[Pass::Regex(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
))];

pub(super) const BAILING_MOE: &[Pass] = &[Pass::Regex(concat!(
    r"'(?i:[sdmt]|ll|ve|re)",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
))];

pub(super) const EXAONE_MOE: &[Pass] = &[Pass::Regex(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?",
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
))];

/// The rest of the o200k expression, after its words.
macro_rules! after_words {
    ($numbers:literal, $line_ends:literal) => {
        concat!("|", $numbers, r"| ?[^\s\p{L}\p{N}]+", $line_ends, r"|\s*[\r\n]+|\s+(?!\S)|\s+")
    };
}

/// Words of o200k: upper case before lower case. Marks, and letters without case, count as both.
/// `but` narrows both classes, and `suffix` may follow a word.
macro_rules! cased_words {
    ($but:literal, $suffix:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}",
            $but,
            r"]*[\p{Ll}\p{Lm}\p{Lo}\p{M}",
            $but,
            "]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}",
            $but,
            r"]+[\p{Ll}\p{Lm}\p{Lo}\p{M}",
            $but,
            "]*",
            $suffix
        )
    };
}

pub(super) const TEKKEN: &[Pass] =
    &[Pass::Regex(concat!(cased_words!("", ""), after_words!(r"\p{N}", r"[\r\n/]*")))];

const O200K: &str =
    concat!(cased_words!("", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"), after_words!(r"\p{N}{1,3}", r"[\r\n/]*"));

pub(super) const GPT_4O: &[Pass] = &[Pass::Regex(O200K)];

pub(super) const TINY_AYA: &[Pass] = &[Pass::DigitsBeforeBoundary, Pass::Regex(O200K)];

pub(super) const YOUTU: &[Pass] = &[
    Pass::Regex(concat!(
        r"[\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+",
        r"|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+",
        r"|[\x{3105}-\x{312f}]+|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+"
    )),
    Pass::Regex(concat!(
        cased_words!("", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"),
        after_words!(r"\p{N}", r"[\r\n/]*")
    )),
];

/// Words without Han letters, which are pieces of their own.
pub(super) const KIMI_K2: &[Pass] = &[Pass::Regex(concat!(
    r"\p{Han}+|",
    cased_words!(r"&&[^\p{Han}]", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"),
    after_words!(r"\p{N}{1,3}", r"[\r\n]*")
))];

const DEEPSEEK_WORDS: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

pub(super) const DEEPSEEK_V3: &[Pass] = &[
    Pass::Regex(r"\p{N}{1,3}"),
    Pass::Regex(r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+"),
    Pass::Regex(DEEPSEEK_WORDS),
];

pub(super) const SPARK: &[Pass] = &[
    Pass::Regex(r"\p{N}{1,3}"),
    Pass::Regex(r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+"),
    Pass::Regex(concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
    )),
    Pass::Numbers,
];

pub(super) const AFMOE: &[Pass] = &[
    Pass::NumbersInThrees,
    Pass::Regex(concat!(
        r"[\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{8c48}-\x{faff}\x{3040}-\x{309f}\x{30a0}-\x{30ff}\x{ff65}-\x{ff9f}",
        r"\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-\x{17ff}\x{1000}-\x{109f}\x{aa60}-\x{aa7f}",
        r"\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff}]+"
    )),
    Pass::Regex(DEEPSEEK_WORDS),
];

/// Han, and what the published ranges hold beside it, some white space too.
const DEEPSEEK_HAN: &str = r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+";

pub(super) const DEEPSEEK_CODER: &[Pass] = &[
    Pass::Regex(r"[\r\n]"),
    Pass::Regex(r"\s?\p{L}+"),
    Pass::Regex(r"\s?\p{P}+"),
    Pass::Regex(DEEPSEEK_HAN),
    Pass::Numbers,
];

pub(super) const DEEPSEEK_LLM: &[Pass] = &[
    Pass::Regex(r"[\r\n]"),
    Pass::Regex(concat!(
        r"\s?[",
        r"A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}",
        r"\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}",
        r"\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}",
        r"\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}",
        r"\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}",
        r"\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}",
        r"\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}",
        r"\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}",
        r"\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}",
        r"\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}",
        r"\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}",
        r"\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}",
        r"\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}",
        r"\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}",
        r"]+"
    )),
    Pass::Regex(r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+"),
    Pass::Regex(r"\s+$"),
    Pass::Regex(DEEPSEEK_HAN),
    Pass::Regex(r"\p{N}+"),
];

pub(super) const FALCON: &[Pass] =
    &[Pass::Regex(r"[\p{P}$+<=>^~|`]+"), Pass::Words(Words::GPT2), Pass::Regex("[0-9][0-9][0-9]")];

const BLOOM_WORDS: &str = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+";

pub(super) const BLOOM: &[Pass] = &[Pass::Regex(BLOOM_WORDS)];

pub(super) const VIKING: &[Pass] = &[Pass::Regex(BLOOM_WORDS), Pass::Numbers];

pub(super) const SUPERBPE: &[Pass] = &[Pass::Regex(r"\p{N}+"), Pass::DigitCuts];

pub(super) const CHAMELEON: &[Pass] = &[
    Pass::Regex("<sentinel:[0-9]+>"),
    Pass::Regex("IMGIMG[A-I]{1,4}Z"),
    Pass::Regex(r"[\t\n]|    |  "),
    Pass::Numbers,
    Pass::Regex(r"[\p{P}!-/:-@\[-`{-~]"),
    Pass::Words(Words::GPT2),
];
