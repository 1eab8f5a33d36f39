//! What is attended to, and the bytes of its cache as their formats define them.

use super::*;

/// An operation and how its cache is kept.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) heads: u32,
    pub(crate) kv_heads: u32,
    pub(crate) k_dim: u32,
    pub(crate) v_dim: u32,
    pub(crate) k_format: KvFormat,
    pub(crate) v_format: KvFormat,
    pub(crate) layout: KvLayout,
    pub(crate) block_tokens: u32,
    pub(crate) mask: Mask,
    pub(crate) softcap: Option<f32>,
    pub(crate) sinks: bool,
    /// How K was rotated.
    pub(crate) rope: Option<RopeSpec>,
}

impl Case {
    pub(crate) fn new(heads: u32, kv_heads: u32, dim: u32, format: KvFormat) -> Case {
        Case {
            heads,
            kv_heads,
            k_dim: dim,
            v_dim: dim,
            k_format: format,
            v_format: format,
            layout: KvLayout::LaneMajor,
            block_tokens: 64,
            mask: Mask::Causal,
            softcap: None,
            sinks: false,
            rope: None,
        }
    }

    pub(crate) fn group(&self) -> KvGroupSpec {
        KvGroupSpec {
            layers: vec![3, 5],
            kv_heads: self.kv_heads,
            k_dim: self.k_dim,
            v_dim: self.v_dim,
            window: None,
            k_format: self.k_format,
            v_format: self.v_format,
            layout: self.layout,
            block_tokens: self.block_tokens,
        }
    }

    /// The format of one side.
    pub(crate) fn format(&self, side: KvSide) -> KvFormat {
        match side {
            KvSide::K => self.k_format,
            KvSide::V => self.v_format,
        }
    }

    /// Whether its formats can store its heads.
    pub(crate) fn can_be_stored(&self) -> bool {
        self.group().validate().is_ok()
    }

    pub(super) fn spec(&self) -> AttentionSpec {
        AttentionSpec {
            layer: 5,
            heads: self.heads,
            kv_heads: self.kv_heads,
            k_dim: self.k_dim,
            v_dim: self.v_dim,
            scale: F32Bits::from(1.0 / (self.k_dim as f32).sqrt()),
            mask: self.mask,
            softcap: self.softcap.map(F32Bits::from),
            sinks: self.sinks.then_some(WeightId(0)),
            rope: self.rope.clone(),
        }
    }
}

/// A sequence's rows.
#[derive(Clone)]
pub(crate) struct Sequence {
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
    pub(crate) length: usize,
}

impl Sequence {
    pub(crate) fn random(case: &Case, length: usize, seed: u64) -> Sequence {
        let mut numbers = Numbers(seed);
        Sequence {
            q: numbers.vec(length * (case.heads * case.k_dim) as usize, 2.0),
            k: numbers.vec(length * (case.kv_heads * case.k_dim) as usize, 2.0),
            v: numbers.vec(length * (case.kv_heads * case.v_dim) as usize, 1.0),
            length,
        }
    }
}

/// A head as its format encodes it.
pub(crate) fn encode(format: KvFormat, values: &[f32]) -> Vec<u8> {
    fn blocks<const N: usize>(values: &[f32], encode: fn(&[f32; 32], &mut [u8; N])) -> Vec<u8> {
        let encoded = |block: &[f32; 32]| {
            let mut bytes = [0; N];
            encode(block, &mut bytes);
            bytes
        };
        values.as_chunks().0.iter().flat_map(encoded).collect()
    }
    match format {
        KvFormat::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        KvFormat::F16 => values.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect(),
        KvFormat::BF16 => values.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect(),
        KvFormat::Q8_0 => blocks(values, q8_0::encode),
        KvFormat::Q4_0 => blocks(values, q4_0::encode),
    }
}

/// What stored numbers become.
pub(crate) fn stored(format: KvFormat, values: &[f32]) -> Vec<f64> {
    let two = |bytes: &[u8]| [bytes[0], bytes[1]];
    let scale = |block: &[u8]| half::f16::from_le_bytes(two(block)).to_f64();
    let bytes = encode(format, values);
    match format {
        KvFormat::F32 => values.iter().map(|&x| f64::from(x)).collect(),
        KvFormat::F16 => bytes.chunks(2).map(|x| half::f16::from_le_bytes(two(x)).to_f64()).collect(),
        KvFormat::BF16 => bytes.chunks(2).map(|x| half::bf16::from_le_bytes(two(x)).to_f64()).collect(),
        KvFormat::Q8_0 => bytes
            .chunks(34)
            .flat_map(|block| block[2..].iter().map(move |&byte| scale(block) * f64::from(byte as i8)))
            .collect(),
        KvFormat::Q4_0 => bytes
            .chunks(18)
            .flat_map(|block| {
                let halves = [0, 4].map(|shift| block[2..].iter().map(move |byte| byte >> shift & 15));
                halves.into_iter().flatten().map(move |quant| scale(block) * (f64::from(quant) - 8.0))
            })
            .collect(),
    }
}

/// Where each byte of an encoded head of the layer at index 1 lies in its group.
pub(crate) fn places(
    case: &Case,
    side: KvSide,
    (block, offset): (u32, usize),
    head: usize,
) -> impl Fn(usize) -> usize {
    let (group, layout) = (case.group(), case.layout);
    let (tokens, heads) = (case.block_tokens as usize, case.kv_heads as usize);
    let (dims, format) = group.side(side);
    let (dims, head_bytes) = (dims as usize, group.head_bytes(side));
    let start = block as usize * group.bytes_per_block() as usize + group.side_offset(1, side) as usize;
    let lanes = move |size, index| {
        (head * head_bytes / size + index / size) * tokens * size + offset * size + index % size
    };
    move |index| {
        let inside = match (layout, side, format) {
            (KvLayout::SeqMajor, ..) => (offset * heads + head) * head_bytes + index,
            (KvLayout::LaneMajor, KvSide::K, KvFormat::F16) => lanes(2, index),
            (KvLayout::LaneMajor, KvSide::K, KvFormat::F32 | KvFormat::BF16) => lanes(4, index),
            (KvLayout::LaneMajor, KvSide::K, KvFormat::Q8_0 | KvFormat::Q4_0) => {
                let block_bytes = format.block_bytes() as usize;
                let (block, into, words) = (index / block_bytes, index % block_bytes, (block_bytes - 2) / 4);
                let place = match into.checked_sub(2) {
                    Some(quant) => 4 * ((block * words + quant / 4) * tokens + offset) + quant % 4,
                    None => 4 * dims / 32 * words * tokens + 2 * (block * tokens + offset) + into,
                };
                head * tokens * head_bytes + place
            }
            (KvLayout::LaneMajor, KvSide::V, KvFormat::BF16) => {
                2 * (((head * tokens / 2 + offset / 2) * dims + index / 2) * 2 + offset % 2) + index % 2
            }
            _ => (head * tokens + offset) * head_bytes + index,
        };
        start + inside
    }
}

/// Writes one head.
pub(crate) fn write(
    cells: KvCells<'_>,
    case: &Case,
    side: KvSide,
    cell: (u32, usize),
    head: usize,
    values: &[f32],
) {
    let place = places(case, side, cell, head);
    for (index, value) in encode(case.format(side), values).into_iter().enumerate() {
        cells.bytes.get_mut(place(index)..place(index) + 1)[0] = value;
    }
}
