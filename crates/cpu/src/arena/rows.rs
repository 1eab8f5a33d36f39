//! Rows of a block, copied to another block or taken out and put back in canonical order.

use std::ops::Range;

use minfer_graph::backend::KvRows;
use minfer_graph::{KvGroupSpec, KvOrder, KvSide, KvStrides};

/// Copies rows of one block of a group's bytes to the same offsets of another, for every layer.
pub(super) fn copy(spec: &KvGroupSpec, bytes: &mut [u8], from: u32, to: u32, rows: Range<u32>) {
    let block_bytes = spec.bytes_per_block() as usize;
    let (from, to) = (from as usize * block_bytes, to as usize * block_bytes);
    if rows == (0..spec.block_tokens) {
        bytes.copy_within(from..from + block_bytes, to);
        return;
    }
    let rows = rows.start as usize..rows.end as usize;
    for layer_index in 0..spec.layers.len() {
        for side in [KvSide::K, KvSide::V] {
            let start = spec.side_offset(layer_index, side) as usize;
            each_run(spec, side, rows.clone(), |run| {
                bytes.copy_within(from + start + run.start..from + start + run.end, to + start + run.start);
            });
        }
    }
}

/// Reads rows of a group's bytes as canonical rows: `[position][head]`, each head as its format
/// encodes it.
pub(super) fn read(spec: &KvGroupSpec, bytes: &[u8], rows: &KvRows, out: &mut [u8]) {
    let side = &bytes[side_start(spec, rows)..];
    each_unit(spec, rows, |stored, canonical| out[canonical].copy_from_slice(&side[stored]));
}

/// Writes canonical rows into a group's bytes.
pub(super) fn write(spec: &KvGroupSpec, bytes: &mut [u8], rows: &KvRows, from: &[u8]) {
    let side = &mut bytes[side_start(spec, rows)..];
    each_unit(spec, rows, |stored, canonical| side[stored].copy_from_slice(&from[canonical]));
}

/// Where the rows of the layer and side start in the group's bytes.
fn side_start(spec: &KvGroupSpec, rows: &KvRows) -> usize {
    let block = rows.block as usize * spec.bytes_per_block() as usize;
    block + spec.side_offset(rows.layer_index, rows.side) as usize
}

/// Every unit of neighbouring rows: its bytes in the rows of the side, and among the canonical
/// rows.
fn each_unit(spec: &KvGroupSpec, rows: &KvRows, mut visit: impl FnMut(Range<usize>, Range<usize>)) {
    let (row_bytes, head_bytes) = (spec.row_bytes(rows.side) as usize, spec.head_bytes(rows.side));
    let planes = [Some(spec.strides(rows.side)), spec.scale_strides(rows.side)];
    for (strides, head) in planes
        .into_iter()
        .flatten()
        .flat_map(|strides| (0..spec.kv_heads as usize).map(move |head| (strides, head)))
    {
        for unit in 0..strides.units {
            for (index, offset) in (rows.rows.start as usize..rows.rows.end as usize).enumerate() {
                let stored = strides.at(head, offset, unit);
                let canonical = index * row_bytes + head * head_bytes + strides.encoded(unit);
                visit(stored..stored + strides.unit_bytes, canonical..canonical + strides.unit_bytes);
            }
        }
    }
}

/// The bytes of neighbouring rows of a side, in runs as long as the order allows.
fn each_run(spec: &KvGroupSpec, side: KvSide, rows: Range<usize>, mut visit: impl FnMut(Range<usize>)) {
    let (strides, count) = (spec.strides(side), rows.len());
    let run_of = |strides: &KvStrides, head: usize, unit: usize, bytes: usize| {
        let start = strides.at(head, rows.start, unit);
        start..start + bytes
    };
    let run = |head: usize, unit: usize, bytes: usize| run_of(&strides, head, unit, bytes);
    for head in 0..spec.kv_heads as usize {
        match spec.order(side) {
            KvOrder::Lanes => {
                for plane in [Some(strides), spec.scale_strides(side)].into_iter().flatten() {
                    (0..plane.units)
                        .for_each(|unit| visit(run_of(&plane, head, unit, count * plane.unit_bytes)));
                }
            }
            KvOrder::Rows if strides.position == strides.unit_bytes => {
                visit(run(head, 0, count * strides.position));
            }
            // One row's heads are neighbours.
            KvOrder::Rows if head == 0 => visit(run(0, 0, count * strides.position)),
            KvOrder::Rows => {}
            KvOrder::Pairs => pairs(&strides, head, rows.clone(), &mut visit),
        }
    }
}

/// Whole pairs at once; of a pair of which one half is wanted every other element.
fn pairs(strides: &KvStrides, head: usize, rows: Range<usize>, visit: &mut impl FnMut(Range<usize>)) {
    let whole = rows.start.next_multiple_of(2)..rows.end / 2 * 2;
    if !whole.is_empty() {
        let start = strides.at(head, whole.start, 0);
        visit(start..start + whole.len() / 2 * strides.pair);
    }
    for offset in rows.filter(|offset| !whole.contains(offset)) {
        for unit in 0..strides.units {
            let start = strides.at(head, offset, unit);
            visit(start..start + strides.unit_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use minfer_graph::{KvFormat, KvLayout};

    use super::*;
    use crate::math::testing::Numbers;

    fn group(layout: KvLayout, format: KvFormat, block_tokens: u32) -> KvGroupSpec {
        KvGroupSpec {
            layers: vec![0, 1],
            kv_heads: 3,
            k_dim: 64,
            v_dim: 32,
            window: None,
            k_format: format,
            v_format: format,
            layout,
            block_tokens,
        }
    }

    /// Any of the bytes, so that a wrong one shows.
    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut numbers = Numbers(seed);
        (0..len).map(|_| numbers.bits() as u8).collect()
    }

    fn every_case() -> impl Iterator<Item = (KvLayout, KvFormat, u32)> {
        KvLayout::ALL.into_iter().flat_map(|layout| {
            KvFormat::ALL.into_iter().flat_map(move |format| [16, 64].map(|tokens| (layout, format, tokens)))
        })
    }

    /// Canonical rows of `from` written elsewhere and read there are the same bytes, and nothing
    /// else has changed.
    #[test]
    fn canonical_rows_pass_between_all_layouts_and_block_sizes() {
        for (layout, format, tokens) in every_case() {
            let spec = group(layout, format, tokens);
            let stored = noise(3 * spec.bytes_per_block() as usize, 1);
            for (other_layout, _, other_tokens) in every_case().filter(|case| case.1 == format) {
                let other = group(other_layout, format, other_tokens);
                for side in [KvSide::K, KvSide::V] {
                    let mut foreign = noise(2 * other.bytes_per_block() as usize, 2);
                    let before = foreign.clone();
                    let rows = KvRows { group: 0, layer_index: 1, side, block: 2, rows: 3..14 };
                    let target = KvRows { block: 1, rows: 5..16, ..rows.clone() };
                    let bytes = 11 * spec.row_bytes(side) as usize;
                    let (mut canonical, mut back) = (vec![0; bytes], vec![0; bytes]);
                    read(&spec, &stored, &rows, &mut canonical);
                    write(&other, &mut foreign, &target, &canonical);
                    read(&other, &foreign, &target, &mut back);
                    assert_eq!(
                        canonical, back,
                        "{layout} {tokens} to {other_layout} {other_tokens}, {format}"
                    );
                    let changed = foreign.iter().zip(&before).filter(|(a, b)| a != b).count();
                    assert!(
                        changed <= bytes && changed > bytes / 2,
                        "{changed} bytes of {bytes} were written"
                    );
                }
            }
        }
    }

    /// An element that the layout's documentation places is where reading finds it.
    #[test]
    fn canonical_rows_are_positions_of_heads_of_dims() {
        let place = |layout, pairs, side, (head, position, dim): (usize, usize, usize), dims: usize| match (
            layout, side,
        ) {
            (KvLayout::LaneMajor, KvSide::K) if pairs => {
                ((head * dims + dim) / 2 * 16 + position) * 2 + dim % 2
            }
            (KvLayout::LaneMajor, KvSide::V) if pairs => {
                ((head * 16 + position) / 2 * dims + dim) * 2 + position % 2
            }
            (KvLayout::LaneMajor, KvSide::K) => (head * dims + dim) * 16 + position,
            (KvLayout::LaneMajor, KvSide::V) | (KvLayout::HeadMajor, _) => {
                (head * 16 + position) * dims + dim
            }
            (KvLayout::SeqMajor, _) => (position * 3 + head) * dims + dim,
        };
        for (layout, format, _) in every_case().filter(|case| case.2 == 16 && !case.1.is_quantised()) {
            let spec = group(layout, format, 16);
            let stored = noise(spec.bytes_per_block() as usize, 3);
            let size = spec.head_bytes(KvSide::K) / 64;
            for (side, dims) in [(KvSide::K, 64), (KvSide::V, 32)] {
                let rows = KvRows { group: 0, layer_index: 1, side, block: 0, rows: 0..16 };
                let mut canonical = vec![0; 16 * spec.row_bytes(side) as usize];
                read(&spec, &stored, &rows, &mut canonical);
                let start = spec.side_offset(1, side) as usize;
                for (index, element) in canonical.chunks_exact(size).enumerate() {
                    let at = place(
                        layout,
                        format == KvFormat::BF16,
                        side,
                        (index / dims % 3, index / dims / 3, index % dims),
                        dims,
                    );
                    assert_eq!(
                        element,
                        &stored[start + at * size..][..size],
                        "{layout} {format} {side:?} {index}"
                    );
                }
            }
        }
    }

    #[test]
    fn copied_rows_are_those_that_reading_and_writing_pass_on() {
        for (layout, format, tokens) in every_case() {
            let spec = group(layout, format, tokens);
            for rows in [0..tokens, 0..1, 1..2, 3..8, 4..8, 2..tokens - 1, 5..16, 6..6] {
                let mut copied = noise(3 * spec.bytes_per_block() as usize, 4);
                let mut passed = copied.clone();
                copy(&spec, &mut copied, 2, 0, rows.clone());
                for (layer_index, side) in
                    [0, 1].into_iter().flat_map(|layer| [(layer, KvSide::K), (layer, KvSide::V)])
                {
                    let from = KvRows { group: 0, layer_index, side, block: 2, rows: rows.clone() };
                    let mut canonical = vec![0; rows.len() * spec.row_bytes(side) as usize];
                    read(&spec, &passed, &from, &mut canonical);
                    write(&spec, &mut passed, &KvRows { block: 0, ..from }, &canonical);
                }
                assert!(copied == passed, "{layout} {format} {tokens}: rows {rows:?}");
            }
        }
    }
}
