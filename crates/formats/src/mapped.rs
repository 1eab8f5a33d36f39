//! A file mapped read-only into memory: the one place of this crate with `unsafe`.
//!
//! # The accepted risk
//! While a map lives, another process may write to the file or cut it short. A write shows up as changed bytes under a
//! shared slice; a cut makes the next access to the missing pages a fatal signal. Neither can be prevented from here,
//! and reading gigabytes of weights into private memory instead would double the footprint and the time of every load.
//! So the contract is the usual one of model loaders: a model file must not be modified while it is open. Replacing it
//! by renaming another file over it is safe.
#![allow(unsafe_code, reason = "memory mapping; the module documentation names the accepted risk")]

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};

use memmap2::Mmap;

/// The bytes of a mapped file.
#[derive(Debug)]
pub(crate) struct Mapped {
    map: Mmap,
}

impl Mapped {
    /// Maps the whole of a file, which must not be empty.
    pub(crate) fn new(file: &File) -> io::Result<Mapped> {
        // SAFETY: the map is private to this value and only ever read. That nobody modifies the file meanwhile is the
        // accepted risk named above.
        let map = unsafe { Mmap::map(file)? };
        Ok(Mapped { map })
    }

    /// Tells the kernel that `range` will soon be read. A hint: failure changes nothing.
    pub(crate) fn will_need(&self, range: Range<usize>) {
        #[cfg(unix)]
        {
            let _ = self.map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Tells the kernel that the pages wholly inside `range` may leave memory; a later read brings them back from the
    /// file. A hint: failure changes nothing.
    pub(crate) fn dont_need(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Some(inner) = inner_pages(range) {
            // SAFETY: the map is a shared read-only view of a file, so dropped pages are read again from that file
            // with the same content; no private modification exists that could be lost.
            let _ = unsafe {
                self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, inner.start, inner.len())
            };
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

/// The largest part of `range` whose ends are page boundaries, whatever the page size up to 64 KiB.
#[cfg(unix)]
fn inner_pages(range: Range<usize>) -> Option<Range<usize>> {
    const LARGEST_PAGE: usize = 64 * 1024;
    let start = range.start.checked_next_multiple_of(LARGEST_PAGE)?;
    let end = range.end / LARGEST_PAGE * LARGEST_PAGE;
    (start < end).then_some(start..end)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn inner_pages_never_leave_the_range() {
        let page = 64 * 1024;
        assert_eq!(inner_pages(0..page), Some(0..page));
        assert_eq!(inner_pages(1..page), None);
        assert_eq!(inner_pages(1..2 * page + 5), Some(page..2 * page));
        assert_eq!(inner_pages(page..2 * page - 1), None);
        assert_eq!(inner_pages(usize::MAX - 3..usize::MAX), None);
    }
}
