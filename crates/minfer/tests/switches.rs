//! Rewrites and the prefix cache can be switched off: counters change, logits do not.

mod common;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/engine.rs"]
mod engine;

use std::collections::BTreeSet;

use common::logits_of;
use engine::{ask, request, synthetic_file, tokens};
use minfer::graph::passes;
use minfer::{LoadOptions, Loaded, Machine, MachineOptions, ModelFile};
use minfer_testkit::synthetic::{self, Family};

fn load(file: &ModelFile, options: &LoadOptions) -> Loaded {
    let machine = MachineOptions { threads: Some(2), ..MachineOptions::default() };
    Loaded::new(&Machine::new(&machine).expect("a machine"), file, options).expect("the model loads")
}

/// Nodes of the body and of the head, and how often each rewrite was applied.
fn counts(loaded: &Loaded) -> (usize, Vec<(&'static str, usize)>) {
    let graph = loaded.executor().model_graph();
    let nodes = graph.body.nodes.len() + graph.head.nodes.len();
    (nodes, loaded.executor().stats().rewrites.applied.clone())
}

#[test]
fn rewrites_change_nodes_and_no_bit() {
    let mut applied: BTreeSet<&str> = BTreeSet::new();
    for &family in Family::ALL {
        let file = ModelFile::from_bytes(synthetic::file(family)).expect("a sound file");
        let whole = load(&file, &LoadOptions::default());
        let (nodes, counted) = counts(&whole);
        let used: Vec<&str> = counted.iter().filter(|(_, count)| *count > 0).map(|(name, _)| *name).collect();
        applied.extend(&used);
        let bits = logits_of(whole);
        for off in used.iter().map(|name| vec![*name]).chain([passes::names()]) {
            let rewrites_off = off.iter().map(|name| (*name).to_owned()).collect();
            let plain = load(&file, &LoadOptions { rewrites_off, ..LoadOptions::default() });
            let (nodes_left, counted_left) = counts(&plain);
            assert_ne!(nodes_left, nodes, "{} without {off:?}", family.name());
            assert!(counted_left.iter().all(|(name, _)| !off.contains(name)), "{counted_left:?}");
            assert_eq!(logits_of(plain), bits, "{} without {off:?}", family.name());
        }
    }
    assert_eq!(applied, BTreeSet::from(["merge_linears", "add_norm", "rope_store"]), "of the tiny models");
}

#[test]
fn the_prefix_cache_changes_reused_tokens_and_no_bit() {
    for family in [Family::Llama, Family::Gemma3, Family::Falcon] {
        let file = synthetic_file(family);
        let prompt = tokens(200, 150, 1);
        let answers = [true, false].map(|prefix_cache| {
            let engine = load(&file, &LoadOptions { prefix_cache, ..LoadOptions::default() });
            let engine = engine.into_engine().expect("an engine");
            let first = ask(&engine, request(&prompt)).0;
            let again = ask(&engine, request(&prompt)).0;
            assert_eq!(first, again, "{}", family.name());
            assert_eq!(engine.stats().reused_tokens > 64, prefix_cache, "{}", family.name());
            first
        });
        assert_eq!(answers[0], answers[1], "{}", family.name());
    }
}
