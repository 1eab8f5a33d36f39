//! One of anything is no plural.

use minfer_testkit::synthetic::Family;

use crate::place::Place;

/// Words after a lone `1`; units such as `GB/s` are none.
fn after_one(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |pair: &[&str]| {
        (pair[0].trim_start_matches('(') == "1" && !pair[1].contains('/')).then(|| pair[1].to_owned())
    };
    words.windows(2).filter_map(after).collect()
}

#[test]
fn one_of_anything_is_singular() {
    let place = Place::with(Family::Llama);
    std::fs::create_dir(place.path("models")).expect("created");
    for (index, bytes) in Family::Llama.model().to_parts(2).iter().enumerate() {
        place.write(&format!("models/big-{:05}-of-00002.gguf", index + 1), bytes);
    }
    place.write("text.txt", "one thing and another there");
    let one_layer = ["--override-kv", "llama.block_count=int:1"];
    let read = |words: &[&str]| {
        let output = place.minfer(words).output();
        String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
    };
    for (words, wanted) in [
        (&["doctor", "-t", "1"][..], "1 thread,"),
        (&["bench", "tiny.gguf", "-t", "1", "-p", "2", "-n", "1", "-r", "1"], "1 thread,"),
        (&[&["show", "tiny.gguf"], &one_layer[..]].concat(), "1 layer,"),
        (&[&["doctor", "tiny.gguf", "--kv"], &one_layer[..]].concat(), "1 layer,"),
        (&["perplexity", "tiny.gguf", "text.txt", "--window", "3"], "window"),
        (&["list"], "1 more file"),
        (&["run", "tiny.gguf", "a", "--memory-limit", "1"], "1 byte that --memory-limit allows"),
        (&["logprobs", "tiny.gguf", "-c", "2"], "stdin"),
        (&["run", "tiny.gguf", "the", "--raw", "--context-shift", "--keep", "999"], "--keep"),
    ] {
        let text = read(words);
        assert!(text.contains(wanted), "{words:?}: {text}");
        let plural =
            after_one(&text).into_iter().find(|word| word.trim_end_matches([',', ':', ';']).ends_with('s'));
        assert_eq!(plural, None, "{words:?}: {text}");
    }
}
