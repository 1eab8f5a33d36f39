//! How long a file's tokenizer takes to be ready, what it holds, and how fast it is on a text.
//!
//!     cargo run --release -p minfer --example tokenizer_speed MODEL.gguf TEXT

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use minfer::ModelFile;
use minfer::text::{DecodeOptions, EncodeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let [model, text] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "MODEL.gguf TEXT")?;
    let text = std::fs::read_to_string(text)?;
    let file = ModelFile::open(Path::new(&model))?;

    let start = Instant::now();
    let tokenizer = file.tokenizer(None)?;
    let ready = start.elapsed();
    println!(
        "ready in {ready:.3?}, {} KiB for {} tokens",
        tokenizer.memory_bytes() / 1024,
        tokenizer.vocab_len()
    );

    let start = Instant::now();
    let ids = tokenizer.encode(&text, EncodeOptions::default())?;
    let encoded = start.elapsed();
    println!("{} bytes encoded to {} ids in {encoded:.3?}", text.len(), ids.len());

    let start = Instant::now();
    let back = tokenizer.decode_bytes(&ids, DecodeOptions { show_special: true });
    let decoded = start.elapsed();
    let same = if back == text.as_bytes() { "the same" } else { "other" };
    println!("decoded in {decoded:.3?} to {same} bytes");
    Ok(())
}
