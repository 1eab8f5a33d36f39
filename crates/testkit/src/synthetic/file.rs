//! A model file in memory, written as GGUF version 3. Independent of the reader under test.

use minfer_tensor::DType;
use minfer_tensor::blocks::decode_row;

const ALIGNMENT: usize = 32;

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Type 2.
    U16(u16),
    /// Type 4.
    U32(u32),
    /// Type 5.
    I32(i32),
    /// Type 6.
    F32(f32),
    /// Type 7.
    Bool(bool),
    /// Type 8.
    Text(String),
    /// Type 9 of type 5.
    I32s(Vec<i32>),
    /// Type 9 of type 4.
    U32s(Vec<u32>),
    /// Type 9 of type 6.
    F32s(Vec<f32>),
    /// Type 9 of type 7.
    Bools(Vec<bool>),
    /// Type 9 of type 8.
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::U32(number)
    }
}

impl From<f32> for Value {
    fn from(number: f32) -> Value {
        Value::F32(number)
    }
}

/// A tensor with its stored bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorData {
    /// Name in the file.
    pub name: String,
    /// Row-major, last contiguous (a GGUF file stores them reversed).
    pub dims: Vec<usize>,
    /// Element type.
    pub dtype: DType,
    /// Elements as stored.
    pub bytes: Vec<u8>,
}

impl TensorData {
    /// An F32 tensor.
    ///
    /// # Panics
    /// The number of values is not the product of `dims`.
    pub fn from_f32(name: &str, dims: &[usize], values: &[f32]) -> TensorData {
        assert_eq!(values.len(), dims.iter().product::<usize>(), "{name}: values do not fill {dims:?}");
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        TensorData { name: name.to_owned(), dims: dims.to_vec(), dtype: DType::F32, bytes }
    }

    /// Every element, decoded to f32 by the scalar decoder.
    ///
    /// # Panics
    /// The bytes do not fit the shape.
    pub fn values(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.dims.iter().product()];
        decode_row(self.dtype, &self.bytes, &mut values).expect("bytes fit the shape");
        values
    }
}

/// Metadata and tensors in file order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelFile {
    /// Key and value pairs.
    pub metadata: Vec<(String, Value)>,
    /// Tensors.
    pub tensors: Vec<TensorData>,
}

impl ModelFile {
    /// Sets a metadata value, in place or at the end.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.metadata.iter_mut().find(|(name, _)| name == key) {
            Some((_, slot)) => *slot = value,
            None => self.metadata.push((key.to_owned(), value)),
        }
    }

    /// Sets the context length, under the key of the model's architecture; an embedding of
    /// positions repeats its rows, or loses some.
    ///
    /// # Panics
    /// The model has none.
    pub fn set_context_length(&mut self, positions: u32) {
        let entry = self.metadata.iter_mut().find(|(name, _)| name.ends_with(".context_length"));
        entry.expect("a model has a context length").1 = positions.into();
        if let Some(table) = self.tensors.iter_mut().find(|tensor| tensor.name == "position_embd.weight") {
            let row = table.bytes.len() / table.dims[0];
            table.dims[0] = positions as usize;
            table.bytes = table.bytes.iter().copied().cycle().take(row * table.dims[0]).collect();
        }
    }

    /// Takes a metadata key away.
    ///
    /// # Panics
    /// There is no such key.
    pub fn unset(&mut self, key: &str) {
        let index = self.metadata.iter().position(|(name, _)| name == key);
        self.metadata.remove(index.unwrap_or_else(|| panic!("no key {key}")));
    }

    /// The tensor of that name.
    ///
    /// # Panics
    /// There is no such tensor.
    pub fn tensor(&mut self, name: &str) -> &mut TensorData {
        let found = self.tensors.iter_mut().find(|tensor| tensor.name == name);
        found.unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// Takes a tensor away.
    ///
    /// # Panics
    /// There is no such tensor.
    pub fn remove(&mut self, name: &str) -> TensorData {
        let index = self.tensors.iter().position(|tensor| tensor.name == name);
        self.tensors.remove(index.unwrap_or_else(|| panic!("no tensor {name}")))
    }

    /// The bytes of the files that the model splits into, as `gguf-split` of llama.cpp writes them:
    /// all metadata in the first, the tensors shared out in order.
    ///
    /// # Panics
    /// `count` is zero.
    pub fn to_parts(&self, count: usize) -> Vec<Vec<u8>> {
        let share = self.tensors.len().div_ceil(count);
        let mut tensors = self.tensors.chunks(share);
        let part = |number: usize| {
            let mut part = ModelFile { metadata: Vec::new(), tensors: Vec::new() };
            if number == 0 {
                part.metadata.clone_from(&self.metadata);
            }
            part.metadata.push(("split.no".to_owned(), Value::U16(number as u16)));
            part.set("split.tensors.count", Value::I32(self.tensors.len() as i32));
            part.set("split.count", Value::U16(count as u16));
            part.tensors = tensors.next().unwrap_or_default().to_vec();
            part.to_bytes()
        };
        (0..count).map(part).collect()
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        put_len(&mut out, self.tensors.len());
        put_len(&mut out, self.metadata.len());
        for (key, value) in &self.metadata {
            put_text(&mut out, key);
            put_value(&mut out, value);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            put_text(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().rev().for_each(|&dim| put_len(&mut out, dim));
            out.extend(type_number(tensor.dtype).to_le_bytes());
            put_len(&mut out, offset);
            offset += tensor.bytes.len().next_multiple_of(ALIGNMENT);
        }
        pad(&mut out);
        for tensor in &self.tensors {
            out.extend(&tensor.bytes);
            pad(&mut out);
        }
        out
    }
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend((len as u64).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_len(out, text.len());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let kind = |out: &mut Vec<u8>, kind: u32| out.extend(kind.to_le_bytes());
    let list = |out: &mut Vec<u8>, element: u32, len: usize| {
        out.extend(9_u32.to_le_bytes());
        out.extend(element.to_le_bytes());
        put_len(out, len);
    };
    match value {
        Value::U16(number) => {
            kind(out, 2);
            out.extend(number.to_le_bytes());
        }
        Value::U32(number) => {
            kind(out, 4);
            out.extend(number.to_le_bytes());
        }
        Value::I32(number) => {
            kind(out, 5);
            out.extend(number.to_le_bytes());
        }
        Value::F32(number) => {
            kind(out, 6);
            out.extend(number.to_le_bytes());
        }
        Value::Bool(truth) => {
            kind(out, 7);
            out.push(u8::from(*truth));
        }
        Value::Text(text) => {
            kind(out, 8);
            put_text(out, text);
        }
        Value::I32s(numbers) => {
            list(out, 5, numbers.len());
            numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        }
        Value::F32s(numbers) => {
            list(out, 6, numbers.len());
            numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        }
        Value::U32s(numbers) => {
            list(out, 4, numbers.len());
            numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        }
        Value::Bools(truths) => {
            list(out, 7, truths.len());
            out.extend(truths.iter().map(|&truth| u8::from(truth)));
        }
        Value::Texts(texts) => {
            list(out, 8, texts.len());
            texts.iter().for_each(|text| put_text(out, text));
        }
    }
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
}

/// The type's number in a GGUF file.
fn type_number(dtype: DType) -> u32 {
    match dtype {
        DType::F32 => 0,
        DType::F16 => 1,
        DType::Q4_0 => 2,
        DType::Q4_1 => 3,
        DType::Q5_0 => 6,
        DType::Q5_1 => 7,
        DType::Q8_0 => 8,
        DType::Q2_K => 10,
        DType::Q3_K => 11,
        DType::Q4_K => 12,
        DType::Q5_K => 13,
        DType::Q6_K => 14,
        DType::IQ4_NL => 20,
        DType::IQ4_XS => 23,
        DType::MXFP4 => 39,
        DType::NVFP4 => 40,
        DType::IQ3_XXS => 18,
        DType::IQ3_S => 21,
        DType::IQ2_XXS => 16,
        DType::IQ2_XS => 17,
        DType::IQ2_S => 22,
        DType::IQ1_S => 19,
        DType::IQ1_M => 29,
        DType::Q8_K => 15,
        DType::I32 => 26,
        DType::BF16 => 30,
        DType::TQ1_0 => 34,
        DType::TQ2_0 => 35,
        DType::U32 => panic!("GGUF has no U32 tensors"),
    }
}
