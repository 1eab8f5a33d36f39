//! `minfer doctor`.

use std::collections::BTreeSet;

use minfer_testkit::synthetic::Family;
use serde_json::Value;

use crate::place::{Place, has};

/// Every `MINFER_` variable that the help of any command names.
fn variables_in_help(place: &Place) -> BTreeSet<String> {
    let commands = [
        "run",
        "chat",
        "serve",
        "show",
        "tokenize",
        "detokenize",
        "logprobs",
        "perplexity",
        "bench",
        "doctor",
    ];
    let helps = commands.map(|command| place.minfer(&[command, "--help"]).stdout());
    let words = helps.iter().flat_map(|help| help.split(|c: char| !c.is_ascii_uppercase() && c != '_'));
    words.filter(|word| word.starts_with("MINFER_")).map(str::to_owned).collect()
}

#[test]
fn knobs_list_every_variable() {
    let place = Place::new();
    let knobs = place.minfer(&["doctor", "--knobs", "--json"]).json();
    let rows = knobs.as_array().expect("rows");
    let listed: BTreeSet<_> =
        rows.iter().filter_map(|row| row["variable"].as_str().map(str::to_owned)).collect();
    assert_eq!(listed.len(), rows.len(), "each once");
    let mut wanted = variables_in_help(&place);
    wanted.insert("MINFER_MODELS".to_owned());
    assert_eq!(listed, wanted);
    for row in rows.iter().filter(|row| row["flag"].is_string()) {
        let flag = row["flag"].as_str().unwrap().trim_start_matches('-').replace('-', "_").to_uppercase();
        assert_eq!(row["variable"], format!("MINFER_{flag}"));
    }
    let text = place.minfer(&["doctor", "--knobs"]).env("MINFER_ISA", "").stdout();
    assert!(listed.iter().all(|variable| text.contains(variable.as_str())));
}

#[test]
fn knobs_show_values_and_mark_those_of_no_use() {
    let place = Place::new();
    let run = |words: &[&str]| {
        let run = place
            .minfer(words)
            .env("MINFER_TEMP", "warm\u{1b}")
            .env("MINFER_TOP_K", "7")
            .env("MINFER_RAW", "perhaps");
        run.env("MINFER_ISA", "sse").env("MINFER_SEED", "").env("MINFER_SYSTEM", "be brief")
    };
    let knobs = run(&["doctor", "--knobs", "--json"]).json();
    let row = |variable: &str| {
        let mut rows = knobs.as_array().unwrap().iter();
        rows.find(|row| row["variable"] == variable).unwrap_or_else(|| panic!("{variable}"))
    };
    for (variable, value, fault) in [
        ("MINFER_TEMP", "warm\u{1b}", "a number from 0 on is needed"),
        ("MINFER_RAW", "perhaps", "value was not a boolean"),
        ("MINFER_ISA", "sse", "invalid value 'sse' for '--isa <SET>'"),
    ] {
        assert_eq!(row(variable)["value"], value);
        has(row(variable)["fault"].as_str().expect("a fault"), &[fault]);
    }
    for (variable, value) in [("MINFER_TOP_K", "7"), ("MINFER_SYSTEM", "be brief")] {
        assert_eq!((&row(variable)["value"], row(variable)["fault"].is_null()), (&value.into(), true));
    }
    for variable in ["MINFER_SEED", "MINFER_THREADS"] {
        assert!(row(variable)["value"].is_null() && row(variable)["fault"].is_null());
    }
    let text = run(&["doctor", "--knobs"]).stdout();
    let line = |variable: &str| text.lines().find(|line| line.contains(variable)).expect("a line");
    has(line("MINFER_TEMP"), &["[default: 0.8]", "[now of no use: invalid value 'warm"]);
    has(line("MINFER_TOP_K"), &["[now: 7]"]);
    assert!(!line("MINFER_SEED").contains("now") && !text.contains('\u{1b}'));
    // A command that would use them still refuses.
    run(&["doctor"]).usage();
    place.minfer(&["doctor", "tiny.gguf", "--knobs"]).usage();
}

#[test]
fn the_machine() {
    let place = Place::with(Family::Llama);
    let report = place.minfer(&["doctor", "--json", "-t", "2", "--isa", "scalar"]).json();
    assert_eq!((&report["threads"], &report["isa"]), (&2.into(), &"scalar".into()));
    assert_eq!(report["models_folder"], place.path("models").to_str().unwrap());
    let text = place.minfer(&["doctor", "tiny.gguf"]).stdout();
    has(&text, &["processor", "memory", "synthetic llama", "512 positions"]);
}

#[test]
fn what_a_run_with_these_flags_would_take() {
    let place = Place::with(Family::Llama);
    let run = |flags: &[&str]| place.minfer(&[&["doctor", "tiny.gguf"], flags].concat());
    let as_set = |flags: &[&str]| run(&[flags, &["--json"]].concat()).json()["model"]["as_set"].clone();
    let (whole, short) = (as_set(&[]), as_set(&["-c", "100"]));
    assert_eq!((&whole["n_ctx"], &short["n_ctx"]), (&512.into(), &100.into()));
    // 4 layers of 2 heads of 16 elements, K and V, 2 bytes each, in whole blocks of 64 positions.
    assert_eq!((&whole["kv_bytes"], &short["kv_bytes"]), (&(512 * 512).into(), &(128 * 512).into()));
    assert_eq!(as_set(&["-c", "100", "--cache-type", "f32"])["kv_bytes"], 256 * 512);
    let bounded = as_set(&["--kv-memory", "100k"]);
    assert_eq!((&bounded["kv_bytes"], &bounded["n_ctx"]), (&(192 * 512).into(), &192.into()));
    assert!(as_set(&["-b", "8"])["workspace_bytes"].as_u64() < whole["workspace_bytes"].as_u64());
    // No forward has more tokens than there are positions.
    assert_eq!(as_set(&["-b", "65536"]), whole);
    // A limit that leaves room for 64 positions: what doctor says is what a run does.
    let limit = whole["bytes"].as_u64().unwrap() - 448 * 512;
    let flags = ["--memory-limit", &limit.to_string()];
    let little = as_set(&flags);
    assert_eq!((&little["n_ctx"], &little["wanted_n_ctx"]), (&64.into(), &512.into()));
    let words = [&["run", "tiny.gguf", "p", "--raw", "-n", "1"], &flags[..]].concat();
    has(
        &place.minfer(&words).both().1,
        &["--memory-limit allows a context of 64 positions, not 512; a larger --memory-limit gives more"],
    );
    has(&run(&flags).stdout(), &["64 positions (of 512, which memory does not allow)", "may be taken"]);
    // A context shift needs two blocks to spare, and moves no rows of learned positions.
    let shifting = |words: &[&str]| as_set(&[&["-c", "128", "--context-shift"], words].concat());
    assert_eq!((&shifting(&[])["kv_bytes"], &shifting(&[])["n_ctx"]), (&(256 * 512).into(), &128.into()));
    let limit = (shifting(&[])["bytes"].as_u64().unwrap() - 1).to_string();
    let words = ["run", "tiny.gguf", "p", "--raw", "-n", "1", "-c", "128", "--memory-limit", &limit];
    has(&place.minfer(&[&words[..], &["--context-shift"]].concat()).failure(), &["not enough memory"]);
    has(shifting(&["--memory-limit", &limit])["error"].as_str().expect("an error"), &["not enough memory"]);
    place.minfer(&words).stdout();
    // What a run refuses.
    for (flags, wanted) in
        [(["--memory-limit", "1k"], "not enough memory"), (["-c", "100000"], "the model has 512")]
    {
        has(as_set(&flags)["error"].as_str().expect("an error"), &[wanted]);
        has(&run(&flags).stdout(), &["as set      ", wanted]);
        has(&place.minfer(&[&["run", "tiny.gguf", "p", "--raw"], &flags[..]].concat()).failure(), &[wanted]);
    }
}

#[test]
fn the_geometry_of_a_cache() {
    let place = Place::with(Family::Llama);
    let report =
        |flags: &[&str]| place.minfer(&[&["doctor", "tiny.gguf", "--kv", "--json"], flags].concat()).json();
    let (f16, f32) = (report(&[]), report(&["--cache-type", "f32"]));
    // 4 layers of 2 heads of 16 elements, K and V.
    assert_eq!((&f16["bytes_per_token"], &f32["bytes_per_token"]), (&512.into(), &1024.into()));
    let block = f16["block_tokens"].as_u64().unwrap();
    assert_eq!(f16["bytes_per_block"], 512 * block);
    assert_eq!(f16["groups"][0]["k_format"], "f16");
    assert_eq!(
        (&f16["groups"][0]["window"], &f16["groups"][0]["bytes_per_token"]),
        (&Value::Null, &512.into())
    );
    let formats = f16["formats"].as_array().unwrap();
    let known: Vec<_> = formats.iter().map(|row| (&row["kv_format"], &row["bytes_per_token"])).collect();
    for (format, bytes) in [("f32", 1024), ("f16", 512), ("bf16", 512)] {
        assert!(known.contains(&(&format.into(), &bytes.into())), "{known:?}");
    }
    // Its heads are half a block.
    for row in formats.iter().filter(|row| ["q8_0", "q4_0"].contains(&row["kv_format"].as_str().unwrap())) {
        has(row["error"].as_str().unwrap(), &["blocks of 32 dims", "a K head of 16 dims"]);
    }
    // At one position: a block of 64 or 16 positions, a granule for each of 8 buffers, or for each
    // of 16 heads in them.
    let granule = f16["granule"].as_u64().unwrap();
    let granules = |of: u64| -> Vec<[u64; 2]> {
        let compared = f16["compared"].as_array().unwrap().iter().filter(|row| row["granule"] == of);
        compared.map(|row| [0, 1].map(|at| row["at"][at]["granules"].as_u64().unwrap())).collect()
    };
    let pages = |bytes: u64| bytes.div_ceil(granule);
    assert_eq!(granules(2 << 20), [[1, 1], [1, 1], [8, 8], [8, 8]]);
    assert_eq!(
        granules(granule)[..3],
        [[pages(32768), pages(262_144)], [pages(8192), pages(262_144)], [8, 8 * pages(32768)]]
    );
    assert_eq!(f16["reserved_bytes"], 512 * 512);
    has(
        &place.minfer(&["doctor", "tiny.gguf", "--kv", "-c", "100"]).stdout(),
        &["512 bytes a token", "100 positions"],
    );
    place.minfer(&["doctor", "--kv"]).usage();
}

/// The table of a model with windowed layers. With pages of 4096 bytes.
#[test]
fn the_table_of_a_cache() {
    let place = Place::with(Family::Gemma3);
    let page = place.minfer(&["doctor", "tiny.gguf", "--kv", "--json"]).json()["granule"].as_u64().unwrap();
    if page == 4096 {
        let text = place.minfer(&["doctor", "tiny.gguf", "--kv", "-c", "1000"]).stdout();
        let lines = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        insta::assert_snapshot!("kv_table", lines);
    }
}
