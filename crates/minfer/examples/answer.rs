//! Asks a model one question and prints the answer as it comes:
//! `cargo run --release -p minfer --example answer -- MODEL.gguf "Why is the sky blue?"`.

use std::error::Error;
use std::io::Write;

use minfer::engine::{Event, Request};
use minfer::text::{Message, RenderInput, encode_chat};
use minfer::{LoadOptions, Loaded, Machine, MachineOptions, ModelFile};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(question)) = (arguments.next(), arguments.next()) else {
        return Err("usage: answer MODEL.gguf QUESTION".into());
    };
    let machine = Machine::new(&MachineOptions::default())?;
    let file = ModelFile::open(path.as_ref())?;
    let loaded = Loaded::new(&machine, &file, &LoadOptions::default())?;

    let template = loaded.template.as_ref().ok_or("this model has no chat template")?;
    let messages = vec![Message::new("user", &question)];
    let input = RenderInput { messages, add_generation_prompt: true, ..RenderInput::default() };
    let prompt = encode_chat(&loaded.tokenizer, template, &input)?;

    let engine = loaded.into_engine()?;
    let (_, events) = engine.submit(Request { max_tokens: Some(200), ..Request::new(prompt) })?;
    for event in events {
        match event {
            Event::Token(token) => {
                print!("{}", token.text);
                std::io::stdout().flush()?;
            }
            Event::Finished(finished) => {
                println!("{}", finished.tail);
                eprintln!("{:?}: {:?}", finished.reason, finished.usage);
            }
            Event::Failed(error) => return Err(error.into()),
            Event::Cancelled | Event::Progress(_) | Event::PromptLogprobs(_) => {}
        }
    }
    Ok(())
}
