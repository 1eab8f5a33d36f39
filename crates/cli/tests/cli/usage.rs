//! Command lines and variables together. What words alone come to is tested in process.

use minfer_testkit::synthetic::{Family, Value};

use crate::place::{Place, Run, has};

#[test]
fn errors_about_variables_name_the_variable() {
    let place = Place::new();
    for (variable, value, wanted) in [
        ("MINFER_ISA", "sse", "[possible values: auto, scalar, avx2, avx512]"),
        ("MINFER_CACHE_TYPE", "q2_0", "[possible values: f32, f16, bf16, q8_0, q4_0]"),
        ("MINFER_SAMPLERS", "luck", "penalties, top_k"),
        ("MINFER_THREADS", "0", "1..=1024"),
        ("MINFER_RAW", "perhaps", "not a boolean"),
    ] {
        let refusal = place.minfer(&["run", "m", "p0", "--temp", "0"]).env(variable, value).usage();
        has(&refusal, &[wanted, &format!("the value comes from the variable {variable}")]);
    }
    for typed in [&["--threads", "0"][..], &["--threads=0"], &["-t", "0"], &["-t0"]] {
        let refusal = place.minfer(&[&["run", "m", "p"], typed].concat()).env("MINFER_THREADS", "0").usage();
        assert!(!refusal.contains("MINFER_THREADS"), "{refusal}");
    }
}

#[test]
fn an_unknown_variable_is_wrong_usage() {
    let place = Place::with(Family::Llama);
    let list = |name: &str, value: &str| place.minfer(&["list"]).env(name, value);
    has(&list("MINFER_THREAD", "1").usage(), &["MINFER_THREAD; did you mean MINFER_THREADS?"]);
    has(&list("MINFER_CACHETYPE", "q8_0").usage(), &["did you mean MINFER_CACHE_TYPE?"]);
    has(&list("MINFER_X", "1").usage(), &["MINFER_X; `minfer doctor --knobs` lists"]);
    list("MINFER_THREAD", "").stdout();
    list("MINFER_TEST_MODELS", "x").stdout();
    place.minfer(&["doctor", "--knobs"]).env("MINFER_THREAD", "1").stdout();
    place.minfer(&["--help"]).env("MINFER_THREAD", "1").stdout();
}

#[test]
fn a_flag_beats_its_variable_and_an_empty_one_is_not_there() {
    let place = Place::with(Family::Llama);
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
fn a_typed_flag_beats_a_variable_that_it_conflicts_with() {
    let place = Place::with(Family::Llama);
    let run =
        |flags: &[&str]| place.minfer(&[&["run", "tiny.gguf", "the", "-n", "0", "--json"], flags].concat());
    let tokens = |run: Run| run.json()["usage"]["prompt_tokens"].as_u64().unwrap();
    let (raw, chat) = (tokens(run(&["--raw"])), tokens(run(&["--chat-template", "chatml"])));
    assert!(raw < chat);
    assert_eq!(tokens(run(&["--chat-template", "chatml"]).env("MINFER_RAW", "1")), chat);
    assert_eq!(tokens(run(&["--raw"]).env("MINFER_CHAT_TEMPLATE", "chatml")), raw);
    assert_eq!(tokens(run(&["--raw"]).env("MINFER_SYSTEM", "x")), raw);
    let both = run(&[]).env("MINFER_CHAT_TEMPLATE", "chatml").env("MINFER_RAW", "off");
    assert_eq!(tokens(both), chat, "a switch that is off conflicts with nothing");
    let both = run(&[]).env("MINFER_RAW", "1").env("MINFER_SYSTEM", "x").usage();
    has(&both, &["cannot be used with", "the value comes from the variable MINFER_"]);
    let longest = |flags: &[&str], name: &str, value: &str| {
        let words = [&["run", "tiny.gguf", "p", "--raw", "-n", "0", "-c", "4096"], flags].concat();
        let refusal = place.minfer(&words).env(name, value).failure();
        let end = refusal.split("the model has ").nth(1).expect("a length").to_owned();
        end.split(';').next().expect("a number").parse::<u32>().expect("a number")
    };
    assert_eq!(longest(&["--rope-scale", "2"], "MINFER_ROPE_FREQ_SCALE", "0.25"), 1024);
    assert_eq!(longest(&["--rope-freq-scale", "0.25"], "MINFER_ROPE_SCALE", "2"), 2048);
}

#[test]
fn a_variable_without_effect_is_ignored() {
    let place = Place::with(Family::Llama);
    let run =
        |flags: &[&str]| place.minfer(&[&["run", "tiny.gguf", "the", "--raw", "-n", "1"], flags].concat());
    run(&[]).env("MINFER_KEEP", "4").stdout();
    run(&["--keep", "4", "-c", "16"]).env("MINFER_CONTEXT_SHIFT", "1").stdout();
    has(&run(&["--keep", "4"]).env("MINFER_CONTEXT_SHIFT", "0").usage(), &["without --context-shift"]);
    run(&["-ctk", "f16", "-ctv", "f16"]).env("MINFER_CACHE_TYPE", "f32").stdout();
    assert_eq!(run(&[]).env("MINFER_REPEAT_LAST_N", "3").both().1, "");
    place.minfer(&["doctor", "-t", "1"]).env("MINFER_N_CTX", "64").stdout();
}

#[test]
fn settings_that_a_model_cannot_use_are_failures() {
    let place = Place::with(Family::Llama);
    let run = |flags: &[&str]| place.minfer(&[&["run", "tiny.gguf", "the", "-n", "1"], flags].concat());
    for method in ["linear", "yarn"] {
        has(
            &run(&["--rope-scaling", method]).failure(),
            &["--rope-scaling is", method, "a factor with it, --rope-scale (the model has none) is needed"],
        );
        run(&["--raw", "--rope-scaling", method, "--rope-scale", "2"]).stdout();
    }
    run(&["--raw", "--rope-scaling", "none"]).stdout();
    has(
        &run(&["--rope-scaling", "none", "--rope-scale", "2"]).failure(),
        &["--rope-scale is 2: no factor with --rope-scaling none"],
    );
    has(
        &run(&["--rope-scaling", "linear", "--rope-scale", "2", "--yarn-orig-ctx", "2"]).failure(),
        &["--yarn-orig-ctx is 2: --rope-scaling yarn with it"],
    );
    has(
        &run(&["--chat-template", "nope"]).usage(),
        &["no such file, and no chat template has the name \"nope\""],
    );
    let variables = ["--chat-template-kwargs", "{\"tail\": \"x\"}"];
    has(&run(&variables).failure(), &["no chat template, so --chat-template-kwargs has no effect"]);
    let notes = |template: &str| run(&[&variables[..], &["--chat-template", template]].concat()).both().1;
    assert_eq!(notes("{{ messages[0].content }}{{ tail }}"), "");
    has(&notes("chatml"), &["note: --chat-template-kwargs \"tail\" has no effect"]);
    let mut model = Family::Llama.model();
    model.set("tokenizer.ggml.model", "llama");
    model.set("tokenizer.ggml.scores", Value::F32s(vec![-1.0; 269]));
    model.set("tokenizer.ggml.unknown_token_id", 0_u32);
    place.write("tiny.gguf", model.to_bytes());
    let note = "note: --tokenizer-pre has no effect: this model's tokenizer (llama) has no pre-tokenizer";
    has(&run(&["--raw", "--tokenizer-pre", "qwen2"]).both().1, &[note]);
    has(&place.minfer(&["tokenize", "tiny.gguf", "the", "--tokenizer-pre", "qwen2"]).both().1, &[note]);
}

#[test]
fn a_model_goes_before_a_command_that_its_name_is_like() {
    let place = Place::with(Family::Llama);
    std::fs::create_dir(place.path("models")).expect("created");
    for name in ["lst", "models/rnu.gguf"] {
        std::fs::copy(place.path("tiny.gguf"), place.path(name)).expect("copied");
    }
    place.minfer(&["lst", "the", "--raw", "-n", "1"]).stdout();
    place.minfer(&["rnu", "the", "--raw", "-n", "1"]).stdout();
    std::fs::copy(place.path("tiny.gguf"), place.path("models/benchy.gguf")).expect("copied");
    has(&place.minfer(&["benchyy", "hi"]).failure(), &["no model `benchyy`", "did you mean `benchy`?"]);
}

#[test]
fn a_word_that_is_like_no_command_is_an_unknown_model() {
    let place = Place::new();
    has(&place.minfer(&["zzz"]).failure(), &["no command `zzz`: no model `zzz`", "smollm2"]);
    has(&place.minfer(&["smolm2", "hi"]).failure(), &["no command `smolm2`", "did you mean `smollm2`?"]);
    has(&place.minfer(&["./lst"]).failure(), &["no such file: ./lst"]);
}
