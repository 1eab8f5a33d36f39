//! GGUF reader: any bytes give a file or a one-line error. A file can be read whole and written
//! again.
#![no_main]

#[path = "../../crates/formats/tests/gguf/walk.rs"]
mod walk;

use libfuzzer_sys::fuzz_target;
use minfer_formats::gguf::{File, GgufError, Writer};

fuzz_target!(|bytes: &[u8]| {
    match File::parse(bytes) {
        Ok(file) => {
            walk::walk(&file);
            let again =
                File::parse(copy(&file).expect("what was read can be written")).expect("and read again");
            assert!(
                again.metadata().iter().map(|entry| entry.0).eq(file.metadata().iter().map(|entry| entry.0))
            );
            assert_eq!(again.tensors().len(), file.tensors().len());
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});

fn copy(file: &File) -> Result<Vec<u8>, GgufError> {
    let mut writer = Writer::new();
    for (key, value) in file.metadata().iter() {
        writer.copy(key, &value)?;
    }
    for tensor in file.tensors() {
        writer.announce(tensor.name(), tensor.tensor_type(), tensor.dims())?;
    }
    let mut sink = writer.start(Vec::new())?;
    for tensor in file.tensors() {
        sink.tensor(tensor.name(), &file.read_all(tensor)?)?;
    }
    sink.finish()
}
