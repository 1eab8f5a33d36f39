//! Geometry of the KV cache: formats, layouts, groups of layers with equal shape, blocks.

mod geometry;
mod strides;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::{KvLayer, ModelGraph};

pub use geometry::{CommitGeometry, KvArrangement, commit_geometry};
pub use strides::{KvOrder, KvStrides};

/// How the elements of a cached row are stored. It decides the arithmetic of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// f32 rows, f32 fused multiply-adds.
    F32,
    /// f16 rows, widened exactly, f32 fused multiply-adds.
    F16,
    /// bf16 rows, pair dots.
    BF16,
    /// Blocks of 32 signed bytes with an f16 scale: int8 dots with K, exact f32 values of V.
    Q8_0,
    /// Blocks of 32 nibbles with an f16 scale, otherwise as [`Q8_0`](KvFormat::Q8_0).
    Q4_0,
}

impl KvFormat {
    /// Every format, in declaration order.
    pub const ALL: [KvFormat; 5] =
        [KvFormat::F32, KvFormat::F16, KvFormat::BF16, KvFormat::Q8_0, KvFormat::Q4_0];

    /// The format's name as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            KvFormat::F32 => "f32",
            KvFormat::F16 => "f16",
            KvFormat::BF16 => "bf16",
            KvFormat::Q8_0 => "q8_0",
            KvFormat::Q4_0 => "q4_0",
        }
    }

    /// Neighbouring dims of a head that are encoded together.
    pub const fn block_dims(self) -> u32 {
        match self {
            KvFormat::F32 | KvFormat::F16 | KvFormat::BF16 => 1,
            KvFormat::Q8_0 | KvFormat::Q4_0 => 32,
        }
    }

    /// Bytes of [`block_dims`](KvFormat::block_dims) dims, with their scale.
    pub const fn block_bytes(self) -> u32 {
        match self {
            KvFormat::F32 => 4,
            KvFormat::F16 | KvFormat::BF16 => 2,
            KvFormat::Q8_0 => 34,
            KvFormat::Q4_0 => 18,
        }
    }

    /// Whether dims share a scale.
    pub const fn is_quantised(self) -> bool {
        self.block_dims() > 1
    }

    /// The suggested format for K where this one is too coarse for some models.
    pub const fn better_for_keys(self) -> Option<KvFormat> {
        match self {
            KvFormat::Q4_0 => Some(KvFormat::Q8_0),
            KvFormat::F32 | KvFormat::F16 | KvFormat::BF16 | KvFormat::Q8_0 => None,
        }
    }
}

impl fmt::Display for KvFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Where an element lies inside a block's rows of one layer and side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvLayout {
    /// K as `[head][dim][position]`, V as `[head][position][dim]`: one lane per output for both
    /// products. With bf16 rows the two elements of a pair dot are neighbours: K as
    /// `[head][dim / 2][position][2]`, V as `[head][position / 2][dim][2]`. A K head of a quantised
    /// format is `[dim / 32][word][position][4]`, the words of four bytes of its blocks, then the
    /// scales as `[dim / 32][position]`.
    LaneMajor,
    /// K and V as `[head][position][dim]`.
    HeadMajor,
    /// K and V as `[position][head][dim]`.
    SeqMajor,
}

impl KvLayout {
    /// Every layout, in declaration order.
    pub const ALL: [KvLayout; 3] = [KvLayout::LaneMajor, KvLayout::HeadMajor, KvLayout::SeqMajor];

    /// The layout's name as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            KvLayout::LaneMajor => "lane-major",
            KvLayout::HeadMajor => "head-major",
            KvLayout::SeqMajor => "seq-major",
        }
    }
}

impl fmt::Display for KvLayout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A name that is not in the list of choices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KvSpecError {
    /// Not a KV format.
    #[error("unknown KV cache type {0:?} (choose f32, f16, bf16, q8_0 or q4_0)")]
    UnknownFormat(String),
    /// Not a KV layout.
    #[error("unknown KV layout {0:?} (choose lane-major, head-major or seq-major)")]
    UnknownLayout(String),
    /// Positions of a block.
    #[error("a KV block of {0} positions is not a power of two from 16 to 4096")]
    BlockTokens(u32),
    /// One number of blocks for each group.
    #[error("{groups} KV groups have {limits} block limits")]
    BlockLimits {
        /// Groups.
        groups: usize,
        /// Limits.
        limits: usize,
    },
    /// Cells are counted in 32 bits.
    #[error(
        "KV group {group}: {blocks} blocks of {block_tokens} positions are more cells than 32 bits count"
    )]
    TooManyCells {
        /// The group.
        group: usize,
        /// Its blocks.
        blocks: u32,
        /// Positions of a block.
        block_tokens: u32,
    },
    /// A layer in two groups.
    #[error("layer {0} is in the KV cache twice")]
    LayerTwice(u32),
    /// bf16 pair dots need whole pairs.
    #[error("bf16 KV rows need an even head dim, this model has {0}")]
    OddDim(u32),
    /// Blocks of a quantised format lie inside one head.
    #[error(
        "{format} KV rows are blocks of {} dims, which do not divide a {side:?} head of {dim} dims; choose f32, f16 or bf16",
        format.block_dims()
    )]
    PartBlock {
        /// The side.
        side: KvSide,
        /// Its format.
        format: KvFormat,
        /// Dims of its heads.
        dim: u32,
    },
}

impl FromStr for KvFormat {
    type Err = KvSpecError;

    fn from_str(text: &str) -> Result<Self, KvSpecError> {
        KvFormat::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| KvSpecError::UnknownFormat(text.to_owned()))
    }
}

impl FromStr for KvLayout {
    type Err = KvSpecError;

    fn from_str(text: &str) -> Result<Self, KvSpecError> {
        KvLayout::ALL
            .into_iter()
            .find(|layout| layout.name() == text)
            .ok_or_else(|| KvSpecError::UnknownLayout(text.to_owned()))
    }
}

/// K or V.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvSide {
    /// Keys.
    K,
    /// Values.
    V,
}

/// Layers with equal KV shape. A block is `block_tokens` consecutive positions of one sequence
/// for all of them, one contiguous run of memory laid out as `[layer][K|V][rows by layout]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KvGroupSpec {
    /// The model's layer numbers, ascending.
    pub layers: Vec<u32>,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements of a K head.
    pub k_dim: u32,
    /// Elements of a V head.
    pub v_dim: u32,
    /// How many positions up to its own a query sees at most; none when it sees every one. Rows
    /// behind it are never read again.
    pub window: Option<u32>,
    /// Storage of K rows.
    pub k_format: KvFormat,
    /// Storage of V rows.
    pub v_format: KvFormat,
    /// Order of elements inside a block.
    pub layout: KvLayout,
    /// Positions of a block: a power of two, at least 16.
    pub block_tokens: u32,
}

impl KvGroupSpec {
    /// Checks the spec.
    ///
    /// # Errors
    /// A block size that is not a power of two from 16 to 4096; an odd dim with bf16 rows; a head
    /// that is no whole number of a format's blocks.
    pub fn validate(&self) -> Result<(), KvSpecError> {
        if !self.block_tokens.is_power_of_two() || !(16..=4096).contains(&self.block_tokens) {
            return Err(KvSpecError::BlockTokens(self.block_tokens));
        }
        if self.k_format == KvFormat::BF16 && !self.k_dim.is_multiple_of(2) {
            return Err(KvSpecError::OddDim(self.k_dim));
        }
        for side in [KvSide::K, KvSide::V] {
            let (dim, format) = self.side(side);
            if !dim.is_multiple_of(format.block_dims()) {
                return Err(KvSpecError::PartBlock { side, format, dim });
            }
        }
        Ok(())
    }

    /// Bytes of one position's row of one side in one layer.
    pub fn row_bytes(&self, side: KvSide) -> u64 {
        u64::from(self.kv_heads) * self.head_bytes(side) as u64
    }

    /// Bytes that one position occupies in all layers of the group.
    pub fn bytes_per_token(&self) -> u64 {
        self.layers.len() as u64 * (self.row_bytes(KvSide::K) + self.row_bytes(KvSide::V))
    }

    /// Bytes of one block.
    pub fn bytes_per_block(&self) -> u64 {
        u64::from(self.block_tokens) * self.bytes_per_token()
    }

    /// Byte offset inside a block of the rows of one layer and side.
    pub fn side_offset(&self, layer_index: usize, side: KvSide) -> u64 {
        let k_bytes = u64::from(self.block_tokens) * self.row_bytes(KvSide::K);
        let v_bytes = u64::from(self.block_tokens) * self.row_bytes(KvSide::V);
        let layer = layer_index as u64 * (k_bytes + v_bytes);
        match side {
            KvSide::K => layer,
            KvSide::V => layer + k_bytes,
        }
    }
}

/// The groups of a model. All cells of a sequence's token are named per group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KvSpec {
    /// At least one for a model with attention.
    pub groups: Vec<KvGroupSpec>,
    /// Blocks that the arena reserves for each group.
    pub max_blocks: Vec<u32>,
}

/// Options of a KV cache; the rest follows from the model graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvChoice {
    /// Storage of K rows.
    pub k_format: KvFormat,
    /// Storage of V rows.
    pub v_format: KvFormat,
    /// Order of elements inside a block.
    pub layout: KvLayout,
    /// Positions of a block.
    pub block_tokens: u32,
    /// Blocks that the arena reserves for each group.
    pub max_blocks: u32,
}

impl KvSpec {
    /// The groups that a model graph needs: layers of one geometry and one window form a group,
    /// ordered by their first layer.
    pub fn for_model(model_graph: &ModelGraph, choice: KvChoice) -> KvSpec {
        let mut groups: Vec<(KvLayer, Vec<u32>)> = Vec::new();
        for layer in model_graph.kv_layers() {
            let alike =
                |(first, _): &&mut (KvLayer, Vec<u32>)| KvLayer { layer: first.layer, ..layer } == *first;
            match groups.iter_mut().find(alike) {
                Some((_, layers)) => layers.push(layer.layer),
                None => groups.push((layer, vec![layer.layer])),
            }
        }
        let spec = |(first, layers): (KvLayer, Vec<u32>)| KvGroupSpec {
            layers,
            kv_heads: first.kv_heads,
            k_dim: first.k_dim,
            v_dim: first.v_dim,
            window: first.window,
            k_format: choice.k_format,
            v_format: choice.v_format,
            layout: choice.layout,
            block_tokens: choice.block_tokens,
        };
        let groups: Vec<KvGroupSpec> = groups.into_iter().map(spec).collect();
        KvSpec { max_blocks: vec![choice.max_blocks; groups.len()], groups }
    }

    /// Checks the spec.
    ///
    /// # Errors
    /// A group breaks a rule ([`KvGroupSpec::validate`]), a layer is in two groups, or cells
    /// overflow 32 bits.
    pub fn validate(&self) -> Result<(), KvSpecError> {
        if self.groups.len() != self.max_blocks.len() {
            return Err(KvSpecError::BlockLimits {
                groups: self.groups.len(),
                limits: self.max_blocks.len(),
            });
        }
        let mut layers = BTreeSet::new();
        for (group, (spec, &blocks)) in self.groups.iter().zip(&self.max_blocks).enumerate() {
            spec.validate()?;
            let block_tokens = spec.block_tokens;
            if blocks.checked_mul(block_tokens).is_none() {
                return Err(KvSpecError::TooManyCells { group, blocks, block_tokens });
            }
            if let Some(&layer) = spec.layers.iter().find(|&&layer| !layers.insert(layer)) {
                return Err(KvSpecError::LayerTwice(layer));
            }
        }
        Ok(())
    }

    /// The group of a layer and the layer's index inside it.
    pub fn locate(&self, layer: u32) -> Option<(usize, usize)> {
        self.groups.iter().enumerate().find_map(|(group, spec)| {
            spec.layers.iter().position(|&candidate| candidate == layer).map(|index| (group, index))
        })
    }

    /// Bytes of all blocks, each group in whole granules.
    pub fn arena_bytes(&self, granule: u64) -> u64 {
        let pairs = self.groups.iter().zip(&self.max_blocks);
        let bytes = pairs.map(|(group, &blocks)| group.bytes_per_block() * u64::from(blocks));
        bytes.map(|bytes| bytes.next_multiple_of(granule)).sum()
    }

    /// Bytes that one position occupies in all groups.
    pub fn bytes_per_token(&self) -> u64 {
        self.groups.iter().map(KvGroupSpec::bytes_per_token).sum()
    }
}
