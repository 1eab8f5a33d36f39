//! The engine as one library: a model file becomes something that answers.
//!
//! [`Machine`] owns what a machine has once (threads, instruction set, memory) and lends it to everything that is loaded. A
//! [`ModelFile`] is opened without loading a weight; [`Loaded`] is a model ready to run, as an
//! [`Engine`](engine::Engine) that serves requests or a [`Runner`](engine::Runner) that is fed by hand.
//!
//! ```no_run
//! use minfer::{LoadOptions, Loaded, Machine, MachineOptions, ModelFile};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let machine = Machine::new(&MachineOptions::default())?;
//! let file = ModelFile::open("model.gguf".as_ref())?;
//! let loaded = Loaded::new(&machine, &file, &LoadOptions::default())?;
//! println!("{} positions", loaded.n_ctx);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/answer.rs` goes on from there to an answer.
#![forbid(unsafe_code)]

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

pub use budget::{BudgetError, HeldMemory, MemoryBound, MemoryBudget, MemoryLease, MemoryUse};
pub use error::LoadError;
pub use file::{ModelFile, TemplateChoice};
pub use layers::{cpu, engine, formats, graph, models, tensor, text};
pub use load::{ContextBound, ContextLength, Footprint, KvOptions, LoadOptions, Loaded};
pub use load_progress::LoadProgress;
pub use machine::{Machine, MachineOptions};
pub use memory::{AddressLimit, MemoryError, available_memory, resident_memory, spare_addresses};
pub use room::Stretch;
pub use suggestion::{Setting, Suggestion};
pub use traffic::WeightTraffic;
