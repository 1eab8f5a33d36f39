//! Visits every key, value and tensor of a parsed file.

use std::fmt::Write;

use minfer_formats::gguf::{Array, File, Value};

/// Reads every value and every byte of the first kilobyte of each tensor; returns something that
/// depends on them.
pub(crate) fn walk(file: &File) -> u64 {
    let metadata = file.metadata();
    let mut sum = file.version().into();
    for (key, value) in metadata.iter() {
        assert!(metadata.get(key).is_some(), "{key:?} is listed and not found");
        let mut shown = String::new();
        write!(shown, "{key} {value} {}", value.type_name()).unwrap();
        assert!(!shown.contains('\n') || key.contains('\n'));
        sum += shown.len() as u64 + value.as_array().map_or(0, walk_array);
        let _ = (
            metadata.string(key),
            metadata.u64(key),
            metadata.i32(key),
            metadata.f32(key),
            metadata.bool(key),
        );
        let _ = (
            metadata.strings(key),
            metadata.u32_array(key),
            metadata.f32_array(key),
            metadata.bool_array(key),
        );
    }
    for tensor in file.tensors() {
        assert_eq!(file.tensor(tensor.name()), Some(tensor));
        assert_eq!(tensor.rows() * tensor.row_len(), tensor.elements());
        let mut bytes = vec![0; tensor.byte_len().min(1024) as usize];
        file.read(tensor, 0, &mut bytes).unwrap();
        sum += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    }
    sum
}

fn walk_array(array: Array<'_>) -> u64 {
    array
        .iter()
        .map(|value| match value {
            Value::Array(inner) => walk_array(inner),
            Value::String(bytes) => bytes.len() as u64,
            other => u64::from(other.value_type().id()),
        })
        .sum()
}
