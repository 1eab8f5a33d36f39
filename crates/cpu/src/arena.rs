//! Memory of the KV cache: one reserved range of addresses for each group, in memory only where
//! blocks are in use.
//!
//! Memory is taken and given back in granules (the page, unless told otherwise). A granule is
//! populated when the first block in it is committed, and given back when the last block in it is
//! released. Some stay warm, since taking memory costs as much as writing it. A block (64 positions
//! of all layers) never moves: its number fixes its address, and a sequence's block table says
//! where its blocks are.
//!
//! What a cell holds before its row is stored is left open. With debug assertions it is NaN, so
//! that every test would see a kernel that reads it.
//!
//! `graph::KvStrides` is the one description of where bytes lie inside a block. Stores, attention's
//! tiles and canonical rows all follow it, so layouts differ in strides alone, chosen once for each
//! tile.

mod granules;
mod pages;
mod rows;

use std::any::Any;
use std::io;
use std::ops::Range;

use minfer_graph::backend::{BackendError, KvArena, KvRows};
use minfer_graph::{KvGranule, KvGroupSpec, KvMemory, KvMemoryStats, KvSpec};

use crate::threads::SharedSlice;
use granules::Granules;
use pages::Pages;
pub(crate) use pages::granule_bytes;

/// What a cell holds that was never stored, in builds that check: not a number in every format that
/// knows one.
const POISON: u8 = 0xff;

/// Blocks of every group. Block `b` of a group lies at `b * bytes_per_block` of the group's range
/// and never moves.
#[derive(Debug)]
pub(crate) struct CpuArena {
    spec: KvSpec,
    groups: Vec<Group>,
    granule: usize,
    limit: Option<u64>,
    keep_warm: usize,
}

/// One group's range of addresses.
#[derive(Debug)]
struct Group {
    pages: Pages,
    block_bytes: usize,
    granules: Granules,
}

/// One group's memory in the widths that formats need: the same bytes.
#[derive(Clone, Copy)]
pub(crate) struct KvCells<'a> {
    /// As f32.
    pub(crate) singles: SharedSlice<'a, f32>,
    /// As f16 or bf16.
    pub(crate) halves: SharedSlice<'a, u16>,
    /// As pairs of bf16.
    pub(crate) pairs: SharedSlice<'a, u32>,
    /// As they are.
    pub(crate) bytes: SharedSlice<'a, u8>,
}

/// An arena as the workers of a run share it.
pub(crate) struct SharedArena<'a> {
    /// The geometry.
    pub(crate) spec: &'a KvSpec,
    /// The memory of each group.
    pub(crate) cells: Vec<KvCells<'a>>,
}

impl CpuArena {
    /// Reserves addresses for `max_blocks` blocks of each group; takes no memory.
    ///
    /// # Errors
    /// A group's numbers or the granule are invalid, or the system refused the addresses.
    pub(crate) fn with_memory(spec: &KvSpec, memory: KvMemory) -> Result<CpuArena, BackendError> {
        let granule = granule_bytes(memory.granule)?;
        let huge = memory.granule == KvGranule::Huge;
        let pairs = spec.groups.iter().zip(&spec.max_blocks);
        let groups = pairs.map(|(group, &blocks)| Group::new(group, blocks, granule, huge));
        Ok(CpuArena {
            groups: groups.collect::<Result<_, _>>()?,
            spec: spec.clone(),
            granule,
            limit: memory.limit,
            keep_warm: usize::try_from(memory.keep_warm).unwrap_or(usize::MAX) / granule,
        })
    }

    /// As [`with_memory`](Self::with_memory), with what is usual.
    ///
    /// # Errors
    /// As there.
    #[cfg(test)]
    pub(crate) fn new(spec: &KvSpec) -> Result<CpuArena, BackendError> {
        CpuArena::with_memory(spec, KvMemory::default())
    }

    /// The memory of every group as workers share it for a run. No block is committed or released
    /// meanwhile. Blocks that are not committed may hold anything.
    ///
    /// # Safety
    /// The promise of [`SharedSlice::share`] is kept by every user of the views.
    pub(crate) unsafe fn shared(&mut self) -> SharedArena<'_> {
        // SAFETY: the promise is the caller's, and `&mut self` excludes every other view.
        let cells = self.groups.iter().map(|group| unsafe { group.cells() }).collect();
        SharedArena { spec: &self.spec, cells }
    }

    /// A group's memory for tests, which use one view at a time.
    #[cfg(test)]
    pub(crate) fn cells(&self, group: usize) -> KvCells<'_> {
        // SAFETY: a test's threads store rows of their own, as steps do.
        unsafe { self.groups[group].cells() }
    }

    fn bytes(&self, granules: usize) -> u64 {
        granules as u64 * self.granule as u64
    }

    fn committed(&self) -> usize {
        self.groups.iter().map(|group| group.granules.committed()).sum()
    }

    fn present(&self) -> usize {
        self.groups.iter().map(|group| group.granules.present()).sum()
    }

    /// Gives free blocks back, those with the highest numbers first, until at most `most` granules
    /// are in memory.
    ///
    /// # Errors
    /// The system keeps the memory, which then stays counted.
    fn trim(&mut self, most: usize) -> io::Result<()> {
        while self.present() > most {
            let highest = |(index, group): (usize, &Group)| Some((group.granules.highest_warm()?, index));
            let Some((block, group)) = self.groups.iter().enumerate().filter_map(highest).max() else {
                break;
            };
            self.groups[group].forget(block, self.granule)?;
        }
        Ok(())
    }

    /// Makes room below the limit for a block that is counted already, then brings it into memory.
    fn bring(&mut self, group: usize, absent: Range<usize>) -> Result<(), BackendError> {
        let bytes = absent.start * self.granule..absent.end * self.granule;
        let refused = |cause: io::Error| BackendError::OutOfMemory {
            what: format!("a block of the KV cache ({cause})"),
            bytes: bytes.len() as u64,
        };
        if let Some(limit) = self.limit {
            self.trim(usize::try_from(limit).unwrap_or(usize::MAX) / self.granule).map_err(refused)?;
        }
        if bytes.is_empty() {
            Ok(())
        } else {
            self.groups[group].pages.populate(bytes.clone()).map_err(refused)
        }
    }
}

impl KvArena for CpuArena {
    fn spec(&self) -> &KvSpec {
        &self.spec
    }

    fn commit(&mut self, group: usize, block: u32) -> Result<(), BackendError> {
        let block = block as usize;
        let wanted = self.bytes(self.groups[group].granules.wanted(block));
        let committed = self.bytes(self.committed());
        if let Some(limit) = self.limit.filter(|&limit| committed + wanted > limit) {
            return Err(BackendError::OverKvLimit { limit, committed, wanted });
        }
        let absent = self.groups[group].granules.commit(block);
        if let Err(error) = self.bring(group, absent) {
            let group = &mut self.groups[group];
            group.granules.release(block);
            // Where the system keeps what came in before the refusal it stays counted as warm.
            let _ = group.forget(block, self.granule);
            return Err(error);
        }
        if cfg!(debug_assertions) {
            self.groups[group].block_mut(block).fill(POISON);
        }
        Ok(())
    }

    fn release(&mut self, group: usize, block: u32) {
        self.groups[group].granules.release(block as usize);
        // Where the system keeps memory it stays counted as warm.
        let _ = self.trim(self.committed().saturating_add(self.keep_warm));
    }

    fn copy_rows(&mut self, group: usize, from: u32, to: u32, rows: Range<u32>) -> Result<(), BackendError> {
        rows::copy(&self.spec.groups[group], self.groups[group].bytes_mut(), from, to, rows);
        Ok(())
    }

    fn read_rows(&self, rows: &KvRows, out: &mut [u8]) -> Result<(), BackendError> {
        rows::read(&self.spec.groups[rows.group], self.groups[rows.group].bytes(), rows, out);
        Ok(())
    }

    fn write_rows(&mut self, rows: &KvRows, from: &[u8]) -> Result<(), BackendError> {
        rows::write(&self.spec.groups[rows.group], self.groups[rows.group].bytes_mut(), rows, from);
        Ok(())
    }

    fn committed_bytes(&self) -> u64 {
        self.bytes(self.committed())
    }

    fn reserved_bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.pages.len() as u64).sum()
    }

    fn memory(&self) -> KvMemoryStats {
        KvMemoryStats {
            reserved: self.reserved_bytes(),
            committed: self.committed_bytes(),
            warm: self.bytes(self.present() - self.committed()),
            granule: self.granule as u64,
            limit: self.limit,
        }
    }

    fn addresses(&self, group: usize) -> Option<Range<usize>> {
        let pages = &self.groups[group].pages;
        let start = pages.as_mut_ptr() as usize;
        Some(start..start + pages.len())
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Group {
    fn new(spec: &KvGroupSpec, blocks: u32, granule: usize, huge: bool) -> Result<Group, BackendError> {
        spec.validate().map_err(|error| BackendError::BadBatch(error.to_string()))?;
        let bytes = spec.bytes_per_block().saturating_mul(u64::from(blocks));
        let refused = |reason: String| BackendError::NoAddresses {
            what: "addresses of the KV cache".to_owned(),
            bytes,
            reason,
        };
        let len =
            usize::try_from(bytes).map_err(|_| refused("more than this machine addresses".to_owned()))?;
        let pages = Pages::reserve(len, granule, huge).map_err(|cause| refused(cause.to_string()))?;
        let block_bytes = spec.bytes_per_block() as usize;
        Ok(Group { pages, block_bytes, granules: Granules::new(block_bytes, granule, blocks as usize) })
    }

    /// Gives a free block's own granules back.
    fn forget(&mut self, block: usize, granule: usize) -> io::Result<()> {
        let own = self.granules.only_of(block);
        if !own.is_empty() {
            self.pages.discard(own.start * granule..own.end * granule)?;
        }
        self.granules.forget(block);
        Ok(())
    }

    fn block_mut(&mut self, block: usize) -> &mut [u8] {
        let start = block * self.block_bytes;
        let end = start + self.block_bytes;
        &mut self.bytes_mut()[start..end]
    }

    /// All bytes; blocks that are not committed may hold anything.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as the borrow and is initialised; views exist only
        // while the arena is borrowed exclusively (`shared`).
        unsafe { std::slice::from_raw_parts(self.pages.as_mut_ptr(), self.pages.len()) }
    }

    /// All bytes. Only those of committed blocks may be written.
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `&mut self` excludes every other view.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr(), self.pages.len()) }
    }

    /// # Safety
    /// The promise of [`SharedSlice::share`] is kept by every user of the views, and no slice of
    /// the memory is borrowed meanwhile.
    unsafe fn cells(&self) -> KvCells<'_> {
        let (base, bytes) = (self.pages.as_mut_ptr(), self.pages.len());
        // SAFETY: the mapping lives as long as the borrow, is aligned to a page and initialised
        // (anonymous memory is zero), and every bit pattern is valid. `commit` and `release` need
        // `&mut` and so exclude views. The promise is the caller's.
        unsafe {
            KvCells {
                singles: SharedSlice::new(base.cast(), bytes / 4),
                halves: SharedSlice::new(base.cast(), bytes / 2),
                pairs: SharedSlice::new(base.cast(), bytes / 4),
                bytes: SharedSlice::new(base.cast(), bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests;
