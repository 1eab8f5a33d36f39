//! Byte offsets of K and V rows inside a block. Stores, attention and row copies all use these.

use super::{KvFormat, KvGroupSpec, KvLayout, KvSide};

/// Bytes of a quantised block's scale, which comes first.
const SCALE_BYTES: usize = 2;

/// How the rows of one side of one layer are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvOrder {
    /// The bytes of a head of one position are neighbours.
    Rows,
    /// `[unit][position]`: the same unit of neighbouring positions lies side by side.
    Lanes,
    /// `[position / 2][dim][2]`: two neighbouring positions take turns.
    Pairs,
}

/// Where units lie, in bytes from the start of the rows of one layer and side in a block. A unit is
/// a run of bytes of an encoded head that stay neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvStrides {
    /// Of the first unit of all.
    start: usize,
    /// From a head to the next.
    pub head: usize,
    /// From a position of even offset to the one after it.
    pub position: usize,
    /// From two positions to the next two.
    pub pair: usize,
    /// From a unit to the next.
    pub unit: usize,
    /// Bytes of a unit.
    pub unit_bytes: usize,
    /// Units of a head.
    pub units: usize,
    /// Units of one encoded block, how many bytes after its start they are, and the bytes from a
    /// block to the next.
    block: [usize; 3],
}

impl KvStrides {
    /// Byte of a unit of a head of the position at an offset in the block.
    pub fn at(&self, head: usize, offset: usize, unit: usize) -> usize {
        self.start + head * self.head + offset / 2 * self.pair + offset % 2 * self.position + unit * self.unit
    }

    /// Byte of a unit in a head's encoded bytes.
    pub fn encoded(&self, unit: usize) -> usize {
        let [units, start, bytes] = self.block;
        unit / units * bytes + start + unit % units * self.unit_bytes
    }
}

impl KvGroupSpec {
    /// The order of one side's rows.
    pub fn order(&self, side: KvSide) -> KvOrder {
        match (self.layout, side) {
            (KvLayout::LaneMajor, KvSide::K) => KvOrder::Lanes,
            (KvLayout::LaneMajor, KvSide::V) if self.v_format == KvFormat::BF16 => KvOrder::Pairs,
            (KvLayout::LaneMajor, KvSide::V) | (KvLayout::HeadMajor | KvLayout::SeqMajor, _) => KvOrder::Rows,
        }
    }

    /// Where the scales of one side lie, where they are apart from what they scale.
    pub fn scale_strides(&self, side: KvSide) -> Option<KvStrides> {
        let (_, format) = self.side(side);
        if !format.is_quantised() || self.order(side) != KvOrder::Lanes {
            return None;
        }
        let quants = self.strides(side);
        Some(KvStrides {
            start: quants.units * quants.unit,
            position: SCALE_BYTES,
            pair: 2 * SCALE_BYTES,
            unit: SCALE_BYTES * self.block_tokens as usize,
            unit_bytes: SCALE_BYTES,
            units: quants.units / quants.block[0],
            block: [1, 0, quants.block[2]],
            ..quants
        })
    }

    /// Where the elements of one side lie.
    pub fn strides(&self, side: KvSide) -> KvStrides {
        let positions = self.block_tokens as usize;
        let (dims, format) = self.side(side);
        let bytes = self.head_bytes(side);
        let head = positions * bytes;
        let even = |head: usize, position: usize, unit: usize, unit_bytes: usize| KvStrides {
            start: 0,
            head,
            position,
            pair: 2 * position,
            unit,
            unit_bytes,
            units: bytes / unit_bytes,
            block: [bytes / unit_bytes, 0, bytes],
        };
        match self.order(side) {
            KvOrder::Lanes if format.is_quantised() => {
                let block = format.block_bytes() as usize;
                let words = (block - SCALE_BYTES) / 4;
                let units = bytes / block * words;
                KvStrides { units, block: [words, SCALE_BYTES, block], ..even(head, 4, 4 * positions, 4) }
            }
            KvOrder::Lanes => {
                let lane = if format == KvFormat::F16 { 2 } else { 4 };
                even(head, lane, lane * positions, lane)
            }
            KvOrder::Pairs => KvStrides { pair: 4 * dims as usize, ..even(head, 2, 4, 2) },
            KvOrder::Rows if self.layout == KvLayout::SeqMajor => {
                even(bytes, bytes * self.kv_heads as usize, bytes, bytes)
            }
            KvOrder::Rows => even(head, bytes, bytes, bytes),
        }
    }

    /// Dims and format of one side.
    pub fn side(&self, side: KvSide) -> (u32, KvFormat) {
        match side {
            KvSide::K => (self.k_dim, self.k_format),
            KvSide::V => (self.v_dim, self.v_format),
        }
    }

    /// Bytes of one head of one position.
    pub fn head_bytes(&self, side: KvSide) -> usize {
        let (dims, format) = self.side(side);
        (dims / format.block_dims() * format.block_bytes()) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every unit of every head and position has bytes of its own, and together they are the side's
    /// rows.
    #[test]
    fn units_fill_the_rows_of_a_side() {
        for layout in KvLayout::ALL {
            for (k_format, v_format) in KvFormat::ALL.into_iter().zip(KvFormat::ALL.into_iter().rev()) {
                let group = KvGroupSpec {
                    layers: vec![0],
                    kv_heads: 3,
                    k_dim: 64,
                    v_dim: 32,
                    window: None,
                    k_format,
                    v_format,
                    layout,
                    block_tokens: 16,
                };
                for side in [KvSide::K, KvSide::V] {
                    let mut bytes = BTreeSet::new();
                    let planes = [Some(group.strides(side)), group.scale_strides(side)];
                    for (strides, head, offset) in planes
                        .into_iter()
                        .flatten()
                        .flat_map(|plane| (0..3).map(move |head| (plane, head)))
                        .flat_map(|(plane, head)| (0..16).map(move |offset| (plane, head, offset)))
                    {
                        for unit in 0..strides.units {
                            let start = strides.at(head, offset, unit);
                            (start..start + strides.unit_bytes).for_each(|byte| assert!(bytes.insert(byte)));
                        }
                    }
                    let total = 16 * group.row_bytes(side) as usize;
                    assert!(bytes.into_iter().eq(0..total), "{layout} {side:?} {k_format} {v_format}");
                }
            }
        }
    }
}
