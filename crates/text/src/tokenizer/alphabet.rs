//! GPT-2's byte-to-unicode table.
//!
//! Vocabularies store raw bytes as printable characters: printable Latin-1 bytes stand for
//! themselves, the other 68 are mapped in order to U+0100 and up. Radford et al., "Language Models
//! are Unsupervised Multitask Learners" (2019), section 2.2 and its released encoder.

/// The first character of the shifted bytes.
const SHIFTED: u32 = 0x100;

/// The character that stands for `byte`.
pub(super) fn char_of(byte: u8) -> char {
    if is_printable(byte) {
        return char::from(byte);
    }
    let shift = (0..byte).filter(|&lower| !is_printable(lower)).count() as u32;
    char::from_u32(SHIFTED + shift).expect("the alphabet ends at U+0143")
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// Maps characters back to bytes.
pub(super) struct Decoder {
    bytes: [Option<u8>; 0x144],
}

impl Decoder {
    /// Tabulates [`char_of`].
    pub(super) fn new() -> Self {
        let mut bytes = [None; 0x144];
        for byte in 0..=255u8 {
            bytes[char_of(byte) as usize] = Some(byte);
        }
        Self { bytes }
    }

    /// Appends the bytes that `text` stands for, or its own UTF-8 bytes when a
    /// character lies outside the alphabet (vocabularies pad themselves with
    /// such tokens).
    pub(super) fn append(&self, text: &str, out: &mut Vec<u8>) {
        let start = out.len();
        for character in text.chars() {
            match self.bytes.get(character as usize) {
                Some(&Some(byte)) => out.push(byte),
                _ => {
                    out.truncate(start);
                    out.extend_from_slice(text.as_bytes());
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character_and_returns() {
        let decoder = Decoder::new();
        for byte in 0..=255u8 {
            let mut out = Vec::new();
            decoder.append(&char_of(byte).to_string(), &mut out);
            assert_eq!(out, [byte]);
        }
    }

    #[test]
    fn well_known_spellings() {
        assert_eq!(char_of(b' '), 'Ġ');
        assert_eq!(char_of(b'\n'), 'Ċ');
        assert_eq!(char_of(b'\t'), 'ĉ');
        assert_eq!(char_of(0x7f), 'ġ');
        assert_eq!(char_of(0xad), 'Ń');
    }

    #[test]
    fn text_outside_the_alphabet_stays_as_it_is() {
        let mut out = b"x".to_vec();
        Decoder::new().append("a日Ġ", &mut out);
        assert_eq!(out, "xa日Ġ".as_bytes());
    }
}
