//! A reserved range of addresses whose pages are brought into memory and given back.

use std::io;
use std::ops::Range;

use memmap2::{MmapOptions, MmapRaw};
use minfer_graph::{BackendError, KvGranule};

/// One mapping. Its first byte is at a multiple of the granule.
#[derive(Debug)]
pub(super) struct Pages {
    map: MmapRaw,
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
        let map = MmapRaw::from(MmapOptions::new().len(mapped).no_reserve_swap().map_anon()?);
        let start = map.as_ptr().align_offset(granule);
        let populates = prepare(&map, huge);
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

    /// Brings whole granules into memory, so that a refusal shows here and not in the middle of a step. Pages that were in
    /// memory may become zero.
    ///
    /// # Errors
    /// The system refused; some of the pages may be in memory.
    pub(super) fn populate(&mut self, bytes: Range<usize>) -> io::Result<()> {
        debug_assert!(bytes.end <= self.len);
        #[cfg(target_os = "linux")]
        if self.populates {
            return self.map.advise_range(
                memmap2::Advice::PopulateWrite,
                self.start + bytes.start,
                bytes.len(),
            );
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
    #[cfg(target_os = "linux")]
    pub(super) fn discard(&mut self, bytes: Range<usize>) -> io::Result<()> {
        debug_assert!(bytes.end <= self.len);
        // SAFETY: `&mut self` excludes every borrow of the bytes; any content of them is a valid number.
        unsafe {
            self.map.unchecked_advise_range(
                memmap2::UncheckedAdvice::DontNeed,
                self.start + bytes.start,
                bytes.len(),
            )
        }
    }

    /// Other systems have no call that surely gives pages of a mapping back.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn discard(&mut self, _bytes: Range<usize>) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

/// Asks for huge pages, and tells whether the system populates on demand.
#[cfg(target_os = "linux")]
fn prepare(map: &MmapRaw, huge: bool) -> bool {
    if huge {
        // Only advice: a system without huge pages serves small ones.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    map.advise_range(memmap2::Advice::PopulateWrite, 0, 0).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn prepare(_map: &MmapRaw, _huge: bool) -> bool {
    false
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
