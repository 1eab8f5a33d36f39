//! The line of facts that lets a check see that a flag did something.

use minfer::engine::EngineStats;
use minfer::graph::KvSpec;
use minfer::{Loaded, Machine};
use serde_json::{Value, json};

/// Facts that are known before the run.
pub(super) struct Facts {
    isa: &'static str,
    threads: usize,
    kv: KvSpec,
}

impl Facts {
    /// Of a model on a machine.
    pub(super) fn new(machine: &Machine, loaded: &Loaded) -> Facts {
        Facts { isa: machine.isa().name(), threads: machine.threads(), kv: loaded.kv.clone() }
    }

    /// The line, with what the engine has done.
    pub(super) fn line(&self, stats: &EngineStats) -> Value {
        let group = &self.kv.groups[0];
        json!({
            "isa": self.isa,
            "threads": self.threads,
            "steps": stats.steps,
            "kv_format_k": group.k_format.name(),
            "kv_format_v": group.v_format.name(),
            "kv_layout": group.layout.name(),
            "kv_bytes_per_token": self.kv.bytes_per_token(),
            "reused_tokens": stats.reused_tokens,
            "graph_builds": stats.model.graph_builds,
        })
    }
}
