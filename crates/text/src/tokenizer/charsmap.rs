//! SentencePiece's table of characters and what replaces them.
//!
//! The file holds the length of a double-array trie, the trie and the
//! replacements, each ended by a zero byte. A unit of the trie is 32 bits: the
//! label of the unit in its lowest eight, whether a leaf hangs from it in the
//! ninth, and the offset to its children in the upper 22, scaled by 256 where
//! the tenth is set. Yata's "darts-clone" (2012), which SentencePiece embeds.

use super::TokenizerError;

/// The table of one vocabulary.
#[derive(Debug)]
pub(super) struct CharsMap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl CharsMap {
    /// Takes the table apart.
    pub(super) fn new(table: &[u8]) -> Result<Self, TokenizerError> {
        let (length, rest) = table.split_first_chunk::<4>().ok_or(TokenizerError::MalformedCharsmap)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (units, replacements) = rest.split_at_checked(length).ok_or(TokenizerError::MalformedCharsmap)?;
        let units = units.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit));
        Ok(Self { units: units.collect(), replacements: replacements.to_vec() })
    }

    /// The longest beginning of `text` that has a replacement: its length and
    /// the replacement.
    pub(super) fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let mut longest = None;
        let mut at = offset(*self.units.first()?);
        for (index, &byte) in text.as_bytes().iter().enumerate() {
            at ^= usize::from(byte);
            let Some(&unit) = self.units.get(at) else { break };
            if byte == 0 || unit & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            at ^= offset(unit);
            if unit >> 8 & 1 == 1 {
                let leaf = self.units.get(at).map(|leaf| (leaf & !(1 << 31)) as usize);
                longest =
                    leaf.and_then(|leaf| self.replacement(leaf)).map(|found| (index + 1, found)).or(longest);
            }
        }
        longest.filter(|&(length, _)| text.is_char_boundary(length))
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.units.capacity() * size_of::<u32>() + self.replacements.capacity()
    }

    /// The replacement that begins at `start`, if it is text.
    fn replacement(&self, start: usize) -> Option<&str> {
        let from = self.replacements.get(start..)?;
        let end = from.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&from[..end]).ok()
    }
}

/// How far the children of a unit are.
fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trie by hand: `a` becomes `x`, `ab` becomes nothing.
    fn table() -> Vec<u8> {
        let mut units = [0u32; 256];
        let unit = |label: u8, leaf: u32, offset: u32| u32::from(label) | leaf << 8 | offset << 10;
        units[0] = unit(0, 0, 1);
        let a = 1 ^ usize::from(b'a');
        units[a] = unit(b'a', 1, 4);
        let under_a = a ^ 4;
        units[under_a] = 1 << 31;
        let b = under_a ^ usize::from(b'b');
        units[b] = unit(b'b', 1, 8);
        units[b ^ 8] = 1 << 31 | 2;
        let mut table = 1024u32.to_le_bytes().to_vec();
        table.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        table.extend(b"x\0\0");
        table
    }

    #[test]
    fn the_longest_beginning_is_replaced() {
        let map = CharsMap::new(&table()).unwrap();
        assert_eq!(map.longest("ac"), Some((1, "x")));
        assert_eq!(map.longest("abc"), Some((2, "")));
        assert_eq!(map.longest("ca"), None);
        assert_eq!(map.longest(""), None);
    }

    #[test]
    fn cut_off_tables_are_refused() {
        let table = table();
        assert_eq!(CharsMap::new(&table[..3]).unwrap_err(), TokenizerError::MalformedCharsmap);
        assert_eq!(CharsMap::new(&table[..1000]).unwrap_err(), TokenizerError::MalformedCharsmap);
        assert!(CharsMap::new(&table[..1028]).unwrap().longest("a").is_none());
    }
}
