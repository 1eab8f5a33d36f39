//! Typed access to metadata keys.

use std::path::Path;

use super::error::{Cause, GgufError, Text};
use super::parse::{Entry, Parsed};
use super::value::{Array, Value, ValueType};

/// The metadata of a file: keys and typed values, in file order.
///
/// Typed getters give `None` for an absent key and an error that names key, found type and wanted
/// type for a value that does not fit. Nothing is copied: strings borrow from the file.
#[derive(Debug, Clone, Copy)]
pub struct Metadata<'a> {
    bytes: &'a [u8],
    parsed: &'a Parsed,
    path: Option<&'a Path>,
}

impl<'a> Metadata<'a> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.entry(key).map(|entry| self.value(entry))
    }

    /// Whether the key is present.
    pub fn contains(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.parsed.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.parsed.entries.is_empty()
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let this = *self;
        this.parsed.entries.iter().map(move |entry| (this.key(entry), this.value(entry)))
    }

    /// A string.
    ///
    /// # Errors
    /// The value is not a string, or not UTF-8.
    pub fn string(&self, key: &str) -> Result<Option<&'a str>, GgufError> {
        self.typed(key, |value| match value {
            Value::String(bytes) => text(bytes, Text::Value),
            other => Err(wrong_type(other, "string")),
        })
    }

    /// A boolean.
    ///
    /// # Errors
    /// The value is not a boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, |value| match value {
            Value::Bool(value) => Ok(value),
            other => Err(wrong_type(other, "bool")),
        })
    }

    /// An integer of any stored type.
    ///
    /// # Errors
    /// The value is not an integer, or does not fit.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, |value| integer(value, None, "u64"))
    }

    /// An integer of any stored type.
    ///
    /// # Errors
    /// The value is not an integer, or does not fit.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.typed(key, |value| integer(value, None, "u32"))
    }

    /// An integer of any stored type.
    ///
    /// # Errors
    /// The value is not an integer, or does not fit.
    pub fn i64(&self, key: &str) -> Result<Option<i64>, GgufError> {
        self.typed(key, |value| integer(value, None, "i64"))
    }

    /// An integer of any stored type.
    ///
    /// # Errors
    /// The value is not an integer, or does not fit.
    pub fn i32(&self, key: &str) -> Result<Option<i32>, GgufError> {
        self.typed(key, |value| integer(value, None, "i32"))
    }

    /// A count: an integer of any stored type.
    ///
    /// # Errors
    /// The value is not an integer, or does not fit.
    pub fn usize(&self, key: &str) -> Result<Option<usize>, GgufError> {
        self.typed(key, |value| integer(value, None, "usize"))
    }

    /// A number of either floating point type; f64 is rounded.
    ///
    /// # Errors
    /// The value is not a floating point number.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, |value| match value {
            Value::F32(value) => Ok(value),
            Value::F64(value) => Ok(value as f32),
            other => Err(wrong_type(other, "f32")),
        })
    }

    /// A number of either floating point type.
    ///
    /// # Errors
    /// The value is not a floating point number.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, GgufError> {
        self.typed(key, |value| value.as_float().ok_or_else(|| wrong_type(value, "f64")))
    }

    /// An array of any type.
    ///
    /// # Errors
    /// The value is not an array.
    pub fn array(&self, key: &str) -> Result<Option<Array<'a>>, GgufError> {
        self.typed(key, |value| value.as_array().ok_or_else(|| wrong_type(value, "array")))
    }

    /// An array of strings.
    ///
    /// # Errors
    /// The value is not an array of strings, or one of them is not UTF-8.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&'a str>>, GgufError> {
        self.elements(key, "array of string", |index, value| match value {
            Value::String(bytes) => Some(text(bytes, Text::Element(index))),
            _ => None,
        })
    }

    /// An array of integers of any stored type.
    ///
    /// # Errors
    /// The value is not an array of integers, or one of them does not fit.
    pub fn u32_array(&self, key: &str) -> Result<Option<Vec<u32>>, GgufError> {
        self.integers(key, "array of u32")
    }

    /// An array of integers of any stored type.
    ///
    /// # Errors
    /// The value is not an array of integers, or one of them does not fit.
    pub fn i32_array(&self, key: &str) -> Result<Option<Vec<i32>>, GgufError> {
        self.integers(key, "array of i32")
    }

    /// An array of integers of any stored type.
    ///
    /// # Errors
    /// The value is not an array of integers, or one of them does not fit.
    pub fn u64_array(&self, key: &str) -> Result<Option<Vec<u64>>, GgufError> {
        self.integers(key, "array of u64")
    }

    /// An array of numbers of either floating point type; f64 is rounded.
    ///
    /// # Errors
    /// The value is not an array of floating point numbers.
    pub fn f32_array(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        self.elements(key, "array of f32", |_, value| value.as_float().map(|value| Ok(value as f32)))
    }

    /// An array of booleans.
    ///
    /// # Errors
    /// The value is not an array of booleans.
    pub fn bool_array(&self, key: &str) -> Result<Option<Vec<bool>>, GgufError> {
        self.elements(key, "array of bool", |_, value| match value {
            Value::Bool(value) => Some(Ok(value)),
            _ => None,
        })
    }

    pub(super) fn new(bytes: &'a [u8], parsed: &'a Parsed, path: Option<&'a Path>) -> Self {
        Metadata { bytes, parsed, path }
    }

    /// A value's type and its bytes in the file.
    pub(super) fn stored(&self, key: &str) -> Option<(ValueType, &'a [u8])> {
        self.entry(key).map(|entry| (entry.value_type, &self.bytes[entry.value.clone()]))
    }

    fn entry(&self, key: &str) -> Option<&'a Entry> {
        let Metadata { bytes, parsed, .. } = *self;
        let key_of = |position: usize| &bytes[parsed.entries[position].key.clone()];
        parsed.keys.find(key.as_bytes(), key_of).map(|position| &parsed.entries[position])
    }

    fn key(&self, entry: &Entry) -> &'a str {
        std::str::from_utf8(&self.bytes[entry.key.clone()]).expect("keys are checked when the file is parsed")
    }

    fn value(&self, entry: &Entry) -> Value<'a> {
        Value::decode(entry.value_type, &self.bytes[entry.value.clone()])
    }

    fn typed<T>(
        &self,
        key: &str,
        convert: impl FnOnce(Value<'a>) -> Result<T, Cause>,
    ) -> Result<Option<T>, GgufError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        convert(self.value(entry))
            .map(Some)
            .map_err(|cause| GgufError::new(cause).key(key).at(entry.value.start as u64).in_file(self.path))
    }

    /// An array whose elements `convert`; `None` from it says that the element type is wrong.
    fn elements<T>(
        &self,
        key: &str,
        wanted: &'static str,
        convert: impl Fn(usize, Value<'a>) -> Option<Result<T, Cause>>,
    ) -> Result<Option<Vec<T>>, GgufError> {
        self.typed(key, |value| {
            let array = value.as_array().ok_or_else(|| wrong_type(value, wanted))?;
            let convert =
                |(index, element)| convert(index, element).unwrap_or_else(|| Err(wrong_type(value, wanted)));
            array.iter().enumerate().map(convert).collect()
        })
    }

    fn integers<T: TryFrom<i128>>(
        &self,
        key: &str,
        wanted: &'static str,
    ) -> Result<Option<Vec<T>>, GgufError> {
        self.elements(key, wanted, |index, value| {
            value.as_integer().map(|_| integer(value, Some(index), wanted))
        })
    }
}

fn integer<T: TryFrom<i128>>(
    value: Value<'_>,
    index: Option<usize>,
    wanted: &'static str,
) -> Result<T, Cause> {
    let found = value.as_integer().ok_or_else(|| wrong_type(value, wanted))?;
    T::try_from(found).map_err(|_| Cause::OutOfRange { found, index, wanted })
}

fn text(bytes: &[u8], what: Text) -> Result<&str, Cause> {
    std::str::from_utf8(bytes).map_err(|_| Cause::NotUtf8 { what })
}

fn wrong_type(value: Value<'_>, wanted: &'static str) -> Cause {
    Cause::WrongType { found: value.type_name(), wanted }
}
