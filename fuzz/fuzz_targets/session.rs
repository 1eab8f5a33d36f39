//! Session files: any bytes are restored into a KV cache or give a one-line error, also with valid
//! checksums.
#![no_main]

#[path = "../../crates/engine/src/kv/session/tests/hostile.rs"]
mod hostile;

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use hostile::IDENTITY;
use libfuzzer_sys::fuzz_target;
use minfer_engine::kv::session::{SESSION_VERSION, SessionError, SessionFile, SessionIdentity, save};
use minfer_engine::kv::{Store, StoreOptions};
use minfer_graph::backend::{Backend, KvArena};
use minfer_graph::{KvFormat, KvGroupSpec, KvLayout, KvMemory, KvSpec, NullBackend};
use xxhash_rust::xxh3::xxh3_64;

/// More rows than the cache has room for.
const MOST_ROWS: u64 = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    try_file(bytes);
    try_file(&hostile::file_around(bytes, &[]));
    // The sequences of a header that is otherwise right, and as many rows as they need.
    let header = [&FRONT[..], bytes].concat();
    let without_rows = hostile::file_around(&header, &[]);
    try_file(&without_rows);
    fs::write(&*PATH, without_rows).expect("the folder takes files");
    if let Ok(file) = SessionFile::open(&PATH) {
        let rows = file.sequences().iter().map(rows_bytes).fold(0, u64::saturating_add);
        if rows < MOST_ROWS {
            try_file(&hostile::file_around(&header, &vec![1; rows as usize]));
        }
    }
});

fn rows_bytes(sequence: &minfer_engine::kv::session::SavedSequence) -> u64 {
    let groups = SPEC.groups.iter().zip(&sequence.runs);
    groups
        .flat_map(|(group, runs)| runs.iter().map(|run| group.bytes_per_token() * u64::from(run.rows)))
        .sum()
}

fn try_file(bytes: &[u8]) {
    fs::write(&*PATH, bytes).expect("the folder takes files");
    if let Err(error) = hostile::take(&PATH, IDENTITY, &SPEC, &mut *arena()) {
        assert!(!error.to_string().contains('\n'));
    }
}

fn arena() -> Box<dyn KvArena> {
    NullBackend::new().kv_arena(&SPEC, KvMemory::default()).expect("a small arena")
}

static PATH: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("minfer-fuzz-{}.session", std::process::id())));

static SPEC: LazyLock<KvSpec> = LazyLock::new(|| hostile::spec(16));

/// A header up to the number of its sequences.
static FRONT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    save(&PATH, IDENTITY, &*arena(), &[]).expect("the folder takes files");
    let bytes = fs::read(&*PATH).expect("it was just written");
    // 24 bytes before the header, the number and two sums after it.
    bytes[24..bytes.len() - 20].to_vec()
});
