//! A conversation that goes on in the next run, from a session file:
//! `cargo run --release -p minfer --example session -- MODEL.gguf notes.session "My name is Ada."`.

use std::error::Error;
use std::path::Path;

use minfer::Model;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, session, message] = arguments.as_slice() else {
        return Err("usage: session MODEL.gguf FILE.session MESSAGE".into());
    };
    let model = Model::open(path)?;
    let mut conversation = match Path::new(session).exists() {
        true => model.load_conversation(session)?,
        false => model.conversation().system("Answer in one sentence."),
    }
    .max_tokens(200);
    let answer = conversation.say(message)?;
    println!("{answer}");
    let usage = answer.finish.usage;
    eprintln!("{} of {} prompt tokens came from the cache", usage.cached, usage.prompt);
    conversation.save(session)?;
    Ok(())
}
