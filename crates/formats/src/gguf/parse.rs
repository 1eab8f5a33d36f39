//! Parses the header of a GGUF file: counts, key-value pairs and tensor entries, all checked.

use std::ops::Range;

use super::cursor::Cursor;
use super::error::{Cause, GgufError, Item, Text};
use super::limits::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_ALIGNMENT, MAX_ARRAY_DEPTH, MAX_KEY_BYTES, MIN_ALIGNMENT,
};
use super::names::NameIndex;
use super::tensor::{self, Tensor};
use super::value::{Value, ValueType};

/// What the header of a file says, checked.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) version: u32,
    pub(super) alignment: u64,
    /// Where the data section starts; past the end of the file when there are no tensors.
    pub(super) data_start: u64,
    /// Where the last tensor's description ends.
    pub(super) header_end: usize,
    pub(super) entries: Vec<Entry>,
    pub(super) keys: NameIndex,
    pub(super) tensors: Vec<Tensor>,
}

/// Where a metadata entry lies in the file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Range<usize>,
    pub(super) value_type: ValueType,
    pub(super) value: Range<usize>,
}

/// What the start of a file says.
pub(super) enum Outcome {
    /// All that is to be known.
    Parsed(Parsed),
    /// More bytes are needed: those up to here at least.
    Needs(u64),
}

/// Reads and checks everything before the data section of a file of `length` bytes, which starts
/// with `bytes`, and that the tensors lie inside the data section.
///
/// Memory taken is proportional to the bytes of the header, whatever the header states.
pub(super) fn parse(bytes: &[u8], length: u64) -> Result<Outcome, GgufError> {
    let mut cursor = Cursor::of_start(bytes, length);
    match (parse_all(bytes, &mut cursor), cursor.beyond()) {
        (Err(_), Some(end)) => Ok(Outcome::Needs(end)),
        (result, _) => result.map(Outcome::Parsed),
    }
}

fn parse_all(bytes: &[u8], cursor: &mut Cursor<'_>) -> Result<Parsed, GgufError> {
    let header = read_header(cursor)?;
    let (entries, keys) = read_entries(bytes, cursor, header.entry_count)?;
    let alignment = read_alignment(bytes, &entries, &keys)?;
    let mut tensors = tensor::read_all(cursor, header.tensor_count)?;
    tensor::index(&tensors)?;
    // The header ends inside the file, whose length is far from overflowing.
    let data_start = cursor.offset().next_multiple_of(alignment);
    tensor::place_all(&mut tensors, data_start, alignment, cursor.offset() + cursor.left())?;
    let header_end = cursor.position();
    Ok(Parsed { version: header.version, alignment, data_start, header_end, entries, keys, tensors })
}

/// Steps over a value, checking that it is whole and well formed. `depth` is the number of arrays
/// around it.
pub(super) fn skip_value(
    cursor: &mut Cursor<'_>,
    value_type: ValueType,
    depth: u32,
) -> Result<(), GgufError> {
    match value_type {
        ValueType::Bool => check_bools(cursor, 1),
        ValueType::String => cursor.string().map(drop),
        ValueType::Array => skip_array(cursor, depth + 1),
        fixed => cursor.take(fixed.min_bytes()).map(drop),
    }
}

struct Header {
    version: u32,
    tensor_count: u64,
    entry_count: u64,
}

fn read_header(cursor: &mut Cursor<'_>) -> Result<Header, GgufError> {
    if cursor.left() == 0 {
        return Err(GgufError::new(Cause::Empty));
    }
    let found = cursor.array()?;
    if found != MAGIC {
        return Err(GgufError::new(Cause::Magic { found }).at(0));
    }
    let version = read_version(cursor)?;
    // Name of one byte, dimension count, type, offset.
    let tensor_count = cursor.count("tensors", 8 + 1 + 4 + 4 + 8)?;
    // Key of one byte, type, value of one byte.
    let entry_count = cursor.count("metadata entries", 8 + 1 + 4 + 1)?;
    Ok(Header { version, tensor_count, entry_count })
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let at = cursor.offset();
    let version = cursor.u32()?;
    let swapped = version.swap_bytes();
    let cause = match version {
        2 | 3 => return Ok(version),
        _ if (1..=0xff).contains(&swapped) => Cause::BigEndian { version: swapped },
        found => Cause::Version { found },
    };
    Err(GgufError::new(cause).at(at))
}

fn read_entries(
    bytes: &[u8],
    cursor: &mut Cursor<'_>,
    count: u64,
) -> Result<(Vec<Entry>, NameIndex), GgufError> {
    let entries = (0..count)
        .map(|position| read_entry(bytes, cursor).map_err(|error| error.with_item(Item::Entry(position))))
        .collect::<Result<Vec<_>, _>>()?;
    let key_of = |position: usize| &bytes[entries[position].key.clone()];
    let keys = NameIndex::new(entries.len(), key_of).map_err(|position| {
        let key = String::from_utf8_lossy(key_of(position)).into_owned();
        GgufError::new(Cause::DuplicateKey).at(entries[position].key.start as u64).key(&key)
    })?;
    Ok((entries, keys))
}

fn read_entry(bytes: &[u8], cursor: &mut Cursor<'_>) -> Result<Entry, GgufError> {
    let name = read_name(cursor, MAX_KEY_BYTES, Text::Key)?;
    let key = cursor.position() - name.len()..cursor.position();
    let read_value = |cursor: &mut Cursor<'_>| {
        let value_type = read_value_type(cursor)?;
        let start = cursor.position();
        skip_value(cursor, value_type, 0)?;
        Ok((value_type, start..cursor.position()))
    };
    let (value_type, value) = read_value(cursor).map_err(|error: GgufError| error.key(name))?;
    debug_assert!(value.end <= bytes.len());
    Ok(Entry { key, value_type, value })
}

/// Reads a key or a tensor name.
pub(super) fn read_name<'a>(cursor: &mut Cursor<'a>, limit: u64, what: Text) -> Result<&'a str, GgufError> {
    let at = cursor.offset();
    let bytes = cursor.string()?;
    let length = bytes.len() as u64;
    let cause = match std::str::from_utf8(bytes) {
        _ if length == 0 => Cause::EmptyName,
        _ if length > limit => Cause::NameTooLong { length, limit },
        Err(_) => Cause::NotUtf8 { what },
        Ok(name) => return Ok(name),
    };
    Err(GgufError::new(cause).at(at))
}

fn read_value_type(cursor: &mut Cursor<'_>) -> Result<ValueType, GgufError> {
    let at = cursor.offset();
    let id = cursor.u32()?;
    ValueType::from_id(id).ok_or_else(|| GgufError::new(Cause::UnknownValueType { id }).at(at))
}

/// Steps over an array that is the `depth`-th of those nested in each other, counted from 1.
fn skip_array(cursor: &mut Cursor<'_>, depth: u32) -> Result<(), GgufError> {
    if depth > MAX_ARRAY_DEPTH {
        return Err(GgufError::new(Cause::TooDeep).at(cursor.offset()));
    }
    let element_type = read_value_type(cursor)?;
    let count = cursor.count("array elements", element_type.min_bytes())?;
    match element_type.fixed_bytes() {
        _ if element_type == ValueType::Bool => check_bools(cursor, count),
        // The count was checked against the bytes left, so the product does not overflow.
        Some(size) => cursor.take(count * size).map(drop),
        None => (0..count).try_for_each(|_| skip_value(cursor, element_type, depth)),
    }
}

fn check_bools(cursor: &mut Cursor<'_>, count: u64) -> Result<(), GgufError> {
    let start = cursor.offset();
    let bytes = cursor.take(count)?;
    match bytes.iter().position(|&byte| byte > 1) {
        None => Ok(()),
        Some(bad) => Err(GgufError::new(Cause::BadBool { found: bytes[bad] }).at(start + bad as u64)),
    }
}

fn read_alignment(bytes: &[u8], entries: &[Entry], keys: &NameIndex) -> Result<u64, GgufError> {
    let key_of = |position: usize| &bytes[entries[position].key.clone()];
    let Some(position) = keys.find(ALIGNMENT_KEY.as_bytes(), key_of) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    let entry = &entries[position];
    let cause = match Value::decode(entry.value_type, &bytes[entry.value.clone()]) {
        Value::U32(found) if alignment_is_valid(found.into()) => return Ok(found.into()),
        Value::U32(found) => Cause::Alignment { found: found.into() },
        other => Cause::WrongType { found: other.type_name(), wanted: "u32" },
    };
    Err(GgufError::new(cause).at(entry.value.start as u64).key(ALIGNMENT_KEY))
}

pub(super) fn alignment_is_valid(alignment: u64) -> bool {
    alignment.is_power_of_two() && (MIN_ALIGNMENT..=MAX_ALIGNMENT).contains(&alignment)
}
