use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use minfer_graph::backend::{Backend, KvArena, KvRows};
use minfer_graph::{KvFormat, KvGroupSpec, KvLayout, KvMemory, KvSide, KvSpec, NullBackend};
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::kv::{Store, StoreOptions};

mod hostile;

use hostile::{IDENTITY, spec};

/// Rows that tests give to positions: the null arena keeps a token for each cell.
fn token_at(group: usize, position: u32) -> u32 {
    1000 * (group as u32 + 1) + position
}

fn places(block_tokens: u32, blocks: &[u32], runs: &[RowRun]) -> Vec<(u32, Range<u32>)> {
    let mut places: Vec<(u32, Range<u32>)> = Vec::new();
    for position in runs.iter().flat_map(|run| run.start..run.start + run.rows) {
        let (block, offset) = (blocks[(position / block_tokens) as usize], position % block_tokens);
        match places.last_mut() {
            Some((last, rows)) if *last == block && rows.end == offset => rows.end += 1,
            _ => places.push((block, offset..offset + 1)),
        }
    }
    places
}

/// 50 positions of which the window group holds the last 19 and a few more, with a removal before
/// them.
fn sequence() -> SavedSequence {
    SavedSequence {
        tokens: (0..63).collect(),
        removed: Vec::from([Range { start: 4, end: 16 }]),
        length: 50,
        runs: vec![
            vec![
                RowRun { start: 0, rows: 4, rope_offset: 0 },
                RowRun { start: 4, rows: 30, rope_offset: 12 },
                RowRun { start: 34, rows: 16, rope_offset: 0 },
            ],
            vec![RowRun { start: 30, rows: 20, rope_offset: 0 }],
        ],
        host: br#"{"messages":[]}"#.to_vec(),
    }
}

fn arena(spec: &KvSpec, blocks: &[Vec<u32>]) -> Box<dyn KvArena> {
    let mut arena = NullBackend::new().kv_arena(spec, KvMemory::default()).unwrap();
    for (group, blocks) in blocks.iter().enumerate() {
        blocks.iter().for_each(|&block| arena.commit(group, block).unwrap());
    }
    arena
}

fn source() -> (Box<dyn KvArena>, RowSource) {
    let (spec, saved) = (spec(16), sequence());
    let blocks = vec![vec![5, 1, 7, 2], vec![0, 3, 6, 4]];
    let mut arena = arena(&spec, &blocks);
    let places: Vec<_> =
        blocks.iter().zip(&saved.runs).map(|(blocks, runs)| places(16, blocks, runs)).collect();
    for (group, places) in places.iter().enumerate() {
        let mut positions = saved.runs[group].iter().flat_map(|run| run.start..run.start + run.rows);
        for (block, rows) in places {
            for row in rows.clone() {
                let token = token_at(group, positions.next().unwrap());
                let mut bytes = vec![0; spec.groups[group].row_bytes(KvSide::V) as usize];
                bytes[..4].copy_from_slice(&(token + 1).to_le_bytes());
                let place =
                    KvRows { group, layer_index: 0, side: KvSide::V, block: *block, rows: row..row + 1 };
                arena.write_rows(&place, &bytes).unwrap();
            }
        }
    }
    (arena, RowSource { saved, places })
}

fn saved_file(folder: &Path) -> (PathBuf, Vec<u8>) {
    let path = folder.join("a.session");
    let (arena, source) = source();
    let length = save(&path, IDENTITY, &*arena, &[source]).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, length);
    (path, bytes)
}

/// The reason why bytes are refused, by `open` or by `check`.
fn refusal(bytes: &[u8], identity: SessionIdentity, spec: &KvSpec) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.session");
    fs::write(&path, bytes).unwrap();
    match SessionFile::open(&path)
        .and_then(|file| file.check(identity, spec).and_then(|()| file.verify().map(drop)))
    {
        Ok(()) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Recomputes both checksums after a change, as an attacker would.
fn resummed(mut bytes: Vec<u8>) -> Vec<u8> {
    let header = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize + 24;
    let sum = xxh3_64(&bytes[..header]).to_le_bytes();
    bytes[header..header + 8].copy_from_slice(&sum);
    let end = bytes.len() - 8;
    let sum = xxh3_64(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&sum);
    bytes
}

#[test]
fn rows_come_back_under_another_block_size() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = saved_file(folder.path());
    let file = SessionFile::open(&path).unwrap();
    let spec = spec(64);
    file.check(IDENTITY, &spec).unwrap();
    let file = file.verify().unwrap();
    assert_eq!(file.sequences(), [sequence()]);
    let blocks = vec![vec![3], vec![2]];
    let mut arena = arena(&spec, &blocks);
    let places: Vec<_> =
        blocks.iter().zip(&sequence().runs).map(|(blocks, runs)| places(64, blocks, runs)).collect();
    file.read_rows(0, &mut *arena, &places).unwrap();
    for (group, block) in [(0, 3), (1, 2)] {
        for position in sequence().runs[group].iter().flat_map(|run| run.start..run.start + run.rows) {
            let mut row = vec![0; spec.groups[group].row_bytes(KvSide::V) as usize];
            let rows = position..position + 1;
            arena
                .read_rows(&KvRows { group, layer_index: 0, side: KvSide::V, block, rows }, &mut row)
                .unwrap();
            assert_eq!(row[..4], (token_at(group, position) + 1).to_le_bytes(), "group {group}, {position}");
        }
    }
}

#[test]
fn no_flipped_bit_and_no_cut_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (_, bytes) = saved_file(folder.path());
    assert_eq!(refusal(&bytes, IDENTITY, &spec(16)), "accepted");
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert_ne!(refusal(&flipped, IDENTITY, &spec(16)), "accepted", "byte {at}");
    }
    for length in 0..bytes.len() {
        assert_ne!(refusal(&bytes[..length], IDENTITY, &spec(16)), "accepted", "{length} bytes");
    }
}

#[test]
fn refusals_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let (_, bytes) = saved_file(folder.path());
    let with = |at: usize, new: &[u8]| {
        let mut changed = bytes.clone();
        changed[at..at + new.len()].copy_from_slice(new);
        changed
    };
    let reason = |bytes: &[u8]| refusal(bytes, IDENTITY, &spec(16));
    assert_eq!(reason(b"GGUF and more bytes than a front"), "it is not a session file");
    assert_eq!(reason(b""), "it is not a session file");
    assert_eq!(reason(&with(8, &[2])), "it is of version 2, this build reads version 1");
    let length = bytes.len();
    assert_eq!(
        reason(&bytes[..length - 1]),
        format!("it is truncated: its length is {} of {length}", length - 1)
    );
    assert_eq!(reason(&[&bytes[..], b"abc"].concat()), "data follows its end (bytes: 3)");
    assert_eq!(reason(&with(30, &[99])), "it is damaged: the sum over its header does not match");
    assert_eq!(
        reason(&with(length - 20, &[99])),
        "it is damaged: the sum over the whole file does not match"
    );
    let other = SessionIdentity { model: 8, ..IDENTITY };
    assert!(refusal(&bytes, other, &spec(16)).contains("another model"));
    let other = SessionIdentity { template: 0, ..IDENTITY };
    assert_eq!(refusal(&bytes, other, &spec(16)), "it was made with another chat template");
    let mut stored = spec(16);
    stored.groups[1].k_format = KvFormat::F32;
    let text = "its rows are stored as f16 and f32, this cache holds f32 and f32";
    assert_eq!(refusal(&bytes, IDENTITY, &stored), text);
    let mut wider = spec(16);
    wider.groups[0].k_dim = 4;
    assert_eq!(refusal(&bytes, IDENTITY, &wider), "its layers are not those of this model");
}

#[test]
fn numbers_that_contradict_each_other_are_refused_behind_right_sums() {
    let folder = tempfile::tempdir().unwrap();
    type Change = fn(&mut SavedSequence);
    let changes: [(Change, &str); 10] = [
        (|sequence| sequence.removed[0].end = 64, "removed tokens 4..64"),
        (|sequence| sequence.removed[0] = 4..4, "removed tokens 4..4"),
        (|sequence| sequence.removed.push(5..20), "removed tokens 5..20"),
        (|sequence| sequence.length = 52, "52 rows of 63 tokens"),
        (|sequence| sequence.runs[0][1].rows = 31, "rows from 34 on"),
        (|sequence| sequence.runs[0][2].rows = 17, "rows from 34 on"),
        (|sequence| sequence.runs[0][1].rope_offset = 13, "rows from 4 on"),
        (|sequence| sequence.runs[0].truncate(2), "34 rows of 50 positions"),
        (
            |sequence| sequence.runs[1][0] = RowRun { start: 32, rows: 18, rope_offset: 0 },
            "18 rows of 50 positions",
        ),
        (|sequence| sequence.runs.truncate(1), "rows of 1 groups"),
    ];
    for (change, words) in changes {
        let mut sequence = sequence();
        change(&mut sequence);
        let header = super::header::Header::new(IDENTITY, &spec(16), vec![sequence]).encode();
        let reason = refusal(&hostile::file_around(&header, &[]), IDENTITY, &spec(16));
        assert_eq!(reason, format!("it contradicts itself: {words}"));
    }
    let (_, bytes) = saved_file(folder.path());
    // A count that the file cannot hold takes no memory.
    let mut huge = bytes;
    huge[24 + 32..24 + 36].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(refusal(&resummed(huge), IDENTITY, &spec(16)).contains("contradicts"));
}

/// Sums prove nothing against somebody who means harm: any numbers behind them are read or refused,
/// and what is read is taken.
#[test]
fn any_number_behind_right_sums_is_taken_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = saved_file(folder.path());
    let spec = spec(16);
    let mut arena = arena(&spec, &[]);
    hostile::take(&path, IDENTITY, &spec, &mut *arena).unwrap();
    let header = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize + 24;
    let mut refused = 0;
    for at in 16..header - 4 {
        for number in [0, 1, 0xff, 1 << 16, 1 << 31, u32::MAX - 1, u32::MAX] {
            let mut changed = bytes.clone();
            changed[at..at + 4].copy_from_slice(&number.to_le_bytes());
            fs::write(&path, resummed(changed)).unwrap();
            refused += usize::from(hostile::take(&path, IDENTITY, &spec, &mut *arena).is_err());
        }
    }
    assert!(refused > header, "{refused} of {header} bytes");
}

/// Time is linear in tokens plus removed ranges: comparing each token with each range would take
/// hours.
#[test]
fn many_removed_ranges_take_their_own_time_alone() {
    let ranges = 400_000;
    let sequence = SavedSequence {
        tokens: (0..2 * ranges + 50).collect(),
        removed: (0..ranges).map(|index| 2 * index..2 * index + 1).collect(),
        length: 50,
        runs: vec![vec![RowRun { start: 0, rows: 50, rope_offset: 0 }]; 2],
        host: Vec::new(),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let header = super::header::Header::new(IDENTITY, &spec(16), vec![sequence]).encode();
    fs::write(&path, hostile::file_around(&header, &vec![0; 50 * (2 * 20 + 20)])).unwrap();
    let file = SessionFile::open(&path).unwrap();
    file.check(IDENTITY, &spec(16)).unwrap();
    let shape = file.verify().unwrap().sequences()[0].layout();
    assert_eq!(shape.tokens, (0..50).map(|index| 2 * index + 1).collect::<Vec<_>>());
}

/// A sparse file can have any length. Its header is checked before any row is read.
#[test]
fn a_long_file_is_refused_by_its_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let long = 1u64 << 40;
    let write = |front: &[u8]| {
        fs::write(&path, front).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(long).unwrap();
    };
    let front = |header: &[u8], length: u32| {
        let mut bytes = hostile::file_around(header, &[]);
        bytes.truncate(24 + header.len());
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        bytes[16..24].copy_from_slice(&long.to_le_bytes());
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    };
    let header = super::header::Header::new(IDENTITY, &spec(16), vec![sequence()]).encode();
    let length = header.len() as u32;
    let opened = |identity| SessionFile::open(&path).and_then(|file| file.check(identity, &spec(16)));
    write(&front(&header, length));
    let error = opened(IDENTITY).unwrap_err().to_string();
    assert!(error.starts_with("it contradicts itself: ") && error.ends_with("bytes of rows"), "{error}");
    let other = SessionIdentity { model: 8, ..IDENTITY };
    assert!(matches!(opened(other), Err(SessionError::Model)));
    write(&front(&header, u32::MAX));
    assert_eq!(opened(IDENTITY).unwrap_err().to_string(), "its header length 4294967295 is over 268435456");
    // More sequences than a file has: nothing is set aside for them.
    let mut many = super::header::Header::new(IDENTITY, &spec(16), Vec::new()).encode();
    let at = many.len() - 4;
    many[at..].copy_from_slice(&(1u32 << 24).to_le_bytes());
    many.resize(many.len() + (1 << 20), 0);
    write(&front(&many, many.len() as u32));
    assert_eq!(
        opened(IDENTITY).unwrap_err().to_string(),
        "it contradicts itself: 16777216 entries where 65536 are possible"
    );
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = saved_file(folder.path());
    let (arena, mut source) = source();
    // A block that is not committed: the null arena panics, as a bug would.
    source.places[0][0].0 = 6;
    let result =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| save(&path, IDENTITY, &*arena, &[source])));
    assert!(result.is_err());
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a.session"], "nothing is left beside it");
    let missing = folder.path().join("no/such/a.session");
    let (arena, good) = self::source();
    let result = save(&missing, IDENTITY, &*arena, &[good]);
    assert!(matches!(result, Err(SessionError::NoFolder(folder)) if folder.ends_with("no/such")));
}

#[test]
fn several_sequences_and_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let (arena, first) = source();
    let empty = SavedSequence { runs: vec![Vec::new(), Vec::new()], ..SavedSequence::default() };
    let empty = RowSource { saved: empty, places: vec![Vec::new(), Vec::new()] };
    save(&path, IDENTITY, &*arena, &[empty.clone(), first.clone(), empty]).unwrap();
    let file = SessionFile::open(&path).unwrap();
    file.check(IDENTITY, &spec(16)).unwrap();
    assert_eq!(file.sequences()[1], first.saved);
    save(&path, IDENTITY, &*arena, &[]).unwrap();
    assert!(SessionFile::open(&path).unwrap().sequences().is_empty());
}

#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_leaves_its_mode_and_one_that_may_only_be_read_stays() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.session");
    let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
    let write = || {
        let (arena, source) = source();
        save(&path, IDENTITY, &*arena, &[source])
    };
    write().unwrap();
    assert_eq!(mode(), 0o600, "a conversation is its owner's alone");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    write().unwrap();
    assert_eq!(mode(), 0o664);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let before = fs::read(&path).unwrap();
    assert!(matches!(check_target(&path), Err(SessionError::ReadOnly)));
    assert!(matches!(write(), Err(SessionError::ReadOnly)));
    assert_eq!((fs::read(&path).unwrap(), mode()), (before, 0o444));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// What somebody else's name stands for is as it was, whatever it is.
#[cfg(unix)]
#[test]
fn only_session_files_are_replaced() {
    use std::os::unix::fs::{FileTypeExt, symlink};

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("notes.txt"), "mine, and longer than the magic").unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::create_dir(at("folder")).unwrap();
    symlink(at("nothing"), at("dangling")).unwrap();
    symlink("/dev/null", at("null")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    for (name, words) in [
        ("notes.txt", "it is not a session file"),
        ("empty", "it is not a session file"),
        ("folder", "it is a folder"),
        ("dangling", "opening it: No such file"),
        ("null", "it is not a regular file"),
        ("pipe", "it is not a regular file"),
    ] {
        let (arena, source) = source();
        let told = check_target(&at(name)).unwrap_err().to_string();
        assert!(told.starts_with(words), "{name}: {told}");
        let refused = save(&at(name), IDENTITY, &*arena, &[source]).unwrap_err().to_string();
        assert_eq!(refused, told, "{name}");
        assert!(SessionFile::open(&at(name)).is_err(), "{name}");
    }
    assert_eq!(fs::read_to_string(at("notes.txt")).unwrap(), "mine, and longer than the magic");
    assert!(at("dangling").symlink_metadata().unwrap().is_symlink() && !at("nothing").exists());
    assert!(Path::new("/dev/null").metadata().unwrap().file_type().is_char_device());
    assert!(at("pipe").metadata().unwrap().file_type().is_fifo());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6, "nothing is left beside them");
    check_target(&at("new.session")).unwrap();
    assert!(!at("new.session").exists());
}
