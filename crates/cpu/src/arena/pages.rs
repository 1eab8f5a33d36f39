//! A reserved range of addresses whose pages are brought into memory and given back.

use std::io;
use std::ops::Range;

use minfer_graph::{BackendError, KvGranule};

use crate::memory::Anonymous;

/// One mapping. Its first byte is at a multiple of the granule.
#[derive(Debug)]
pub(super) struct Pages {
    map: Anonymous,
    start: usize,
    len: usize,
    /// Whether the system populates on demand; otherwise pages are touched.
    populates: bool,
}

impl Pages {
    /// Reserves addresses for `len` bytes; takes no memory.
    ///
    /// # Errors
    /// The system refused.
    pub(super) fn reserve(len: usize, granule: usize, huge: bool) -> io::Result<Pages> {
        let too_long = || io::Error::from(io::ErrorKind::OutOfMemory);
        let len = len.max(1).checked_next_multiple_of(granule).ok_or_else(too_long)?;
        let mapped = len.checked_add(granule - page_bytes()).ok_or_else(too_long)?;
        let map = Anonymous::reserve(mapped)?;
        let start = map.as_mut_ptr().align_offset(granule);
        if huge {
            map.advise_huge_pages();
        }
        let populates = map.populate(0..0).is_ok();
        Ok(Pages { map, start, len, populates })
    }

    /// Bytes of the range.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether a refusal of memory shows as an error.
    #[cfg(test)]
    pub(super) fn populates(&self) -> bool {
        self.populates
    }

    /// Its first byte.
    pub(super) fn as_mut_ptr(&self) -> *mut u8 {
        // SAFETY: `start` plus the length is within the mapping.
        unsafe { self.map.as_mut_ptr().add(self.start) }
    }

    /// Brings whole granules into memory, so that a refusal shows here and not in the middle of a
    /// step. Pages that were in memory may become zero.
    ///
    /// # Errors
    /// The system refused; some of the pages may be in memory.
    pub(super) fn populate(&mut self, bytes: Range<usize>) -> io::Result<()> {
        debug_assert!(bytes.end <= self.len);
        if self.populates {
            return self.map.populate(self.start + bytes.start..self.start + bytes.end);
        }
        for offset in bytes.step_by(page_bytes()) {
            // SAFETY: the byte is inside the mapping, and `&mut self` excludes every view of it.
            unsafe { self.as_mut_ptr().add(offset).write_volatile(0) };
        }
        Ok(())
    }

    /// Gives whole granules back to the system. They read as zeros afterwards.
    ///
    /// # Errors
    /// The system keeps them.
    pub(super) fn discard(&mut self, bytes: Range<usize>) -> io::Result<()> {
        debug_assert!(bytes.end <= self.len);
        // SAFETY: `&mut self` excludes every borrow of the bytes.
        unsafe { self.map.discard(self.start + bytes.start..self.start + bytes.end) }
    }
}

/// Bytes of a granule.
///
/// # Errors
/// The system has no huge pages, or the number of bytes is not a power of two from the page on.
pub(crate) fn granule_bytes(granule: KvGranule) -> Result<usize, BackendError> {
    let page = page_bytes();
    let refused = |reason| Err(BackendError::BadGranule { granule, reason });
    match granule {
        KvGranule::Page => Ok(page),
        KvGranule::Huge => match huge_page_bytes() {
            Some(bytes) => Ok(bytes),
            None => refused("the system does not tell of huge pages".to_owned()),
        },
        KvGranule::Bytes(bytes) => match usize::try_from(bytes) {
            Ok(bytes) if bytes.is_power_of_two() && bytes >= page => Ok(bytes),
            _ => refused(format!("a power of two from the page of {page} bytes on is needed")),
        },
    }
}

/// Bytes of the system's page.
pub(super) fn page_bytes() -> usize {
    #[cfg(unix)]
    {
        // SAFETY: a query without arguments in memory.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).expect("the system has a page size")
    }
    #[cfg(not(unix))]
    4096
}

fn huge_page_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").ok()?;
    text.trim().parse().ok().filter(|bytes: &usize| bytes.is_power_of_two())
}
