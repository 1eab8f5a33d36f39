//! One answer: the logits of a sequence are the same bits however they are computed.

mod variant;

use minfer::ModelFile;
use minfer::cpu::Isa;
use minfer::engine::kv::Placement;
use minfer::graph::KvFormat;
use minfer::tensor::DType;
use minfer_testkit::synthetic::{self, Family};
use variant::{Mates, Variant, logits};

/// Positions of the prompts: beyond ten tiles.
const POSITIONS: usize = 700;

fn prompt(vocabulary: u32, positions: usize) -> Vec<u32> {
    (0..positions as u32).map(|index| (index * index * 7 + index * 13 + 5) % vocabulary).collect()
}

fn synthetic_file(mut model: synthetic::ModelFile) -> ModelFile {
    model.set_context_length(2048);
    ModelFile::from_bytes(model.to_bytes()).expect("a sound file")
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
    let expected = logits(file, format, prompt, Variant { isa: Isa::best(), ..Variant::PLAIN });
    assert!(
        expected.iter().all(|&bits| f32::from_bits(bits).is_finite()),
        "{name}: logits that are no numbers"
    );
    let width = expected.len() / prompt.len();
    for &variant in variants {
        let seen = if variant.isa == Isa::Scalar { &prompt[..portable] } else { prompt };
        let found = logits(file, format, seen, variant);
        assert_eq!(found.len(), seen.len() * width);
        if let Some(index) = (0..found.len()).find(|&index| found[index] != expected[index]) {
            let (position, token) = (index / width, index % width);
            let [found, expected] = [found[index], expected[index]].map(f32::from_bits);
            panic!(
                "{name}, {format}, {variant:?}: position {position}, token {token}: {found} is not {expected}"
            );
        }
    }
}

/// Every combination of the factors.
fn product(isas: &[Isa], threads: &[usize], chunks: &[usize]) -> Vec<Variant> {
    let mut variants = Vec::new();
    for &isa in isas {
        for &threads in threads {
            for &chunk in chunks {
                for mates in [Mates::None, Mates::After, Mates::Around] {
                    for placement in [Placement::Fresh, Placement::Shuffled(7)] {
                        variants.push(Variant { isa, threads, chunk, mates, placement, ..Variant::PLAIN });
                    }
                }
            }
        }
    }
    variants
}

/// Every value of every factor at least once, and pairs that interact.
fn sample() -> Vec<Variant> {
    let plain = Variant::PLAIN;
    let mut variants = Vec::new();
    for isa in Isa::available() {
        let shuffled = Placement::Shuffled(3);
        variants.push(Variant { isa, threads: 2, chunk: 64, ..plain });
        variants.push(Variant {
            isa,
            threads: 3,
            chunk: 7,
            mates: Mates::Around,
            placement: shuffled,
            ..plain
        });
    }
    let best = Variant { isa: Isa::best(), ..plain };
    variants.extend([
        Variant { chunk: 1, ..best },
        Variant { chunk: 1, threads: 3, mates: Mates::After, placement: Placement::Shuffled(11), ..best },
        Variant { block_tokens: 16, threads: 2, placement: Placement::Shuffled(5), ..best },
        Variant { block_tokens: 128, chunk: 100, ..best },
        Variant { rewritten: false, threads: 2, ..best },
        Variant { head_rows: 1, ..best },
        Variant { head_rows: 64, threads: 2, chunk: 33, ..best },
    ]);
    variants
}

#[test]
fn the_full_product_on_a_tiny_model() {
    let isas: Vec<Isa> = Isa::available().collect();
    println!("instruction sets: {isas:?}");
    let file = synthetic_file(Family::Qwen2.model());
    let prompt = prompt(260, POSITIONS);
    check("qwen2", &file, KvFormat::F16, &prompt, &product(&isas, &[1, 2, 3], &[7, 64, 512]));
    check("qwen2", &file, KvFormat::F16, &prompt, &product(&[Isa::best()], &[1, 2], &[1]));
}

#[test]
fn every_family_and_format() {
    for &family in Family::ALL {
        let file = synthetic_file(family.model());
        // The format decides attention's arithmetic, which families share but for the size of heads.
        let formats = match family {
            Family::Qwen2 | Family::LlamaOdd => &KvFormat::ALL[..],
            _ => &[KvFormat::F16],
        };
        for &format in formats {
            // Sixteen times the layers of others: two blocks and a window show what they would show.
            let (positions, portable) =
                if family == Family::Exaone432b { (150, 40) } else { (POSITIONS, 150) };
            check_portable(family.name(), &file, format, &prompt(260, positions), &sample(), portable);
        }
    }
}

#[test]
fn every_weight_type() {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_real()) {
        let file = synthetic_file(synthetic::quantised(dtype));
        check_portable(dtype.name(), &file, KvFormat::F16, &prompt(260, 300), &sample(), 70);
    }
}

#[test]
fn spans_of_a_long_sequence() {
    let file = synthetic_file(Family::Llama.model());
    let prompt = prompt(260, 2040);
    let best = Variant { isa: Isa::best(), ..Variant::PLAIN };
    let variants = [
        Variant { threads: 2, chunk: 1, ..best },
        Variant { threads: 3, chunk: 500, mates: Mates::After, ..best },
        Variant { isa: Isa::Scalar, threads: 2, chunk: 512, placement: Placement::Shuffled(2), ..best },
    ];
    for format in KvFormat::ALL {
        check("llama", &file, format, &prompt, &variants);
    }
}

/// A real model, where the environment says that test models are present.
fn real(file: &str, scalar_positions: usize) {
    let Some(folder) = std::env::var_os("MINFER_TEST_MODELS") else {
        println!("skipped {file}: MINFER_TEST_MODELS does not name a folder of models");
        return;
    };
    let file = ModelFile::open(&std::path::Path::new(&folder).join(file)).expect("the test model");
    let tokenizer = file.tokenizer(None).expect("a tokenizer");
    let text = include_str!("../../../../LICENSE-APACHE");
    let mut prompt = tokenizer.encode(text, minfer::text::EncodeOptions::default()).unwrap();
    prompt.truncate(POSITIONS);
    assert_eq!(prompt.len(), POSITIONS);
    let best = Variant { isa: Isa::best(), ..Variant::PLAIN };
    let shuffled = Placement::Shuffled(9);
    let variants = [
        Variant { threads: 2, chunk: 64, mates: Mates::Around, placement: shuffled, ..best },
        Variant { threads: 3, chunk: 7, ..best },
        Variant { isa: Isa::available().rev_second(), threads: 2, ..best },
    ];
    check("real", &file, KvFormat::F16, &prompt, &variants);
    check("real", &file, KvFormat::BF16, &prompt[..100], &variants);
    let single = Variant { chunk: 1, threads: 2, ..best };
    let scalar = Variant { isa: Isa::Scalar, threads: 2, ..best };
    check("real", &file, KvFormat::F16, &prompt[..scalar_positions], &[single, scalar]);
}

/// The instruction set below the best, so that a real model runs on it in full.
trait RevSecond {
    fn rev_second(self) -> Isa;
}

impl<I: Iterator<Item = Isa>> RevSecond for I {
    fn rev_second(self) -> Isa {
        let all: Vec<Isa> = self.collect();
        all[all.len().saturating_sub(2)]
    }
}

#[test]
fn smollm2() {
    real("smollm2-135m-instruct-q4_1.gguf", 130);
}

#[test]
fn qwen_coder() {
    real("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", 65);
}

/// 700 tokens pass its window of 512.
#[test]
fn gemma3() {
    real("gemma3-270m-q4_k_m.gguf", 20);
}
