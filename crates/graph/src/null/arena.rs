//! The KV arena of the null backend: the token of every cell.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;

use super::NullBackend;
use crate::backend::{BackendError, KvArena, KvRows};
use crate::{Batch, EVICTED, KvMemoryStats, KvSpec};

/// Remembers the token of every cell of committed blocks.
pub(super) struct NullArena {
    pub(super) backend: NullBackend,
    pub(super) spec: KvSpec,
    pub(super) blocks: HashMap<(usize, u32), Vec<Option<u32>>>,
    pub(super) reserved: u64,
    pub(super) limit: Option<u64>,
}

impl NullArena {
    fn cell(&mut self, group: usize, cell: u32) -> Result<&mut Option<u32>, BackendError> {
        let block_tokens = self.spec.groups[group].block_tokens;
        let (block, offset) = (cell / block_tokens, (cell % block_tokens) as usize);
        let not_committed = || {
            BackendError::BadBatch(format!("group {group}: block {block} of cell {cell} is not committed"))
        };
        self.blocks.get_mut(&(group, block)).map(|cells| &mut cells[offset]).ok_or_else(not_committed)
    }

    pub(super) fn store(&mut self, batch: &Batch<'_>) -> Result<(), BackendError> {
        for (group, rows) in batch.kv.iter().enumerate() {
            for (&cell, &token) in rows.cells.iter().zip(batch.token_ids) {
                *self.cell(group, cell)? = Some(token);
            }
        }
        Ok(())
    }

    /// The tokens of a row's sequence up to and with its own, the same by every group that still
    /// has them. A position that all groups have evicted counts as [`EVICTED`].
    pub(super) fn history(&mut self, batch: &Batch<'_>, row: u32) -> Result<Vec<u32>, BackendError> {
        let covers = |view: &&crate::SequenceView| view.rows.contains(&row);
        let sequence =
            batch.sequences.iter().position(|view| covers(&view)).expect("sequences cover all rows");
        if self.spec.groups.is_empty() {
            return Ok(vec![batch.token_ids[row as usize]]);
        }
        let tokens =
            (0..=batch.positions[row as usize]).map(|position| self.token(batch, sequence, position));
        tokens.collect()
    }

    fn token(&mut self, batch: &Batch<'_>, sequence: usize, position: u32) -> Result<u32, BackendError> {
        let mut token: Option<u32> = None;
        for (group, rows) in batch.kv.iter().enumerate() {
            let block_tokens = self.spec.groups[group].block_tokens;
            let Some(place) = rows.block_tables[sequence].place(position, block_tokens) else { continue };
            let cell = place.cell(block_tokens);
            let stored = self.cell(group, cell)?.ok_or_else(|| {
                let place = format!("group {group}, sequence {sequence}, position {position}");
                BackendError::BadBatch(format!("{place}: cell {cell} was never stored"))
            })?;
            if *token.get_or_insert(stored) != stored {
                let text = format!("sequence {sequence}: group {group} holds another token at {position}");
                return Err(BackendError::BadBatch(text));
            }
        }
        Ok(token.unwrap_or(EVICTED))
    }

    /// Bytes of a canonical row. The first four are its token plus one, 0 where nothing was stored.
    fn row_bytes(&self, rows: &KvRows) -> usize {
        self.spec.groups[rows.group].row_bytes(rows.side) as usize
    }
}

impl KvArena for NullArena {
    fn spec(&self) -> &KvSpec {
        &self.spec
    }

    fn commit(&mut self, group: usize, block: u32) -> Result<(), BackendError> {
        let spec = &self.spec.groups[group];
        assert!(block < self.spec.max_blocks[group], "group {group}: block {block} is outside of the arena");
        let (committed, wanted) = (self.committed_bytes(), spec.bytes_per_block());
        if let Some(limit) = self.limit.filter(|&limit| committed + wanted > limit) {
            return Err(BackendError::OverKvLimit { limit, committed, wanted });
        }
        self.backend.allocate("KV block", wanted)?;
        let empty = vec![None; spec.block_tokens as usize];
        let before = self.blocks.insert((group, block), empty);
        assert!(before.is_none(), "group {group}: block {block} is committed twice");
        let stats = &mut self.backend.state().stats;
        stats.commits += 1;
        stats.committed_blocks += 1;
        stats.peak_committed_blocks = stats.peak_committed_blocks.max(stats.committed_blocks);
        Ok(())
    }

    fn release(&mut self, group: usize, block: u32) {
        let before = self.blocks.remove(&(group, block));
        assert!(before.is_some(), "group {group}: block {block} is released, but not committed");
        let stats = &mut self.backend.state().stats;
        stats.releases += 1;
        stats.committed_blocks -= 1;
    }

    fn copy_rows(&mut self, group: usize, from: u32, to: u32, rows: Range<u32>) -> Result<(), BackendError> {
        let block_tokens = self.spec.groups[group].block_tokens;
        for row in rows {
            *self.cell(group, to * block_tokens + row)? = *self.cell(group, from * block_tokens + row)?;
        }
        Ok(())
    }

    fn read_rows(&self, rows: &KvRows, out: &mut [u8]) -> Result<(), BackendError> {
        if self.backend.state().read.burn() {
            return Err(self.backend.device_error("this reading of rows was asked to fail"));
        }
        let cells = &self.blocks[&(rows.group, rows.block)][rows.rows.start as usize..rows.rows.end as usize];
        for (cell, out) in cells.iter().zip(out.chunks_exact_mut(self.row_bytes(rows))) {
            out.fill(0);
            out[..4].copy_from_slice(&cell.map_or(0, |token| token + 1).to_le_bytes());
        }
        Ok(())
    }

    fn write_rows(&mut self, rows: &KvRows, bytes: &[u8]) -> Result<(), BackendError> {
        let row_bytes = self.row_bytes(rows);
        let block_tokens = self.spec.groups[rows.group].block_tokens;
        for (row, bytes) in rows.rows.clone().zip(bytes.chunks_exact(row_bytes)) {
            let token = u32::from_le_bytes(*bytes.first_chunk().expect("rows of four bytes and more"));
            *self.cell(rows.group, rows.block * block_tokens + row)? = token.checked_sub(1);
        }
        Ok(())
    }

    fn committed_bytes(&self) -> u64 {
        self.blocks.keys().map(|&(group, _)| self.spec.groups[group].bytes_per_block()).sum()
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved
    }

    fn memory(&self) -> KvMemoryStats {
        let (reserved, committed) = (self.reserved, self.committed_bytes());
        KvMemoryStats { reserved, committed, warm: 0, granule: 1, limit: self.limit }
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Drop for NullArena {
    fn drop(&mut self) {
        self.backend.state().stats.committed_blocks -= self.blocks.len() as u64;
    }
}
