//! `minfer run`.

use minfer_testkit::synthetic::{self, Family};
use serde_json::Value;

use crate::place::{Place, has};

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ tail }}";

#[test]
fn text_and_json_agree() {
    let place = Place::with(Family::Llama);
    let arguments = ["run", "tiny.gguf", "the thing", "--raw", "-n", "12", "--temp", "0"];
    let (text, stderr) = place.minfer(&arguments).both();
    assert_eq!(stderr, "");
    let (json, stderr) = place.minfer(&[&arguments[..], &["--json"]].concat()).both();
    assert_eq!((json.lines().count(), stderr.as_str()), (1, ""));
    let answer: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(answer["text"].as_str().map(str::trim_end), Some(text.trim_end()));
    let ids = answer["ids"].as_array().expect("ids");
    assert_eq!(answer["usage"]["completion_tokens"], ids.len());
    assert_eq!(answer["usage"]["prompt_tokens"], answer["timings"]["prompt_n"]);
    assert!(["length", "stop"].contains(&answer["finish_reason"].as_str().unwrap()));
}

/// The first token comes with the end of the prompt, so that one alone took the time of no decode.
#[test]
fn no_speed_is_told_of_what_was_not_timed() {
    let place = Place::with(Family::Llama);
    for tokens in ["0", "1", "3"] {
        let words = ["run", "tiny.gguf", "one there", "--raw", "--ignore-eos", "--json", "-n", tokens];
        let timings = place.minfer(&words).json()["timings"].clone();
        assert_eq!(timings["predicted_n"].to_string(), tokens);
        assert!(timings["prompt_per_second"].as_f64() > Some(0.0), "{timings}");
        let decode = timings["predicted_per_second"].as_f64();
        let timed = timings["predicted_ms"].as_f64().map(|milliseconds| 2.0 / milliseconds * 1e3);
        match tokens {
            "3" => assert!((decode.unwrap() / timed.unwrap() - 1.0).abs() < 1e-6, "{timings}"),
            _ => assert!(timings["predicted_per_second"].is_null(), "{timings}"),
        }
    }
}

#[test]
fn a_beginning_that_is_typed_is_not_added_again() {
    let place = Place::new();
    let mut model = Family::Llama.model();
    model.set("tokenizer.ggml.add_bos_token", synthetic::Value::Bool(true));
    place.write("tiny.gguf", model.to_bytes());
    let tokens = |prompt: &str| {
        let words = ["run", "tiny.gguf", prompt, "--raw", "--json", "-n", "1"];
        place.minfer(&words).json()["usage"]["prompt_tokens"].as_u64()
    };
    assert_eq!(["the", "<|bos|>the", "<|bos|><|bos|>the"].map(tokens), [Some(2), Some(2), Some(3)]);
}

/// A prompt has the same tokens whichever way it comes, with and without the line end that editors
/// add.
#[test]
fn a_last_line_end_and_a_mark_are_no_part_of_a_prompt() {
    let place = Place::with(Family::Llama);
    let run =
        |words: &[&str]| place.minfer(&[&["run", "tiny.gguf", "--raw", "-n", "0", "--json"], words].concat());
    let tokens = |run: crate::place::Run| run.json()["usage"]["prompt_tokens"].as_u64().expect("a number");
    let alone = tokens(run(&["one there"]));
    for text in ["one there", "one there\n", "one there\r\n", "\u{feff}one there\n"] {
        place.write("prompt.txt", text);
        assert_eq!(tokens(run(&["-f", "prompt.txt"])), alone, "{text:?}");
        assert_eq!(tokens(run(&[]).stdin(text)), alone, "{text:?}");
    }
    assert_eq!(tokens(run(&[]).stdin("one there\n\n")), alone + 1, "one of two");
    place.write("prompt.txt", "one there\n");
    assert_eq!(tokens(run(&["--binary-file", "prompt.txt"])), alone + 1);
    assert_eq!(tokens(run(&["-bf", "-"]).stdin("one there\n")), alone + 1);
    place.write("chat.jinja", format!("\u{feff}{TEMPLATE}"));
    let chat = |template: &str| {
        let words = ["run", "tiny.gguf", "the", "-n", "0", "--json", "--chat-template", template];
        tokens(place.minfer(&words))
    };
    assert_eq!(chat("chat.jinja"), chat(TEMPLATE));
}

/// A path that is not UTF-8 names a model as any other path does.
#[cfg(unix)]
#[test]
fn a_models_path_need_not_be_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let place = Place::with(Family::Llama);
    let name = OsStr::from_bytes(b"caf\xe9.gguf");
    std::fs::copy(place.path("tiny.gguf"), place.path("").join(name)).expect("copied");
    for words in [&["show"][..], &["doctor"], &["run"], &[]] {
        let mut run = place.minfer(words);
        run.command.arg(name);
        if words != ["show"] && words != ["doctor"] {
            run.command.args(["the", "--raw", "-n", "1"]);
        }
        run.stdout();
    }
    let mut run = place.minfer(&["show"]);
    run.command.arg(OsStr::from_bytes(b"none\xe9.gguf"));
    has(&run.failure(), &["no such file: none"]);
}

/// Prompts and templates are read to their end wherever they come from; a model is not, and says so
/// without waiting.
#[cfg(target_os = "linux")]
#[test]
fn texts_come_through_pipes_and_models_do_not() {
    let place = Place::with(Family::Llama);
    place.write("p.text", "the thing");
    place.write("t.text", TEMPLATE);
    let run = |model: &str, flags: &str| {
        let line = format!(
            "rm -f p t; mkfifo p t; for pipe in p t; do timeout 9 sh -c \"cat $pipe.text > $pipe\" > /dev/null 2>&1 & done; \
             exec timeout 60 \"$0\" run {model} -n 0 --json {flags}"
        );
        place.program("sh").arguments(&["-c", &line, env!("CARGO_BIN_EXE_minfer")])
    };
    let tokens = |flags: &str| run("tiny.gguf", flags).json()["usage"]["prompt_tokens"].clone();
    assert_eq!(tokens("-f p --chat-template t"), tokens("-f p.text --chat-template t.text"));
    assert_eq!(tokens("-f p --raw"), tokens("-f p.text --raw"));
    has(&run("./p", "the --raw").failure(), &["./p is not a regular file"]);
    has(&run("/dev/zero", "the --raw").failure(), &["/dev/zero is not a regular file"]);
}

#[test]
fn facts_say_what_a_context_shift_forgot() {
    let place = Place::with(Family::Llama);
    let words =
        ["run", "tiny.gguf", "the", "--raw", "--ignore-eos", "--facts", "-c", "16", "--context-shift"];
    let removed = |tokens: &str| {
        let (_, stderr) = place.minfer(&[&words[..], &["-n", tokens]].concat()).both();
        let facts: Value = serde_json::from_str(stderr.lines().last().expect("a line")).expect("JSON");
        facts["removed_tokens"].as_u64().expect("a number")
    };
    assert_eq!(removed("4"), 0);
    // The prompt and all of the answer but its last token have had rows, of which at most 16 are
    // left.
    let forgotten = removed("40");
    assert!((1 + 39 - 16..40).contains(&forgotten), "{forgotten}");
}

#[test]
fn more_threads_than_processors_are_obeyed_with_a_note() {
    let place = Place::with(Family::Llama);
    let allowed = std::thread::available_parallelism().unwrap().get();
    let run = |threads: usize| {
        let threads = threads.to_string();
        let words = ["run", "tiny.gguf", "the", "--raw", "-n", "1", "--facts", "-t", &threads];
        let (_, stderr) = place.minfer(&words).both();
        let facts: Value = serde_json::from_str(stderr.lines().last().expect("a line")).expect("JSON");
        assert_eq!(facts["threads"].to_string(), threads);
        stderr
    };
    let note = format!("{} threads are more than the {allowed} processors", allowed + 1);
    assert_eq!(run(allowed + 1).matches(&note).count(), 1);
    assert!(!run(allowed).contains("processors"));
}

#[test]
fn facts_are_one_line_at_the_end_of_stderr() {
    let place = Place::with(Family::Qwen2);
    let flags = ["--facts", "--isa", "scalar", "-t", "1", "--cache-type", "f32", "--cache-type-v", "bf16"];
    let arguments = [&["run", "tiny.gguf", "the thing", "--raw", "-n", "3"], &flags[..]].concat();
    let (_, stderr) = place.minfer(&arguments).both();
    let facts: Value = serde_json::from_str(stderr.lines().last().expect("a line")).expect("JSON");
    let wanted =
        [("isa", "scalar"), ("kv_format_k", "f32"), ("kv_format_v", "bf16"), ("kv_layout", "lane-major")];
    for (key, value) in wanted {
        assert_eq!(facts[key], value, "{key}");
    }
    for key in ["threads", "steps", "kv_bytes_per_token", "reused_tokens", "graph_builds"] {
        assert!(facts[key].is_u64(), "{key}");
    }
}

#[test]
fn rewrites_are_switched_off_by_name() {
    let place = Place::with(Family::Qwen2);
    let run = |flags: &[&str]| {
        let words = ["run", "tiny.gguf", "the thing", "--raw", "-n", "4", "--temp", "0", "--facts"];
        let (answer, stderr) = place.minfer(&[&words, flags].concat()).both();
        let facts: Value = serde_json::from_str(stderr.lines().last().expect("a line")).expect("JSON");
        (answer, facts["rewrites"].as_u64().expect("a number"))
    };
    let (answer, all) = run(&[]);
    assert!(all > 0);
    let (without_one, fewer) = run(&["--rewrites-off", "add_norm"]);
    let (without_two, least) = run(&["--rewrites-off", "rope_store,add_norm"]);
    assert!(all > fewer && fewer > least && least > 0, "{all} {fewer} {least}");
    assert_eq!((&without_one, &without_two), (&answer, &answer));
    assert_eq!(run(&["--rewrites-off", "all"]), (answer, 0));
    has(
        &place.minfer(&["run", "tiny.gguf", "the", "--rewrites-off", "fuse"]).usage(),
        &["fuse", "merge_linears"],
    );
}

#[test]
fn the_same_answer_from_every_way_to_give_the_prompt() {
    let place = Place::with(Family::Llama);
    place.write("prompt.txt", "one there");
    let flags = ["--raw", "-n", "6", "--temp", "0"];
    let run = |words: &[&str]| place.minfer(&[words, &flags].concat());
    let answer = run(&["run", "tiny.gguf", "one there"]).stdout();
    assert_eq!(run(&["run", "tiny.gguf", "-f", "prompt.txt"]).stdout(), answer);
    assert_eq!(run(&["run", "tiny.gguf"]).stdin("one there").stdout(), answer);
    assert_eq!(run(&["run", "tiny.gguf", "-f", "-"]).stdin("one there").stdout(), answer);
    assert_eq!(run(&["tiny.gguf", "one there"]).stdout(), answer);
    assert_eq!(run(&["-t", "1", "tiny.gguf", "one there"]).stdout(), answer);
    assert_eq!(run(&["run", "tiny.gguf", "one there"]).env("MINFER_RAW", "yes").stdout(), answer);
}

#[test]
fn seeds_fix_the_draws() {
    let place = Place::with(Family::Llama);
    let run = |seed| {
        let words = ["run", "tiny.gguf", "the", "--raw", "-n", "8", "--temp", "1.5", "--json", "-s", seed];
        place.minfer(&words).json()
    };
    let (a, b, c) = (run("1"), run("1"), run("2"));
    assert_eq!((&a["ids"], &a["seed"]), (&b["ids"], &b["seed"]));
    assert_ne!(a["ids"], c["ids"]);
}

#[test]
fn counts_are_exact() {
    let place = Place::with(Family::Llama);
    for (given, count) in [("0", 0), ("1", 1), ("5", 5)] {
        let words = ["run", "tiny.gguf", "the", "--raw", "--ignore-eos", "--json", "-n", given];
        let answer = place.minfer(&words).json();
        assert_eq!(answer["ids"].as_array().map(Vec::len), Some(count));
        assert_eq!(answer["finish_reason"], "length");
    }
    let words = ["run", "tiny.gguf", "the", "--raw", "--ignore-eos", "--json", "-c", "16"];
    let answer = place.minfer(&words).json();
    assert_eq!(answer["usage"]["total_tokens"], 16, "to the context's end");
    let answer = place.minfer(&[&words[..], &["-n", "-1"]].concat()).json();
    assert_eq!(answer["usage"]["total_tokens"], 16, "which is what -1 asks for");
}

#[test]
fn what_forgets_ends_after_a_context_of_tokens() {
    let place = Place::with(Family::Llama);
    let words = ["run", "tiny.gguf", "the", "--raw", "--ignore-eos", "--json", "-c", "16", "--context-shift"];
    for (flags, count) in [(&[][..], 16), (&["-n", "0"], 0), (&["-n", "5"], 5), (&["-n", "40"], 40)] {
        let answer = place.minfer(&[&words[..], flags].concat()).json();
        assert_eq!(answer["usage"]["completion_tokens"], count, "{flags:?}");
        assert_eq!(answer["finish_reason"], "length");
    }
}

#[test]
fn templates_are_files_or_texts() {
    let place = Place::with(Family::Llama);
    place.write("chat.jinja", TEMPLATE);
    let run =
        |words: &[&str]| place.minfer(&[&["run", "tiny.gguf", "the", "-n", "0", "--json"], words].concat());
    let tokens = |words: &[&str]| run(words).json()["usage"]["prompt_tokens"].as_u64().unwrap();
    let file = tokens(&["--chat-template", "chat.jinja"]);
    assert_eq!(tokens(&["--chat-template", TEMPLATE]), file);
    assert!(tokens(&["--chat-template", TEMPLATE, "--system", "x"]) > file);
    let tail = ["--chat-template", TEMPLATE, "--chat-template-kwargs", "{\"tail\": \"there\"}"];
    assert!(tokens(&tail) > file);
    has(
        &run(&["--chat-template", "none.jinja"]).usage(),
        &["--chat-template", "none.jinja", "no such file", "chatml, command-r"],
    );
    assert!(tokens(&["--chat-template", "chatml"]) > file);
    place.write("empty.jinja", "\n");
    has(&run(&["--chat-template", "empty.jinja"]).failure(), &["empty.jinja is empty", "--raw"]);
    has(
        &run(&["--chat-template", "{{ '' }}"]).failure(),
        &["renders the conversation as an empty text", "--raw"],
    );
    has(&run(&["--chat-template", "{% bad"]).failure(), &["--chat-template: ", "syntax error"]);
    has(&run(&["--chat-template", "{{ raise_exception('not so') }}"]).failure(), &["refuses", "not so"]);
    has(&run(&["--system", "x"]).failure(), &["no chat template", "--system"]);
    let (_, stderr) = run(&[]).both();
    has(&stderr, &["no chat template", "--raw", "--chat-template NAME"]);
}

#[test]
fn named_templates_of_a_file_come_before_formats() {
    let place = Place::new();
    let mut model = Family::Llama.model();
    model.set("tokenizer.chat_template.tool_use", "the the the");
    model.set("tokenizer.chat_template.chatml", "the");
    place.write("tiny.gguf", model.to_bytes());
    let run =
        |name: &str| place.minfer(&["run", "tiny.gguf", "x", "-n", "0", "--json", "--chat-template", name]);
    let tokens = |name: &str| run(name).json()["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(tokens("tool_use") > tokens("chatml"));
    has(&run("rag").usage(), &["\"rag\"", "llama3", "of this file: tool_use, chatml"]);
}

#[test]
fn a_template_that_cannot_be_used_is_in_the_way_of_what_needs_it_alone() {
    let place = Place::new();
    for (template, fault) in [("{% bad", "line 1: syntax error"), (&"x".repeat(300_000), "300000 bytes")] {
        let mut model = Family::Llama.model();
        model.set("tokenizer.chat_template", template);
        place.write("tiny.gguf", model.to_bytes());
        let run = |words: &[&str]| place.minfer(&[&["run", "tiny.gguf", "x", "-n", "1"], words].concat());
        has(&run(&[]).failure(), &[fault, "--chat-template", "--raw"]);
        has(&place.minfer(&["chat", "tiny.gguf"]).failure(), &[fault, "--chat-template", "--raw"]);
        run(&["--raw"]).stdout();
        run(&["--chat-template", "chatml"]).stdout();
        place.minfer(&["logprobs", "tiny.gguf"]).stdin(b"[1, 2]").stdout();
        place.minfer(&["bench", "tiny.gguf", "-p", "4", "-n", "2"]).stdout();
    }
}

#[test]
fn prompts_that_are_none() {
    let place = Place::with(Family::Llama);
    let run = |words: &[&str]| place.minfer(&[&["run", "tiny.gguf"], words].concat());
    assert_eq!(run(&[""]).failure(), "the prompt is empty");
    assert_eq!(run(&[]).failure(), "the prompt is empty");
    has(&run(&["-f", "."]).failure(), &[". is a folder"]);
    has(&run(&["-f", "none.txt"]).failure(), &["none.txt", "No such file"]);
    has(&run(&[]).stdin(b"ab\xff\xfe").failure(), &["stdin is not UTF-8 text", "byte 2"]);
    run(&["p", "-f", "none.txt"]).usage();
}

#[test]
fn settings_that_do_not_fit_are_one_line() {
    let place = Place::with(Family::Llama);
    for (words, wanted) in [
        (&["-c", "100000"][..], &["100000", "512", "--rope-scaling"][..]),
        (&["--memory-limit", "10k"], &["not enough memory", "or a smaller model", "--memory-limit"]),
        (
            &["--memory-limit", "3000k", "-b", "65536", "-c", "512"],
            &["not enough memory", "; try --n-ctx (-c) ", ", --n-batch (-b) "],
        ),
        (&["--override-kv", "llama.blok_count=int:3"], &["llama.blok_count", "llama.block_count"]),
        (&["--logit-bias", "999999=1"], &["999999"]),
        (&["--override-kv", "llama.block_count=int:0"], &["llama.block_count is 0"]),
        (&["--override-kv", "llama.block_count=int:9"], &["blk.4."]),
        (&["--tokenizer-pre", "nonsense"], &["nonsense"]),
    ] {
        has(
            &place.minfer(&[&["run", "tiny.gguf", "p", "--raw", "-n", "1"], words].concat()).failure(),
            wanted,
        );
    }
}

#[test]
fn learned_positions_are_not_stretched() {
    let place = Place::with(Family::Gpt2);
    let run =
        |words: &[&str]| place.minfer(&[&["run", "tiny.gguf", "p", "--raw", "-n", "1"], words].concat());
    has(&run(&["--rope-scale", "2"]).failure(), &["--rope-scale is 2", "positions", "learned"]);
    has(&run(&["--rope-freq-base", "5e5"]).failure(), &["--rope-freq-base is 500000"]);
    let refusal = run(&["-c", "100000"]).failure();
    has(&refusal, &["its learned positions end there"]);
    assert!(!refusal.contains("--rope"), "{refusal}");
}

#[test]
fn weights_that_are_no_numbers_are_named_as_a_cause() {
    let place = Place::new();
    let mut model = Family::Llama.model();
    let tensor = model.tensors.iter_mut().find(|tensor| tensor.name == "output_norm.weight").expect("a norm");
    tensor.bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    place.write("tiny.gguf", model.to_bytes());
    let refusal = place.minfer(&["run", "tiny.gguf", "p", "--raw"]).failure();
    has(&refusal, &["is NaN", "the file's weights may be damaged"]);
}

#[test]
fn a_file_is_named_once() {
    let place = Place::new();
    let mut model = Family::Llama.model();
    model.set("llama.context_length", "long");
    place.write("bad.gguf", model.to_bytes());
    for words in [&["run", "bad.gguf", "p"][..], &["doctor", "bad.gguf"], &["bench", "bad.gguf"]] {
        let refusal = place.minfer(words).failure();
        assert_eq!(refusal.matches("bad.gguf").count(), 1, "{refusal}");
        has(&refusal, &["llama.context_length", "u32 is needed"]);
    }
    let text = place.minfer(&["show", "bad.gguf"]).stdout();
    assert_eq!(text.matches("bad.gguf").count(), 1, "{text}");
}

#[test]
fn a_context_is_as_long_as_the_stretch_that_is_asked_for() {
    let place = Place::with(Family::Llama);
    let run = |words: &[&str]| {
        place.minfer(&[&["run", "tiny.gguf", "p", "--raw", "-n", "1", "--json"], words].concat())
    };
    let stretch = ["--rope-scaling", "yarn", "--rope-scale", "2"];
    run(&[&["-c", "1024"], &stretch[..]].concat()).json();
    has(&run(&[&["-c", "1025"], &stretch[..]].concat()).failure(), &["1025", "1024"]);
    has(&run(&["-c", "513"]).failure(), &["513", "512", "--rope-scale"]);
    let refusal = run(&["-c", "1025", "--rope-scaling", "linear", "--rope-scale", "2"]).failure();
    assert!(refusal.ends_with("has 1024; longer needs a larger --rope-scale"), "{refusal}");
    let refusal = run(&["-c", "1025", "--rope-scaling", "linear", "--rope-freq-scale", "0.5"]).failure();
    assert!(refusal.ends_with("has 1024; longer needs a smaller --rope-freq-scale"), "{refusal}");
}

#[test]
fn advice_on_a_prompt_that_is_too_long_helps_when_followed() {
    let place = Place::with(Family::Llama);
    place.write("long.txt", "the ".repeat(700));
    place.write("short.txt", "the ".repeat(70));
    let run = |file: &str, words: &[&str]| {
        place.minfer(&[&["run", "tiny.gguf", "-f", file, "--raw", "-n", "1", "--json"], words].concat())
    };
    let refused = |file: &str, words: &[&str], end: &str| {
        let refusal = run(file, words).last_error();
        assert!(refusal.ends_with(end), "{words:?}: {refusal}");
    };
    refused("short.txt", &["-c", "64"], "does not fit the context of 64 tokens; -c gives a larger one");
    refused("short.txt", &["-c", "64", "--session", "a"], "of 64 tokens; -c gives a larger one");
    run("short.txt", &["-c", "300"]).json();
    let own = "; the model's own has 512, a longer one needs --rope-scaling with --rope-scale, and -c";
    refused("long.txt", &[], own);
    refused("long.txt", &["-c", "400"], own);
    refused("long.txt", &["--session", "a"], own);
    let stretch = ["--rope-scaling", "yarn", "--rope-scale"];
    refused("long.txt", &[&stretch[..], &["4"]].concat(), "-c gives a larger one");
    run("long.txt", &[&stretch[..], &["4", "-c", "2048"]].concat()).json();
    refused(
        "long.txt",
        &[&stretch[..], &["1.1"]].concat(),
        "; --rope-scale allows 563, a longer one needs a larger --rope-scale, and -c",
    );
    refused(
        "short.txt",
        &["--kv-memory", "32K"],
        "--kv-memory allows no more, a larger --kv-memory gives more",
    );
    refused("short.txt", &["--override-kv", "llama.context_length=int:1"], &own.replace("512", "1"));
    let learned = Place::with(Family::Gpt2);
    learned.write("long.txt", "the ".repeat(700));
    let refusal = learned.minfer(&["run", "tiny.gguf", "-f", "long.txt", "--raw"]).failure();
    has(&refusal, &["; the model's own has ", ", and its learned positions end there"]);
}

#[test]
fn stop_texts_end_the_answer_before_them() {
    let place = Place::with(Family::Llama);
    let words = ["run", "tiny.gguf", "the", "--raw", "--ignore-eos", "-n", "8", "--temp", "0", "--json"];
    let whole = place.minfer(&words).json()["text"].as_str().unwrap().to_owned();
    let stop: String = whole.chars().skip(3).take(2).collect();
    let cut = place.minfer(&[&words[..], &["--stop", &stop]].concat()).json();
    assert_eq!(cut["text"].as_str().unwrap(), &whole[..whole.find(&stop).unwrap()]);
    assert_eq!((&cut["finish_reason"], &cut["stopped_by"]["stop_string"]), (&"stop".into(), &stop.into()));
}
