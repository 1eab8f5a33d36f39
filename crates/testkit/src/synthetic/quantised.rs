//! A model with quantised matrices: every row is a whole number of blocks of every type.

use half::f16;
use minfer_tensor::DType;
use minfer_tensor::blocks::{
    encode_row, iq1_m, nvfp4, q2_k, q3_k, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_k, tq1_0, tq2_0,
};

use super::file::{ModelFile, TensorData};
use super::metadata::put_tokenizer;
use super::numpy::NormalRng;

/// The width of [`quantised`] models.
pub const QUANTISED_WIDTH: usize = 256;

const LAYERS: usize = 2;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 64;
const FEED_FORWARD: usize = 512;
const SEED: u32 = 2718;

/// A llama of two layers whose matrices (embedding and output too) are stored as `dtype`; norms are
/// F32. Width 256, 4 heads on 2 KV heads, feed-forward 512, a vocabulary of 269.
///
/// F32, F16, BF16, Q8_0, Q4_0, IQ4_NL and MXFP4 hold encoded normals. The other types hold random
/// bits under scales that keep the values near a variance of 1 / columns, so every field of a block
/// takes every value. [`TensorData::values`] gives the decoded f32 weights.
///
/// # Panics
/// `dtype` holds integers.
pub fn quantised(dtype: DType) -> ModelFile {
    let mut model = ModelFile::default();
    put_metadata(&mut model, dtype);
    let mut maker = Maker { rng: NormalRng::new(SEED), dtype };
    let vocab = model.metadata.iter().find_map(|(key, value)| match (key.as_str(), value) {
        ("llama.vocab_size", super::Value::U32(vocab)) => Some(*vocab as usize),
        _ => None,
    });
    let vocab = vocab.expect("set above");
    let mut tensors = vec![
        maker.matrix("token_embd.weight", vocab, QUANTISED_WIDTH),
        maker.norm("output_norm.weight", QUANTISED_WIDTH),
        maker.matrix("output.weight", vocab, QUANTISED_WIDTH),
    ];
    tensors.extend((0..LAYERS).flat_map(|layer| layer_tensors(&mut maker, layer)));
    model.tensors = tensors;
    model
}

/// A random matrix of a type, as in [`quantised`] models: values have a deviation of about 1 /
/// sqrt(columns).
///
/// # Panics
/// `dtype` holds integers, or `columns` is no whole number of its blocks.
pub(crate) fn random_matrix(dtype: DType, seed: u32, name: &str, rows: usize, columns: usize) -> TensorData {
    assert!(columns.is_multiple_of(dtype.block_len()), "{columns} columns of {dtype}");
    Maker { rng: NormalRng::new(seed), dtype }.matrix(name, rows, columns)
}

fn layer_tensors(maker: &mut Maker, layer: usize) -> [TensorData; 9] {
    let name = |tail: &str| format!("blk.{layer}.{tail}.weight");
    let (q_width, kv_width) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
    [
        maker.norm(&name("attn_norm"), QUANTISED_WIDTH),
        maker.matrix(&name("attn_q"), q_width, QUANTISED_WIDTH),
        maker.matrix(&name("attn_k"), kv_width, QUANTISED_WIDTH),
        maker.matrix(&name("attn_v"), kv_width, QUANTISED_WIDTH),
        maker.matrix(&name("attn_output"), QUANTISED_WIDTH, q_width),
        maker.norm(&name("ffn_norm"), QUANTISED_WIDTH),
        maker.matrix(&name("ffn_gate"), FEED_FORWARD, QUANTISED_WIDTH),
        maker.matrix(&name("ffn_up"), FEED_FORWARD, QUANTISED_WIDTH),
        maker.matrix(&name("ffn_down"), QUANTISED_WIDTH, FEED_FORWARD),
    ]
}

fn put_metadata(model: &mut ModelFile, dtype: DType) {
    model.set("general.architecture", "llama");
    model.set("general.name", format!("synthetic {dtype}").as_str());
    put_tokenizer(model);
    let tokens = model.metadata.iter().find_map(|(_, value)| match value {
        super::Value::Texts(tokens) => Some(tokens.len() as u32),
        _ => None,
    });
    model.set("llama.context_length", 2048);
    model.set("llama.embedding_length", QUANTISED_WIDTH as u32);
    model.set("llama.block_count", LAYERS as u32);
    model.set("llama.feed_forward_length", FEED_FORWARD as u32);
    model.set("llama.attention.head_count", HEADS as u32);
    model.set("llama.attention.head_count_kv", KV_HEADS as u32);
    model.set("llama.vocab_size", tokens.expect("the tokenizer has tokens"));
    model.set("llama.rope.dimension_count", HEAD_DIM as u32);
    model.set("llama.rope.freq_base", 10_000.0);
    model.set("llama.attention.layer_norm_rms_epsilon", 1e-5);
}

struct Maker {
    rng: NormalRng,
    dtype: DType,
}

impl Maker {
    fn norm(&mut self, name: &str, len: usize) -> TensorData {
        let values: Vec<f32> = (0..len).map(|_| 1.0 + 0.4 * self.rng.standard_normal() as f32).collect();
        TensorData::from_f32(name, &[len], &values)
    }

    fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> TensorData {
        let deviation = 1.0 / (columns as f32).sqrt();
        let bytes = match self.dtype {
            DType::F32
            | DType::F16
            | DType::BF16
            | DType::Q8_0
            | DType::Q4_0
            | DType::IQ4_NL
            | DType::MXFP4 => self.encoded(rows * columns, deviation),
            DType::I32 | DType::U32 => panic!("{} holds no weights", self.dtype),
            _ => self.random_blocks(rows * columns, deviation),
        };
        TensorData { name: name.to_owned(), dims: vec![rows, columns], dtype: self.dtype, bytes }
    }

    fn encoded(&mut self, count: usize, deviation: f32) -> Vec<u8> {
        let values: Vec<f32> = (0..count).map(|_| self.rng.standard_normal() as f32 * deviation).collect();
        let mut bytes = vec![0; self.block_bytes(count)];
        encode_row(self.dtype, &values, &mut bytes).expect("normals can be encoded");
        bytes
    }

    fn random_blocks(&mut self, count: usize, deviation: f32) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(self.block_bytes(count));
        while bytes.len() < self.block_bytes(count) {
            let mut block: Vec<u8> = Vec::with_capacity(self.dtype.block_bytes() + 8);
            while block.len() < self.dtype.block_bytes() {
                block.extend(self.rng.next_u64().to_le_bytes());
            }
            block.truncate(self.dtype.block_bytes());
            self.put_scales(&mut block, deviation);
            bytes.extend(block);
        }
        bytes
    }

    /// Scales under which uniformly random quants have about the given deviation and a mean near 0.
    fn put_scales(&mut self, block: &mut [u8], deviation: f32) {
        // From 0.75 to 1.25, so that no two blocks are alike.
        let random = self.rng.next_u64();
        let spread = 0.75 + (random >> 40) as f32 / (1 << 25) as f32;
        let mut put = |at: usize, value: f32| {
            block[at..at + 2].copy_from_slice(&f16::from_f32(value * deviation * spread).to_le_bytes());
        };
        // Deviations of uniform integers: 4.6 of 16, 9.2 of 32, 74 of 256; of a six-bit scale x
        // four-bit quant minus a six-bit minimum x 7.5 about 260, with a five-bit quant and 15.5
        // about 527, of four bits x two bits minus four bits x 1.5 about 13.9; of an eight-bit
        // scale x six-bit quant about 1370, of six bits x three bits about 43. Codebook types begin
        // with their scale, and their random fields have the deviations below.
        match self.dtype {
            DType::Q4_1 => {
                put(q4_1::SCALE_AT, 1.0 / 4.6);
                put(q4_1::MIN_AT, -7.5 / 4.6);
            }
            DType::Q5_0 => put(q5_0::SCALE_AT, -1.0 / 9.2),
            DType::Q5_1 => {
                put(q5_1::SCALE_AT, 1.0 / 9.2);
                put(q5_1::MIN_AT, -15.5 / 9.2);
            }
            DType::Q4_K => {
                put(q4_k::SCALE_AT, 1.0 / 260.0);
                put(q4_k::MIN_AT, 7.5 / 260.0);
            }
            DType::Q2_K => {
                put(q2_k::SCALE_AT, 1.0 / 13.9);
                put(q2_k::MIN_AT, 1.5 / 13.9);
            }
            DType::Q3_K => put(q3_k::SCALE_AT, 1.0 / 43.3),
            DType::Q5_K => {
                put(q5_k::SCALE_AT, 1.0 / 527.0);
                put(q5_k::MIN_AT, 15.5 / 527.0);
            }
            DType::Q6_K => put(q6_k::SCALE_AT, 1.0 / 1370.0),
            DType::IQ4_XS => put(0, 1.0 / 1250.0),
            DType::IQ3_XXS | DType::IQ3_S => put(0, 1.0 / 141.0),
            DType::IQ2_XXS | DType::IQ2_XS | DType::IQ2_S => put(0, 1.0 / 55.0),
            DType::IQ1_S => put(0, 1.0 / 7.2),
            DType::IQ1_M => iq1_m::put_scale(block, f16::from_f32(deviation * spread / 7.2).to_bits()),
            DType::NVFP4 => block[..nvfp4::SUBS].fill(nearest_scale(deviation * spread / 5.85)),
            DType::Q8_K => {
                block[q8_k::SCALE_AT..q8_k::QUANTS_AT]
                    .copy_from_slice(&(deviation * spread / 73.9).to_le_bytes());
            }
            DType::TQ1_0 => put(tq1_0::SCALE_AT, 1.0 / 0.816),
            // Quants of two bits from -1 to 2 have a mean of 0.5, which scales of both signs take
            // away.
            DType::TQ2_0 => put(tq2_0::SCALE_AT, if random & 1 == 0 { 1.0 } else { -1.0 } / 1.225),
            other => unreachable!("{other} is encoded from values"),
        }
    }

    fn block_bytes(&self, count: usize) -> usize {
        count / self.dtype.block_len() * self.dtype.block_bytes()
    }
}

/// The byte whose scale in NVFP4 is nearest.
fn nearest_scale(wanted: f32) -> u8 {
    let distance = |byte: &u8| (nvfp4::scale(*byte) - wanted).abs();
    (0..0x7f).min_by(|a, b| distance(a).total_cmp(&distance(b))).expect("there are bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_every_type_look_like_weights() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_real()) {
            let mut model = quantised(dtype);
            let tensor = model.tensor("blk.1.ffn_down.weight");
            assert_eq!((tensor.dtype, &*tensor.dims), (dtype, &[QUANTISED_WIDTH, FEED_FORWARD][..]));
            let values = tensor.values();
            let count = values.len() as f64;
            let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
            let square = values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>() / count;
            let deviation = (square * FEED_FORWARD as f64).sqrt();
            assert!((0.9..1.1).contains(&deviation), "{dtype}: {deviation}");
            assert!(mean.abs() < 0.1 * square.sqrt(), "{dtype}: mean {mean}");
        }
    }

    #[test]
    fn every_call_gives_the_same_model() {
        assert_eq!(quantised(DType::Q6_K), quantised(DType::Q6_K));
    }
}
