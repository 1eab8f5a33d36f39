//! Run stats: one JSON line that shows which instruction set, threads and cache a run used.

use minfer::engine::EngineStats;
use minfer::graph::KvSpec;
use minfer::{Loaded, Machine};
use serde_json::{Value, json};

/// What is known before the run.
pub(super) struct RunStats {
    isa: &'static str,
    threads: usize,
    kv: KvSpec,
}

impl RunStats {
    pub(super) fn new(machine: &Machine, loaded: &Loaded) -> RunStats {
        RunStats { isa: machine.isa().name(), threads: machine.threads(), kv: loaded.kv.clone() }
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
            "rewrites": stats.model.rewrites,
        })
    }
}
