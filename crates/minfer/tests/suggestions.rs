//! Every suggestion of an error about memory suffices, and a suggested limit is the smallest that
//! does.

use std::collections::BTreeSet;

use minfer::{ContextLength, Footprint, LoadError, LoadOptions, Machine, MachineOptions, ModelFile, Setting};
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

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::NCtx(n_ctx) => self.options.n_ctx = ContextLength::Fixed(n_ctx),
            Setting::NBatch(n_batch) => self.options.n_batch = n_batch,
            Setting::KvMemory(bytes) => self.options.kv_memory = Some(bytes),
            Setting::MemoryLimit(bytes) => self.memory_limit = Some(bytes),
            Setting::Threads(threads) => self.threads = threads,
            Setting::KvFormat(format) => {
                (self.options.kv.k_format, self.options.kv.v_format) = (format, format);
            }
            Setting::AddressLimit(_) => panic!("addresses are not limited here"),
        }
    }
}

fn name(setting: Setting) -> &'static str {
    match setting {
        Setting::NCtx(_) => "n_ctx",
        Setting::NBatch(_) => "n_batch",
        Setting::KvFormat(_) => "kv",
        Setting::KvMemory(_) => "kv_memory",
        Setting::Threads(_) => "threads",
        Setting::MemoryLimit(_) => "memory_limit",
        Setting::AddressLimit(_) => "ulimit",
    }
}

/// Follows every suggestion of an error; returns the names of the settings.
fn follow(file: &ModelFile, asked: &Asked) -> BTreeSet<&'static str> {
    let suggestions = match asked.footprint(file) {
        Ok(_) => return BTreeSet::new(),
        Err(LoadError::Memory { suggestions, .. } | LoadError::KvMemory { suggestions, .. }) => suggestions,
        Err(error) => panic!("{error}"),
    };
    let mut names = BTreeSet::new();
    for suggestion in suggestions {
        let mut followed = asked.clone();
        for &setting in &suggestion {
            followed.set(setting);
            names.insert(name(setting));
        }
        let found = followed.footprint(file);
        assert!(found.is_ok(), "{suggestion:?}: {}", found.unwrap_err());
        let one_less = match suggestion[..] {
            [Setting::MemoryLimit(bytes)] => Setting::MemoryLimit(bytes - 1),
            [Setting::KvMemory(bytes)] => Setting::KvMemory(bytes - 1),
            _ => continue,
        };
        followed.set(one_less);
        assert!(followed.footprint(file).is_err(), "{suggestion:?} is not the smallest");
    }
    names
}

#[test]
fn every_suggestion_suffices() {
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
    assert_eq!(named, all.into());
}
