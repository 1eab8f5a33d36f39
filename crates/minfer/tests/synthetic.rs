//! Tiny models through the whole engine against recorded distributions of another program.

use minfer::cpu::Isa;
use minfer::engine::{RunnerOptions, Want};
use minfer::graph::KvFormat;
use minfer::{ContextLength, KvOptions, LoadOptions, Loaded, Machine, MachineOptions, ModelFile};
use minfer_testkit::synthetic::{self, Family};

/// Largest difference of log-probabilities that is allowed. The records have five decimals.
fn tolerance(family: Family) -> f64 {
    match family {
        // Arguments of GELU near the middle of two f16 are rounded to one or the other.
        Family::Gemma | Family::Gemma2 | Family::Gemma3 => 2e-3,
        _ => 2e-5,
    }
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let highest = logits.iter().fold(f64::NEG_INFINITY, |highest, &logit| highest.max(f64::from(logit)));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - highest).exp()).sum();
    logits.iter().map(|&logit| f64::from(logit) - highest - sum.ln()).collect()
}

fn worst_difference(family: Family, isa: Isa) -> f64 {
    let reference = synthetic::reference(family);
    let file = ModelFile::from_bytes(synthetic::file(family)).expect("a sound file");
    let machine = Machine::new(&MachineOptions { threads: Some(2), isa: Some(isa) }).expect("a machine");
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

#[test]
fn families_agree_with_recorded_distributions() {
    for &family in Family::ALL {
        for isa in Isa::available() {
            let worst = worst_difference(family, isa);
            println!("{} on {isa}: {worst:.2e}", family.name());
            assert!(worst <= tolerance(family), "{} on {isa}: {worst:.2e}", family.name());
        }
    }
}
