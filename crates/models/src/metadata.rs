//! A file's metadata with the overrides of `--override-kv` applied.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

use minfer_formats::gguf;

use crate::ModelError;
use crate::nearest::nearest;

/// Metadata of a file with overrides applied. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub struct Metadata<'f> {
    file: gguf::Metadata<'f>,
    overrides: &'f Overrides<'f>,
}

/// Metadata keys of the tokenizer that can be overridden; lists cannot.
pub const TOKENIZER_KEYS: [&str; 15] = [
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.seperator_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_space_prefix",
    "tokenizer.ggml.remove_extra_whitespaces",
    "tokenizer.ggml.normalizer.lowercase",
    "tokenizer.ggml.normalizer.strip_accents",
];

/// Overrides, and which of them were used.
#[derive(Debug)]
pub struct Overrides<'o> {
    entries: &'o [MetadataOverride],
    read: Vec<Cell<bool>>,
}

impl<'o> Overrides<'o> {
    /// Overrides of which none was used yet.
    pub fn new(entries: &'o [MetadataOverride]) -> Overrides<'o> {
        Overrides { entries, read: vec![Cell::new(false); entries.len()] }
    }

    /// The last value for a key.
    fn get(&self, key: &str) -> Option<&'o MetadataValue> {
        let named = self.entries.iter().zip(&self.read).filter(|(entry, _)| entry.key == key);
        named.inspect(|(_, read)| read.set(true)).last().map(|(entry, _)| &entry.value)
    }

    /// Fails if an override was not used and its key is not in the file.
    ///
    /// # Errors
    /// The override without effect, by key.
    pub fn refuse_useless(&self, file: gguf::Metadata<'_>) -> Result<(), ModelError> {
        let mut unread = self.entries.iter().zip(&self.read).filter(|(_, read)| !read.get());
        let means_nothing = |key: &str| !file.contains(key) && !TOKENIZER_KEYS.contains(&key);
        let Some((entry, _)) = unread.find(|(entry, _)| means_nothing(&entry.key)) else { return Ok(()) };
        let of_model = file.iter().map(|(key, _)| key).filter(|key| !key.starts_with("tokenizer."));
        let known: Vec<&str> = of_model.chain(TOKENIZER_KEYS).collect();
        let nearest = nearest(&entry.key, &known).map(str::to_owned);
        Err(ModelError::UselessOverride { key: entry.key.clone(), nearest })
    }
}

/// A key and the value that replaces the file's, written `KEY=TYPE:VAL`.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataOverride {
    /// The metadata key; it need not be in the file if the model's family reads it.
    pub key: String,
    /// The value.
    pub value: MetadataValue,
}

/// The value of an override.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataValue {
    /// `int:`
    Integer(i64),
    /// `float:`
    Float(f64),
    /// `bool:`
    Bool(bool),
    /// `str:`
    Text(String),
}

impl<'f> Metadata<'f> {
    /// The file's metadata under `overrides`; of several for one key the last counts.
    pub fn new(file: &'f gguf::File, overrides: &'f Overrides<'f>) -> Metadata<'f> {
        Metadata { file: file.metadata(), overrides }
    }

    /// Whether the key has a value.
    pub fn contains(&self, key: &str) -> bool {
        self.overridden(key).is_some() || self.file.contains(key)
    }

    /// An integer of any stored type.
    ///
    /// # Errors
    /// The value is not an integer from 0 to 2^32 - 1.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, ModelError> {
        match self.overridden(key) {
            None => Ok(self.file.u32(key)?),
            Some(MetadataValue::Integer(value)) => match u32::try_from(*value) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(bad_value(key, value, "an integer from 0 to 4294967295")),
            },
            Some(other) => Err(bad_override(key, other, "int:VALUE")),
        }
    }

    /// A floating point number.
    ///
    /// # Errors
    /// The value is not a floating point number. An override may also be an integer.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, ModelError> {
        match self.overridden(key) {
            None => Ok(self.file.f64(key)?),
            Some(MetadataValue::Float(value)) => Ok(Some(*value)),
            Some(MetadataValue::Integer(value)) => Ok(Some(*value as f64)),
            Some(other) => Err(bad_override(key, other, "float:VALUE")),
        }
    }

    /// A boolean.
    ///
    /// # Errors
    /// The value is not a boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, ModelError> {
        match self.overridden(key) {
            None => Ok(self.file.bool(key)?),
            Some(MetadataValue::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(bad_override(key, other, "bool:true or bool:false")),
        }
    }

    /// A string.
    ///
    /// # Errors
    /// The value is not a string, or not UTF-8.
    pub fn string(&self, key: &str) -> Result<Option<&'f str>, ModelError> {
        match self.overridden(key) {
            None => Ok(self.file.string(key)?),
            Some(MetadataValue::Text(value)) => Ok(Some(value)),
            Some(other) => Err(bad_override(key, other, "str:VALUE")),
        }
    }

    /// An array of any type.
    ///
    /// # Errors
    /// The value is not an array; no override is.
    pub fn array(&self, key: &str) -> Result<Option<gguf::Array<'f>>, ModelError> {
        self.no_override(key)?;
        Ok(self.file.array(key)?)
    }

    /// An array of strings.
    ///
    /// # Errors
    /// The value is not an array of UTF-8 strings; no override is.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&'f str>>, ModelError> {
        self.no_override(key)?;
        Ok(self.file.strings(key)?)
    }

    /// An array of integers.
    ///
    /// # Errors
    /// The value is not an array of 32-bit integers; no override is.
    pub fn i32_array(&self, key: &str) -> Result<Option<Vec<i32>>, ModelError> {
        self.no_override(key)?;
        Ok(self.file.i32_array(key)?)
    }

    /// An array of integers.
    ///
    /// # Errors
    /// The value is not an array of unsigned 32-bit integers; no override is.
    pub fn u32_array(&self, key: &str) -> Result<Option<Vec<u32>>, ModelError> {
        self.no_override(key)?;
        Ok(self.file.u32_array(key)?)
    }

    /// An array of floating point numbers.
    ///
    /// # Errors
    /// The value is not such an array; no override is.
    pub fn f32_array(&self, key: &str) -> Result<Option<Vec<f32>>, ModelError> {
        self.no_override(key)?;
        Ok(self.file.f32_array(key)?)
    }

    /// An array of truth values; none where the value is no array.
    ///
    /// # Errors
    /// The value is an array of something else.
    pub fn bool_list(&self, key: &str) -> Result<Option<Vec<bool>>, ModelError> {
        let is_list = match self.file.get(key) {
            Some(gguf::Value::Array(array)) => array.element_type() == gguf::ValueType::Bool,
            _ => false,
        };
        if self.overridden(key).is_some() || !is_list {
            return Ok(None);
        }
        Ok(self.file.bool_array(key)?)
    }

    /// A number that holds for every layer: an integer, or an array of equal integers.
    ///
    /// # Errors
    /// The value is neither, or the layers differ.
    pub fn uniform_u32(&self, key: &str) -> Result<Option<u32>, ModelError> {
        let is_array = matches!(self.file.get(key), Some(gguf::Value::Array(_)));
        if self.overridden(key).is_some() || !is_array {
            return self.u32(key);
        }
        let layers = self.file.u32_array(key)?.unwrap_or_default();
        match layers.first() {
            Some(first) if layers.iter().all(|layer| layer == first) => Ok(Some(*first)),
            _ => Err(bad_value(key, &format!("{layers:?}"), "one number for all layers")),
        }
    }

    fn overridden(&self, key: &str) -> Option<&'f MetadataValue> {
        self.overrides.get(key)
    }

    fn no_override(&self, key: &str) -> Result<(), ModelError> {
        match self.overridden(key) {
            None => Ok(()),
            Some(value) => Err(bad_override(key, value, "no override: its value is an array")),
        }
    }
}

impl fmt::Display for MetadataValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetadataValue::Integer(value) => write!(formatter, "int:{value}"),
            MetadataValue::Float(value) => write!(formatter, "float:{value}"),
            MetadataValue::Bool(value) => write!(formatter, "bool:{value}"),
            MetadataValue::Text(value) => write!(formatter, "str:{value}"),
        }
    }
}

impl fmt::Display for MetadataOverride {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.key, self.value)
    }
}

impl FromStr for MetadataOverride {
    type Err = ModelError;

    /// Reads `KEY=TYPE:VAL` with the types int, float, bool and str.
    fn from_str(text: &str) -> Result<MetadataOverride, ModelError> {
        let refuse = |wanted| ModelError::OverrideSyntax { text: text.to_owned(), wanted };
        let parts = text.split_once('=').and_then(|(key, typed)| Some((key, typed.split_once(':')?)));
        let Some((key, (kind, value))) = parts.filter(|(key, _)| !key.is_empty()) else {
            return Err(refuse("KEY=TYPE:VAL"));
        };
        let value = match kind {
            "int" => MetadataValue::Integer(value.parse().map_err(|_| refuse("an integer after int:"))?),
            "float" => MetadataValue::Float(value.parse().map_err(|_| refuse("a number after float:"))?),
            "bool" => MetadataValue::Bool(value.parse().map_err(|_| refuse("true or false after bool:"))?),
            "str" => MetadataValue::Text(value.to_owned()),
            _ => return Err(refuse("one of the types int, float, bool and str")),
        };
        Ok(MetadataOverride { key: key.to_owned(), value })
    }
}

pub(crate) fn bad_value(key: &str, value: &dyn fmt::Display, wanted: &str) -> ModelError {
    ModelError::BadValue { key: key.to_owned(), value: value.to_string(), wanted: wanted.to_owned() }
}

fn bad_override(key: &str, value: &MetadataValue, wanted: &'static str) -> ModelError {
    ModelError::BadOverride { key: key.to_owned(), value: value.to_string(), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_read() {
        let read = |text: &str| text.parse::<MetadataOverride>().map(|entry| entry.value);
        assert_eq!(read("a.b=int:-3").unwrap(), MetadataValue::Integer(-3));
        assert_eq!(read("a.b=float:1e-5").unwrap(), MetadataValue::Float(1e-5));
        assert_eq!(read("a.b=bool:true").unwrap(), MetadataValue::Bool(true));
        assert_eq!(read("a.b=str:x=y:z").unwrap(), MetadataValue::Text("x=y:z".to_owned()));
        let entry: MetadataOverride = "a.b=str:".parse().unwrap();
        assert_eq!((entry.key.as_str(), entry.to_string().as_str()), ("a.b", "a.b=str:"));
    }

    #[test]
    fn bad_overrides_are_refused_by_name() {
        for (text, wanted) in [
            ("a.b", "KEY=TYPE:VAL"),
            ("a.b=3", "KEY=TYPE:VAL"),
            ("=int:3", "KEY=TYPE:VAL"),
            ("a.b=int:x", "an integer after int:"),
            ("a.b=float:", "a number after float:"),
            ("a.b=bool:1", "true or false after bool:"),
            ("a.b=u8:1", "one of the types int, float, bool and str"),
        ] {
            let error = text.parse::<MetadataOverride>().unwrap_err();
            assert_eq!(error.to_string(), format!("{text:?} is no metadata override: {wanted} is needed"));
        }
    }
}
