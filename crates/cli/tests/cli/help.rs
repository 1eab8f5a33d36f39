//! Help of every command, as snapshots.

use crate::place::Place;

#[test]
fn every_help_is_as_recorded() {
    let place = Place::new();
    let commands = [
        "",
        "run",
        "chat",
        "serve",
        "pull",
        "list",
        "rm",
        "show",
        "tokenize",
        "detokenize",
        "logprobs",
        "perplexity",
        "bench",
        "doctor",
        "completions",
    ];
    for command in commands {
        let words: Vec<_> = [command, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
        // Values of variables must not show.
        let help = place.minfer(&words).env("MINFER_TEMP", "0.125").stdout();
        assert!(!help.contains("0.125"), "{help}");
        let lines: Vec<_> = help.lines().map(str::trim_end).collect();
        let name = if command.is_empty() { "minfer" } else { command };
        insta::assert_snapshot!(format!("help_{name}"), lines.join("\n"));
    }
}

#[test]
fn help_is_found_in_each_of_its_ways() {
    let place = Place::new();
    let whole = place.minfer(&["--help"]).stdout();
    assert_eq!(place.minfer(&["help"]).stdout(), whole);
    assert_eq!(place.minfer(&["-h"]).stdout(), whole);
    assert_eq!(place.minfer(&["help", "--help"]).stdout(), whole);
    assert_eq!(place.minfer(&["help", "run", "-h"]).stdout(), place.minfer(&["help", "run"]).stdout());
    assert_eq!(place.minfer(&["help", "run"]).stdout(), place.minfer(&["run", "--help"]).stdout());
    assert!(place.minfer(&[]).usage().contains("Usage: minfer"));
    assert!(place.minfer(&["--version"]).stdout().starts_with("minfer "));
}

#[test]
fn completions_of_every_shell() {
    let place = Place::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(place.minfer(&["completions", shell]).stdout().contains("perplexity"), "{shell}");
    }
    assert!(place.minfer(&["completions", "bsh"]).usage().contains("bash"));
}
