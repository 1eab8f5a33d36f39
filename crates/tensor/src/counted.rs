//! Numbers of things in words.

use std::fmt;

/// A number of things, which prints as `1 token` or `2 tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted<'n> {
    count: u64,
    noun: &'n str,
}

/// `count` of what `noun` names, one of them; its last word gets an `s`, or `ies` for a `y`, where
/// they are not one.
///
/// ```
/// use minfer_tensor::counted;
///
/// assert_eq!(counted(1_u32, "token").to_string(), "1 token");
/// assert_eq!(counted(0_usize, "entry").to_string(), "0 entries");
/// ```
pub fn counted(count: impl TryInto<u64>, noun: &str) -> Counted<'_> {
    Counted { count: count.try_into().unwrap_or(u64::MAX), noun }
}

impl Counted<'_> {
    /// The number of things with a verb, `one` of one and `many` of several: `1 byte is` or `2
    /// bytes are`.
    pub fn with(self, one: &str, many: &str) -> String {
        format!("{self} {}", if self.count == 1 { one } else { many })
    }
}

impl fmt::Display for Counted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted { count, noun } = *self;
        match noun.strip_suffix('y') {
            _ if count == 1 => write!(formatter, "{count} {noun}"),
            Some(stem) => write!(formatter, "{count} {stem}ies"),
            None => write!(formatter, "{count} {noun}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        for (count, noun, text) in [
            (0, "token", "0 tokens"),
            (1, "token", "1 token"),
            (2, "prompt token", "2 prompt tokens"),
            (1, "entry", "1 entry"),
            (3, "entry", "3 entries"),
            (u64::MAX, "byte", "18446744073709551615 bytes"),
        ] {
            assert_eq!(counted(count, noun).to_string(), text);
        }
        assert_eq!(counted(1, "byte").with("follows", "follow"), "1 byte follows");
        assert_eq!(counted(2, "byte").with("follows", "follow"), "2 bytes follow");
    }
}
