//! Requests in, events out: batching, KV bookkeeping, sampling and the step loop.
//!
//! The engine knows a model only as a [`ModelExecutor`] and text only as a tokenizer. [`Engine`]
//! answers requests, many at a time, on a thread of its own; [`Runner`] feeds chosen tokens and
//! hands out logits, for measurements and tests.
#![forbid(unsafe_code)]

mod admission;
mod batcher;
mod config;
pub mod constraint;
mod drafter;
mod engine;
mod error;
pub mod event;

mod guard;
mod history;
mod host;
pub mod kv;
mod model_executor;
mod observer;
mod pace;
mod reply;
mod request;
mod runner;
pub mod sampler;
mod sequence;
mod session;
mod slot;
mod stats;
mod step_batch;
mod submission;
#[cfg(test)]
mod test_model;
mod worker;

pub use config::EngineConfig;
pub use constraint::{Constraint, ConstraintError};
pub use engine::{Engine, RequestId};
pub use error::{ConfigError, EngineError, ErrorClass, SubmitError};
pub use event::Event;
pub use host::{HostLease, HostMemory};
pub use model_executor::{ModelExecutor, ModelExecutorError, ModelExecutorStats};
pub use observer::{StepObserver, StepReport};
pub use reply::{EventSink, Events};
pub use request::{ContextShift, PromptLogprobs, Request, RequestError};
pub use runner::{Row, RunError, Runner, RunnerOptions, RunnerStats, Want};
pub use sampler::{Param, ParamError, SampleError, Sampler, SamplingParams, Stage};
pub use session::{SessionId, SessionInfo};
pub use slot::{SlotInfo, SlotTransfer};
pub use stats::EngineStats;
pub use submission::Submission;
