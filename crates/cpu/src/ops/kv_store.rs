//! Writes new rows of K and V to their cells in the KV cache; the fused form rotates Q and K first.
//!
//! A worker writes the elements of its own rows and nothing else, so rows may be split anywhere.

use std::ops::Range;

use minfer_graph::{KvFormat, KvGroupSpec, KvOrder, KvSide, KvStrides, RopeStoreSpec};
use minfer_tensor::blocks::{q4_0, q8_0};

use super::rope::Rotation;
use crate::arch::{Isa, Kernel, LANES, Simd};
use crate::arena::KvCells;
use crate::math::load_padded;
use crate::quantise::BLOCK;
use crate::threads::{Rows, SharedSlice};

/// Most elements of a K or V head.
pub(crate) const MOST_DIMS: usize = 512;
/// Rows that are written together where their cells are neighbours.
const RUN: usize = 8;

/// One layer's cells, and which of them each row of the batch goes to.
#[derive(Clone, Copy)]
pub(crate) struct StoreTarget<'a> {
    /// The geometry of the layer's KV group.
    pub(crate) group: &'a KvGroupSpec,
    /// The layer's index inside its group.
    pub(crate) layer_index: usize,
    /// The group's memory.
    pub(crate) cells: KvCells<'a>,
    /// The batch's cells in this group, one for each row.
    pub(crate) rows: &'a [u32],
}

/// Writes K and V of the rows of a range.
pub(crate) fn kv_store(isa: Isa, rows: Range<usize>, target: &StoreTarget<'_>, k: &Rows<'_>, v: &Rows<'_>) {
    let group = target.group;
    assert_eq!(k.columns(), (group.kv_heads * group.k_dim) as usize, "columns of K");
    assert_eq!(v.columns(), (group.kv_heads * group.v_dim) as usize, "columns of V");
    target.check();
    isa.run(Store { rows, target, k, v, k_column: 0, v_column: 0, rotation: None });
}

/// Rotates Q and K of joint rows [Q | K | V], writes Q to the output and K and V to their cells,
/// for the rows of a range.
pub(crate) fn rope_store(
    isa: Isa,
    rows: Range<usize>,
    spec: &RopeStoreSpec,
    rotation: &Rotation<'_>,
    target: &StoreTarget<'_>,
    input: &Rows<'_>,
    output: &Rows<'_>,
) {
    let (heads, kv_heads) = (spec.heads as usize, spec.kv_heads as usize);
    let (k_dim, v_dim) = (spec.k_dim as usize, spec.v_dim as usize);
    let (q_columns, k_columns) = (heads * k_dim, kv_heads * k_dim);
    assert_eq!(input.columns(), q_columns + k_columns + kv_heads * v_dim, "columns of the joint rows");
    assert_eq!(output.columns(), q_columns, "columns of the rotated queries");
    assert!(rotation.spec.rotated_dims() as usize <= k_dim, "more rotated elements than {k_dim}");
    target.check();
    isa.run(RotateQueries { rows: rows.clone(), rotation, k_dim, input, output });
    let (k_column, v_column) = (q_columns, q_columns + k_columns);
    isa.run(Store { rows, target, k: input, v: input, k_column, v_column, rotation: Some(rotation) });
}

impl StoreTarget<'_> {
    fn check(&self) {
        let largest = self.group.k_dim.max(self.group.v_dim) as usize;
        assert!(largest <= MOST_DIMS, "heads of {largest} elements, at most {MOST_DIMS} can be stored");
    }

    /// How many rows from `row` on, at most [`RUN`], go to neighbouring cells of one block.
    fn run(&self, row: usize, end: usize) -> usize {
        let block = self.group.block_tokens;
        let first = self.rows[row];
        let most = RUN.min(end - row).min((block - first % block) as usize);
        (1..most).find(|&next| self.rows[row + next] != first + next as u32).unwrap_or(most)
    }
}

struct RotateQueries<'a> {
    rows: Range<usize>,
    rotation: &'a Rotation<'a>,
    k_dim: usize,
    input: &'a Rows<'a>,
    output: &'a Rows<'a>,
}

impl Kernel for RotateQueries<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let columns = self.output.columns();
        for row in self.rows {
            let output = self.output.row_mut(row, 0..columns);
            output.copy_from_slice(&self.input.row(row)[..columns]);
            for head in output.chunks_exact_mut(self.k_dim) {
                self.rotation.rotate(simd, row, head);
            }
        }
    }
}

struct Store<'a> {
    rows: Range<usize>,
    target: &'a StoreTarget<'a>,
    k: &'a Rows<'a>,
    v: &'a Rows<'a>,
    k_column: usize,
    v_column: usize,
    rotation: Option<&'a Rotation<'a>>,
}

impl Kernel for Store<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let group = self.target.group;
        let (k_dim, v_dim) = (group.k_dim as usize, group.v_dim as usize);
        let mut stage = [[0.0; MOST_DIMS]; RUN];
        let mut row = self.rows.start;
        while row < self.rows.end {
            let run = self.target.run(row, self.rows.end);
            for head in 0..group.kv_heads as usize {
                let place = |side| Place::new(self.target, side, self.target.rows[row], head);
                let column = self.k_column + head * k_dim;
                for (index, staged) in stage[..run].iter_mut().enumerate() {
                    staged[..k_dim].copy_from_slice(&self.k.row(row + index)[column..column + k_dim]);
                    if let Some(rotation) = self.rotation {
                        rotation.rotate(simd, row + index, &mut staged[..k_dim]);
                    }
                }
                place(KvSide::K).write(simd, &stage[..run]);
                let column = self.v_column + head * v_dim;
                for (index, staged) in stage[..run].iter_mut().enumerate() {
                    staged[..v_dim].copy_from_slice(&self.v.row(row + index)[column..column + v_dim]);
                }
                place(KvSide::V).write(simd, &stage[..run]);
            }
            row += run;
        }
    }
}

/// One side of one head of neighbouring cells.
#[derive(Clone, Copy)]
struct Place<'a> {
    cells: KvCells<'a>,
    format: KvFormat,
    dim: usize,
    order: KvOrder,
    strides: KvStrides,
    scales: Option<KvStrides>,
    /// Byte of the block's rows of this side.
    start: usize,
    head: usize,
    /// Offset of the first cell in its block.
    offset: usize,
}

impl<'a> Place<'a> {
    fn new(target: &StoreTarget<'a>, side: KvSide, cell: u32, head: usize) -> Place<'a> {
        let group = target.group;
        let (block, offset) = (cell / group.block_tokens, cell % group.block_tokens);
        let (dim, format) = group.side(side);
        let start = block as usize * group.bytes_per_block() as usize
            + group.side_offset(target.layer_index, side) as usize;
        Place {
            cells: target.cells,
            format,
            dim: dim as usize,
            order: group.order(side),
            strides: group.strides(side),
            scales: group.scale_strides(side),
            start,
            head,
            offset: offset as usize,
        }
    }

    /// Byte of a row's first unit.
    fn row(&self, row: usize) -> usize {
        self.start + self.strides.at(self.head, self.offset + row, 0)
    }

    #[inline(always)]
    fn write<S: Simd>(&self, simd: S, rows: &[[f32; MOST_DIMS]]) {
        match self.format {
            KvFormat::F32 => self.put(self.cells.singles, &self.strides, rows, self.dim),
            KvFormat::F16 => {
                let mut narrow = [[0; MOST_DIMS]; RUN];
                for (row, narrow) in rows.iter().zip(&mut narrow) {
                    narrow_f16(simd, &row[..self.dim], &mut narrow[..self.dim]);
                }
                self.put(self.cells.halves, &self.strides, &narrow[..rows.len()], self.dim);
            }
            KvFormat::BF16 => {
                let mut narrow = [[0; MOST_DIMS / 2]; RUN];
                for (row, narrow) in rows.iter().zip(&mut narrow) {
                    narrow_bf16(simd, row, narrow, self.dim);
                }
                let narrow = &narrow[..rows.len()];
                match self.order {
                    KvOrder::Lanes => self.put(self.cells.pairs, &self.strides, narrow, self.dim / 2),
                    KvOrder::Rows => self.put_halves(narrow),
                    KvOrder::Pairs => self.put_pairs(narrow),
                }
            }
            KvFormat::Q8_0 => self.put_blocks(rows, q8_0::encode),
            KvFormat::Q4_0 => self.put_blocks(rows, q4_0::encode),
        }
    }

    /// Writes rows as encoded blocks.
    #[inline(always)]
    fn put_blocks<const B: usize>(
        &self,
        rows: &[[f32; MOST_DIMS]],
        encode: impl Fn(&[f32; BLOCK], &mut [u8; B]),
    ) {
        let blocks = self.dim / BLOCK;
        let mut encoded = [[[0; B]; MOST_DIMS / BLOCK]; RUN];
        for (row, encoded) in rows.iter().zip(&mut encoded) {
            for (values, block) in row.as_chunks().0.iter().zip(encoded).take(blocks) {
                encode(values, block);
            }
        }
        let encoded = &encoded[..rows.len()];
        let Some(scale_strides) = &self.scales else {
            for (index, row) in encoded.iter().enumerate() {
                let start = self.row(index);
                self.cells
                    .bytes
                    .get_mut(start..start + blocks * B)
                    .copy_from_slice(row[..blocks].as_flattened());
            }
            return;
        };
        let words_of_block = (B - 2) / 4;
        let (mut words, mut scales) = ([[0u32; MOST_DIMS / 4]; RUN], [[0u16; MOST_DIMS / BLOCK]; RUN]);
        for (index, row) in encoded.iter().enumerate() {
            for (block, bytes) in row[..blocks].iter().enumerate() {
                scales[index][block] = u16::from_le_bytes([bytes[0], bytes[1]]);
                let to = &mut words[index][block * words_of_block..];
                for (word, four) in to.iter_mut().zip(bytes[2..].as_chunks().0) {
                    *word = u32::from_le_bytes(*four);
                }
            }
        }
        self.put(self.cells.pairs, &self.strides, &words[..rows.len()], blocks * words_of_block);
        self.put(self.cells.halves, scale_strides, &scales[..rows.len()], blocks);
    }

    /// Writes the first elements of some rows.
    #[inline(always)]
    fn put<T: Copy, const N: usize>(
        &self,
        memory: SharedSlice<'_, T>,
        strides: &KvStrides,
        rows: &[[T; N]],
        elements: usize,
    ) {
        let size = size_of::<T>();
        let row_start = |row: usize| (self.start + strides.at(self.head, self.offset + row, 0)) / size;
        if self.order != KvOrder::Lanes {
            for (index, row) in rows.iter().enumerate() {
                let start = row_start(index);
                memory.get_mut(start..start + elements).copy_from_slice(&row[..elements]);
            }
            return;
        }
        let (first, stride) = (row_start(0), strides.unit / size);
        for element in 0..elements {
            let start = first + element * stride;
            for (to, row) in memory.get_mut(start..start + rows.len()).iter_mut().zip(rows) {
                *to = row[element];
            }
        }
    }

    /// Rows of bf16.
    #[inline(always)]
    fn put_halves(&self, rows: &[[u32; MOST_DIMS / 2]]) {
        for (index, row) in rows.iter().enumerate() {
            let start = self.row(index) / 2;
            let to = self.cells.halves.get_mut(start..start + self.dim);
            to.iter_mut().enumerate().for_each(|(dim, to)| *to = bf16(row, dim) as u16);
        }
    }

    /// Two neighbouring positions share the words of a pair: both at once where both are ours, else
    /// halves of words.
    #[inline(always)]
    fn put_pairs(&self, rows: &[[u32; MOST_DIMS / 2]]) {
        let mut row = 0;
        while row < rows.len() {
            let start = self.row(row);
            if (self.offset + row).is_multiple_of(2) && row + 1 < rows.len() {
                let words = self.cells.pairs.get_mut(start / 4..start / 4 + self.dim);
                for (dim, word) in words.iter_mut().enumerate() {
                    *word = bf16(&rows[row], dim) | bf16(&rows[row + 1], dim) << 16;
                }
                row += 2;
            } else {
                for dim in 0..self.dim {
                    let half = start / 2 + 2 * dim;
                    self.cells.halves.get_mut(half..half + 1)[0] = bf16(&rows[row], dim) as u16;
                }
                row += 1;
            }
        }
    }
}

/// One element of a row of pairs.
#[inline(always)]
fn bf16(row: &[u32; MOST_DIMS / 2], dim: usize) -> u32 {
    row[dim / 2] >> (16 * (dim % 2)) & 0xffff
}

/// f32 to f16, to nearest even.
#[inline(always)]
fn narrow_f16<S: Simd>(simd: S, from: &[f32], to: &mut [u16]) {
    let (lanes, rest) = from.as_chunks::<LANES>();
    let (narrow, narrow_rest) = to.as_chunks_mut::<LANES>();
    for (lanes, narrow) in lanes.iter().zip(narrow) {
        simd.store_f16(simd.load(lanes), narrow);
    }
    if !rest.is_empty() {
        let mut last = [0; LANES];
        simd.store_f16(load_padded(simd, rest), &mut last);
        narrow_rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// f32 to pairs of bf16, to nearest even. Dims up to the next multiple of sixteen are overwritten
/// too.
#[inline(always)]
fn narrow_bf16<S: Simd>(simd: S, from: &[f32; MOST_DIMS], to: &mut [u32; MOST_DIMS / 2], dim: usize) {
    let words = to.as_chunks_mut::<{ LANES / 2 }>().0;
    for (lanes, words) in from.as_chunks::<LANES>().0.iter().zip(words).take(dim.div_ceil(LANES)) {
        simd.store_bf16(simd.load(lanes), words);
    }
}

#[cfg(test)]
mod tests;
