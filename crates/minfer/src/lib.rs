//! Runs language models from GGUF files on the CPU: load a model, ask it, stream the answer.
//!
//! ```no_run
//! use minfer::Model;
//!
//! # fn main() -> Result<(), minfer::Error> {
//! let model = Model::open("model.gguf")?;
//! let answer = model.chat().user("Why is the sky blue?").max_tokens(200).text()?;
//! println!("{answer}");
//! # Ok(())
//! # }
//! ```
//!
//! A [`Model`] is a cheap handle: clone it, use it from several threads. [`Model::builder`] has
//! the settings: context, threads, type of the KV cache, memory limit. Requests that run at the
//! same time share the steps of the model, so several together take much less time than one after
//! the other.
//!
//! # Print an answer while it is generated
//!
//! ```no_run
//! # fn main() -> Result<(), minfer::Error> {
//! # let model = minfer::Model::open("model.gguf")?;
//! let chat = model.chat().system("Be brief.").user("Who wrote Faust?").temperature(0.2);
//! for chunk in chat.stream()? {
//!     print!("{}", chunk?.text);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Dropping the stream cancels the request. [`Model::complete`] continues a text, without a chat
//! template. With the feature `stream`, `stream_async` gives a `futures_core::Stream` for
//! any executor.
//!
//! # Conversations
//!
//! A [`Conversation`] keeps its rows in the KV cache: a turn feeds only what is new. It can be
//! saved to a file and loaded by another process.
//!
//! ```no_run
//! # fn main() -> Result<(), minfer::Error> {
//! # let model = minfer::Model::open("model.gguf")?;
//! let mut conversation = model.conversation().system("You are a patient teacher.");
//! println!("{}", conversation.say("What is a prime number?")?);
//! println!("{}", conversation.say("Is 91 one?")?);
//! conversation.save("primes.session")?;
//! # Ok(())
//! # }
//! ```
//!
//! # Several prompts at once
//!
//! ```no_run
//! # fn main() -> Result<(), minfer::Error> {
//! # let model = minfer::Model::open("model.gguf")?;
//! let started: Vec<_> = ["red", "green", "blue"]
//!     .map(|colour| model.chat().user(format!("Name something {colour}.")).stream())
//!     .into_iter()
//!     .collect::<Result<_, _>>()?;
//! for chunks in started {
//!     println!("{}", chunks.answer()?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! All calls return one [`Error`]: a message for people, an [`ErrorKind`] for programs.
//!
//! # Reproducible answers
//!
//! The same model, prompt, options and seed give the same answer. It does not depend on the number
//! of threads, the instruction set or the other requests that run.
//!
//! # Features
//!
//! Both are off by default.
//!
//! * `stream`: answers as a [`futures_core::Stream`](https://docs.rs/futures-core).
//! * `hub`: models by name (`Model::builder("smollm2")`), from the cache folder of the command
//!   line; `ModelBuilder::pull` downloads what is missing.
//!
//! # Lower-level types
//!
//! [`Model`] is built on types that are public too, for programs that need more: a [`Machine`] has
//! the threads and the memory budget, a [`ModelFile`] is an opened file, [`Loaded`] is a model in
//! memory, an [`Engine`](engine::Engine) serves requests and a [`Runner`](engine::Runner) hands
//! out logits.
#![forbid(unsafe_code)]

mod api;
mod budget;
mod error;
mod file;
mod identity;
mod layers;
mod load;
mod load_progress;
mod machine;
mod memory;
mod room;
mod suggestion;
mod traffic;
mod vocabulary;

pub use api::{
    Answer, CancelHandle, Chat, Chunk, Chunks, Completion, Conversation, ConversationChunks, Error,
    ErrorKind, Finish, GenerationOptions, Model, ModelBuilder,
};
#[cfg(feature = "stream")]
pub use api::{ChunkStream, ConversationStream};
pub use minfer_engine::SamplingParams;
pub use minfer_engine::event::{FinishReason, StopCause, Timings, Usage};
pub use minfer_graph::KvFormat;
pub use minfer_text::Message;

pub use budget::{BudgetError, HeldMemory, MemoryBound, MemoryBudget, MemoryLease, MemoryUse};
pub use error::LoadError;
pub use file::{ModelFile, TemplateChoice};
pub use load::{ContextBound, ContextLength, Footprint, KvOptions, LoadOptions, Loaded};
pub use load_progress::LoadProgress;
pub use machine::{Machine, MachineOptions};
pub use memory::{AddressLimit, MemoryError, available_memory, resident_memory, spare_addresses};
pub use room::{Stretch, prepared_graph};
pub use suggestion::{Setting, Suggestion};
pub use traffic::WeightTraffic;

pub use layers::{cpu, engine, formats, graph, models, tensor, text};
