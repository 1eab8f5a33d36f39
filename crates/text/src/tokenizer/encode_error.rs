//! Errors of encoding.

/// Bytes of the longest stretch of text that is merged as one piece. Merging takes up to 32 bytes
/// of memory for each of them, 72 where tokens have scores; no token of a model that is known comes
/// near.
pub(super) const MOST_WORD_BYTES: usize = 8 << 20;

/// How many bytes a message names.
const NAMED: usize = 8;

/// Why a text cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The vocabulary was made without tokens for some bytes, and the text has them.
    #[error("the text cannot be spelled: the vocabulary has no token for {}", named(.bytes))]
    Unspelled {
        /// The bytes, each once, in order.
        bytes: Vec<u8>,
    },
    /// One word is far longer than any real one.
    #[error("a word of {bytes} bytes is too long; at most {MOST_WORD_BYTES} are merged as one piece")]
    WordTooLong {
        /// The length of the word.
        bytes: usize,
    },
}

/// Refuses words that would take too much memory.
pub(super) fn check_word(bytes: usize) -> Result<(), EncodeError> {
    if bytes > MOST_WORD_BYTES { Err(EncodeError::WordTooLong { bytes }) } else { Ok(()) }
}

/// Some bytes for a message.
pub(super) fn named(bytes: &[u8]) -> String {
    let shown: Vec<String> = bytes.iter().take(NAMED).map(|byte| format!("0x{byte:02X}")).collect();
    let noun = if bytes.len() == 1 { "byte" } else { "bytes" };
    let more = match bytes.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("the {noun} {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_a_few_bytes() {
        let message = |bytes: &[u8]| EncodeError::Unspelled { bytes: bytes.to_vec() }.to_string();
        let begin = "the text cannot be spelled: the vocabulary has no token for ";
        assert_eq!(message(&[4]), format!("{begin}the byte 0x04"));
        assert_eq!(message(&[4, 0xf1]), format!("{begin}the bytes 0x04, 0xF1"));
        assert!(message(&[7; 256]).ends_with(", 0x07 and 248 more"));
    }
}
