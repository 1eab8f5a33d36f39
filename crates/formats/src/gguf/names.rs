//! A sorted index of names, for lookups and duplicate checks.

/// Positions sorted by name, for lookups and for finding duplicates.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    order: Vec<usize>,
}

impl NameIndex {
    /// Indexes `count` names.
    ///
    /// # Errors
    /// Two names are equal; the position of the later one.
    pub(super) fn new<'a>(count: usize, name_of: impl Fn(usize) -> &'a [u8]) -> Result<NameIndex, usize> {
        let mut order: Vec<usize> = (0..count).collect();
        // A stable sort: of equal names the later position comes second.
        order.sort_by_key(|&position| name_of(position));
        match order.windows(2).find(|pair| name_of(pair[0]) == name_of(pair[1])) {
            Some(pair) => Err(pair[1]),
            None => Ok(NameIndex { order }),
        }
    }

    /// Position of a name.
    pub(super) fn find<'a>(&self, name: &[u8], name_of: impl Fn(usize) -> &'a [u8]) -> Option<usize> {
        let found = self.order.binary_search_by(|&position| name_of(position).cmp(name)).ok()?;
        Some(self.order[found])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_and_the_later_duplicate() {
        let names: [&[u8]; 4] = [b"b", b"a", b"c", b""];
        let index = NameIndex::new(4, |i| names[i]).unwrap();
        for (i, name) in names.iter().enumerate() {
            assert_eq!(index.find(name, |i| names[i]), Some(i));
        }
        assert_eq!(index.find(b"d", |i| names[i]), None);
        let names: [&[u8]; 3] = [b"x", b"y", b"x"];
        assert_eq!(NameIndex::new(3, |i| names[i]).unwrap_err(), 2);
    }
}
