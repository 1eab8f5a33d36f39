//! Command lines that are wrong.

use minfer_testkit::synthetic::{Family, Value};

use crate::place::{Place, has};

#[test]
fn values_out_of_their_list_are_refused_with_the_choices() {
    let place = Place::new();
    for (flag, value, choices) in [
        ("--isa", "sse", &["auto", "scalar", "avx2", "avx512"][..]),
        ("--cache-type", "q2_0", &["f32", "f16", "bf16", "q8_0", "q4_0"]),
        ("--cache-type-k", "q2_0", &["f32", "f16", "bf16", "q8_0", "q4_0"]),
        ("--cache-type-v", "q2_0", &["f32", "f16", "bf16", "q8_0", "q4_0"]),
        ("--kv-layout", "row", &["lane-major", "head-major", "seq-major"]),
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
fn values_that_no_model_takes_are_wrong_usage() {
    let place = Place::with(Family::Llama);
    for (words, wanted) in [
        (["--samplers", "top_k;top_p;top_k"], "--samplers lists top_k twice"),
        (["--samplers", ""], "penalties, top_k"),
        (["--rope-scale", "0"], "a number above 0 and at most 1000000 is needed"),
        (["--rope-scale", "nan"], "a number above 0"),
        (["--rope-freq-base", "0"], "a number above 1 and at most"),
        (["--rope-freq-base", "-1"], "a number above 1"),
        (["--rope-freq-scale", "inf"], "a number above 0"),
        (["--yarn-beta-fast", "nan"], "a number above 0"),
        (["--yarn-beta-slow", "0"], "a number above 0"),
        (["--yarn-attn-factor", "1e4"], "at most 1000"),
        (["--yarn-ext-factor", "2"], "a number from 0 to 1"),
        (["--yarn-orig-ctx", "0"], "0 is not in 1..="),
        (["-c", "1"], "0 or a number from 2"),
        (["--temp", "1e39"], "none beyond 3.4028235e38"),
        (["--chat-template", "nope"], "no such file, and no chat template has the name \"nope\""),
        (["--chat-template", ""], "a value is required for '--chat-template"),
        (["--chat-template-kwargs", "[1]"], "a JSON object is needed, such as {\"name\": true}"),
        (
            ["--chat-template-kwargs", "{\"a\":}"],
            "a JSON object is needed; line 1 column 6: `}` does not belong there",
        ),
        (["--top-k", "x"], "a whole number is needed"),
        (["--top-k", "1.5"], "a whole number is needed"),
        (["-n", "99999999999999999999"], "99999999999999999999 is not in -1..="),
        (["--chat-template-kwargs", "{\"tools\": []}"], "\"tools\" comes from the conversation"),
        (["--chat-template-kwargs", "{\"x\": 1, \"bos_token\": \"\"}"], "\"bos_token\" comes from"),
    ] {
        has(&place.minfer(&[&["run", "tiny.gguf", "p"], &words[..]].concat()).usage(), &[wanted]);
    }
}

#[test]
fn a_typed_flag_beats_a_variable_that_has_no_place_beside_it() {
    let place = Place::with(Family::Llama);
    let run =
        |flags: &[&str]| place.minfer(&[&["run", "tiny.gguf", "the", "-n", "0", "--json"], flags].concat());
    let tokens = |run: crate::place::Run| run.json()["usage"]["prompt_tokens"].as_u64().unwrap();
    let (raw, chat) = (tokens(run(&["--raw"])), tokens(run(&["--chat-template", "chatml"])));
    assert!(raw < chat);
    assert_eq!(tokens(run(&["--chat-template", "chatml"]).env("MINFER_RAW", "1")), chat);
    assert_eq!(tokens(run(&["--raw"]).env("MINFER_CHAT_TEMPLATE", "chatml")), raw);
    assert_eq!(tokens(run(&["--raw"]).env("MINFER_SYSTEM", "x")), raw);
    assert_eq!(tokens(run(&["--chat-template", "chatml"]).env("MINFER_RAW", "0")), chat);
    has(
        &run(&["--raw", "--system", "x"]).usage(),
        &["--system needs the chat template, which --raw leaves out"],
    );
    let both = run(&[]).env("MINFER_RAW", "1").env("MINFER_SYSTEM", "x").usage();
    has(&both, &["MINFER_SYSTEM needs the chat template, which MINFER_RAW leaves out"]);
}

#[test]
fn the_same_between_settings_of_rope() {
    let place = Place::with(Family::Llama);
    let longest = |flags: &[&str], variables: &[(&str, &str)]| {
        let words = [&["run", "tiny.gguf", "p", "--raw", "-n", "0", "-c", "4096"], flags].concat();
        let run = place.minfer(&words);
        let refusal = variables.iter().fold(run, |run, (name, value)| run.env(name, value)).failure();
        let end = refusal.split("the model has ").nth(1).expect("a length").to_owned();
        end.split(';').next().expect("a number").parse::<u32>().expect("a number")
    };
    assert_eq!(longest(&["--rope-scale", "2"], &[("MINFER_ROPE_FREQ_SCALE", "0.25")]), 1024);
    assert_eq!(longest(&["--rope-freq-scale", "0.25"], &[("MINFER_ROPE_SCALE", "2")]), 2048);
    assert_eq!(longest(&["--rope-scaling", "none"], &[("MINFER_ROPE_SCALE", "2")]), 512);
    assert_eq!(longest(&["--rope-scale", "2"], &[("MINFER_ROPE_SCALING", "none")]), 1024);
    let yarn = [("MINFER_YARN_BETA_FAST", "8"), ("MINFER_ROPE_SCALE", "2")];
    assert_eq!(longest(&["--rope-scaling", "linear"], &yarn), 1024);
    let run = |flags: &[&str]| place.minfer(&[&["run", "tiny.gguf", "p"], flags].concat());
    has(&run(&["--rope-scale", "2", "--rope-freq-scale", "0.5"]).usage(), &["only one of them"]);
    has(
        &run(&[]).env("MINFER_ROPE_SCALE", "2").env("MINFER_ROPE_FREQ_SCALE", "0.5").usage(),
        &["MINFER_ROPE_SCALE and MINFER_ROPE_FREQ_SCALE"],
    );
    has(&run(&["--rope-scaling", "none", "--rope-scale", "2"]).usage(), &["--rope-scaling is none"]);
    has(&run(&["--rope-scaling", "linear", "--yarn-orig-ctx", "2"]).usage(), &["a setting of yarn"]);
}

#[test]
fn unknown_flags_are_refused() {
    let place = Place::new();
    has(&place.minfer(&["list", "--jsn"]).usage(), &["--jsn", "--json"]);
    has(&place.minfer(&["run", "m", "p", "-n", "-2"]).usage(), &["-2 is not in -1..="]);
    has(&place.minfer(&["-t", "2", "bench", "m"]).usage(), &["minfer bench ..."]);
}

#[test]
fn a_mistyped_command_is_wrong_usage_whatever_follows() {
    let place = Place::with(Family::Llama);
    for (words, name) in [
        (&["lst"][..], "list"),
        (&["ls"], "list"),
        (&["lst", "--json"], "list"),
        (&["benhc"], "bench"),
        (&["benhc", "smollm2"], "bench"),
        (&["benhc", "smollm2", "-p", "8,16", "-n", "1,2"], "bench"),
        (&["rnu", "smollm2", "hi"], "run"),
        (&["tokenise", "tiny.gguf", "--help"], "tokenize"),
        (&["-t", "2", "benhc", "smollm2"], "bench"),
    ] {
        let text = place.minfer(words).usage();
        has(
            &text,
            &[&format!("did you mean `{name}`?"), "No model has that name", "minfer [OPTIONS] <MODEL>"],
        );
    }
    has(&place.minfer(&["help", "lst"]).usage(), &["no command `lst`, did you mean `list`?"]);
    let text = place.minfer(&["serve", "tiny.gguf", "--port", "8080"]).usage();
    has(&text, &["no command `serve`, and no model of that name"]);
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
    has(&place.minfer(&["rnu", "hi", "there"]).usage(), &["unexpected argument 'there' found"]);
    // A name that is like a model rather than like a command.
    std::fs::copy(place.path("tiny.gguf"), place.path("models/benchy.gguf")).expect("copied");
    has(&place.minfer(&["benchyy", "hi"]).failure(), &["no model `benchyy`", "did you mean `benchy`?"]);
}

#[test]
fn a_word_that_is_like_no_command_is_an_unknown_model() {
    let place = Place::new();
    has(&place.minfer(&["zzz"]).failure(), &["no command `zzz`: no model `zzz`", "smollm2"]);
    has(&place.minfer(&["smolm2", "hi"]).failure(), &["no command `smolm2`", "did you mean `smollm2`?"]);
    has(&place.minfer(&["smollm2", "hi", "there"]).usage(), &["unexpected argument 'there' found"]);
    has(&place.minfer(&["./lst"]).failure(), &["no such file: ./lst"]);
}

#[test]
fn flags_are_known_as_they_are_typed_elsewhere() {
    let place = Place::with(Family::Llama);
    let run =
        |flags: &[&str]| place.minfer(&[&["run", "tiny.gguf", "the", "-n", "0", "--facts"], flags].concat());
    let formats = |flags: &[&str]| {
        let (_, stderr) = run(flags).both();
        let facts: serde_json::Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
        (facts["kv_format_k"].as_str().unwrap().to_owned(), facts["kv_format_v"].as_str().unwrap().to_owned())
    };
    assert_eq!(formats(&["--raw", "-ctk", "f32", "-ctv=bf16"]), ("f32".to_owned(), "bf16".to_owned()));
    let template = ["--chat-template", "chatml"];
    let tokens = |flags: &[&str]| {
        run(&[&template[..], &["--json"], flags].concat()).json()["usage"]["prompt_tokens"].clone()
    };
    assert_eq!(tokens(&["-sys", "the"]), tokens(&["--system", "the"]));
    assert_eq!(tokens(&["--system-prompt", "the"]), tokens(&["--system", "the"]));
    let seed =
        |flag: &str| run(&["--raw", "--json", flag, "5", "-temp", "0.5", "-top-k=3"]).json()["seed"].clone();
    assert_eq!((seed("-seed"), seed("-s")), (5.into(), 5.into()));
    place.minfer(&["bench", "tiny.gguf", "-ctk", "f32", "-p", "4", "-n", "2", "-r", "1"]).stdout();
    place.minfer(&["-ctk", "f32", "tiny.gguf", "the", "--raw", "-n", "1"]).stdout();
}

#[test]
fn errors_name_flags_as_they_were_typed() {
    let place = Place::with(Family::Llama);
    let run = |flags: &[&str]| place.minfer(&[&["run", "tiny.gguf", "the"], flags].concat()).usage();
    has(&run(&["-ctk", "q2_0"]), &["invalid value 'q2_0' for '-ctk <TYPE>'", "bf16"]);
    has(&run(&["-ctk"]), &["'-ctk <TYPE>'"]);
    has(&run(&["-ctk", "f32", "-ctk", "f16"]), &["'-ctk <TYPE>'"]);
    has(&run(&["--raw", "-sys", "x"]), &["-sys needs the chat template, which --raw leaves out"]);
    has(&place.minfer(&["list", "-ctk", "f32"]).usage(), &["minfer has no such flag: -ctk"]);
    for (flags, words) in [
        (&["-ngl", "99"][..], "no such flag: -ngl; the processor computes everything"),
        (&["--n-gpu-layers", "99"], "no such flag: --n-gpu-layers; the processor"),
        (&["-fa", "on"], "no such flag: -fa; there is one way to compute attention"),
        (&["-flash-attn"], "no such flag: -flash-attn; there is one way"),
        (&["-ub", "512"], "no such flag: -ub; -b N says"),
        (&["-tb", "4"], "no such flag: -tb; -t N is for"),
        (&["-hf", "a/b"], "no such flag: -hf; `minfer pull NAME`"),
        (&["-cnv"], "no such flag: -cnv; `minfer chat MODEL`"),
        (&["-m", "x"], "no such flag: -m; the model is the first word"),
        (&["-p", "x"], "no such flag: -p; the prompt is the word after the model"),
        (&["-r", "x"], "no such flag: -r; --stop TEXT"),
        (&["-nkvx", "x"], "no such flag: -nkvx"),
        (&["-tmp", "1"], "no such flag: -tmp; did you mean --temp?"),
        (&["-top_k", "1"], "no such flag: -top_k; did you mean --top-k?"),
        (&["--no-display-prompt"], "no such flag: --no-display-prompt; stdout has nothing but the answer"),
        (&["--dynatemp-range", "1"], "no such flag: --dynatemp-range"),
        (&["-xyz"], "no such flag: -xyz"),
    ] {
        let text = run(flags);
        has(&text, &[words, "Usage: minfer run [OPTIONS] <MODEL> [PROMPT]"]);
    }
    // Values that follow their flag at once.
    has(&run(&["-c1"]), &["invalid value '1' for '--n-ctx <N>'"]);
    place.minfer(&["run", "tiny.gguf", "--raw", "-n1", "-t1", "-fp.txt"]).failure();
}

#[test]
fn flags_that_were_typed_for_nothing_are_refused() {
    let place = Place::with(Family::Llama);
    let run =
        |flags: &[&str]| place.minfer(&[&["run", "tiny.gguf", "the", "--raw", "-n", "1"], flags].concat());
    let text = run(&["--keep", "4"]).usage();
    has(
        &text,
        &["--keep has no effect without --context-shift", "Usage: minfer run [OPTIONS] <MODEL> [PROMPT]"],
    );
    run(&["--keep", "4", "--context-shift", "-c", "16"]).stdout();
    run(&["--keep", "4", "-c", "16"]).env("MINFER_CONTEXT_SHIFT", "1").stdout();
    has(&run(&["--keep", "4"]).env("MINFER_CONTEXT_SHIFT", "0").usage(), &["without --context-shift"]);
    run(&[]).env("MINFER_KEEP", "4").stdout();
    has(&place.minfer(&["chat", "tiny.gguf", "--keep", "4"]).usage(), &["Usage: minfer chat"]);
    let types = ["--cache-type", "f32", "-ctk", "f16", "-ctv", "f16"];
    has(&run(&types).usage(), &["--cache-type has no effect beside --cache-type-k and --cache-type-v"]);
    run(&types[..4]).stdout();
    run(&types[2..]).env("MINFER_CACHE_TYPE", "f32").stdout();
    let doctor = |words: &[&str]| place.minfer(&[&["doctor"], words].concat());
    has(&doctor(&["-c", "2048"]).usage(), &["--n-ctx has no effect without MODEL", "Usage: minfer doctor"]);
    has(&doctor(&["--context-shift"]).usage(), &["--context-shift has no effect without MODEL"]);
    has(&doctor(&["--knobs", "-t", "1"]).usage(), &["--threads has no effect beside --knobs"]);
    has(&doctor(&["tiny.gguf", "--kv", "-b", "8"]).usage(), &["--n-batch has no effect beside --kv"]);
    doctor(&["-t", "1", "--memory-limit", "1G"]).env("MINFER_N_CTX", "64").stdout();
    doctor(&["tiny.gguf", "-c", "64"]).stdout();
}

#[test]
fn flags_that_were_typed_for_nothing_as_a_matter_of_course_are_noted() {
    let place = Place::with(Family::Llama);
    let notes = |flags: &[&str]| {
        place.minfer(&[&["run", "tiny.gguf", "the", "--raw", "-n", "1"], flags].concat()).both().1
    };
    let one = |flags: &[&str], words: &str| assert_eq!(notes(flags), format!("note: {words}\n"));
    one(
        &["--repeat-last-n", "32"],
        "--repeat-last-n has no effect without --repeat-penalty, --presence-penalty or --frequency-penalty",
    );
    one(
        &["--samplers", "top_k;temperature", "--top-p", "0.9"],
        "--top-p has no effect: its stage is not in --samplers",
    );
    one(&["--samplers", "top_k", "--temp", "0.5"], "--temp has no effect: its stage is not in --samplers");
    for quiet in [
        &["--repeat-last-n", "32", "--repeat-penalty", "1.1"][..],
        &["--repeat-last-n", "32", "--presence-penalty", "0"],
        &["--samplers", "top_k", "--top-p", "1", "--min-p", "0", "--temp", "0", "--repeat-penalty", "1"],
        &["--temp", "0", "--top-k", "3", "--seed", "4"],
        &["--tokenizer-pre", "qwen2"],
    ] {
        assert_eq!(notes(quiet), "", "{quiet:?}");
    }
    assert_eq!(
        place
            .minfer(&["run", "tiny.gguf", "the", "--raw", "-n", "1"])
            .env("MINFER_REPEAT_LAST_N", "3")
            .both()
            .1,
        ""
    );
}

#[test]
fn what_a_model_has_no_use_for_is_said() {
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
    let variables = ["--chat-template-kwargs", "{\"tail\": \"x\"}"];
    has(&run(&variables).failure(), &["no chat template, so --chat-template-kwargs has no place"]);
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
