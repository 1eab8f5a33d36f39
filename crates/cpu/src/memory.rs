//! Memory of weights and of the workspace: anonymous mappings on huge pages where the system has
//! them.
//!
//! Weights are read from end to end for every token, and a product writes each token's outputs to
//! another page. With 4 KiB pages the walk of page tables costs a good part of the bandwidth. All
//! packed weights are in one [`Mapping`], so that small matrices share huge pages too. The
//! workspace is one region, whose pages are all taken when the model loads.

mod anonymous;

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

pub(crate) use anonymous::Anonymous;

/// Every region starts on a multiple of this: a cache line.
pub(crate) const ALIGNMENT: usize = 64;

/// The system refused memory.
#[derive(Debug, thiserror::Error)]
#[error("no memory for {bytes} bytes")]
pub struct MemoryError {
    /// Bytes asked for.
    pub bytes: usize,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// One mapping that hands out regions from its start to its end. Pages that are never written cost
/// nothing.
#[derive(Debug)]
pub(crate) struct Mapping {
    map: Arc<Anonymous>,
    used: usize,
}

impl Mapping {
    /// A mapping of `bytes` bytes, all zero.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn new(bytes: usize) -> Result<Mapping, MemoryError> {
        let refused = |source| MemoryError { bytes, source };
        let map = Anonymous::new(bytes.max(1)).map_err(refused)?;
        map.advise_huge_pages();
        Ok(Mapping { map: Arc::new(map), used: 0 })
    }

    /// Bytes of the memory that a region of `bytes` bytes takes.
    pub(crate) fn footprint(bytes: usize) -> usize {
        bytes.next_multiple_of(ALIGNMENT)
    }

    /// The next `bytes` bytes, or nothing when they are not left.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Region> {
        let start = self.used;
        let end = start.checked_add(bytes.checked_next_multiple_of(ALIGNMENT)?)?;
        if start.checked_add(bytes)? > self.map.len() {
            return None;
        }
        self.used = end.min(self.map.len());
        Some(Region { map: Arc::clone(&self.map), start, len: bytes })
    }
}

/// Memory of a [`Mapping`] that no other region shares. The mapping goes when its last region goes.
#[derive(Debug)]
pub(crate) struct Region {
    map: Arc<Anonymous>,
    start: usize,
    len: usize,
}

impl Region {
    /// A mapping of its own.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn new(bytes: usize) -> Result<Region, MemoryError> {
        Ok(Mapping::new(bytes)?.take(bytes).expect("a mapping holds what it was made for"))
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `take` keeps the range inside the mapping, which lives as long as `self` and is
        // readable and initialised (anonymous pages are zero). No other region overlaps it, so it
        // is only written through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.map.as_mut_ptr().add(self.start), self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; the mapping is writable and `&mut self` excludes every other
        // access to the range.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(self.start), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_do_not_overlap_and_outlive_what_gave_them() {
        let mut memory = Mapping::new(200).unwrap();
        let mut first = memory.take(65).unwrap();
        let mut second = memory.take(72).unwrap();
        assert!(memory.take(1).is_none());
        drop(memory);
        assert_eq!(second.as_ptr() as usize % ALIGNMENT, 0);
        first.fill(1);
        second.fill(2);
        assert!(first.iter().all(|&byte| byte == 1) && second.iter().all(|&byte| byte == 2));
    }

    #[test]
    fn refusal_is_an_error() {
        let error = Region::new(isize::MAX as usize - 4096).unwrap_err();
        assert!(error.to_string().contains("no memory for"), "{error}");
    }

    #[test]
    fn nothing_is_a_region_too() {
        assert_eq!(Region::new(0).unwrap().len(), 0);
    }
}
