//! Recorded checksums of the logits of tiny models, in `bits.json`.
//!
//! They hold for every instruction set that the contract test covers. A change that alters them on
//! purpose says so in its commit, with the distance to the exact model before and after, and
//! records anew: `MINFER_RECORD_BITS=1 cargo test -p minfer --test bits`.

use std::collections::BTreeMap;
use std::path::Path;

use minfer::cpu::Isa;
use minfer::engine::{RunnerOptions, Want};
use minfer::graph::{KvFormat, KvSpecError};
use minfer::tensor::DType;
use minfer::{ContextLength, KvOptions, LoadError, LoadOptions, Loaded, Machine, MachineOptions, ModelFile};
use minfer_testkit::synthetic::{self, Family};

/// Beyond one span of 1024 positions and several tiles of the next.
const POSITIONS: u32 = 1200;

/// FNV-1a of the bits of all logits at every 37th position.
/// None where the format cannot store the model's heads.
fn checksum(mut model: synthetic::ModelFile, format: KvFormat) -> Option<String> {
    model.set_context_length(2048);
    let file = ModelFile::from_bytes(model.to_bytes()).expect("a sound file");
    let machine = Machine::new(&MachineOptions {
        threads: Some(2),
        isa: Some(Isa::best()),
        ..MachineOptions::default()
    })
    .expect("a machine");
    let options = LoadOptions {
        n_ctx: ContextLength::Fixed(POSITIONS + 1),
        kv: KvOptions { k_format: format, v_format: format, ..KvOptions::default() },
        ..LoadOptions::default()
    };
    let loaded = match Loaded::new(&machine, &file, &options) {
        Err(LoadError::Kv(KvSpecError::PartBlock { .. })) => return None,
        loaded => loaded.expect("loads"),
    };
    let mut runner = loaded.into_runner(RunnerOptions::default());
    let prompt: Vec<u32> = (0..POSITIONS).map(|index| (index * index * 7 + index * 13 + 5) % 260).collect();
    let sequence = runner.open();
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for chunk in prompt.chunks(512) {
        let read = |row: minfer::engine::Row<'_>| {
            if row.position.is_multiple_of(37) {
                for byte in row.logits.iter().flat_map(|logit| logit.to_bits().to_le_bytes()) {
                    sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        };
        runner.feed(&[(sequence, chunk)], Want::All, read).expect("runs");
    }
    Some(format!("{sum:016x}"))
}

#[test]
fn logits_have_the_recorded_bits() {
    let mut found = BTreeMap::new();
    for &family in Family::ALL {
        for format in KvFormat::ALL {
            if let Some(sum) = checksum(family.model(), format) {
                found.insert(format!("{} {format}", family.name()), sum);
            }
        }
    }
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_real()) {
        let sum = checksum(synthetic::quantised(dtype), KvFormat::F16);
        found.insert(format!("{dtype} f16"), sum.expect("f16 stores every head"));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bits.json");
    if std::env::var_os("MINFER_RECORD_BITS").is_some() {
        let text = serde_json::to_string_pretty(&found).expect("text");
        std::fs::write(&path, text + "\n").expect("the record can be written");
    }
    let recorded = std::fs::read_to_string(&path).expect("the record");
    let recorded: BTreeMap<String, String> = serde_json::from_str(&recorded).expect("the record is JSON");
    assert_eq!(found, recorded);
}
