//! Whatever a refusal of memory advises is enough, and the least that is.

use std::collections::BTreeSet;

use minfer::graph::KvFormat;
use minfer::{ContextLength, Footprint, LoadError, LoadOptions, Machine, MachineOptions, ModelFile};
use minfer_testkit::synthetic::{self, Family};

/// What is asked for, and of how much.
#[derive(Clone)]
struct Asked {
    options: LoadOptions,
    threads: usize,
    memory_limit: Option<u64>,
}

impl Asked {
    fn footprint(&self, file: &ModelFile) -> Result<Footprint, LoadError> {
        let options =
            MachineOptions { threads: Some(self.threads), isa: None, memory_limit: self.memory_limit };
        let machine = Machine::new(&options).expect("a machine");
        Footprint::of(&machine, &file.model(&self.options.model).expect("a model"), &self.options)
    }

    fn set(&mut self, name: &str, value: &str) {
        let number = || value.parse::<u64>().expect("a number");
        match name {
            "n_ctx" => self.options.n_ctx = ContextLength::Fixed(number() as u32),
            "n_batch" => self.options.n_batch = number() as u32,
            "kv_memory" => self.options.kv_memory = Some(number()),
            "memory_limit" => self.memory_limit = Some(number()),
            "threads" => self.threads = number() as usize,
            "kv" => {
                let format = KvFormat::ALL.into_iter().find(|format| format.name() == value);
                let format = format.expect("a format");
                (self.options.kv.k_format, self.options.kv.v_format) = (format, format);
            }
            other => panic!("{other}"),
        }
    }
}

/// The changes of which each is said to be enough: settings and values.
fn changes(advice: &str) -> Vec<Vec<(&str, &str)>> {
    let listed = advice.strip_prefix("; try ").unwrap_or_else(|| panic!("{advice:?}"));
    let parts = listed.split(", ").flat_map(|part| part.split(" or "));
    parts.filter_map(|part| part.split(" with ").map(setting).collect::<Option<Vec<_>>>()).collect()
}

fn setting(part: &str) -> Option<(&str, &str)> {
    part.strip_prefix('`')?.split_once("` ")
}

/// Follows all advice of a refusal; gives the names of the settings that it named.
fn follow(file: &ModelFile, asked: &Asked) -> BTreeSet<String> {
    let advice = match asked.footprint(file) {
        Ok(_) => return BTreeSet::new(),
        Err(LoadError::Memory { advice, .. } | LoadError::KvMemory { advice, .. }) => advice,
        Err(error) => panic!("{error}"),
    };
    let mut names = BTreeSet::new();
    for change in changes(&advice) {
        let mut followed = asked.clone();
        for &(name, value) in &change {
            followed.set(name, value);
            names.insert(name.to_owned());
        }
        let found = followed.footprint(file);
        assert!(found.is_ok(), "{change:?} of {advice}: {}", found.unwrap_err());
        if let [(name @ ("memory_limit" | "kv_memory"), value)] = change[..] {
            followed.set(name, &(value.parse::<u64>().expect("a number") - 1).to_string());
            assert!(followed.footprint(file).is_err(), "{name} {value} is not the least");
        }
    }
    names
}

#[test]
fn what_a_refusal_advises_is_enough() {
    let mut named = BTreeSet::new();
    for family in [Family::Llama, Family::Gemma3] {
        let file = ModelFile::from_bytes(synthetic::file(family)).expect("a sound file");
        for (n_ctx, n_batch, n_slots, context_shift) in [
            (ContextLength::Fixed(512), 512, 1, false),
            (ContextLength::Fixed(500), 48, 1, true),
            (ContextLength::Auto, 512, 2, false),
            (ContextLength::AtMost(100), 100, 1, true),
        ] {
            let options = LoadOptions { n_ctx, n_batch, n_slots, context_shift, ..LoadOptions::default() };
            let asked = Asked { options, threads: 4, memory_limit: None };
            let whole = asked.footprint(&file).expect("it fits").total_bytes;
            for sixteenths in (1..16).step_by(2) {
                let memory_limit = Some(whole * sixteenths / 16);
                named.extend(follow(&file, &Asked { memory_limit, ..asked.clone() }));
            }
            for kv_memory in [1, 40_000, 200_000] {
                let options = LoadOptions { kv_memory: Some(kv_memory), ..asked.options.clone() };
                named.extend(follow(&file, &Asked { options, ..asked.clone() }));
            }
        }
    }
    let all = ["kv", "kv_memory", "memory_limit", "n_batch", "n_ctx", "threads"];
    assert_eq!(named, all.map(str::to_owned).into());
}
