//! Crafted files that must be refused, each with words that the refusal must say.
//!
//! The tests and the `bad_files` example share this table.

use super::raw::{Raw, kind, valid, value};

/// A file that must be refused.
pub(crate) struct BadFile {
    /// Name of the case, fit for a file name.
    pub(crate) name: &'static str,
    /// The file.
    pub(crate) bytes: Vec<u8>,
    /// What the message must contain.
    pub(crate) expected: &'static [&'static str],
}

/// All cases.
pub(crate) fn bad_files() -> Vec<BadFile> {
    let groups = [
        starts(),
        counts(),
        keys(),
        values(),
        arrays(),
        alignments(),
        names(),
        shapes(),
        types(),
        places(),
        parts(),
    ];
    groups
        .into_iter()
        .flatten()
        .map(|(name, raw, expected)| BadFile { name, bytes: raw.0, expected })
        .collect()
}

type Case = (&'static str, Raw, &'static [&'static str]);

/// A file with one tensor description and `data` bytes of data.
fn one_tensor(name: &str, dims: &[u64], kind: u32, offset: u64, data: usize) -> Raw {
    Raw::new(1, 0).tensor(name, dims, kind, offset).data(data)
}

/// A file whose only metadata entry is `key` of this type, its value still to come.
fn one_key(key: &str, value_type: u32) -> Raw {
    Raw::new(0, 1).key(key, value_type)
}

/// Parts of split models that stand alone.
fn parts() -> Vec<Case> {
    let part = |number: u32, count: u32| {
        Raw::new(0, 2).key("split.no", value::U32).u32(number).key("split.count", value::U32).u32(count)
    };
    vec![
        ("split-alone", part(0, 3), &["is part 1 of 3 of a split model"]),
        ("split-huge", part(7, u32::MAX), &["is part 8 of 4294967295 of a split model"]),
        ("split-number", part(3, 3), &["split.no", "part 4 of 3 cannot be"]),
        ("split-count-type", one_key("split.count", value::STRING).string("two"), &["split.count", "string"]),
    ]
}

fn starts() -> Vec<Case> {
    vec![
        ("empty", Raw::default(), &["empty"]),
        ("one-byte", Raw(b"G".to_vec()), &["cut short", "byte 0"]),
        ("magic-only", Raw(b"GGUF".to_vec()), &["cut short", "byte 4"]),
        ("wrong-magic", Raw(b"GGUX".to_vec()).u32(3).u64(0).u64(0), &["not a GGUF file", "GGUX"]),
        ("zeros", Raw(vec![0; 64]), &["not a GGUF file", "\\x00"]),
        ("old-ggml", Raw(b"lmgg".to_vec()).u32(1).u64(0), &["GGML", "before GGUF"]),
        ("lfs-pointer", Raw(b"version https://git-lfs.github.com/spec/v1\n".to_vec()), &["Git LFS pointer"]),
        ("web-page", Raw(b"<!DOCTYPE html><html></html>".to_vec()), &["web page"]),
        ("zip", Raw(b"PK\x03\x04abcdefgh".to_vec()), &["zip archive"]),
        ("version-0", Raw::versioned(0, 0, 0), &["version 0", "2 and 3"]),
        ("version-1", Raw::versioned(1, 0, 0), &["version 1", "2 and 3"]),
        ("version-4", Raw::versioned(4, 0, 0), &["version 4"]),
        ("version-max", Raw::versioned(u32::MAX, 0, 0), &["version 4294967295"]),
        ("big-endian-3", Raw::versioned(3u32.swap_bytes(), 0, 0), &["big-endian", "version 3"]),
        ("big-endian-2", Raw::versioned(2u32.swap_bytes(), 0, 0), &["big-endian", "version 2"]),
        ("no-counts", Raw(b"GGUF".to_vec()).u32(3), &["cut short", "byte 8"]),
        ("no-entry-count", Raw(b"GGUF".to_vec()).u32(3).u64(0), &["cut short", "byte 16"]),
    ]
}

fn counts() -> Vec<Case> {
    vec![
        ("tensors-max", Raw::new(u64::MAX, 0), &["18446744073709551615 tensors", "byte 8"]),
        ("tensors-2-63", Raw::new(1 << 63, 0).data(64), &["9223372036854775808 tensors"]),
        ("tensors-beyond-file", Raw::new(100, 0).data(64), &["100 tensors", "at most"]),
        ("entries-max", Raw::new(0, u64::MAX), &["metadata entries", "byte 16"]),
        ("entries-beyond-file", Raw::new(0, 1000).data(64), &["1000 metadata entries"]),
        (
            "entry-missing",
            Raw::new(0, 2).key("first.key", value::U32).u32(1).bytes(&[0; 5]),
            &["metadata entry 1", "cut short"],
        ),
        (
            "tensor-missing",
            Raw::new(2, 0).tensor("first.weight", &[8], kind::F32, 0).bytes(&[0; 10]),
            &["tensor number 1"],
        ),
    ]
}

fn keys() -> Vec<Case> {
    vec![
        (
            "key-empty",
            Raw::new(0, 1).key("", value::U32).u32(1),
            &["metadata entry 0", "name is empty", "byte 24"],
        ),
        ("key-too-long", Raw::new(0, 1).key("k".repeat(65536), value::U32).u32(1), &["65536 bytes", "65535"]),
        (
            "key-length-max",
            Raw::new(0, 1).u64(u64::MAX).bytes(&[b'k'; 40]),
            &["cut short", "18446744073709551615"],
        ),
        ("key-length-2-63", Raw::new(0, 1).u64(1 << 63).bytes(&[b'k'; 40]), &["cut short"]),
        (
            "key-past-end",
            Raw::new(0, 1).u64(41).bytes(&[b'k'; 40]),
            &["needed here: 41", "left: 40", "byte 24"],
        ),
        ("key-not-utf8", Raw::new(0, 1).key(b"ab\xff\xfe", value::U32).u32(1), &["the key is not UTF-8"]),
        (
            "key-twice",
            Raw::new(0, 2).key("some.key", value::U32).u32(1).key("some.key", value::U8).bytes(&[1]),
            &["some.key", "twice"],
        ),
        (
            "key-twice-apart",
            Raw::new(0, 3)
                .key("x.y", value::U8)
                .bytes(&[1])
                .key("a", value::U8)
                .bytes(&[1])
                .key("x.y", value::U8)
                .bytes(&[1]),
            &["x.y", "twice"],
        ),
        ("key-with-newline", Raw::new(0, 1).key("a\nb", 77).u64(0), &["key \"a\\nb\"", "type 77"]),
    ]
}

fn values() -> Vec<Case> {
    vec![
        ("value-type-13", one_key("some.key", 13).u64(0), &["some.key", "value type 13"]),
        ("value-type-max", one_key("some.key", u32::MAX).u64(0), &["value type 4294967295"]),
        (
            "value-missing",
            one_key("some.key", value::U64).u32(1),
            &["some.key", "cut short", "needed here: 8"],
        ),
        ("type-missing", Raw::new(0, 1).string("some.key").bytes(&[0, 0]), &["some.key", "cut short"]),
        ("bool-2", one_key("some.key", value::BOOL).bytes(&[2]), &["some.key", "boolean", "2"]),
        ("bool-255", one_key("some.key", value::BOOL).bytes(&[255]), &["boolean", "255"]),
        ("string-length-max", one_key("some.key", value::STRING).u64(u64::MAX), &["some.key", "cut short"]),
        (
            "string-past-end",
            one_key("some.key", value::STRING).u64(10).bytes(b"short"),
            &["some.key", "needed here: 10", "left: 5"],
        ),
        ("string-no-length", one_key("some.key", value::STRING).u32(1), &["some.key", "cut short"]),
    ]
}

fn arrays() -> Vec<Case> {
    let nested = |depth: usize| {
        let start = one_key("deep.key", value::ARRAY);
        (1..depth).fold(start, |raw, _| raw.array(value::ARRAY, 1)).array(value::U8, 1).bytes(&[1])
    };
    let empties = (0..4)
        .fold(one_key("some.key", value::ARRAY).array(value::ARRAY, 5), |raw, _| raw.array(value::U8, 0));
    vec![
        (
            "array-type-13",
            one_key("some.key", value::ARRAY).array(13, 1).u64(0),
            &["some.key", "value type 13"],
        ),
        (
            "array-count-max",
            one_key("some.key", value::ARRAY).array(value::U8, u64::MAX),
            &["18446744073709551615 array elements"],
        ),
        (
            "array-count-wraps",
            one_key("some.key", value::ARRAY).array(value::U64, (1 << 61) + 1).u64(0),
            &["array elements"],
        ),
        (
            "array-strings-absurd",
            one_key("some.key", value::ARRAY).array(value::STRING, 1 << 40).bytes(&[0; 64]),
            &["array elements", "at most 8"],
        ),
        (
            "array-one-short",
            one_key("some.key", value::ARRAY).array(value::U32, 4).bytes(&[0; 15]),
            &["4 array elements", "at most 3"],
        ),
        (
            "array-string-past-end",
            one_key("some.key", value::ARRAY).array(value::STRING, 2).string("ab").u64(9).bytes(b"abc"),
            &["cut short", "needed here: 9"],
        ),
        (
            "array-string-length-max",
            one_key("some.key", value::ARRAY).array(value::STRING, 1).u64(u64::MAX),
            &["cut short"],
        ),
        (
            "array-bool-3",
            one_key("some.key", value::ARRAY).array(value::BOOL, 3).bytes(&[0, 1, 3]),
            &["boolean", "3"],
        ),
        ("array-no-header", one_key("some.key", value::ARRAY).u32(4), &["some.key", "cut short"]),
        ("array-nested-9", nested(9), &["deep.key", "nest more than 8"]),
        ("array-nested-5000", nested(5000), &["nest more than 8"]),
        (
            "array-nested-count",
            one_key("some.key", value::ARRAY).array(value::ARRAY, 1 << 33).bytes(&[0; 48]),
            &["array elements", "at most 4"],
        ),
        ("array-nested-short", empties, &["array elements"]),
        (
            "array-nested-type",
            one_key("some.key", value::ARRAY).array(value::ARRAY, 1).array(99, 0).u64(0),
            &["value type 99"],
        ),
    ]
}

fn alignments() -> Vec<Case> {
    let aligned = |alignment: u32| one_key("general.alignment", value::U32).u32(alignment).data(64);
    vec![
        ("alignment-0", aligned(0), &["general.alignment", "alignment 0", "power of two"]),
        ("alignment-1", aligned(1), &["alignment 1 "]),
        ("alignment-24", aligned(24), &["alignment 24"]),
        ("alignment-2-31", aligned(1 << 31), &["alignment 2147483648"]),
        ("alignment-max", aligned(u32::MAX), &["alignment 4294967295"]),
        (
            "alignment-i32",
            one_key("general.alignment", value::I32).u32(32).data(0),
            &["general.alignment", "i32", "u32 is needed"],
        ),
        (
            "alignment-u64",
            one_key("general.alignment", value::U64).u64(32).data(0),
            &["u64", "u32 is needed"],
        ),
        (
            "alignment-string",
            one_key("general.alignment", value::STRING).string("32").data(0),
            &["string", "u32 is needed"],
        ),
        (
            "alignment-array",
            one_key("general.alignment", value::ARRAY).array(value::U32, 1).u32(32).data(0),
            &["array of u32", "u32 is needed"],
        ),
    ]
}

fn names() -> Vec<Case> {
    vec![
        ("tensor-name-empty", one_tensor("", &[8], kind::F32, 0, 32), &["tensor number 0", "name is empty"]),
        ("tensor-name-65", one_tensor(&"n".repeat(65), &[8], kind::F32, 0, 32), &["65 bytes", "64"]),
        ("tensor-name-length-max", Raw::new(1, 0).u64(u64::MAX).data(64), &["tensor number 0", "cut short"]),
        (
            "tensor-name-not-utf8",
            Raw::new(1, 0).tensor(b"\xc3\x28", &[8], kind::F32, 0).data(32),
            &["tensor name is not UTF-8"],
        ),
        (
            "tensor-twice",
            Raw::new(2, 0)
                .tensor("same.weight", &[8], kind::F32, 0)
                .tensor("same.weight", &[8], kind::F32, 32)
                .data(64),
            &["same.weight", "twice"],
        ),
    ]
}

fn shapes() -> Vec<Case> {
    let max = i64::MAX as u64;
    vec![
        (
            "dims-5",
            one_tensor("some.weight", &[1, 1, 1, 1, 1], kind::F32, 0, 32),
            &["some.weight", "5 dimensions", "at most 4"],
        ),
        ("dims-max", Raw::new(1, 0).string("some.weight").u32(u32::MAX).data(64), &["4294967295 dimensions"]),
        ("dims-missing", Raw::new(1, 0).string("some.weight").u32(4).u64(8), &["some.weight", "cut short"]),
        (
            "dim-zero",
            one_tensor("some.weight", &[0], kind::F32, 0, 32),
            &["some.weight", "dimension 0 is zero"],
        ),
        ("dim-zero-last", one_tensor("some.weight", &[8, 1, 0], kind::F32, 0, 32), &["dimension 2 is zero"]),
        (
            "dim-zero-hides-overflow",
            one_tensor("some.weight", &[max, max, max, 0], kind::F32, 0, 32),
            &["dimension 3 is zero"],
        ),
        (
            "dim-negative",
            one_tensor("some.weight", &[-1i64 as u64], kind::F32, 0, 32),
            &["some.weight", "overflow"],
        ),
        ("dim-int64-min", one_tensor("some.weight", &[1 << 63], kind::F32, 0, 32), &["overflow"]),
        (
            "dims-overflow",
            one_tensor("some.weight", &[max, 2, 1, 1], kind::F32, 0, 32),
            &["9223372036854775807 x 2 x 1 x 1", "overflow"],
        ),
        (
            "dims-wrap-to-zero",
            one_tensor("some.weight", &[1 << 32, 1 << 32], kind::F32, 0, 32),
            &["overflow"],
        ),
        (
            "dims-wrap-to-small",
            one_tensor("some.weight", &[(1 << 32) + 1, 1 << 32, 1, 1], kind::F32, 0, 64),
            &["overflow"],
        ),
        ("bytes-overflow", one_tensor("some.weight", &[1 << 61], kind::F32, 0, 32), &["overflow"]),
        ("bytes-overflow-signed", one_tensor("some.weight", &[1 << 62], kind::F32, 0, 32), &["overflow"]),
        (
            "elements-overflow-signed",
            one_tensor("some.weight", &[1 << 63], kind::Q4_0, 0, 32),
            &["9223372036854775808", "overflow"],
        ),
        (
            "row-31-of-q4_0",
            one_tensor("some.weight", &[31, 32], kind::Q4_0, 0, 1024),
            &["some.weight", "row length 31 ", "Q4_0", "32"],
        ),
        (
            "row-32-of-q4_k",
            one_tensor("some.weight", &[32, 256], kind::Q4_K, 0, 8192),
            &["row length 32 ", "Q4_K", "256"],
        ),
        (
            "row-1-of-iq2_xs",
            one_tensor("some.weight", &[1], kind::IQ2_XS, 0, 1024),
            &["row length 1 ", "IQ2_XS", "256"],
        ),
        ("scalar-of-q4_0", one_tensor("some.weight", &[], kind::Q4_0, 0, 64), &["row length 1 ", "Q4_0"]),
    ]
}

fn types() -> Vec<Case> {
    vec![
        ("type-4", one_tensor("some.weight", &[32], 4, 0, 1024), &["some.weight", "tensor type 4"]),
        ("type-42", one_tensor("some.weight", &[32], 42, 0, 1024), &["tensor type 42"]),
        ("type-max", one_tensor("some.weight", &[32], u32::MAX, 0, 1024), &["tensor type 4294967295"]),
        ("type-minus-2-31", one_tensor("some.weight", &[32], 1 << 31, 0, 1024), &["tensor type 2147483648"]),
        (
            "offset-missing",
            Raw::new(1, 0).string("some.weight").u32(1).u64(8).u32(kind::F32).u32(0),
            &["some.weight", "cut short"],
        ),
    ]
}

fn places() -> Vec<Case> {
    let two = |first: u64, second: u64, data: usize| {
        Raw::new(2, 0)
            .tensor("first.weight", &[16], kind::F32, first)
            .tensor("second.weight", &[16], kind::F32, second)
            .data(data)
    };
    let aligned = |alignment: u32, offset: u64| {
        Raw::new(1, 1).key("general.alignment", value::U32).u32(alignment).tensor(
            "some.weight",
            &[8],
            kind::F32,
            offset,
        )
    };
    let mut cut = valid();
    cut.truncate(cut.len() - 32);
    vec![
        (
            "data-absent",
            Raw::new(1, 0).tensor("some.weight", &[8], kind::F32, 0),
            &["some.weight", "passes the end"],
        ),
        (
            "data-one-short",
            one_tensor("some.weight", &[8], kind::F32, 0, 31),
            &["offset 0, length 32", "length 31"],
        ),
        ("data-cut", Raw(cut), &["y.bias", "passes the end"]),
        (
            "offset-past-end",
            one_tensor("some.weight", &[8], kind::F32, 64, 64),
            &["(offset 64,", "passes the end"],
        ),
        (
            "offset-max-aligned",
            one_tensor("some.weight", &[8], kind::F32, u64::MAX - 31, 64),
            &["some.weight", "passes the end"],
        ),
        ("offset-int64-min", one_tensor("some.weight", &[8], kind::F32, 1 << 63, 64), &["passes the end"]),
        (
            "offset-misaligned",
            one_tensor("some.weight", &[8], kind::F32, 4, 64),
            &["data offset 4", "alignment 32"],
        ),
        ("offset-misaligned-64", aligned(64, 32).aligned_data(64, 128), &["data offset 32", "alignment 64"]),
        (
            "size-absurd",
            one_tensor("some.weight", &[1 << 40], kind::F32, 0, 64),
            &["length 4398046511104", "passes the end"],
        ),
        ("overlap-same", two(0, 0, 64), &["second.weight", "overlaps", "first.weight"]),
        ("overlap-half", two(0, 32, 128), &["second.weight", "overlaps", "first.weight"]),
        ("overlap-reversed", two(32, 0, 128), &["first.weight", "overlaps", "second.weight"]),
    ]
}
