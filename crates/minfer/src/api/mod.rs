//! The facade's own interface: [`Model`](crate::Model) and what it makes. Everything here is built
//! on `ModelFile`, `Loaded` and `Engine`, which stay public for programs that need more.

mod answer;
mod builder;
mod chat;
mod chunks;
mod completion;
mod conversation;
mod error;
mod error_kind;
mod generation;
mod model;
mod saved;
mod source;
#[cfg(feature = "stream")]
mod stream;
mod wording;

pub use answer::{Answer, Chunk, Finish};
pub use builder::ModelBuilder;
pub use chat::Chat;
pub use chunks::{CancelHandle, Chunks};
pub use completion::Completion;
pub use conversation::{Conversation, ConversationChunks};
pub use error::Error;
pub use error_kind::ErrorKind;
pub use generation::GenerationOptions;
pub use model::Model;
#[cfg(feature = "stream")]
pub use stream::{ChunkStream, ConversationStream};
