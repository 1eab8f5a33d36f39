//! The public part of the crates behind this one. Every name is listed, so a new name in one of
//! them is not public here until it is added.

/// Instruction sets and measured limits of the processor.
pub mod cpu {
    /// Where the time of steps goes.
    pub mod profile {
        pub use minfer_cpu::profile::{Profiler, StepTime};
    }

    pub use minfer_cpu::{Isa, IsaError, roofline};
}

/// Requests, events, sampling, and runs that are fed by hand.
pub mod engine {
    pub use minfer_engine::{
        ConfigError, ContextShift, Engine, EngineConfig, EngineError, EngineStats, ErrorClass, Event,
        EventSink, Events, ModelExecutor, Param, ParamError, PromptLogprobs, Request, RequestError,
        RequestId, Row, RunError, Runner, RunnerOptions, RunnerStats, SamplingParams, SessionId, SessionInfo,
        SlotInfo, SlotTransfer, Stage, StepReport, Submission, SubmitError, Want,
    };

    /// Restricting which tokens an answer may have.
    pub mod constraint {
        pub use minfer_engine::constraint::{Ahead, Constraint, ConstraintError, TextState};
    }

    /// What a client hears about its request.
    pub mod event {
        pub use minfer_engine::event::{
            Event, FinishReason, Finished, Progress, PromptRow, StopCause, Timings, Token, TokenKind,
            TokenLogprob, TokenLogprobs, Usage,
        };
    }

    /// The bookkeeping of the KV cache, and saved sessions.
    pub mod kv {
        pub use minfer_engine::kv::{BlockOrder, KvStats, SequenceId, Store, StoreOptions};

        /// Session files.
        pub mod session {
            pub use minfer_engine::kv::session::{SessionError, SessionIdentity, check_target};
        }
    }
}

/// The GGUF format.
pub mod formats {
    /// Metadata and tensor descriptions of a GGUF file.
    pub mod gguf {
        pub use minfer_formats::gguf::{Array, Cause, File, GgufError, Metadata, Tensor, Value};
    }
}

/// The graphs of a model, and the form of its KV cache.
pub mod graph {
    pub use minfer_graph::{
        Batch, BlockTable, EVICTED, Executor, Graph, KvArrangement, KvFormat, KvGranule, KvGroupBatch,
        KvGroupSpec, KvLayout, KvMemoryStats, KvSpec, KvSpecError, ModelGraph, Node, Op, SequenceView,
        commit_geometry, dot,
    };

    /// Graphs as JSON.
    pub mod json {
        pub use minfer_graph::json::{graph, kv_spec, model_graph};
    }

    /// The rewrites of a graph.
    pub mod passes {
        pub use minfer_graph::passes::{enabled, names, rewrite_all};
    }
}

/// Model families, and what may be changed about a file's description of itself.
pub mod models {
    pub use minfer_models::{
        Family, MetadataOverride, Model, ModelError, ModelOptions, OverrideRange, RopeNeed, RopeOverrides,
        RopeScalingKind, RopeSetting, Yarn,
    };
}

/// Element types of tensors.
pub mod tensor {
    pub use minfer_tensor::DType;
}

/// Tokenizers and chat templates.
pub mod text {
    pub use minfer_text::{
        BUILTIN_TEMPLATES, ChatTemplate, DecodeOptions, EncodeError, EncodeOptions, Message, RenderInput,
        TemplateError, Tokenizer, TokenizerError, encode_chat,
    };
}
