//! A chat on the terminal, one line a message:
//! `cargo run --release -p minfer --example chat -- MODEL.gguf`.

use std::error::Error;
use std::io::Write;

use minfer::Model;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: chat MODEL.gguf")?;
    let model = Model::open(path)?;
    let mut conversation = model.conversation().system("You are a helpful assistant.");
    print!("> ");
    std::io::stdout().flush()?;
    for line in std::io::stdin().lines() {
        for chunk in conversation.stream(line?)? {
            let chunk = chunk?;
            print!("{}", chunk.text);
            std::io::stdout().flush()?;
            if let Some(finish) = chunk.finish {
                let fed = finish.usage.prompt - finish.usage.cached;
                print!("\n[{fed} of {} prompt tokens were new]\n> ", finish.usage.prompt);
                std::io::stdout().flush()?;
            }
        }
    }
    Ok(())
}
