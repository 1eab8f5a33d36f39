//! Typed getters of metadata and tensors, and their error messages.

use minfer_formats::gguf::{Cause, File, Item, TensorType, Value, ValueType};
use minfer_tensor::DType;

use super::allocations::bytes_of;
use super::raw::{Raw, kind, valid, value};

fn sample() -> File {
    File::parse(valid()).unwrap()
}

#[test]
fn integers_of_any_type_are_read_where_they_fit() {
    let file = sample();
    let metadata = file.metadata();
    for (key, wanted) in [("a.u8", 1), ("a.u16", 2), ("a.u32", 3), ("a.u64", 4)] {
        assert_eq!(metadata.u64(key).unwrap(), Some(wanted));
        assert_eq!(metadata.u32(key).unwrap(), Some(wanted as u32));
        assert_eq!(metadata.usize(key).unwrap(), Some(wanted as usize));
        assert_eq!(metadata.i32(key).unwrap(), Some(wanted as i32));
    }
    for (key, wanted) in [("a.i8", -1), ("a.i16", -2), ("a.i32", -3), ("a.i64", -4)] {
        assert_eq!(metadata.i64(key).unwrap(), Some(wanted));
        assert_eq!(metadata.i32(key).unwrap(), Some(wanted as i32));
        let error = metadata.u64(key).unwrap_err().to_string();
        assert!(
            error.contains(key) && error.contains(&wanted.to_string()) && error.contains("u64"),
            "{error}"
        );
    }
    assert_eq!(metadata.u64("absent").unwrap(), None);
}

#[test]
fn large_integers_do_not_wrap() {
    let raw = Raw::new(0, 1).key("n", value::U64).u64(u64::MAX);
    let file = File::parse(raw.0).unwrap();
    let metadata = file.metadata();
    assert_eq!(metadata.u64("n").unwrap(), Some(u64::MAX));
    assert!(metadata.i64("n").is_err());
    let error = metadata.u32("n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "key \"n\": the value 18446744073709551615 does not fit in u32 (at byte 37)"
    );
}

#[test]
fn other_scalars() {
    let file = sample();
    let metadata = file.metadata();
    assert_eq!(metadata.string("general.architecture").unwrap(), Some("llama"));
    assert_eq!(metadata.f32("a.f32").unwrap(), Some(0.5));
    assert_eq!(metadata.f32("a.f64").unwrap(), Some(0.25));
    assert_eq!(metadata.f64("a.f32").unwrap(), Some(0.5));
    assert_eq!(metadata.bool("a.bool").unwrap(), Some(true));
    assert_eq!(metadata.get("a.i8"), Some(Value::I8(-1)));
    assert!(metadata.contains("a.i8") && !metadata.contains("a"));
}

#[test]
fn a_wrong_type_names_key_found_and_wanted() {
    let file = sample();
    let metadata = file.metadata();
    let message = |error: minfer_formats::gguf::GgufError| {
        assert!(matches!(error.item(), Some(Item::Key(_))));
        assert!(matches!(error.cause(), Cause::WrongType { .. }));
        error.to_string()
    };
    let cases = [
        (message(metadata.string("a.u8").unwrap_err()), ["a.u8", "u8", "string"]),
        (message(metadata.bool("a.u8").unwrap_err()), ["a.u8", "u8", "bool"]),
        (message(metadata.u32("a.f32").unwrap_err()), ["a.f32", "type f32", "u32"]),
        (message(metadata.f32("a.u32").unwrap_err()), ["a.u32", "type u32", "f32"]),
        (message(metadata.u32("b.ints").unwrap_err()), ["b.ints", "array of u16", "u32"]),
        (message(metadata.strings("b.ints").unwrap_err()), ["b.ints", "array of u16", "array of string"]),
        (message(metadata.u32_array("a.u32").unwrap_err()), ["a.u32", "type u32", "array of u32"]),
        (
            message(metadata.u32_array("b.strings").unwrap_err()),
            ["b.strings", "array of string", "array of u32"],
        ),
        (message(metadata.f32_array("b.ints").unwrap_err()), ["b.ints", "array of u16", "array of f32"]),
        (message(metadata.bool_array("b.ints").unwrap_err()), ["b.ints", "array of u16", "array of bool"]),
        (message(metadata.array("a.u8").unwrap_err()), ["a.u8", "u8", "array"]),
    ];
    for (message, words) in cases {
        for word in words {
            assert!(message.contains(word), "{message:?} does not say {word:?}");
        }
    }
}

#[test]
fn arrays() {
    let file = sample();
    let metadata = file.metadata();
    assert_eq!(metadata.strings("b.strings").unwrap().unwrap(), ["a", "", "h\u{e9}"]);
    assert_eq!(metadata.bool_array("b.bools").unwrap().unwrap(), [true, false]);
    assert_eq!(metadata.u32_array("b.ints").unwrap().unwrap(), [7, 8, 9]);
    assert_eq!(metadata.i32_array("b.ints").unwrap().unwrap(), [7, 8, 9]);
    assert_eq!(metadata.u64_array("b.ints").unwrap().unwrap(), [7, 8, 9]);
    let nested = metadata.array("b.nested").unwrap().unwrap();
    assert_eq!((nested.len(), nested.element_type()), (3, ValueType::Array));
    let lengths: Vec<usize> = nested.iter().map(|inner| inner.as_array().unwrap().len()).collect();
    assert_eq!(lengths, [2, 0, 1]);
    assert_eq!(nested.iter().last().unwrap().as_array().unwrap().iter().next(), Some(Value::U32(3)));
}

#[test]
fn an_element_that_does_not_fit_is_named_by_position() {
    let raw = Raw::new(0, 1).key("n", value::ARRAY).array(value::I32, 3).u32(1).u32(2).u32(-5i32 as u32);
    let file = File::parse(raw.0).unwrap();
    let error = file.metadata().u32_array("n").unwrap_err().to_string();
    assert!(error.contains("value -5 at element 2") && error.contains("array of u32"), "{error}");
    assert_eq!(file.metadata().i32_array("n").unwrap().unwrap(), [1, 2, -5]);
}

#[test]
fn text_that_is_not_utf8_opens_and_is_refused_as_text() {
    let raw = Raw::new(0, 2)
        .key("s", value::STRING)
        .string(b"\xff")
        .key("l", value::ARRAY)
        .array(value::STRING, 2)
        .string("ok")
        .string(b"\x80");
    let file = File::parse(raw.0).unwrap();
    let metadata = file.metadata();
    assert!(metadata.string("s").unwrap_err().to_string().contains("not UTF-8"));
    let error = metadata.strings("l").unwrap_err().to_string();
    assert!(error.contains("string 1 of the array"), "{error}");
    assert_eq!(metadata.get("s"), Some(Value::String(b"\xff")));
}

#[test]
fn values_are_shown_on_one_short_line() {
    let raw = Raw::new(0, 3)
        .key("text", value::STRING)
        .string("line\n".repeat(1000))
        .key("list", value::ARRAY)
        .array(value::U8, 20)
        .bytes(&[7; 20])
        .key("nest", value::ARRAY)
        .array(value::ARRAY, 1)
        .array(value::U8, 2)
        .bytes(&[1, 2]);
    let file = File::parse(raw.0).unwrap();
    let shown = |key| file.metadata().get(key).unwrap().to_string();
    assert!(shown("text").starts_with("\"line\\nline\\n") && shown("text").ends_with("..."));
    assert!(shown("text").len() < 200);
    assert_eq!(shown("list"), "[7, 7, 7, 7, 7, 7, 7, 7, and 12 more]");
    assert_eq!(shown("nest"), "[2 of u8]");
}

#[test]
fn many_strings_take_no_memory_until_asked_for() {
    let start = Raw::new(0, 1).key("tokens", value::ARRAY).array(value::STRING, 200_000);
    let raw = (0..200_000u32).fold(start, |raw, i| raw.string(i.to_string()));
    let (file, requested) = bytes_of(|| File::parse(raw.0).unwrap());
    assert!(requested < 4096, "{requested} bytes requested");
    let tokens = file.metadata().strings("tokens").unwrap().unwrap();
    assert_eq!((tokens.len(), tokens[199_999]), (200_000, "199999"));
}

#[test]
fn a_type_that_is_not_read_is_listed_and_refused_by_name() {
    let raw = Raw::new(2, 0)
        .tensor("blk.0.weight", &[256, 2], kind::Q1_0, 0)
        .tensor("scalar", &[], kind::F32, 160)
        .data(192);
    let file = File::parse(raw.0).unwrap();
    let tensor = file.require("blk.0.weight").unwrap();
    assert_eq!((tensor.tensor_type().name(), tensor.byte_len(), tensor.dtype()), ("Q1_0", 72, None));
    let error = file.dtype(tensor).unwrap_err().to_string();
    assert_eq!(error, "tensor \"blk.0.weight\": has type Q1_0, which this build does not read");
    let scalar = file.require("scalar").unwrap();
    assert_eq!(scalar.tensor_type(), TensorType::Known(DType::F32));
    assert_eq!((scalar.elements(), scalar.rows(), scalar.dims()), (1, 1, &[][..]));
}

#[test]
fn a_missing_tensor_is_named() {
    let error = sample().require("no.such").unwrap_err();
    assert_eq!(error.to_string(), "tensor \"no.such\": the file has no such tensor");
    assert!(sample().tensor("no.such").is_none());
}

#[test]
fn version_2_is_read() {
    let raw =
        Raw::versioned(2, 1, 1).key("k", value::U8).bytes(&[9]).tensor("t", &[8], kind::F32, 0).data(32);
    let file = File::parse(raw.0).unwrap();
    assert_eq!((file.version(), file.alignment(), file.tensors().len()), (2, 32, 1));
    assert_eq!(file.metadata().u32("k").unwrap(), Some(9));
}

#[test]
fn limits_themselves_are_accepted() {
    let key = "k".repeat(65535);
    let deep = (1..8)
        .fold(Raw::new(1, 2).key(&key, value::U8).bytes(&[1]).key("d", value::ARRAY), |raw, _| {
            raw.array(value::ARRAY, 1)
        });
    let raw =
        deep.array(value::U8, 1).bytes(&[5]).tensor("n".repeat(64), &[1, 2, 1, 4], kind::F32, 32).data(64);
    let file = File::parse(raw.0).unwrap();
    assert_eq!(file.metadata().u32(&key).unwrap(), Some(1));
    assert_eq!(file.tensors()[0].elements(), 8);
}

#[test]
fn an_empty_file_of_its_kind_is_read() {
    let file = File::parse(Raw::new(0, 0).0).unwrap();
    assert!(file.metadata().is_empty() && file.tensors().is_empty());
    assert_eq!(file.total_bytes(), 24);
}
