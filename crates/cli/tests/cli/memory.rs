//! Refusals of memory: which part, the numbers, the flag that would help; nothing is taken.

use minfer_testkit::synthetic::{Family, Value};

use crate::place::{Place, has};

const RUN: [&str; 6] = ["run", "tiny.gguf", "p", "--raw", "-n", "1"];

#[test]
fn each_part_that_does_not_fit_has_its_own_message() {
    let place = Place::with(Family::Llama);
    let words = ["doctor", "tiny.gguf", "--json", "-c", "512", "-t", "1"];
    let parts = place.minfer(&words).json()["model"]["as_set"].clone();
    let bytes = |part: &str| parts[part].as_u64().expect("bytes");
    let mut held = 0;
    let whole = bytes("bytes");
    let alone = format!("--memory-limit {whole} or a smaller model");
    let settings = |n_ctx: u32| format!("--n-ctx (-c) {n_ctx}, --n-batch (-b) 256 or --memory-limit {whole}");
    for (part, name, advice) in [
        ("weight_bytes", "the weights", &alone),
        ("tokenizer_bytes", "the tokenizer", &alone),
        ("workspace_bytes", "the workspace", &settings(384)),
        ("kv_bytes", "the KV cache", &settings(448)),
    ] {
        let needed = bytes(part);
        let most = held + needed - 1;
        let limit = most.to_string();
        let refused =
            place.minfer(&[&RUN[..], &["-c", "512", "-t", "1", "--memory-limit", &limit]].concat()).failure();
        assert_eq!(
            refused,
            format!(
                "not enough memory: {name} would take {needed} bytes; {held} of the {most} bytes that \
                 --memory-limit allows are in use or promised; try {advice}"
            )
        );
        held += needed;
    }
    assert_eq!(bytes("bytes"), held);
    let limit = held.to_string();
    place.minfer(&[&RUN[..], &["-c", "512", "-t", "1", "--memory-limit", &limit]].concat()).stdout();
    assert_eq!(
        place.minfer(&[&RUN[..], &["-c", "512", "--kv-memory", "200k"]].concat()).failure(),
        "not enough memory for the KV cache: 512 positions take 262144 bytes, --kv-memory allows 204800; try \
         --kv-memory 262144 or --n-ctx (-c) 384"
    );
    // Less than one block: what works is named, with the context that it allows where another was
    // asked for.
    let small = |flags: &[&str]| place.minfer(&[&RUN[..], &["--kv-memory", "20k"], flags].concat());
    has(
        &small(&[]).failure(),
        &["64 positions take 32768 bytes, --kv-memory allows 20480; try --kv-memory 32768"],
    );
    has(
        &small(&["-c", "512"]).failure(),
        &["try --kv-memory 262144 or --kv-memory 32768 with --n-ctx (-c) 64"],
    );
    let (_, notes) = place.minfer(&[&RUN[..], &["--kv-memory", "200k"]].concat()).both();
    has(&notes, &["--kv-memory allows a context of 384 positions, not 512; a larger --kv-memory gives more"]);
}

#[test]
fn a_coarse_cache_is_warned_of_and_one_that_cannot_store_the_heads_is_refused() {
    let place = Place::with(Family::Gemma3);
    let coarse = |flags: &[&str]| place.minfer(&[&RUN[..], flags].concat()).both().1;
    let warning = "warning: q4_0 is coarse for K: it changes what some models say by much; --cache-type-k q8_0 does not";
    has(&coarse(&["--cache-type", "q4_0"]), &[warning]);
    has(&coarse(&["--cache-type-k", "q4_0"]), &[warning]);
    for flags in [["--cache-type-v", "q4_0"], ["--cache-type", "q8_0"]] {
        assert!(!coarse(&flags).contains("warning"), "{flags:?}");
    }
    let place = Place::with(Family::LlamaOdd);
    for (flag, side) in [("--cache-type", "K"), ("--cache-type-v", "V")] {
        assert_eq!(
            place.minfer(&[&RUN[..], &[flag, "q8_0"]].concat()).failure(),
            format!(
                "q8_0 KV rows are blocks of 32 dims, which do not divide a {side} head of 24 dims; choose f32, f16 or bf16"
            )
        );
    }
}

/// In a process that may have 1.5 GiB of addresses, a cache of 1 GiB is refused by the account
/// before anything is reserved.
#[cfg(target_os = "linux")]
#[test]
fn what_the_account_refuses_is_not_asked_of_the_system() {
    let place = Place::with(Family::Llama);
    let run = |flags: &str| {
        let line = format!(
            "ulimit -v 1600000; exec \"$0\" run tiny.gguf p --raw -n 1 -t 1 -c 2097152 --rope-scaling linear \
             --rope-scale 4096 {flags}"
        );
        place.program("sh").arguments(&["-c", &line, env!("CARGO_BIN_EXE_minfer")])
    };
    has(&run("--memory-limit 1000M").failure(), &["the KV cache would take 1073741824 bytes"]);
    has(&run("--kv-memory 1000M").failure(), &["--kv-memory allows 1048576000"]);
    has(
        &run("").failure(),
        &[
            "the KV cache would take 1073741824 bytes",
            "bytes of addresses that the limit of this process (ulimit -v) allows",
        ],
    );
}

/// Whatever the limit of addresses is: an answer, or one line that says what is missing and what
/// limit is enough.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_addresses_is_a_limit_of_memory() {
    let place = Place::with(Family::Llama);
    let run = |kilobytes: u64, threads: &str| {
        let line = format!(
            "ulimit -v {kilobytes}; exec \"$0\" run tiny.gguf p -n 1 -t {threads} -c 512 --chat-template chatml"
        );
        place.program("sh").arguments(&["-c", &line, env!("CARGO_BIN_EXE_minfer")])
    };
    for threads in ["1", "2"] {
        for kilobytes in [200_000, 400_000, 600_000] {
            let refusal = run(kilobytes, threads).failure();
            let numbers = format!("of the {} bytes of addresses", kilobytes * 1024);
            has(
                &refusal,
                &["not enough memory: the weights would take ", &numbers, "which leaves 0; try `ulimit -v "],
            );
            let (_, advice) = refusal.split_once("`ulimit -v ").expect("a limit");
            let enough: u64 = advice.split('`').next().and_then(|text| text.parse().ok()).expect("a number");
            run(enough, threads).stdout();
            has(&run(enough - 16_000, threads).failure(), &["not enough memory: "]);
        }
    }
    let note = "ulimit -v 800000; exec \"$0\" run tiny.gguf p -n 1 --raw -t 1 --override-kv llama.context_length=int:2097152";
    let run = place.program("sh").arguments(&["-c", note, env!("CARGO_BIN_EXE_minfer")]);
    let (_, note) = run.both();
    has(
        &note,
        &["note: the limit of addresses (ulimit -v) allows a context of ", "; a larger limit gives more"],
    );
    assert!(!note.contains("--memory-limit"), "{note}");
}

/// An array of many elements is written as it is read.
#[cfg(target_os = "linux")]
#[test]
fn a_long_array_of_metadata_takes_no_memory_to_show() {
    let place = Place::new();
    let mut model = Family::Llama.model();
    let count = 2_000_000;
    model.set("some.long.list", Value::Texts(vec![String::new(); count]));
    place.write("tiny.gguf", model.to_bytes());
    let line = "ulimit -v 200000; exec \"$0\" show tiny.gguf --json";
    let shown = place.program("sh").arguments(&["-c", line, env!("CARGO_BIN_EXE_minfer")]).json();
    assert_eq!(shown["metadata"]["some.long.list"].as_array().expect("a list").len(), count);
}

#[test]
fn the_unit_of_the_caches_memory_can_be_chosen() {
    let place = Place::with(Family::Llama);
    let run = |granule| place.minfer(&[&RUN[..], &["--temp", "0", "--kv-granule", granule]].concat());
    let answer = run("page").stdout();
    for granule in ["64k", "2M", "8M"] {
        assert_eq!(run(granule).stdout(), answer, "{granule}");
    }
    for granule in ["0", "1", "1k", "5000", "96k", "2G", "-4k", "1e6", "some", ""] {
        let equals = format!("--kv-granule={granule}");
        let refused = place.minfer(&[&RUN[..], &[equals.as_str()]].concat()).usage();
        has(&refused, &["--kv-granule", "page, huge or a power of two from 4k to 1G is needed"]);
    }
    let doctor = |granule| {
        let report = place.minfer(&["doctor", "tiny.gguf", "--kv", "--json", "--kv-granule", granule]).json();
        ["granule", "reserved_bytes"].map(|part| report[part].as_u64().expect("bytes"))
    };
    assert_eq!(doctor("64k"), [65536, 512 * 512]);
    assert_eq!(doctor("2M"), [2 << 20, 2 << 20], "whole granules");
    has(&run("2M").arguments(&["--kv-memory", "1M"]).failure(), &["take 2097152 bytes", "allows 1048576"]);
}
