//! Tiny models through the whole engine, against log-probabilities recorded with llama.cpp.

mod common;

use common::logits_of;
use minfer::cpu::Isa;
use minfer::engine::{RunnerOptions, Want};
use minfer::graph::KvFormat;
use minfer::{ContextLength, KvOptions, LoadError, LoadOptions, Loaded, Machine, MachineOptions, ModelFile};
use minfer_testkit::synthetic::{self, Family};

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let highest = logits.iter().fold(f64::NEG_INFINITY, |highest, &logit| highest.max(f64::from(logit)));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - highest).exp()).sum();
    logits.iter().map(|&logit| f64::from(logit) - highest - sum.ln()).collect()
}

fn worst_difference(family: Family, isa: Isa) -> f64 {
    let reference = synthetic::reference(family);
    let file = ModelFile::from_bytes(synthetic::file(family)).expect("a sound file");
    let machine =
        Machine::new(&MachineOptions { threads: Some(2), isa: Some(isa), ..MachineOptions::default() })
            .expect("a machine");
    let options = LoadOptions {
        n_ctx: ContextLength::AtMost(512),
        kv: KvOptions { k_format: KvFormat::F32, v_format: KvFormat::F32, ..KvOptions::default() },
        ..LoadOptions::default()
    };
    let loaded = Loaded::new(&machine, &file, &options).expect("the model loads");
    let mut runner = loaded.into_runner(RunnerOptions::default());
    let sequence = runner.open();
    let mut worst: f64 = 0.0;
    let mut compared = 0;
    runner
        .feed(&[(sequence, &reference.tokens)], Want::All, |row| {
            let position = reference.positions.iter().position(|&position| position == row.position);
            let Some(index) = position else { return };
            compared += 1;
            for (found, expected) in log_softmax(row.logits).iter().zip(&reference.logprobs[index]) {
                worst = worst.max((found - f64::from(*expected)).abs());
            }
        })
        .expect("the model runs");
    assert_eq!(compared, reference.positions.len(), "every recorded position was compared");
    worst
}

fn load(file: &ModelFile, options: &LoadOptions) -> Result<Loaded, LoadError> {
    let machine = Machine::new(&MachineOptions { threads: Some(2), isa: None, ..MachineOptions::default() })
        .expect("a machine");
    Loaded::new(&machine, file, options)
}

/// The logits of every position of a few tokens.
fn logits(file: &ModelFile) -> Vec<u32> {
    let options = LoadOptions { n_ctx: ContextLength::AtMost(64), ..LoadOptions::default() };
    logits_of(load(file, &options).expect("the model loads"))
}

#[test]
fn a_split_model_gives_the_bits_of_the_whole_one() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("split");
    std::fs::create_dir_all(&folder).unwrap();
    let model = Family::Llama.model();
    let whole = logits(&ModelFile::from_bytes(model.to_bytes()).unwrap());
    assert!(!whole.is_empty());
    let path = |number: usize| folder.join(format!("tiny-{:05}-of-00003.gguf", number + 1));
    for (number, bytes) in model.to_parts(3).iter().enumerate() {
        std::fs::write(path(number), bytes).unwrap();
    }
    for number in 0..3 {
        let file = ModelFile::open(&path(number)).unwrap();
        assert_eq!(file.gguf().parts().len(), 3);
        assert_eq!(logits(&file), whole, "part {number} named");
    }
}

/// The rotation follows from the context that is asked for. Files with one list of factors twice
/// say what each gives.
#[test]
fn a_short_prompt_without_a_context_gets_the_factors_for_short_ones() {
    let (long, short) = ("rope_factors_long.weight", "rope_factors_short.weight");
    let with_both = |name: &str| {
        let mut model = Family::Phi3Long.model();
        let bytes = model.tensor(name).bytes.clone();
        [long, short].into_iter().for_each(|name| model.tensor(name).bytes.clone_from(&bytes));
        ModelFile::from_bytes(model.to_bytes()).expect("a sound file")
    };
    let file = ModelFile::from_bytes(synthetic::file(Family::Phi3Long)).expect("a sound file");
    let answer = |file: &ModelFile, n_ctx| {
        logits_of(load(file, &LoadOptions { n_ctx, ..LoadOptions::default() }).expect("the model loads"))
    };
    let [of_long, of_short] = [long, short].map(|name| answer(&with_both(name), ContextLength::Auto));
    assert_ne!(of_long, of_short);
    for (n_ctx, wanted) in [
        (ContextLength::Auto, &of_short),
        (ContextLength::AtMost(64), &of_short),
        (ContextLength::Fixed(64), &of_short),
        (ContextLength::Fixed(65), &of_long),
        (ContextLength::AtMost(512), &of_long),
    ] {
        assert!(answer(&file, n_ctx) == *wanted, "{n_ctx:?}");
    }
    assert_eq!(load(&file, &LoadOptions::default()).expect("the model loads").n_ctx, 64);
}

#[test]
fn families_agree_with_recorded_distributions() {
    for &family in Family::ALL {
        for isa in Isa::available() {
            let worst = worst_difference(family, isa);
            println!("{} on {isa}: {worst:.2e}", family.name());
            assert!(worst <= family.tolerance(), "{} on {isa}: {worst:.2e}", family.name());
        }
    }
}
