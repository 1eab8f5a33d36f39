//! Answers several prompts at once and compares the time with one after the other:
//! `cargo run --release -p minfer --example batch -- MODEL.gguf`.

use std::error::Error;
use std::time::Instant;

use minfer::{Chat, Model};

const THINGS: [&str; 8] = ["red", "round", "cold", "loud", "sweet", "old", "fast", "small"];

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: batch MODEL.gguf")?;
    let model = Model::builder(path).context(512).parallel(8).load()?;
    let chats: Vec<Chat> = THINGS
        .iter()
        .map(|what| model.chat().user(format!("Name something {what}.")).max_tokens(24).seed(1))
        .collect();

    let start = Instant::now();
    let alone = chats.iter().map(Chat::text).collect::<Result<Vec<_>, _>>()?;
    let one_by_one = start.elapsed();

    // All are started before the first is read, so they share the steps of the model.
    let start = Instant::now();
    let started = chats.iter().map(Chat::stream).collect::<Result<Vec<_>, _>>()?;
    let mut together = Vec::new();
    for chunks in started {
        together.push(chunks.answer()?.text);
    }
    let at_once = start.elapsed();

    for (what, answer) in THINGS.iter().zip(&together) {
        println!("{what}: {}", answer.trim());
    }
    println!("one by one {one_by_one:.2?}, at once {at_once:.2?}; the same answers: {}", alone == together);
    Ok(())
}
