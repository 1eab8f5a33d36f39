//! One answer: the logits of a sequence are the same bits however they are computed.

mod pairwise;
mod subject;
mod variant;

use minfer::ModelFile;
use minfer::cpu::Isa;
use minfer::engine::kv::BlockOrder;
use minfer::graph::{KvFormat, KvLayout};
use minfer::models::ModelOptions;
use minfer::tensor::DType;
use minfer_testkit::fetched;
use minfer_testkit::synthetic::{self, Family};
use pairwise::pairwise;
use subject::Subject;
use variant::{Mates, Prefix, Variant};

/// Positions of the prompts: beyond ten tiles.
const POSITIONS: usize = 700;
/// Those where all combinations are tried: two blocks of 64, the beginning ends in the first.
const FEW_POSITIONS: usize = 70;

fn prompt(vocabulary: u32, positions: usize) -> Vec<u32> {
    (0..positions as u32).map(|index| (index * index * 7 + index * 13 + 5) % vocabulary).collect()
}

fn synthetic_file(mut model: synthetic::ModelFile) -> ModelFile {
    model.set_context_length(2048);
    ModelFile::from_bytes(model.to_bytes()).expect("a sound file")
}

/// The formats that can store a model's heads.
fn storable(file: &ModelFile) -> Vec<KvFormat> {
    let model = file.model(&ModelOptions::default()).expect("a model");
    let can_store = |&format: &KvFormat| model.kv_spec(format, format, KvLayout::LaneMajor, 64, 1).is_ok();
    KvFormat::ALL.into_iter().filter(can_store).collect()
}

/// Compares each variant with the plain one.
fn check(name: &str, file: &ModelFile, format: KvFormat, prompt: &[u32], variants: &[Variant]) {
    check_portable(name, file, format, prompt, variants, prompt.len());
}

/// As [`check`], but portable code, which is slow, only sees the prompt's first `portable` tokens.
fn check_portable(
    name: &str,
    file: &ModelFile,
    format: KvFormat,
    prompt: &[u32],
    variants: &[Variant],
    portable: usize,
) {
    let mut subject = Subject::new(file, format, prompt);
    let expected = subject.logits(prompt.len(), Variant { isa: Isa::best(), ..Variant::PLAIN }).bits;
    assert!(
        expected.iter().all(|&bits| f32::from_bits(bits).is_finite()),
        "{name}: logits that are no numbers"
    );
    let width = expected.len() / prompt.len();
    for &variant in variants {
        let positions = if variant.isa == Isa::Scalar { portable } else { prompt.len() };
        let found = subject.logits(positions, variant);
        assert_eq!(found.first > 0, variant.prefix != Prefix::Computed);
        assert_eq!(found.bits.len(), (positions - found.first) * width);
        let expected = &expected[found.first * width..];
        if let Some(index) = (0..found.bits.len()).find(|&index| found.bits[index] != expected[index]) {
            let (position, token) = (found.first + index / width, index % width);
            let [found, expected] = [found.bits[index], expected[index]].map(f32::from_bits);
            panic!(
                "{name}, {format}, {variant:?}: position {position}, token {token}: {found} is not {expected}"
            );
        }
    }
}

const LAYOUTS: [KvLayout; 3] = [KvLayout::LaneMajor, KvLayout::HeadMajor, KvLayout::SeqMajor];
const BLOCKS: [u32; 2] = [64, 16];
const PREFIXES: [Prefix; 4] = [Prefix::Computed, Prefix::Reused, Prefix::Shared, Prefix::Restored];

/// Every combination of how sequences are fed and placed.
fn feeds(plain: Variant, chunks: &[usize]) -> Vec<Variant> {
    let mut variants = Vec::new();
    for &chunk in chunks {
        for mates in [Mates::None, Mates::After, Mates::Around] {
            for block_order in [BlockOrder::LowestFirst, BlockOrder::Shuffled(7)] {
                variants.push(Variant { chunk, mates, block_order, ..plain });
            }
        }
    }
    variants
}

/// Every combination of where rows come from and how they lie.
fn stores(plain: Variant) -> Vec<Variant> {
    let mut variants = Vec::new();
    for layout in LAYOUTS {
        for block_tokens in BLOCKS {
            for prefix in PREFIXES {
                variants.push(Variant { layout, block_tokens, prefix, ..plain });
            }
        }
    }
    variants
}

/// Every combination of all factors.
fn product(isas: &[Isa], chunks: &[usize]) -> Vec<Variant> {
    let mut variants = Vec::new();
    for &isa in isas {
        for threads in [1, 2, 3] {
            for store in stores(Variant { isa, threads, ..Variant::PLAIN }) {
                variants.extend(feeds(store, chunks));
            }
        }
    }
    variants
}

/// Every value of every factor at least once, and pairs that interact.
fn sample() -> Vec<Variant> {
    let plain = Variant::PLAIN;
    let [_, head_major, seq_major] = LAYOUTS;
    let mut variants = Vec::new();
    for isa in Isa::available() {
        let block_order = BlockOrder::Shuffled(3);
        variants.push(Variant { isa, threads: 2, chunk: 64, ..plain });
        let odd = Variant { isa, threads: 3, chunk: 7, mates: Mates::Around, block_order, ..plain };
        variants.push(Variant { layout: seq_major, block_tokens: 16, prefix: Prefix::Shared, ..odd });
    }
    let best = Variant { isa: Isa::best(), ..plain };
    let single = Variant { chunk: 1, threads: 3, mates: Mates::After, ..best };
    variants.extend([
        Variant { chunk: 1, ..best },
        Variant { layout: head_major, block_order: BlockOrder::Shuffled(11), ..single },
        Variant { block_tokens: 16, threads: 2, block_order: BlockOrder::Shuffled(5), ..best },
        Variant { block_tokens: 128, chunk: 100, prefix: Prefix::Reused, ..best },
        Variant { layout: seq_major, prefix: Prefix::Restored, block_order: BlockOrder::Shuffled(8), ..best },
        Variant { layout: head_major, block_tokens: 16, prefix: Prefix::Restored, ..best },
        Variant { rewritten: false, threads: 2, layout: seq_major, ..best },
        Variant { head_rows: 1, layout: head_major, prefix: Prefix::Reused, ..best },
        Variant { head_rows: 64, threads: 2, chunk: 33, prefix: Prefix::Shared, ..best },
    ]);
    variants
}

/// Compares variants of the small Qwen2 model over the first `positions` positions of a prompt.
fn check_qwen2(positions: usize, variants: &[Variant]) {
    let file = synthetic_file(Family::Qwen2.model());
    println!("{} ways", variants.len());
    check("qwen2", &file, KvFormat::F16, &prompt(260, positions), variants);
}

/// Every pair of values of two factors; [`nightly`] has the full product.
#[test]
fn pairs_of_factors() {
    let isas: Vec<Isa> = Isa::available().collect();
    check_qwen2(FEW_POSITIONS, &pairwise(&product(&isas, &[1, 7, 512])));
}

#[test]
fn pairs_of_factors_past_ten_tiles() {
    let isas: Vec<Isa> = Isa::available().collect();
    check_qwen2(POSITIONS, &pairwise(&product(&isas, &[7, 64, 512])));
    check_qwen2(POSITIONS, &pairwise(&product(&[Isa::best()], &[1]))[..4]);
}

/// The full products.
mod nightly {
    use super::*;

    #[test]
    #[ignore = "takes minutes: run by `cargo xtask test --nightly`"]
    fn all_combinations_on_portable_code() {
        check_qwen2(FEW_POSITIONS, &product(&[Isa::Scalar], &[1, 7, 512]));
    }

    #[test]
    #[ignore = "takes minutes: run by `cargo xtask test --nightly`"]
    fn all_combinations_on_vectors() {
        let isas: Vec<Isa> = Isa::available().filter(|&isa| isa != Isa::Scalar).collect();
        check_qwen2(FEW_POSITIONS, &product(&isas, &[1, 7, 512]));
    }

    #[test]
    #[ignore = "takes minutes: run by `cargo xtask test --nightly`"]
    fn all_combinations_past_ten_tiles() {
        check_qwen2(POSITIONS, &product(&[Isa::best()], &[7, 64, 512]));
    }
}

#[test]
fn every_family() {
    for &family in Family::ALL {
        let file = synthetic_file(family.model());
        // Windows and caps need many tiles. Others differ in sizes of heads and in their parts
        // only, which few tiles show; the family with sixteen times the layers of others needs
        // fewer still.
        let (positions, portable) = match family {
            Family::Qwen2 | Family::LlamaOdd | Family::Gemma2 | Family::Gemma3 => (POSITIONS, 80),
            Family::Exaone432b => (100, 40),
            // Contexts of more than 64 positions have other rope factors: all variants are past them.
            Family::Phi3Long => (150, 70),
            _ => (150, 40),
        };
        check_portable(family.name(), &file, KvFormat::F16, &prompt(260, positions), &sample(), portable);
    }
}

/// The format of rows decides attention's arithmetic, which families share but for head sizes,
/// windows and caps.
#[test]
fn every_format_of_rows() {
    for family in [Family::Qwen2, Family::LlamaOdd, Family::Gemma2, Family::Gemma3] {
        let file = synthetic_file(family.model());
        for format in storable(&file).into_iter().filter(|&format| format != KvFormat::F16) {
            check_portable(family.name(), &file, format, &prompt(260, 300), &sample(), 80);
        }
    }
}

/// The type of weights decides the arithmetic of products, which see tokens and threads, but no
/// rows of the cache.
#[test]
fn every_weight_type() {
    let best = Variant { isa: Isa::best(), ..Variant::PLAIN };
    let mut variants = vec![
        Variant { chunk: 1, threads: 2, ..best },
        Variant { chunk: 1, threads: 3, mates: Mates::After, ..best },
        Variant { chunk: 33, threads: 2, head_rows: 64, ..best },
        Variant { rewritten: false, threads: 2, ..best },
    ];
    for isa in Isa::available() {
        variants.push(Variant { isa, threads: 2, chunk: 64, ..Variant::PLAIN });
        variants.push(Variant { isa, threads: 3, chunk: 7, mates: Mates::Around, ..Variant::PLAIN });
    }
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_real()) {
        let file = synthetic_file(synthetic::quantised(dtype));
        check_portable(dtype.name(), &file, KvFormat::F16, &prompt(260, 300), &variants, 40);
    }
}

#[test]
fn spans_of_a_long_sequence() {
    let file = synthetic_file(Family::Qwen3.model());
    let prompt = prompt(260, 2040);
    let best = Variant { isa: Isa::best(), ..Variant::PLAIN };
    let [_, head_major, seq_major] = LAYOUTS;
    let shared = Variant { prefix: Prefix::Shared, layout: seq_major, ..best };
    let scalar = Variant { isa: Isa::Scalar, block_tokens: 16, layout: head_major, ..best };
    let variants = [
        Variant { threads: 2, chunk: 1, ..best },
        Variant { threads: 3, chunk: 500, mates: Mates::After, ..shared },
        Variant { threads: 3, chunk: 9, prefix: Prefix::Restored, block_tokens: 16, ..best },
        Variant { threads: 2, block_order: BlockOrder::Shuffled(2), ..scalar },
    ];
    let formats = storable(&file);
    assert_eq!(formats, KvFormat::ALL);
    for format in formats {
        check("qwen3", &file, format, &prompt, &variants);
    }
}

fn real(file: &str, scalar_positions: usize) {
    let file = ModelFile::open(&fetched::model(file)).expect("the test model");
    let tokenizer = file.tokenizer(None).expect("a tokenizer");
    let text = include_str!("../../../../LICENSE-APACHE");
    let mut prompt = tokenizer.encode(text, minfer::text::EncodeOptions::default()).unwrap();
    prompt.truncate(POSITIONS);
    assert_eq!(prompt.len(), POSITIONS);
    let best = Variant { isa: Isa::best(), ..Variant::PLAIN };
    let [_, head_major, seq_major] = LAYOUTS;
    let mates = Variant { threads: 2, mates: Mates::Around, block_order: BlockOrder::Shuffled(9), ..best };
    let restored = Variant { prefix: Prefix::Restored, layout: head_major, ..best };
    let mut variants = vec![
        Variant { chunk: 64, layout: seq_major, block_tokens: 16, prefix: Prefix::Shared, ..mates },
        Variant { threads: 3, chunk: 7, layout: head_major, prefix: Prefix::Reused, ..best },
        Variant { threads: 2, chunk: 50, block_tokens: 16, ..restored },
    ];
    // The instruction set below the best; portable code is too slow for a long prompt.
    let below = Isa::available().filter(|&isa| isa != Isa::Scalar && isa != Isa::best()).last();
    variants.extend(below.map(|isa| Variant { isa, threads: 2, layout: seq_major, ..best }));
    check("real", &file, KvFormat::F16, &prompt, &variants);
    for format in [KvFormat::BF16, KvFormat::Q8_0, KvFormat::Q4_0] {
        check("real", &file, format, &prompt[..100], &variants);
    }
    let single = Variant { chunk: 1, threads: 2, ..best };
    let scalar = Variant { isa: Isa::Scalar, threads: 2, ..best };
    check("real", &file, KvFormat::F16, &prompt[..scalar_positions], &[single, scalar]);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn smollm2() {
    real("smollm2-135m-instruct-q4_1.gguf", 70);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn qwen_coder() {
    real("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", 24);
}

/// 700 tokens pass its window of 512.
#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn gemma3() {
    real("gemma3-270m-q4_k_m.gguf", 20);
}
