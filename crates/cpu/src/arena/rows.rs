//! Rows of a block, copied to another block or taken out and put back in canonical order.

use std::ops::Range;

use minfer_graph::backend::KvRows;
use minfer_graph::{KvGroupSpec, KvSide};

/// Copies rows of one block of a group's bytes to the same offsets of another, for every layer.
pub(super) fn copy(spec: &KvGroupSpec, bytes: &mut [u8], from: u32, to: u32, rows: Range<u32>) {
    let base = |block: u32| block as usize * spec.bytes_per_block() as usize;
    for (layer_index, side) in sides(spec) {
        for (row, head, dim, size) in elements(spec, side, rows.clone()) {
            let at = spec.element_offset(layer_index, side, head, row, dim);
            bytes.copy_within(base(from) + at..base(from) + at + size, base(to) + at);
        }
    }
}

/// Reads rows of a group's bytes as canonical rows: `[position][head][dim]`.
pub(super) fn read(spec: &KvGroupSpec, bytes: &[u8], rows: &KvRows, out: &mut [u8]) {
    let base = rows.block as usize * spec.bytes_per_block() as usize;
    let mut next = 0;
    for (row, head, dim, size) in elements(spec, rows.side, rows.rows.clone()) {
        let at = base + spec.element_offset(rows.layer_index, rows.side, head, row, dim);
        out[next..next + size].copy_from_slice(&bytes[at..at + size]);
        next += size;
    }
}

/// Writes canonical rows into a group's bytes.
pub(super) fn write(spec: &KvGroupSpec, bytes: &mut [u8], rows: &KvRows, from: &[u8]) {
    let base = rows.block as usize * spec.bytes_per_block() as usize;
    let mut next = 0;
    for (row, head, dim, size) in elements(spec, rows.side, rows.rows.clone()) {
        let at = base + spec.element_offset(rows.layer_index, rows.side, head, row, dim);
        bytes[at..at + size].copy_from_slice(&from[next..next + size]);
        next += size;
    }
}

/// Every layer's index with both of its sides.
fn sides(spec: &KvGroupSpec) -> impl Iterator<Item = (usize, KvSide)> + use<> {
    (0..spec.layers.len()).flat_map(|layer_index| [KvSide::K, KvSide::V].map(|side| (layer_index, side)))
}

/// The elements of neighbouring rows in canonical order, as (row, head, dim, bytes).
fn elements(
    spec: &KvGroupSpec,
    side: KvSide,
    rows: Range<u32>,
) -> impl Iterator<Item = (usize, usize, usize, usize)> + use<> {
    let (dims, format) = match side {
        KvSide::K => (spec.k_dim as usize, spec.k_format),
        KvSide::V => (spec.v_dim as usize, spec.v_format),
    };
    let (heads, size) = (spec.kv_heads as usize, format.element_bytes() as usize);
    (rows.start as usize..rows.end as usize).flat_map(move |row| {
        (0..heads).flat_map(move |head| (0..dims).map(move |dim| (row, head, dim, size)))
    })
}
