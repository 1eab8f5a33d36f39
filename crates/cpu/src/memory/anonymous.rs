//! Zeroed memory straight from the system, page by page.
//!
//! Under Miri, which knows no `madvise`, a vector takes the mapping's place.

use std::io;
use std::ops::Range;

#[cfg(not(miri))]
pub(crate) use mapped::Anonymous;
#[cfg(miri)]
pub(crate) use vector::Anonymous;

#[cfg(not(miri))]
mod mapped {
    use memmap2::{MmapOptions, MmapRaw};

    use super::{Range, io};

    /// One anonymous mapping. It starts at a page.
    #[derive(Debug)]
    pub(crate) struct Anonymous(MmapRaw);

    impl Anonymous {
        /// Memory that counts as the process's own from now on.
        pub(crate) fn new(bytes: usize) -> io::Result<Anonymous> {
            Ok(Anonymous(MmapOptions::new().len(bytes).map_anon()?.into()))
        }

        /// Addresses alone.
        pub(crate) fn reserve(bytes: usize) -> io::Result<Anonymous> {
            Ok(Anonymous(MmapOptions::new().len(bytes).no_reserve_swap().map_anon()?.into()))
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }

        pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
            self.0.as_mut_ptr()
        }

        /// Asks for huge pages. Only advice: a system without them serves small ones.
        pub(crate) fn advise_huge_pages(&self) {
            #[cfg(target_os = "linux")]
            let _ = self.0.advise(memmap2::Advice::HugePage);
        }

        /// Brings pages into memory.
        ///
        /// # Errors
        /// The system refused, or does not populate on demand.
        #[cfg(target_os = "linux")]
        pub(crate) fn populate(&self, bytes: Range<usize>) -> io::Result<()> {
            self.0.advise_range(memmap2::Advice::PopulateWrite, bytes.start, bytes.len())
        }

        /// Other systems do not populate on demand.
        #[cfg(not(target_os = "linux"))]
        pub(crate) fn populate(&self, _bytes: Range<usize>) -> io::Result<()> {
            Err(io::Error::from(io::ErrorKind::Unsupported))
        }

        /// Gives pages back to the system. They read as zeros afterwards.
        ///
        /// # Errors
        /// The system keeps them.
        ///
        /// # Safety
        /// Nothing borrows the bytes.
        #[cfg(target_os = "linux")]
        pub(crate) unsafe fn discard(&self, bytes: Range<usize>) -> io::Result<()> {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: nothing borrows the bytes by this function's contract, and zeros are valid
            // bytes.
            unsafe { self.0.unchecked_advise_range(advice, bytes.start, bytes.len()) }
        }

        /// Other systems have no call that surely gives pages of a mapping back.
        ///
        /// # Safety
        /// None is needed.
        #[cfg(not(target_os = "linux"))]
        pub(crate) unsafe fn discard(&self, _bytes: Range<usize>) -> io::Result<()> {
            Err(io::Error::from(io::ErrorKind::Unsupported))
        }
    }
}

#[cfg(miri)]
mod vector {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    use super::{Range, io};

    const PAGE: usize = 4096;

    /// Memory of the allocator that starts at a page.
    #[derive(Debug)]
    pub(crate) struct Anonymous {
        start: *mut u8,
        layout: Layout,
    }

    // SAFETY: it owns its memory; who reads and writes it follows the rules of `Region` and
    // `SharedSlice`.
    unsafe impl Send for Anonymous {}
    // SAFETY: as above.
    unsafe impl Sync for Anonymous {}

    impl Anonymous {
        pub(crate) fn new(bytes: usize) -> io::Result<Anonymous> {
            let refused = || io::Error::from(io::ErrorKind::OutOfMemory);
            // What no process has is not asked of the allocator.
            let most = 1 << 40;
            let bytes = Some(bytes.max(1)).filter(|&bytes| bytes < most).ok_or_else(refused)?;
            let layout = Layout::from_size_align(bytes, PAGE).map_err(|_| refused())?;
            // SAFETY: the layout is not empty.
            let start = unsafe { alloc_zeroed(layout) };
            if start.is_null() { Err(refused()) } else { Ok(Anonymous { start, layout }) }
        }

        pub(crate) fn reserve(bytes: usize) -> io::Result<Anonymous> {
            Anonymous::new(bytes)
        }

        pub(crate) fn len(&self) -> usize {
            self.layout.size()
        }

        pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
            self.start
        }

        pub(crate) fn advise_huge_pages(&self) {}

        pub(crate) fn populate(&self, _bytes: Range<usize>) -> io::Result<()> {
            Err(io::Error::from(io::ErrorKind::Unsupported))
        }

        /// # Safety
        /// Nothing borrows the bytes.
        pub(crate) unsafe fn discard(&self, bytes: Range<usize>) -> io::Result<()> {
            assert!(bytes.start <= bytes.end && bytes.end <= self.len());
            // SAFETY: in bounds, and not borrowed by this function's contract.
            unsafe { self.start.add(bytes.start).write_bytes(0, bytes.len()) };
            Ok(())
        }
    }

    impl Drop for Anonymous {
        fn drop(&mut self) {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(self.start, self.layout) };
        }
    }
}
