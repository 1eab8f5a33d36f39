//! Memory of the KV cache: one reserved range of addresses per group, pages present only where blocks are in use.

mod rows;

use std::any::Any;
use std::ops::Range;

use memmap2::{MmapOptions, MmapRaw};
use minfer_graph::backend::{BackendError, KvArena, KvRows};
use minfer_graph::{KvGroupSpec, KvSpec};

use crate::threads::SharedSlice;

/// Blocks of every group. Block `b` of a group lies at `b * bytes_per_block` of the group's range and never moves.
#[derive(Debug)]
pub(crate) struct CpuArena {
    spec: KvSpec,
    groups: Vec<Group>,
    page: usize,
}

/// One group's range of addresses.
#[derive(Debug)]
struct Group {
    map: MmapRaw,
    block_bytes: usize,
    committed: Vec<bool>,
    pages: usize,
}

/// One group's memory in the three widths that formats need: the same bytes.
#[derive(Clone, Copy)]
pub(crate) struct KvCells<'a> {
    /// As f32.
    pub(crate) singles: SharedSlice<'a, f32>,
    /// As f16 or bf16.
    pub(crate) halves: SharedSlice<'a, u16>,
    /// As pairs of bf16.
    pub(crate) pairs: SharedSlice<'a, u32>,
}

impl CpuArena {
    /// Reserves addresses for `max_blocks` blocks of each group; takes no memory.
    ///
    /// # Errors
    /// A group's numbers are invalid, or the system refused the addresses.
    pub(crate) fn new(spec: &KvSpec) -> Result<CpuArena, BackendError> {
        let groups =
            spec.groups.iter().zip(&spec.max_blocks).map(|(group, &blocks)| Group::new(group, blocks));
        let groups = groups.collect::<Result<_, _>>()?;
        Ok(CpuArena { spec: spec.clone(), groups, page: page_bytes() })
    }

    /// A group's memory. What is committed while the view lives stays in place; blocks that are not committed read as zeros.
    pub(crate) fn cells(&self, group: usize) -> KvCells<'_> {
        self.groups[group].cells()
    }
}

impl KvArena for CpuArena {
    fn spec(&self) -> &KvSpec {
        &self.spec
    }

    fn commit(&mut self, group: usize, block: u32) -> Result<(), BackendError> {
        self.groups[group].commit(block as usize, self.page)
    }

    fn release(&mut self, group: usize, block: u32) {
        self.groups[group].release(block as usize, self.page);
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
        self.groups.iter().map(|group| (group.pages * self.page) as u64).sum()
    }

    fn reserved_bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.map.len() as u64).sum()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Group {
    fn new(spec: &KvGroupSpec, blocks: u32) -> Result<Group, BackendError> {
        spec.validate().map_err(|error| BackendError::BadBatch(error.to_string()))?;
        let bytes = spec.bytes_per_block().saturating_mul(u64::from(blocks));
        let refused = || BackendError::OutOfMemory { what: "addresses of the KV cache".to_owned(), bytes };
        let len = usize::try_from(bytes).map_err(|_| refused())?;
        let map = MmapOptions::new().len(len.max(1)).no_reserve_swap().map_anon().map_err(|_| refused())?;
        let committed = vec![false; blocks as usize];
        Ok(Group {
            map: MmapRaw::from(map),
            block_bytes: spec.bytes_per_block() as usize,
            committed,
            pages: 0,
        })
    }

    /// Makes the block's pages present and its bytes zero.
    fn commit(&mut self, block: usize, page: usize) -> Result<(), BackendError> {
        assert!(!self.committed[block], "block {block} is committed twice");
        let taken = self.pages_of_no_one_else(block, page);
        let bytes = (block * self.block_bytes)..(block + 1) * self.block_bytes;
        self.populate(taken.start * page..(taken.end * page).min(self.map.len()))?;
        // SAFETY: the bytes are inside the mapping, and `&mut self` excludes every view of them.
        unsafe { self.map.as_mut_ptr().add(bytes.start).write_bytes(0, bytes.len()) };
        self.pages += taken.len();
        self.committed[block] = true;
        Ok(())
    }

    /// Gives back the pages in which no other block lies.
    fn release(&mut self, block: usize, page: usize) {
        assert!(self.committed[block], "block {block} is released but was not committed");
        self.committed[block] = false;
        let freed = self.pages_of_no_one_else(block, page);
        self.pages -= freed.len();
        let bytes = freed.start * page..(freed.end * page).min(self.map.len());
        if !bytes.is_empty() {
            self.discard(bytes);
        }
    }

    /// The pages that the block touches and no other committed block does.
    fn pages_of_no_one_else(&self, block: usize, page: usize) -> std::ops::Range<usize> {
        let (start, end) = (block * self.block_bytes, (block + 1) * self.block_bytes);
        let (mut first, mut last) = (start / page, end.div_ceil(page));
        let taken = |page_index: usize| {
            let blocks =
                page_index * page / self.block_bytes..((page_index + 1) * page).div_ceil(self.block_bytes);
            blocks.into_iter().any(|other| other != block && self.committed.get(other) == Some(&true))
        };
        if first < last && taken(first) {
            first += 1;
        }
        if first < last && taken(last - 1) {
            last -= 1;
        }
        first..last
    }

    /// Takes memory for whole pages, so that a refusal shows here and not in the middle of a step.
    fn populate(&self, bytes: std::ops::Range<usize>) -> Result<(), BackendError> {
        #[cfg(target_os = "linux")]
        if !bytes.is_empty()
            && let Err(error) =
                self.map.advise_range(memmap2::Advice::PopulateWrite, bytes.start, bytes.len())
            && error.kind() == std::io::ErrorKind::OutOfMemory
        {
            let what = "a block of the KV cache".to_owned();
            return Err(BackendError::OutOfMemory { what, bytes: bytes.len() as u64 });
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn discard(&self, bytes: std::ops::Range<usize>) {
        // SAFETY: the caller holds `&mut self`, so nothing borrows the bytes; any content of them is a valid f32 or integer.
        let discarded = unsafe {
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, bytes.start, bytes.len())
        };
        // The memory is only kept longer when the system refuses; a later commit zeroes it.
        let _ = discarded;
    }

    #[cfg(not(target_os = "linux"))]
    fn discard(&self, _bytes: std::ops::Range<usize>) {}

    /// All bytes; those of blocks that are not committed read as zeros.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as the borrow and is initialised; only steps write through views, and they end
        // before the arena is read.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr(), self.map.len()) }
    }

    /// All bytes. Only those of committed blocks may be written.
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `&mut self` excludes every other view.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr(), self.map.len()) }
    }

    fn cells(&self) -> KvCells<'_> {
        let (base, bytes) = (self.map.as_mut_ptr(), self.map.len());
        // SAFETY: the mapping lives as long as the borrow, is aligned to a page and initialised (anonymous memory is zero), and
        // every bit pattern is valid. `commit` and `release` need `&mut` and so exclude views; steps keep the promise of
        // `SharedSlice` between workers.
        unsafe {
            KvCells {
                singles: SharedSlice::new(base.cast(), bytes / 4),
                halves: SharedSlice::new(base.cast(), bytes / 2),
                pairs: SharedSlice::new(base.cast(), bytes / 4),
            }
        }
    }
}

/// Bytes of the system's page, as far as the accounting needs it.
fn page_bytes() -> usize {
    if cfg!(all(target_os = "macos", target_arch = "aarch64")) { 16384 } else { 4096 }
}

#[cfg(test)]
mod tests {
    use minfer_graph::{KvFormat, KvLayout};

    use super::*;

    fn arena(k_dim: u32, blocks: u32) -> CpuArena {
        let group = KvGroupSpec {
            layers: vec![0],
            kv_heads: 1,
            k_dim,
            v_dim: k_dim,
            window: None,
            k_format: KvFormat::F16,
            v_format: KvFormat::F16,
            layout: KvLayout::LaneMajor,
            block_tokens: 16,
        };
        CpuArena::new(&KvSpec { groups: vec![group], max_blocks: vec![blocks] }).unwrap()
    }

    #[test]
    fn a_block_is_zero_each_time_it_is_committed() {
        for k_dim in [24, 80, 256] {
            let mut arena = arena(k_dim, 5);
            let words = arena.spec.groups[0].bytes_per_block() as usize / 2;
            for block in [1u32, 2, 3] {
                arena.commit(0, block).unwrap();
                arena.cells(0).halves.get_mut(block as usize * words..(block as usize + 1) * words).fill(7);
            }
            arena.release(0, 2);
            arena.commit(0, 2).unwrap();
            let value = |block: usize| arena.cells(0).halves.get(block * words..(block + 1) * words).to_vec();
            assert!(value(2).iter().all(|&word| word == 0));
            assert!(value(1).iter().chain(&value(3)).all(|&word| word == 7));
        }
    }

    #[test]
    fn taken_bytes_are_the_pages_of_live_blocks() {
        // Blocks of 1536 bytes: several in a page, some across two.
        let mut arena = arena(24, 40);
        let mut live = [false; 40];
        let mut numbers = crate::math::testing::Numbers(3);
        assert_eq!(arena.committed_bytes(), 0);
        for _ in 0..500 {
            let block = numbers.below(40);
            if live[block] {
                arena.release(0, block as u32);
            } else {
                arena.commit(0, block as u32).unwrap();
            }
            live[block] = !live[block];
            let pages: std::collections::BTreeSet<usize> = (0..40)
                .filter(|&block| live[block])
                .flat_map(|block| block * 1536 / 4096..((block + 1) * 1536).div_ceil(4096))
                .collect();
            assert_eq!(arena.committed_bytes(), pages.len() as u64 * 4096);
        }
        assert_eq!(arena.reserved_bytes(), 40 * 1536);
    }

    #[test]
    fn addresses_that_do_not_exist_are_refused() {
        let mut spec = arena(24, 1).spec.clone();
        spec.groups[0].kv_heads = u32::MAX;
        spec.max_blocks[0] = u32::MAX;
        assert!(matches!(CpuArena::new(&spec), Err(BackendError::OutOfMemory { .. })));
    }
}
