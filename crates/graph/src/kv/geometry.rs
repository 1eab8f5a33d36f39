//! How many bytes of memory a KV arrangement commits, in whole granules.

use super::{KvGroupSpec, KvSide, KvSpec};

/// An arrangement of the rows of one sequence in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvArrangement {
    /// Blocks of this many positions of all layers of a group, one after the other from the start
    /// of a granule.
    Blocks(u32),
    /// A buffer for each layer and side that starts at a granule and holds `[position][head][dim]`
    /// for the whole context.
    SeqMajorBuffers,
    /// A buffer for each layer and side that starts at a granule and holds `[head][position][dim]`
    /// for the whole context.
    HeadMajorBuffers,
}

/// Memory that an arrangement commits for one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommitGeometry {
    /// The arrangement.
    pub arrangement: KvArrangement,
    /// Bytes of a granule.
    pub granule: u64,
    /// Granules in which a row of the sequence lies.
    pub granules: u64,
}

impl CommitGeometry {
    /// Bytes of the granules.
    pub fn bytes(&self) -> u64 {
        self.granules * self.granule
    }
}

/// Granules that hold the first `tokens` positions of one sequence of at most `n_ctx`. A granule
/// counts when any byte of a row, or of a block that holds one, lies in it. Rows behind a window
/// count too.
///
/// # Panics
/// The granule has no bytes, or a block no positions.
pub fn commit_geometry(
    spec: &KvSpec,
    arrangement: KvArrangement,
    granule: u64,
    tokens: u32,
    n_ctx: u32,
) -> CommitGeometry {
    let tokens = u64::from(tokens.min(n_ctx));
    let of = |group: &KvGroupSpec| match arrangement {
        KvArrangement::Blocks(block_tokens) => {
            let rows = tokens.next_multiple_of(u64::from(block_tokens));
            (rows * group.bytes_per_token()).div_ceil(granule)
        }
        KvArrangement::SeqMajorBuffers => {
            in_buffers(group, |side| (tokens * group.row_bytes(side)).div_ceil(granule))
        }
        KvArrangement::HeadMajorBuffers => in_buffers(group, |side| {
            let head = group.row_bytes(side) / u64::from(group.kv_heads);
            strided(u64::from(group.kv_heads), u64::from(n_ctx) * head, tokens * head, granule)
        }),
    };
    CommitGeometry { arrangement, granule, granules: spec.groups.iter().map(of).sum() }
}

fn in_buffers(group: &KvGroupSpec, granules: impl Fn(KvSide) -> u64) -> u64 {
    group.layers.len() as u64 * (granules(KvSide::K) + granules(KvSide::V))
}

/// Granules that meet `count` runs of `bytes` bytes, `stride` bytes from one start to the next.
fn strided(count: u64, stride: u64, bytes: u64, granule: u64) -> u64 {
    if bytes == 0 {
        return 0;
    }
    let (mut granules, mut next) = (0, 0);
    for start in (0..count).map(|index| index * stride) {
        let (first, end) = ((start / granule).max(next), (start + bytes).div_ceil(granule));
        granules += end.saturating_sub(first);
        next = next.max(end);
    }
    granules
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{KvFormat, KvLayout};
    use KvArrangement::{Blocks, HeadMajorBuffers, SeqMajorBuffers};

    const MIB: u64 = 1 << 20;

    fn spec(layers: u32, kv_heads: u32, dim: u32) -> KvSpec {
        let group = KvGroupSpec {
            layers: (0..layers).collect(),
            kv_heads,
            k_dim: dim,
            v_dim: dim,
            window: None,
            k_format: KvFormat::F16,
            v_format: KvFormat::F16,
            layout: KvLayout::LaneMajor,
            block_tokens: 64,
        };
        KvSpec { groups: vec![group], max_blocks: vec![512] }
    }

    fn granules(spec: &KvSpec, arrangement: KvArrangement, tokens: u32) -> u64 {
        commit_geometry(spec, arrangement, 2 * MIB, tokens, 32768).granules
    }

    #[test]
    fn figures_of_qwen_0_5b() {
        let spec = spec(24, 2, 64);
        assert_eq!(spec.bytes_per_token(), 12_288);
        assert_eq!(spec.groups[0].bytes_per_block(), 786_432);
        let at_one = [Blocks(64), SeqMajorBuffers, HeadMajorBuffers].map(|of| granules(&spec, of, 1));
        assert_eq!(at_one, [1, 48, 96]);
        let full = commit_geometry(&spec, Blocks(64), 2 * MIB, 32768, 32768);
        assert_eq!((full.granules, full.bytes()), (192, 32768 * 12_288));
    }

    #[test]
    fn figures_of_qwen_14b() {
        let spec = spec(48, 8, 128);
        assert_eq!(spec.bytes_per_token(), 196_608);
        assert_eq!(spec.groups[0].bytes_per_block(), 6 * 2 * MIB);
        let arrangements = [Blocks(64), Blocks(16), SeqMajorBuffers, HeadMajorBuffers];
        assert_eq!(arrangements.map(|of| granules(&spec, of, 1)), [6, 2, 96, 768]);
        // All agree where every granule is full.
        assert_eq!(arrangements.map(|of| granules(&spec, of, 32768)), [3072; 4]);
        assert_eq!(arrangements.map(|of| granules(&spec, of, 40000)), [3072; 4], "no more than the context");
    }

    /// Every byte of every row, by its address.
    #[test]
    fn runs_are_those_of_a_walk_over_bytes() {
        for (kv_heads, dim, granule, n_ctx) in
            [(3, 4, 64, 10), (2, 8, 4096, 50), (5, 2, 16, 7), (1, 6, 32, 9)]
        {
            let mut spec = spec(2, kv_heads, dim);
            spec.groups[0].k_format = KvFormat::F32;
            for tokens in 0..=n_ctx {
                let walk = |head_major: bool| -> u64 {
                    let side = |bytes: u64| -> u64 {
                        let mut seen = BTreeSet::new();
                        for (head, token) in (0..kv_heads.into())
                            .flat_map(|head| (0..tokens).map(move |t| (head, u64::from(t))))
                        {
                            let row: u64 = match head_major {
                                true => head * u64::from(n_ctx) + token,
                                false => token * u64::from(kv_heads) + head,
                            };
                            seen.extend((0..bytes).map(|byte| (row * bytes + byte) / granule));
                        }
                        seen.len() as u64
                    };
                    2 * (side(u64::from(dim) * 4) + side(u64::from(dim) * 2))
                };
                let of = |arrangement| commit_geometry(&spec, arrangement, granule, tokens, n_ctx).granules;
                assert_eq!(of(HeadMajorBuffers), walk(true), "{kv_heads} {dim} {tokens}");
                assert_eq!(of(SeqMajorBuffers), walk(false), "{kv_heads} {dim} {tokens}");
            }
        }
    }
}
