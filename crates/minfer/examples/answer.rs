//! Asks a model one question and prints the answer while it is generated:
//! `cargo run --release -p minfer --example answer -- MODEL.gguf "Why is the sky blue?"`.

use std::error::Error;
use std::io::Write;

use minfer::Model;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(question)) = (arguments.next(), arguments.next()) else {
        return Err("usage: answer MODEL.gguf QUESTION".into());
    };
    let model = Model::open(path)?;
    for chunk in model.chat().user(question).max_tokens(200).stream()? {
        let chunk = chunk?;
        print!("{}", chunk.text);
        std::io::stdout().flush()?;
        if let Some(finish) = chunk.finish {
            println!();
            eprintln!("{:?}, {} tokens, seed {}", finish.reason, finish.usage.completion, finish.seed);
        }
    }
    Ok(())
}
