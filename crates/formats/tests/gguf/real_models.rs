//! Headers of real model files.

use minfer_formats::gguf::File;
use minfer_tensor::DType;
use minfer_tensor::blocks::decode_row;
use minfer_testkit::fetched;

use super::allocations::bytes_of;

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn smollm2_135m() {
    check_model("smollm2-135m-instruct-q4_1.gguf", "llama", 49152, 576, DType::Q4_1);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn qwen2_5_coder_0_5b() {
    check_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen2", 151936, 896, DType::Q5_0);
}

fn check_model(name: &str, architecture: &str, vocabulary: usize, width: u64, some_type: DType) {
    let path = fetched::model(name);
    let (file, requested) = bytes_of(|| File::open(&path).unwrap());
    let header = file.data_start() as usize;
    assert!(
        requested < 4 * header + (1 << 20),
        "opening requested {requested} bytes for a header of {header}"
    );
    let metadata = file.metadata();
    assert_eq!(metadata.string("general.architecture").unwrap(), Some(architecture));
    assert_eq!(metadata.u64(&format!("{architecture}.embedding_length")).unwrap(), Some(width));
    assert_eq!(metadata.strings("tokenizer.ggml.tokens").unwrap().unwrap().len(), vocabulary);
    assert_eq!(metadata.i32_array("tokenizer.ggml.token_type").unwrap().unwrap().len(), vocabulary);
    assert!(metadata.strings("tokenizer.ggml.merges").unwrap().unwrap().len() > 1000);
    let embedding = file.require("token_embd.weight").unwrap();
    assert_eq!(embedding.dims(), [width, vocabulary as u64]);
    assert!(file.tensors().iter().any(|tensor| tensor.dtype() == Some(some_type)));
    for tensor in file.tensors() {
        decode_first_row(&file, tensor.name());
    }
}

/// A trained row is finite and not all zero.
fn decode_first_row(file: &File, name: &str) {
    let tensor = file.require(name).unwrap();
    let dtype = file.dtype(tensor).unwrap();
    let mut row = vec![0.0; tensor.row_len() as usize];
    let mut bytes = vec![0; dtype.row_bytes(tensor.row_len()).unwrap() as usize];
    file.read(tensor, 0, &mut bytes).unwrap();
    decode_row(dtype, &bytes, &mut row).unwrap();
    assert!(row.iter().all(|x| x.is_finite() && x.abs() < 1e4), "{name}");
    assert!(row.iter().any(|&x| x != 0.0), "{name}");
}
