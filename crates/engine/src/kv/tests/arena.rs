//! An arena that remembers what each cell holds, and refuses when told to.

use std::collections::BTreeMap;
use std::ops::Range;

use minfer_graph::backend::{KvArena, KvRows};
use minfer_graph::{BackendError, KvFormat, KvGroupSpec, KvLayout, KvSpec};

/// A row: what it was computed from, and where it was rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) value: u64,
    pub(super) rotated_at: u32,
}

/// Bytes of a row as this arena reads and writes it.
const ROW_BYTES: usize = 12;

/// Which of the coming commits and copies fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// This one.
    Once(u32),
    /// This one and all that follow.
    From(u32),
}

#[derive(Debug, Clone)]
pub(super) struct TestArena {
    spec: KvSpec,
    pub(super) blocks: BTreeMap<(usize, u32), Vec<Option<Cell>>>,
    pub(super) fault: Option<Fault>,
    /// Commits and copies since the fault was set.
    calls: u32,
    /// Whether it came to the fault.
    pub(super) failed: bool,
}

impl TestArena {
    pub(super) fn new(spec: &KvSpec) -> TestArena {
        TestArena { spec: spec.clone(), blocks: BTreeMap::new(), fault: None, calls: 0, failed: false }
    }

    pub(super) fn set_fault(&mut self, fault: Option<Fault>) {
        (self.fault, self.calls, self.failed) = (fault, 0, false);
    }

    pub(super) fn cell(&mut self, group: usize, cell: u32) -> &mut Option<Cell> {
        let block_tokens = self.spec.groups[group].block_tokens;
        let rows = self.blocks.get_mut(&(group, cell / block_tokens)).expect("the block is committed");
        &mut rows[(cell % block_tokens) as usize]
    }

    /// A commit or copy is about to happen.
    fn call(&mut self, what: &str) -> Result<(), BackendError> {
        let call = self.calls;
        self.calls += 1;
        let fails = match self.fault {
            Some(Fault::Once(at)) => call == at,
            Some(Fault::From(at)) => call >= at,
            None => false,
        };
        self.failed |= fails;
        match fails {
            true => Err(BackendError::OutOfMemory { what: what.to_owned(), bytes: 256 }),
            false => Ok(()),
        }
    }
}

impl KvArena for TestArena {
    fn spec(&self) -> &KvSpec {
        &self.spec
    }

    fn commit(&mut self, group: usize, block: u32) -> Result<(), BackendError> {
        self.call("KV block")?;
        let rows = vec![None; self.spec.groups[group].block_tokens as usize];
        let twice = self.blocks.insert((group, block), rows).is_some();
        assert!(!twice, "block {block} of group {group} is committed twice");
        Ok(())
    }

    fn release(&mut self, group: usize, block: u32) {
        let known = self.blocks.remove(&(group, block)).is_some();
        assert!(known, "block {block} of group {group} is not committed");
    }

    fn copy_rows(&mut self, group: usize, from: u32, to: u32, rows: Range<u32>) -> Result<(), BackendError> {
        let failed = self.call("KV copy");
        let rows = rows.start as usize..rows.end as usize;
        let mut copied = self.blocks[&(group, from)][rows.clone()].to_vec();
        if failed.is_err() {
            copied.fill(Some(Cell { value: 0xbad, rotated_at: 0 }));
        }
        let target = self.blocks.get_mut(&(group, to)).expect("the block is committed");
        target[rows].copy_from_slice(&copied);
        failed
    }

    fn read_rows(&self, rows: &KvRows, out: &mut [u8]) -> Result<(), BackendError> {
        let cells = &self.blocks[&(rows.group, rows.block)][rows.rows.start as usize..rows.rows.end as usize];
        for (cell, out) in cells.iter().zip(out.chunks_exact_mut(ROW_BYTES)) {
            let cell = cell.expect("only rows that are stored are read");
            out[..8].copy_from_slice(&cell.value.to_le_bytes());
            out[8..].copy_from_slice(&cell.rotated_at.to_le_bytes());
        }
        Ok(())
    }

    fn write_rows(&mut self, rows: &KvRows, bytes: &[u8]) -> Result<(), BackendError> {
        let target = self.blocks.get_mut(&(rows.group, rows.block)).expect("the block is committed");
        let target = &mut target[rows.rows.start as usize..rows.rows.end as usize];
        for (cell, bytes) in target.iter_mut().zip(bytes.chunks_exact(ROW_BYTES)) {
            let value = u64::from_le_bytes(*bytes.first_chunk().expect("twelve bytes"));
            let rotated_at = u32::from_le_bytes(*bytes.last_chunk().expect("twelve bytes"));
            *cell = Some(Cell { value, rotated_at });
        }
        Ok(())
    }

    fn committed_bytes(&self) -> u64 {
        self.blocks.keys().map(|&(group, _)| self.spec.groups[group].bytes_per_block()).sum()
    }

    fn reserved_bytes(&self) -> u64 {
        0
    }

    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Groups of one layer each, by block size, window and number of blocks.
pub(super) fn spec(groups: &[(u32, Option<u32>, u32)]) -> KvSpec {
    let group = |(layer, &(block_tokens, window, _)): (usize, &(u32, Option<u32>, u32))| KvGroupSpec {
        layers: vec![layer as u32],
        kv_heads: 1,
        k_dim: 2,
        v_dim: 2,
        window,
        k_format: KvFormat::F32,
        v_format: KvFormat::F32,
        layout: KvLayout::LaneMajor,
        block_tokens,
    };
    KvSpec {
        groups: groups.iter().enumerate().map(group).collect(),
        max_blocks: groups.iter().map(|&(_, _, blocks)| blocks).collect(),
    }
}

/// Where the first side of a run's rows lies.
pub(super) fn place(group: usize, block: u32, rows: Range<u32>) -> KvRows {
    KvRows { group, layer_index: 0, side: minfer_graph::KvSide::K, block, rows }
}

/// Bytes of `rows` rows.
pub(super) fn buffer(rows: u32) -> Vec<u8> {
    vec![0; rows as usize * ROW_BYTES]
}
