//! Metadata values and arrays, borrowed from the file's bytes.

use std::fmt;

use super::cursor::Cursor;
use super::parse::skip_value;

/// The type of a metadata value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// Unsigned 8-bit integer.
    U8 = 0,
    /// Signed 8-bit integer.
    I8 = 1,
    /// Unsigned 16-bit integer.
    U16 = 2,
    /// Signed 16-bit integer.
    I16 = 3,
    /// Unsigned 32-bit integer.
    U32 = 4,
    /// Signed 32-bit integer.
    I32 = 5,
    /// 32-bit floating point.
    F32 = 6,
    /// One byte, 0 or 1.
    Bool = 7,
    /// A length in bytes and that many bytes, UTF-8 by convention.
    String = 8,
    /// An element type, a count and that many elements.
    Array = 9,
    /// Unsigned 64-bit integer.
    U64 = 10,
    /// Signed 64-bit integer.
    I64 = 11,
    /// 64-bit floating point.
    F64 = 12,
}

/// A metadata value, borrowed from the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Unsigned 8-bit integer.
    U8(u8),
    /// Signed 8-bit integer.
    I8(i8),
    /// Unsigned 16-bit integer.
    U16(u16),
    /// Signed 16-bit integer.
    I16(i16),
    /// Unsigned 32-bit integer.
    U32(u32),
    /// Signed 32-bit integer.
    I32(i32),
    /// 32-bit floating point.
    F32(f32),
    /// Truth.
    Bool(bool),
    /// Text, not yet known to be UTF-8.
    String(&'a [u8]),
    /// Several values of one type.
    Array(Array<'a>),
    /// Unsigned 64-bit integer.
    U64(u64),
    /// Signed 64-bit integer.
    I64(i64),
    /// 64-bit floating point.
    F64(f64),
}

/// An array of metadata values, borrowed from the file.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'a> {
    element_type: ValueType,
    len: usize,
    body: &'a [u8],
}

impl ValueType {
    /// Every type, in the order of ids.
    pub const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::String,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    /// The type of an id in a file.
    pub fn from_id(id: u32) -> Option<ValueType> {
        ValueType::ALL.get(id as usize).copied()
    }

    /// The id in a file.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// Name of the type.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }

    /// Bytes of a value, where all values of the type take the same.
    pub(super) fn fixed_bytes(self) -> Option<u64> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::String | ValueType::Array => None,
        }
    }

    /// The fewest bytes that a value takes.
    pub(super) fn min_bytes(self) -> u64 {
        match self {
            ValueType::String => 8,
            ValueType::Array => 12,
            _ => self.fixed_bytes().expect("strings and arrays are the types of variable size"),
        }
    }
}

impl<'a> Value<'a> {
    /// The type of the value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The type spelled out, an array's with its elements' type.
    pub fn type_name(&self) -> String {
        match self {
            Value::Array(array) => format!("array of {}", array.element_type.name()),
            _ => self.value_type().name().to_owned(),
        }
    }

    /// The value of any integer type.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(value) => value.into(),
            Value::I8(value) => value.into(),
            Value::U16(value) => value.into(),
            Value::I16(value) => value.into(),
            Value::U32(value) => value.into(),
            Value::I32(value) => value.into(),
            Value::U64(value) => value.into(),
            Value::I64(value) => value.into(),
            _ => return None,
        })
    }

    /// The value of either floating point type.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Value::F32(value) => Some(value.into()),
            Value::F64(value) => Some(value),
            _ => None,
        }
    }

    /// The text of a string that is UTF-8.
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Value::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The array.
    pub fn as_array(&self) -> Option<Array<'a>> {
        match *self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Decodes a value that [`skip_value`] has accepted.
    pub(super) fn decode(value_type: ValueType, bytes: &'a [u8]) -> Value<'a> {
        let mut cursor = Cursor::new(bytes);
        match value_type {
            ValueType::U8 => Value::U8(fixed(&mut cursor, u8::from_le_bytes)),
            ValueType::I8 => Value::I8(fixed(&mut cursor, i8::from_le_bytes)),
            ValueType::U16 => Value::U16(fixed(&mut cursor, u16::from_le_bytes)),
            ValueType::I16 => Value::I16(fixed(&mut cursor, i16::from_le_bytes)),
            ValueType::U32 => Value::U32(fixed(&mut cursor, u32::from_le_bytes)),
            ValueType::I32 => Value::I32(fixed(&mut cursor, i32::from_le_bytes)),
            ValueType::F32 => Value::F32(fixed(&mut cursor, f32::from_le_bytes)),
            ValueType::Bool => Value::Bool(fixed(&mut cursor, |[byte]: [u8; 1]| byte != 0)),
            ValueType::U64 => Value::U64(fixed(&mut cursor, u64::from_le_bytes)),
            ValueType::I64 => Value::I64(fixed(&mut cursor, i64::from_le_bytes)),
            ValueType::F64 => Value::F64(fixed(&mut cursor, f64::from_le_bytes)),
            ValueType::String => Value::String(&bytes[8..]),
            ValueType::Array => Value::Array(Array::decode(bytes)),
        }
    }
}

impl<'a> Array<'a> {
    /// Type of the elements.
    pub fn element_type(&self) -> ValueType {
        self.element_type
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value<'a>> + use<'a> {
        let Array { element_type, len, body } = *self;
        let mut cursor = Cursor::new(body);
        (0..len).map(move |_| {
            let start = cursor.position();
            skip_value(&mut cursor, element_type, 0).expect(CHECKED);
            Value::decode(element_type, &body[start..cursor.position()])
        })
    }

    /// The stored form: element type, count, elements.
    pub(super) fn stored(&self) -> (ValueType, u64, &'a [u8]) {
        (self.element_type, self.len as u64, self.body)
    }

    fn decode(bytes: &'a [u8]) -> Array<'a> {
        let mut cursor = Cursor::new(bytes);
        let element_type = ValueType::from_id(fixed(&mut cursor, u32::from_le_bytes)).expect(CHECKED);
        let len = usize::try_from(fixed(&mut cursor, u64::from_le_bytes)).expect(CHECKED);
        Array { element_type, len, body: &bytes[cursor.position()..] }
    }
}

/// How many elements of an array a listing shows.
const SHOWN_ELEMENTS: usize = 8;
/// How many characters of a string a listing shows.
const SHOWN_CHARS: usize = 120;
/// Bytes are checked when a file is opened, and stay as they were.
const CHECKED: &str =
    "values are checked when the file is parsed, and the file does not change while it is open";

fn fixed<const N: usize, T>(cursor: &mut Cursor<'_>, from: impl Fn([u8; N]) -> T) -> T {
    from(cursor.array().expect(CHECKED))
}

/// One line, long strings and arrays cut short.
impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => write!(out, "{value}"),
            Value::String(bytes) => show_text(bytes, out),
            Value::Array(array) => write!(out, "{array}"),
            Value::F32(value) => write!(out, "{value}"),
            Value::F64(value) => write!(out, "{value}"),
            integer => write!(out, "{}", integer.as_integer().expect("the other types are matched above")),
        }
    }
}

/// One line, long arrays cut short and arrays inside of arrays named by their size.
impl fmt::Display for Array<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("[")?;
        for (position, value) in self.iter().take(SHOWN_ELEMENTS).enumerate() {
            out.write_str(if position == 0 { "" } else { ", " })?;
            match value {
                Value::Array(inner) => write!(out, "{} of {}", inner.len, inner.element_type.name())?,
                plain => write!(out, "{plain}")?,
            }
        }
        match self.len.checked_sub(SHOWN_ELEMENTS) {
            Some(more @ 1..) => write!(out, ", and {more} more]"),
            _ => out.write_str("]"),
        }
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

fn show_text(bytes: &[u8], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    // Four bytes hold any character, so the cut needs no look at the rest of a long string.
    let head = &bytes[..bytes.len().min(4 * SHOWN_CHARS)];
    let text = String::from_utf8_lossy(head);
    let shown: String = text.chars().take(SHOWN_CHARS).collect();
    let whole = shown.len() == text.len() && head.len() == bytes.len();
    write!(out, "{shown:?}{}", if whole { "" } else { "..." })
}
