//! Rewrites, the prefix cache and speculation can be switched off: counters change, logits do not.

mod common;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/engine.rs"]
mod engine;

use std::collections::BTreeSet;

use common::logits_of;
use engine::{ask, read, request, synthetic_file, tokens};
use minfer::engine::{Request, SamplingParams};
use minfer::graph::passes;
use minfer::{KvFormat, KvOptions, LoadOptions, Loaded, Machine, MachineOptions, ModelFile};
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

/// Text that repeats itself, asked for by three clients at once, greedy and drawn.
#[test]
fn speculation_changes_guesses_and_no_bit() {
    for (family, format) in [
        (Family::Llama, KvFormat::F16),
        (Family::Gemma3, KvFormat::F16),
        (Family::Gemma3, KvFormat::Q8_0),
        (Family::Qwen3, KvFormat::Q8_0),
    ] {
        let file = synthetic_file(family);
        let answers = [true, false].map(|speculation| {
            let kv = KvOptions { k_format: format, v_format: format, ..KvOptions::default() };
            let options = LoadOptions { speculation, n_slots: 3, kv, ..LoadOptions::default() };
            let engine = load(&file, &options).into_engine().expect("an engine");
            let events = [0u8, 1, 2].map(|seed| {
                let prompt = tokens(200, 40, seed.into()).repeat(3);
                let sampling =
                    SamplingParams { temperature: f32::from(seed) * 0.1, ..SamplingParams::default() };
                let asked = Request { max_tokens: Some(80), seed: Some(1), sampling, ..request(&prompt) };
                engine.submit(asked).expect("accepted").1
            });
            let answers = events.map(|events| read(&events).0);
            let stats = engine.stats();
            assert_eq!(stats.right_guesses > 0, speculation, "{} {format:?}", family.name());
            answers
        });
        assert!(answers[0] == answers[1], "{} {format:?}", family.name());
    }
}
