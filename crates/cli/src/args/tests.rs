//! Command lines, read in process.

use std::ffi::OsString;

use super::{Command, definition, parse};

fn command(words: &str) -> Result<(Command, Vec<String>), clap::Error> {
    let words = std::iter::once("minfer").chain(words.split(' ')).map(OsString::from);
    parse(words).map(|parsed| (parsed.command, parsed.notes))
}

fn error(words: &str) -> String {
    let error = command(words).expect_err(words);
    assert_eq!(error.exit_code(), 2, "{words}: {error}");
    error.to_string()
}

#[test]
fn the_definition_is_sound() {
    definition().debug_assert();
}

#[test]
fn a_model_alone_is_run() {
    for words in
        ["smollm2 hello -n 3", "-n 3 smollm2 hello", "-n=3 smollm2 -- hello", "run smollm2 hello -n3"]
    {
        let Ok((Command::Run(run), _)) = command(words) else { panic!("{words}") };
        assert_eq!(
            (run.model.to_str(), run.prompt.as_deref(), run.answer.n_predict),
            (Some("smollm2"), Some("hello"), Some(3)),
            "{words}"
        );
    }
}

#[test]
fn flags_have_the_spelling_of_llama_cpp() {
    let words = "run m p -ctk f32 -ctv=bf16 -temp 0.5 -top-k=3 -sys s --ctx-size 64 --batch-size 8 --max-tokens 4 -s 5";
    let Ok((Command::Run(run), _)) = command(words) else { panic!("{words}") };
    let context = &run.answer.context;
    let formats =
        [context.cache_type_k, context.cache_type_v].map(|format| format.map(|format| format.name()));
    assert_eq!(formats, [Some("f32"), Some("bf16")]);
    assert_eq!((context.n_ctx, context.n_batch, run.answer.n_predict), (64, 8, Some(4)));
    let params = run.answer.sampling.params();
    assert_eq!((params.temperature, params.top_k, run.answer.sampling.seed()), (0.5, 3, Some(5)));
    assert_eq!(run.answer.system.as_deref(), Some("s"));
}

#[test]
fn wrong_command_lines_are_usage_errors() {
    for (words, wanted) in [
        // Values out of their list or range.
        ("run m --isa sse", "[possible values: auto, scalar, avx2, avx512]"),
        ("run m --cache-type q2", "[possible values: f32, f16, bf16, q8_0, q4_0]"),
        ("run m -ctk q2", "invalid value 'q2' for '--cache-type-k <TYPE>'"),
        ("run m --kv-layout row", "[possible values: lane-major, head-major, seq-major]"),
        ("run m --rope-scaling ntk", "[possible values: none, linear, yarn]"),
        ("run m --samplers luck", "penalties, top_k, top_p, min_p, temperature"),
        ("run m --samplers top_k;top_p;top_k", "--samplers lists top_k twice"),
        ("run m --threads 0", "0 is not in 1..=1024"),
        ("run m --memory-limit lots", "800M"),
        ("run m --kv-granule 96k", "page, huge or a power of two from 4k to 1G is needed"),
        ("run m --temp -1", "a number from 0 on is needed"),
        ("run m --temp 1e39", "none beyond 3.4028235e38"),
        ("run m --top-p 2", "a number from 0 to 1 is needed"),
        ("run m --repeat-penalty 0", "a number above 0 is needed"),
        ("run m --presence-penalty nan", "a number is needed"),
        ("run m --repeat-last-n -2", "-2 is not in -1..="),
        ("run m --top-k 1.5", "invalid value '1.5' for '--top-k <N>'"),
        ("run m --seed -2", "or -1 is needed"),
        ("run m --logit-bias 15=inf", "a bias of inf has no meaning"),
        ("run m -n -2", "-2 is not in -1..="),
        ("run m -n 99999999999999999999", "invalid value"),
        ("run m -c 1", "0 or a number from 2"),
        ("run m --rope-scale 0", "a number above 0 and at most 1000000 is needed"),
        ("run m --rope-freq-base 0", "a number above 1 and at most"),
        ("run m --yarn-attn-factor 1e4", "at most 1000"),
        ("run m --yarn-ext-factor 2", "a number from 0 to 1"),
        ("run m --yarn-orig-ctx 0", "0 is not in 1..="),
        ("run m --chat-template-kwargs [1]", "a JSON object is needed"),
        ("run m --chat-template-kwargs {\"tools\":[]}", "\"tools\" comes from the conversation"),
        ("run m --override-kv a", "KEY=TYPE:VAL"),
        ("bench m -p 4294967295", "4294967295 is not in"),
        ("detokenize m 5 -1", "-1 is not in 0..="),
        // Flags that are not there.
        ("list --jsn", "a similar argument exists: '--json'"),
        ("run m -tmp 1", "a similar argument exists: '--temp'"),
        ("run m -top_k 1", "a similar argument exists: '--top-k'"),
        ("run m -xyz", "unexpected argument '--xyz' found"),
        ("run m -ngl 99", "no such flag: -ngl; the processor computes everything"),
        ("run m --n-gpu-layers 99", "no such flag: --n-gpu-layers; the processor"),
        ("run m -fa on", "no such flag: -fa; there is one way to compute attention"),
        ("run m -hf a/b", "no such flag: -hf; `minfer pull NAME`"),
        ("run m -cnv", "no such flag: -cnv; `minfer chat MODEL`"),
        ("run m -m x", "no such flag: -m; the model is the first word"),
        ("run -m x", "no such flag: -m; the model is the first word"),
        ("bench m -fa on", "no such flag: -fa"),
        // Flags that cannot be together.
        ("run m p -f x", "cannot be used with"),
        ("run m p --raw --system s", "'--raw' cannot be used with"),
        ("run m p --raw --chat-template-kwargs {}", "'--raw' cannot be used with"),
        ("run m --rope-scale 2 --rope-freq-scale 0.5", "cannot be used with"),
        ("tokenize m text --jsonl", "cannot be used with"),
        ("detokenize m 1 --jsonl", "cannot be used with"),
        ("show m --graph dot --json", "cannot be used with"),
        ("doctor m --knobs", "cannot be used with"),
        ("doctor --kv", "required"),
        ("show m --layer 1", "required"),
        ("serve m --tls-cert x", "required"),
        ("serve", "required"),
        ("serve m -np 0", "0 is not in 1..=256"),
        ("serve m --port 65536", "65536 is not in 0..=65535"),
        // Flags without effect.
        ("run m --keep 4", "--keep has no effect without --context-shift"),
        ("chat m --keep 4", "Usage: minfer chat"),
        ("run m --cache-type f32 -ctk f16 -ctv f16", "--cache-type has no effect beside --cache-type-k"),
        ("doctor -c 2048", "--n-ctx has no effect without MODEL"),
        ("doctor --context-shift", "--context-shift has no effect without MODEL"),
        ("doctor --knobs -t 1", "cannot be used with"),
        ("doctor m --kv -b 8", "cannot be used with"),
        // Commands.
        ("-t 2 bench m", "flags come after the command: minfer bench ..."),
        ("lst --json", "no command `lst`, did you mean `list`? No model has that name"),
        ("benhc smollm2 -p 8 -n 1", "did you mean `bench`?"),
        ("-t 2 benhc smollm2", "did you mean `bench`?"),
        ("quantize x.gguf --port 8080", "no command `quantize`, and no model of that name"),
        ("run m hi there", "unexpected argument 'there' found"),
        ("completions bsh", "[possible values: bash, elvish, fish, powershell, zsh]"),
    ] {
        let text = error(words);
        assert!(text.contains(wanted), "{words}: {text}");
        assert!(text.contains("Usage: minfer ") || text.contains("For more information"), "{words}: {text}");
    }
}

#[test]
fn flags_without_effect_that_people_pass_by_habit_give_a_note() {
    let stage = "has no effect since its stage is not in --samplers";
    let penalty = "has no effect without --repeat-penalty, --presence-penalty or --frequency-penalty";
    for (flags, note) in [
        ("--repeat-last-n 32", format!("--repeat-last-n {penalty}")),
        ("--samplers top_k;temperature --top-p 0.9", format!("--top-p {stage}")),
        ("--samplers top_k --temp 0.5", format!("--temp {stage}")),
    ] {
        assert_eq!(command(&format!("run m p {flags}")).expect(flags).1, [note]);
    }
    for flags in [
        "--repeat-last-n 32 --repeat-penalty 1.1",
        "--samplers top_k --temp 0",
        "--temp 0 --top-k 3 --seed 4",
        "--keep 4 --context-shift",
        "--cache-type f32 -ctk f16",
    ] {
        assert_eq!(command(&format!("run m p {flags}")).expect(flags).1, [""; 0], "{flags}");
    }
    for words in ["doctor -t 1 --memory-limit 1G", "doctor m -c 64", "ls", "rm x", "download smollm2"] {
        assert!(command(words).is_ok(), "{words}");
    }
}
