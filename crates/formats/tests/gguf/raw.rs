//! Writes GGUF bytes field by field, whether or not they make sense.

/// Ids of value types, as in the file.
pub(crate) mod value {
    pub(crate) const U8: u32 = 0;
    pub(crate) const U32: u32 = 4;
    pub(crate) const I32: u32 = 5;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const STRING: u32 = 8;
    pub(crate) const ARRAY: u32 = 9;
    pub(crate) const U64: u32 = 10;
}

/// Ids of tensor types, as in the file.
pub(crate) mod kind {
    pub(crate) const F32: u32 = 0;
    pub(crate) const Q4_0: u32 = 2;
    pub(crate) const Q4_K: u32 = 12;
    pub(crate) const IQ2_XS: u32 = 17;
    pub(crate) const Q1_0: u32 = 41;
}

/// A file in the making.
#[derive(Debug, Clone, Default)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    /// Magic, version 3 and the two counts.
    pub(crate) fn new(tensors: u64, entries: u64) -> Raw {
        Raw::versioned(3, tensors, entries)
    }

    pub(crate) fn versioned(version: u32, tensors: u64, entries: u64) -> Raw {
        Raw(b"GGUF".to_vec()).u32(version).u64(tensors).u64(entries)
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Raw {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u32(self, value: u32) -> Raw {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Raw {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn string(self, text: impl AsRef<[u8]>) -> Raw {
        self.u64(text.as_ref().len() as u64).bytes(text.as_ref())
    }

    /// A key and the id of its value's type; the value follows.
    pub(crate) fn key(self, key: impl AsRef<[u8]>, value_type: u32) -> Raw {
        self.string(key).u32(value_type)
    }

    /// The start of an array; its elements follow.
    pub(crate) fn array(self, element_type: u32, count: u64) -> Raw {
        self.u32(element_type).u64(count)
    }

    /// The description of a tensor.
    pub(crate) fn tensor(self, name: impl AsRef<[u8]>, dims: &[u64], kind: u32, offset: u64) -> Raw {
        let start = self.string(name).u32(dims.len() as u32);
        dims.iter().fold(start, |raw, &dim| raw.u64(dim)).u32(kind).u64(offset)
    }

    /// Padding to 32 bytes and then `bytes` of data.
    pub(crate) fn data(self, bytes: usize) -> Raw {
        self.aligned_data(32, bytes)
    }

    pub(crate) fn aligned_data(mut self, alignment: usize, bytes: usize) -> Raw {
        self.0.resize(self.0.len().next_multiple_of(alignment) + bytes, 0);
        self
    }
}

/// A small valid file with values of all types and two tensors.
pub(crate) fn valid() -> Vec<u8> {
    use minfer_formats::gguf::Writer;
    use minfer_tensor::DType;

    let mut writer = Writer::new();
    writer.put("general.architecture", "llama").unwrap();
    writer.put("a.u8", &1u8).unwrap();
    writer.put("a.i8", &-1i8).unwrap();
    writer.put("a.u16", &2u16).unwrap();
    writer.put("a.i16", &-2i16).unwrap();
    writer.put("a.u32", &3u32).unwrap();
    writer.put("a.i32", &-3i32).unwrap();
    writer.put("a.f32", &0.5f32).unwrap();
    writer.put("a.bool", &true).unwrap();
    writer.put("a.u64", &4u64).unwrap();
    writer.put("a.i64", &-4i64).unwrap();
    writer.put("a.f64", &0.25f64).unwrap();
    writer.put("b.strings", &["a", "", "h\u{e9}"]).unwrap();
    writer.put("b.bools", &[true, false]).unwrap();
    writer.put("b.ints", &[7u16, 8, 9]).unwrap();
    writer.put("b.nested", &[vec![1u32, 2], vec![], vec![3]]).unwrap();
    writer.announce("x.weight", DType::Q4_0, &[32, 2]).unwrap();
    writer.announce("y.bias", DType::F32, &[3]).unwrap();
    let mut sink = writer.start(Vec::new()).unwrap();
    sink.tensor("x.weight", &[0x5a; 36]).unwrap();
    sink.tensor("y.bias", &[0; 12]).unwrap();
    sink.finish().unwrap()
}
