//! Command lines that are wrong.

use crate::place::{Place, has};

#[test]
fn values_out_of_their_list_are_refused_with_the_choices() {
    let place = Place::new();
    for (flag, value, choices) in [
        ("--isa", "sse", &["auto", "scalar", "avx2", "avx512"][..]),
        ("--cache-type", "q2_0", &["f32", "f16", "bf16"]),
        ("--cache-type-k", "q2_0", &["f32", "f16", "bf16"]),
        ("--cache-type-v", "q2_0", &["f32", "f16", "bf16"]),
        ("--kv-layout", "row", &["lane-major"]),
        ("--rope-scaling", "ntk", &["none", "linear", "yarn"]),
        ("--samplers", "luck", &["penalties", "top_k", "top_p", "min_p", "temperature"]),
        ("--threads", "0", &["1..=1024"]),
        ("--memory-limit", "lots", &["800M"]),
        ("--raw", "perhaps", &["true", "no"]),
    ] {
        if flag != "--raw" {
            has(&place.minfer(&["run", "m", "p", flag, value]).usage(), choices);
        }
        let variable = format!("MINFER_{}", flag.trim_start_matches('-').to_uppercase().replace('-', "_"));
        let refusal = place.minfer(&["run", "m", "p"]).env(&variable, value).usage();
        has(&refusal, choices);
        has(&refusal, &[&format!("the value comes from the variable {variable}")]);
    }
    // Other words may hold the same letters; only a flag that was typed is why its variable is not meant.
    let tip = "the value comes from the variable MINFER_THREADS";
    has(&place.minfer(&["run", "m", "p0", "--temp", "0"]).env("MINFER_THREADS", "0").usage(), &[tip]);
    for typed in [&["--threads", "0"][..], &["--threads=0"], &["-t", "0"], &["-t0"]] {
        let refusal = place.minfer(&[&["run", "m", "p"], typed].concat()).env("MINFER_THREADS", "0").usage();
        assert!(!refusal.contains(tip), "{refusal}");
    }
}

#[test]
fn a_flag_beats_its_variable_and_an_empty_one_is_not_there() {
    let place = Place::with(minfer_testkit::synthetic::Family::Llama);
    let run = |flags: &[&str], value: &str| {
        let arguments = [&["run", "tiny.gguf", "hello", "--raw", "-n", "2", "--json"], flags].concat();
        place.minfer(&arguments).env("MINFER_SEED", value).json()["seed"].clone()
    };
    assert_eq!(run(&[], "7"), 7);
    assert_eq!(run(&["--seed", "8"], "7"), 8);
    assert!(run(&[], "").is_u64());
    assert_ne!(run(&["--seed", "-1"], "7"), 7);
}

#[test]
fn unknown_flags_are_refused() {
    let place = Place::new();
    has(&place.minfer(&["list", "--jsn"]).usage(), &["--jsn", "--json"]);
    has(&place.minfer(&["run", "m", "p", "-n", "-2"]).usage(), &["-2 is not in -1..="]);
    has(&place.minfer(&["-t", "2", "bench", "m"]).usage(), &["minfer bench ..."]);
}

#[test]
fn a_word_that_is_neither_command_nor_model_brings_both() {
    let place = Place::new();
    let refusal = place.minfer(&["benhc"]).failure();
    has(&refusal, &["no command `benhc`", "did you mean `bench`", "no model `benhc`", "smollm2"]);
    has(&place.minfer(&["smolm2", "hi"]).failure(), &["no command `smolm2`", "did you mean `smollm2`?"]);
}
