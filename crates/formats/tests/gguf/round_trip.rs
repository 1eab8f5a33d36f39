//! Files of the writer are read back unchanged; what the writer refuses.

use std::collections::BTreeMap;

use minfer_formats::gguf::{Cause, File, Value, Writer};
use minfer_tensor::DType;
use proptest::prelude::*;

use super::raw::valid;

/// A value to write, with the check of its reading.
#[derive(Debug, Clone)]
enum Sample {
    Integer(i64),
    Float(f32),
    Truth(bool),
    Text(String),
    Texts(Vec<String>),
    Integers(Vec<i16>),
    Floats(Vec<f32>),
    Nested(Vec<Vec<u8>>),
}

impl Sample {
    fn put(&self, writer: &mut Writer, key: &str) {
        match self {
            Sample::Integer(value) => writer.put(key, value),
            Sample::Float(value) => writer.put(key, value),
            Sample::Truth(value) => writer.put(key, value),
            Sample::Text(value) => writer.put(key, value),
            Sample::Texts(value) => writer.put(key, value),
            Sample::Integers(value) => writer.put(key, value),
            Sample::Floats(value) => writer.put(key, value),
            Sample::Nested(value) => writer.put(key, value),
        }
        .unwrap();
    }

    fn check(&self, file: &File, key: &str) {
        let metadata = file.metadata();
        match self {
            Sample::Integer(value) => assert_eq!(metadata.i64(key).unwrap(), Some(*value)),
            Sample::Float(value) => {
                assert_eq!(metadata.f32(key).unwrap().unwrap().to_bits(), value.to_bits())
            }
            Sample::Truth(value) => assert_eq!(metadata.bool(key).unwrap(), Some(*value)),
            Sample::Text(value) => assert_eq!(metadata.string(key).unwrap(), Some(value.as_str())),
            Sample::Texts(value) => assert_eq!(metadata.strings(key).unwrap().unwrap(), *value),
            Sample::Integers(value) => {
                let found = metadata.i32_array(key).unwrap().unwrap();
                assert!(found.iter().copied().eq(value.iter().map(|&x| i32::from(x))));
            }
            Sample::Floats(value) => assert_eq!(metadata.f32_array(key).unwrap().unwrap(), *value),
            Sample::Nested(value) => {
                let outer = metadata.array(key).unwrap().unwrap();
                let inner = outer.iter().map(|inner| {
                    inner
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|x| x.as_integer().unwrap() as u8)
                        .collect::<Vec<_>>()
                });
                assert!(inner.eq(value.iter().cloned()));
            }
        }
    }
}

fn samples() -> impl Strategy<Value = Sample> {
    prop_oneof![
        any::<i64>().prop_map(Sample::Integer),
        any::<f32>().prop_map(Sample::Float),
        any::<bool>().prop_map(Sample::Truth),
        "\\PC{0,20}".prop_map(Sample::Text),
        prop::collection::vec("\\PC{0,5}", 0..20).prop_map(Sample::Texts),
        prop::collection::vec(any::<i16>(), 0..20).prop_map(Sample::Integers),
        prop::collection::vec(-1e9f32..1e9, 0..20).prop_map(Sample::Floats),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..4).prop_map(Sample::Nested),
    ]
}

fn tensors() -> impl Strategy<Value = BTreeMap<String, (DType, Vec<u64>)>> {
    let storable: Vec<DType> = DType::ALL.into_iter().filter(|&dtype| dtype != DType::U32).collect();
    let tensor = (prop::sample::select(storable), prop::collection::vec(1u64..4, 1..=4)).prop_map(
        |(dtype, mut dims)| {
            dims[0] *= dtype.block_len() as u64;
            (dtype, dims)
        },
    );
    prop::collection::btree_map("[a-z0-9._]{1,64}", tensor, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn written_files_read_back(
        entries in prop::collection::btree_map("\\PC{1,30}", samples(), 0..12),
        tensors in tensors(),
        alignment in prop::option::of(prop::sample::select(vec![8u32, 16, 32, 64, 4096])),
    ) {
        let mut writer = Writer::new();
        if let Some(alignment) = alignment {
            writer.align(alignment).unwrap();
        }
        for (key, sample) in &entries {
            sample.put(&mut writer, key);
        }
        for (name, (dtype, dims)) in &tensors {
            writer.announce(name, *dtype, dims).unwrap();
        }
        let mut sink = writer.start(Vec::new()).unwrap();
        for (position, (name, (dtype, dims))) in tensors.iter().enumerate() {
            sink.tensor(name, &data(position, *dtype, dims)).unwrap();
        }
        let file = File::parse(sink.finish().unwrap()).unwrap();
        prop_assert_eq!(file.alignment(), u64::from(alignment.unwrap_or(32)));
        prop_assert_eq!(file.metadata().len(), entries.len() + usize::from(alignment.is_some()));
        for (key, sample) in &entries {
            sample.check(&file, key);
        }
        prop_assert_eq!(file.tensors().len(), tensors.len());
        for (position, (name, (dtype, dims))) in tensors.iter().enumerate() {
            let tensor = file.require(name).unwrap();
            prop_assert_eq!(tensor, &file.tensors()[position]);
            prop_assert_eq!((tensor.dtype(), tensor.dims()), (Some(*dtype), dims.as_slice()));
            prop_assert_eq!(tensor.range().start % file.alignment(), 0);
            prop_assert_eq!(file.read_all(tensor).unwrap(), data(position, *dtype, dims));
        }
    }
}

fn data(position: usize, dtype: DType, dims: &[u64]) -> Vec<u8> {
    let rows: u64 = dims[1..].iter().product();
    let bytes = dtype.row_bytes(dims[0]).unwrap() * rows;
    (0..bytes).map(|i| (i as usize * 7 + position) as u8).collect()
}

#[test]
fn a_copied_file_is_the_same_file() {
    let file = File::parse(valid()).unwrap();
    let mut writer = Writer::new();
    for (key, value) in file.metadata().iter() {
        writer.copy(key, &value).unwrap();
    }
    for tensor in file.tensors() {
        writer.announce(tensor.name(), tensor.tensor_type(), tensor.dims()).unwrap();
    }
    let mut sink = writer.start(Vec::new()).unwrap();
    for tensor in file.tensors() {
        sink.tensor(tensor.name(), &file.read_all(tensor).unwrap()).unwrap();
    }
    assert_eq!(sink.finish().unwrap(), valid());
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let mut writer = Writer::new();
    let cause = |result: Result<(), minfer_formats::gguf::GgufError>| result.unwrap_err().to_string();
    writer.put("k", &1u8).unwrap();
    assert!(cause(writer.put("k", &1u8)).contains("twice"));
    assert!(cause(writer.put("", &1u8)).contains("empty"));
    assert!(cause(writer.put(&"k".repeat(65536), &1u8)).contains("65536"));
    assert!(cause(writer.put("general.alignment", &32u64)).contains("u32 is needed"));
    assert!(cause(writer.align(48)).contains("power of two"));
    writer.announce("t", DType::F32, &[8]).unwrap();
    assert!(cause(writer.announce("t", DType::F32, &[8])).contains("twice"));
    assert!(cause(writer.announce("", DType::F32, &[8])).contains("empty"));
    assert!(cause(writer.announce(&"t".repeat(65), DType::F32, &[8])).contains("65"));
    assert!(cause(writer.announce("u", DType::U32, &[8])).contains("cannot be stored"));
    assert!(cause(writer.announce("u", DType::F32, &[1; 5])).contains("5 dimensions"));
    assert!(cause(writer.announce("u", DType::F32, &[0])).contains("zero"));
    assert!(cause(writer.announce("u", DType::Q4_0, &[31])).contains("row length 31"));
    assert!(cause(writer.announce("u", DType::F32, &[1 << 62, 4])).contains("overflow"));
    let file = File::parse({
        let mut sink = writer.start(Vec::new()).unwrap();
        sink.tensor("t", &[0; 32]).unwrap();
        sink.finish().unwrap()
    })
    .unwrap();
    assert_eq!(file.metadata().get("k"), Some(Value::U8(1)));
    assert_eq!((file.metadata().len(), file.tensors().len()), (1, 1));
}

#[test]
fn the_sink_keeps_order_and_sizes() {
    let start = || {
        let mut writer = Writer::new();
        writer.announce("a", DType::F32, &[2]).unwrap();
        writer.announce("b", DType::F32, &[1]).unwrap();
        writer.start(Vec::new()).unwrap()
    };
    let mut sink = start();
    assert!(matches!(sink.tensor("b", &[0; 4]).unwrap_err().cause(), Cause::TensorOrder { .. }));
    assert!(matches!(
        sink.tensor("a", &[0; 7]).unwrap_err().cause(),
        Cause::TensorBytes { wanted: 8, found: 7 }
    ));
    sink.part(&[0; 5]).unwrap();
    assert!(sink.tensor("a", &[0; 8]).is_err());
    assert!(sink.part(&[0; 4]).is_err());
    sink.part(&[0; 3]).unwrap();
    assert!(start().finish().unwrap_err().to_string().contains("takes 8 bytes, and 0 were given"));
    sink.tensor("b", &[0; 4]).unwrap();
    assert!(matches!(sink.tensor("c", &[]).unwrap_err().cause(), Cause::NoTensorDue));
    assert!(File::parse(sink.finish().unwrap()).is_ok());
}

#[test]
#[should_panic(expected = "alignment is chosen before tensors are placed")]
fn alignment_comes_before_tensors() {
    let mut writer = Writer::new();
    writer.announce("a", DType::F32, &[2]).unwrap();
    let _ = writer.align(64);
}
