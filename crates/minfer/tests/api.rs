//! The facade: models, chats, completions, conversations and errors.

#[path = "common/chat_model.rs"]
mod common;

use std::error::Error as _;
use std::fs;
use std::time::{Duration, Instant};

use common::{ENDLESS, TEMPLATE, X, builder, chat_file, long_builder};
use minfer::engine::{Event, Request, SamplingParams};
use minfer::text::{EncodeOptions, Message, RenderInput, encode_chat};
use minfer::{
    Chat, Conversation, Error, ErrorKind, FinishReason, LoadOptions, Loaded, Machine, MachineOptions, Model,
    ModelBuilder, ModelFile, Setting,
};
use minfer_testkit::fetched;
use minfer_testkit::synthetic::Family;

/// The text that the engine gives for a chat of one message, with nothing of the facade.
fn by_hand(file: &ModelFile, question: &str, tokens: u32, seed: u64) -> String {
    let machine = Machine::new(&MachineOptions { threads: Some(2), ..MachineOptions::default() }).unwrap();
    let mut loaded = Loaded::new(&machine, file, &LoadOptions::default()).unwrap();
    let template = loaded.template.take().expect("a chat template");
    let input = RenderInput {
        messages: vec![Message::new("user", question)],
        add_generation_prompt: true,
        ..RenderInput::default()
    };
    let prompt = encode_chat(&loaded.tokenizer, &template, &input).unwrap();
    let request =
        Request { max_tokens: Some(tokens), seed: Some(seed), ignore_eos: true, ..Request::new(prompt) };
    read(loaded.into_engine().unwrap().submit(request).unwrap().1)
}

fn read(events: impl Iterator<Item = Event>) -> String {
    let mut text = String::new();
    for event in events {
        match event {
            Event::Token(token) => text.push_str(&token.text),
            Event::Finished(finished) => text.push_str(&finished.tail),
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    text
}

fn ask(model: &Model, question: &str) -> Chat {
    model.chat().user(question).max_tokens(24).seed(5).ignore_eos(true)
}

#[test]
fn a_chat_gives_the_text_of_the_engine() {
    let expected = by_hand(&chat_file(), "hello", 24, 5);
    let model = builder().load().unwrap();
    let chat = ask(&model, "hello");
    assert_eq!(chat.text().unwrap(), expected);
    assert_eq!(chat.text().unwrap(), expected, "a chat can be asked again");
    let chunks: Vec<_> = chat.stream().unwrap().map(Result::unwrap).collect();
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!(chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>(), expected);
    assert!(others.iter().all(|chunk| chunk.finish.is_none() && !chunk.text.is_empty()));
    let finish = last.finish.as_ref().unwrap();
    let prompt = chat.prompt_tokens().unwrap().len();
    assert_eq!((finish.usage.prompt as usize, finish.usage.completion, finish.seed), (prompt, 24, 5));
    assert_eq!(finish.reason, FinishReason::Length);
}

#[test]
fn a_completion_gives_the_text_of_the_engine() {
    let model = builder().load().unwrap();
    let options = EncodeOptions { add_special: true, parse_special: true };
    let prompt = model.tokenizer().encode("the rain in <|eos|> Spain", options).unwrap();
    let sampling = SamplingParams { temperature: 1.5, top_k: 9, ..SamplingParams::default() };
    let request =
        Request { max_tokens: Some(20), seed: Some(3), sampling: sampling.clone(), ..Request::new(prompt) };
    let expected = read(model.engine().submit(request).unwrap().1);
    let completion = model.complete("the rain in <|eos|> Spain").max_tokens(20).seed(3);
    assert_eq!(completion.clone().temperature(1.5).top_k(9).text().unwrap(), expected);
    assert_eq!(completion.clone().sampling(sampling).text().unwrap(), expected);
    let plain = completion.parse_special(false).prompt_tokens().unwrap();
    assert!(plain.len() > model.tokenizer().encode("the rain in <|eos|> Spain", options).unwrap().len());
}

#[test]
fn clones_in_four_threads_give_the_answers_that_each_gives_alone() {
    let model = builder().load().unwrap();
    let questions: Vec<String> =
        (0..4).map(|number| format!("question {number} {}", "and ".repeat(number * 9))).collect();
    let alone: Vec<String> = questions.iter().map(|text| ask(&model, text).text().unwrap()).collect();
    let start = std::sync::Barrier::new(4);
    let together: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = questions
            .iter()
            .map(|text| {
                let (model, start) = (model.clone(), &start);
                scope.spawn(move || {
                    start.wait();
                    (0..3).map(|_| ask(&model, text).text().unwrap()).next_back().unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(together, alone);
}

#[test]
fn requests_that_are_started_together_share_steps() {
    let model = builder().load().unwrap();
    let steps = |model: &Model| model.stats().steps;
    let chats: Vec<Chat> = ["a", "b", "c", "d"].map(|text| ask(&model, text).max_tokens(1500)).into();
    let before = steps(&model);
    let alone: Vec<String> = chats.iter().map(|chat| chat.text().unwrap()).collect();
    let one_by_one = steps(&model) - before;
    let started: Vec<_> = chats.iter().map(|chat| chat.stream().unwrap()).collect();
    let together: Vec<String> = started.into_iter().map(|chunks| chunks.answer().unwrap().text).collect();
    assert_eq!(together, alone);
    let at_once = steps(&model) - before - one_by_one;
    assert!(at_once * 2 < one_by_one, "{at_once} of {one_by_one} steps");
}

/// Waits until nothing runs and no live block is left.
fn until_idle(model: &Model) {
    let start = Instant::now();
    while model.stats().running + model.stats().waiting + model.stats().kv.blocks_live > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", model.stats());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_dropped_stream_frees_its_blocks() {
    let model = long_builder().load().unwrap();
    let mut chunks = ask(&model, "hello").max_tokens(ENDLESS).stream().unwrap();
    chunks.next().unwrap().unwrap();
    // Counts are public after the step whose tokens the client has.
    let start = Instant::now();
    while model.stats().kv.blocks_live == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", model.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(chunks);
    until_idle(&model);
    assert_eq!((model.stats().cancelled, model.stats().finished), (1, 0));
}

#[test]
fn a_cancelled_request_says_so() {
    let model = long_builder().load().unwrap();
    let mut chunks = ask(&model, "hello").max_tokens(ENDLESS).stream().unwrap();
    chunks.next().unwrap().unwrap();
    let handle = chunks.cancel_handle();
    std::thread::spawn(move || handle.cancel()).join().unwrap();
    let error = chunks.by_ref().find_map(Result::err).expect("an error");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(chunks.next().is_none());
    until_idle(&model);
}

#[test]
fn the_engine_lives_as_long_as_a_stream() {
    let mut chunks = ask(&builder().load().unwrap(), "hello").stream().unwrap();
    let handle = chunks.cancel_handle();
    assert!(chunks.by_ref().all(|chunk| chunk.is_ok()));
    drop(chunks);
    handle.cancel();
}

/// A conversation whose answers are a run of `x`, which is encoded as it was generated.
fn conversation(model: &Model) -> Conversation {
    model.conversation().system("be brief").logit_bias(X, 1e6).max_tokens(8)
}

#[test]
fn a_turn_feeds_only_what_is_new() {
    let model = builder().load().unwrap();
    let mut talk = conversation(&model);
    let first = talk.say("one").unwrap();
    assert_eq!((first.text.as_str(), first.finish.usage.cached), ("xxxxxxxx", 0));
    let second = talk.say("two").unwrap();
    let usage = second.finish.usage;
    // The last token of an answer is not fed.
    assert_eq!(usage.cached, first.finish.usage.prompt + 7, "{usage:?}");
    let roles: Vec<&str> = talk.messages().iter().map(|message| message.role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    drop(talk);
    until_idle(&model);
}

#[test]
fn a_conversation_goes_on_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.session");
    let model = builder().load().unwrap();
    let mut talk = conversation(&model).seed(4);
    let first = talk.say("one").unwrap();
    let saved = talk.save(&path).unwrap();
    assert_eq!(saved, fs::metadata(&path).unwrap().len());
    let second = talk.say("two").unwrap();
    let elsewhere = builder().threads(1).load().unwrap();
    let mut other = elsewhere.load_conversation(&path).unwrap().logit_bias(X, 1e6).max_tokens(8).seed(4);
    assert_eq!(other.messages(), &talk.messages()[..3]);
    let again = other.say("two").unwrap();
    assert_eq!((&again.text, again.finish.usage), (&second.text, second.finish.usage));
    assert_eq!(again.finish.seed, second.finish.seed, "draws go on");
    assert_eq!(again.finish.usage.cached, first.finish.usage.prompt + 7);
}

#[test]
fn a_turn_that_fails_was_not_said() {
    let model = builder().load().unwrap();
    let mut talk = conversation(&model);
    talk.say("one").unwrap();
    let before = talk.messages().to_vec();
    let error = talk.say("long ".repeat(3000)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PromptTooLong { context_tokens: 2048, .. }), "{error:?}");
    assert_eq!(talk.messages(), before);
    let error = talk.say("raise").unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Template, "not this word"));
    assert_eq!(talk.messages(), before);
    assert!(talk.say("two").unwrap().finish.usage.cached > 0, "rows are still there");
}

#[test]
fn a_stream_that_is_dropped_leaves_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let model = builder().load().unwrap();
    let mut talk = conversation(&model).max_tokens(1900);
    let mut chunks = talk.stream("one").unwrap();
    let read = [chunks.next().unwrap().unwrap().text, chunks.next().unwrap().unwrap().text].concat();
    drop(chunks);
    assert_eq!(talk.messages().last().unwrap(), &Message::new("assistant", read));
    // The request was cancelled before, so the session is not in use.
    talk.save(folder.path().join("talk.session")).unwrap();
    drop(talk.stream("two").unwrap());
    assert_eq!(talk.messages().len(), 3, "nothing was read, so nothing was said");
    let handle = {
        let mut chunks = talk.stream("three").unwrap();
        let handle = chunks.cancel_handle();
        chunks.next().unwrap().unwrap();
        handle.cancel();
        assert_eq!(chunks.find_map(Result::err).unwrap().kind(), ErrorKind::Cancelled);
        handle
    };
    assert_eq!(talk.messages().len(), 5, "a cancelled answer is kept as far as it was read");
    handle.cancel();
}

#[test]
fn answers_are_replaced_and_taken_back() {
    let model = builder().load().unwrap();
    let mut talk = model.conversation().max_tokens(8).temperature(2.0).top_k(0).seed(1);
    assert_eq!(talk.regenerate().unwrap_err().kind(), ErrorKind::InvalidParameter);
    let first = talk.say("one").unwrap();
    let other = talk.regenerate().unwrap();
    assert_ne!(first.text, other.text, "other draws");
    assert_eq!(talk.messages()[1], Message::new("assistant", other.text.as_str()));
    talk = talk.temperature(f32::NAN);
    assert_eq!(talk.regenerate().unwrap_err().kind(), ErrorKind::InvalidParameter);
    assert_eq!(talk.messages()[1], Message::new("assistant", other.text), "the answer is back");
    assert!(talk.undo());
    assert!(talk.messages().is_empty() && !talk.undo());
}

fn kind_of_load(builder: ModelBuilder) -> (ErrorKind, String) {
    let error = builder.load().expect_err("a refusal");
    (error.kind(), error.to_string())
}

#[test]
fn errors_of_loading_have_kinds_and_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.gguf");
    let error = Model::open(&missing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ModelNotFound);
    let cause = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::NotFound), "{error:?}");
    assert!(error.get_ref().is_some_and(|error| error.is::<minfer::LoadError>()));

    let damaged = folder.path().join("damaged.gguf");
    fs::write(&damaged, b"GGUF\x03\0\0\0garbage").unwrap();
    assert_eq!(Model::open(&damaged).unwrap_err().kind(), ErrorKind::ModelUnreadable);

    let mut foreign = Family::Llama.model();
    foreign.set("general.architecture", "nonesuch");
    let foreign = ModelFile::from_bytes(foreign.to_bytes()).unwrap();
    assert_eq!(kind_of_load(ModelBuilder::from_file(foreign)).0, ErrorKind::ModelUnsupported);

    let error = builder().memory_limit(100_000).load().unwrap_err();
    let (kind, message) = (error.kind(), error.to_string());
    let ErrorKind::OutOfMemory { needed, available, .. } = kind else { panic!("{kind:?}: {message}") };
    assert!(available <= 100_000 && needed > available, "{message}");
    assert!(message.contains(&needed.to_string()), "{message}");
    let Some(&[Setting::MemoryLimit(enough)]) = error.suggestions().last().map(Vec::as_slice) else {
        panic!("{message}: {:?}", error.suggestions())
    };
    assert!(message.ends_with(&format!("memory_limit({enough})")), "{message}");
    assert!(builder().memory_limit(enough).load().is_ok());

    for (builder, word) in [
        (builder().context(1 << 20), "context"),
        (builder().parallel(0), "`parallel`"),
        (builder().batch(0), "`batch`"),
        (builder().chat_template_name("nonesuch"), "nonesuch"),
    ] {
        let (kind, message) = kind_of_load(builder);
        assert_eq!(kind, ErrorKind::InvalidParameter, "{message}");
        assert!(message.contains(word) && !message.contains("n_"), "{message}");
    }
    assert_eq!(kind_of_load(builder().chat_template("{% if %}")).0, ErrorKind::Template);
}

#[test]
fn errors_of_requests_have_kinds_and_numbers() {
    let model = builder().context(64).load().unwrap();
    let kind = |result: Result<String, Error>| result.expect_err("a refusal").kind();
    let prompt = model.count_tokens(&"long ".repeat(30)).unwrap();
    let error = model.complete("long ".repeat(30)).text().unwrap_err();
    let ErrorKind::PromptTooLong { prompt_tokens, context_tokens, .. } = error.kind() else {
        panic!("{error:?}")
    };
    assert_eq!((prompt_tokens, context_tokens), (prompt, 64));
    assert_eq!(kind(model.complete("a").temperature(-1.0).text()), ErrorKind::InvalidParameter);
    assert_eq!(kind(model.complete("a").stop("").text()), ErrorKind::InvalidParameter);
    assert_eq!(kind(model.complete("").text()), ErrorKind::InvalidParameter);
    assert_eq!(kind(model.chat().user("raise").text()), ErrorKind::Template);

    let bare = ModelBuilder::from_file(ModelFile::from_bytes(Family::Llama.model().to_bytes()).unwrap());
    let bare = bare.load().unwrap();
    let error = bare.chat().user("a").text().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Template);
    assert!(error.to_string().contains("`chat_template`"), "{error}");
    assert!(bare.chat_template().is_none() && bare.complete("a").max_tokens(1).text().is_ok());
}

#[test]
fn errors_of_sessions_have_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let model = builder().load().unwrap();
    let foreign = folder.path().join("foreign");
    fs::write(&foreign, "no session").unwrap();
    let error = model.load_conversation(&foreign).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Session);
    assert!(error.to_string().contains("foreign"), "{error}");
    let missing = model.load_conversation(folder.path().join("none")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Io);
    let mut talk = conversation(&model);
    talk.say("one").unwrap();
    assert_eq!(talk.save(folder.path().join("no/folder")).unwrap_err().kind(), ErrorKind::Io);
    let path = folder.path().join("talk.session");
    talk.save(&path).unwrap();
    let other = builder().chat_template(format!("{TEMPLATE} ")).load().unwrap();
    assert_eq!(other.load_conversation(&path).unwrap_err().kind(), ErrorKind::Session);
    // Saved by a program that keeps other things beside the rows.
    let session = model.engine().open_session().unwrap();
    model.engine().save_session(session, &path, b"mine".to_vec()).unwrap();
    assert_eq!(model.load_conversation(&path).unwrap_err().kind(), ErrorKind::Session);
}

#[test]
fn models_on_one_machine_share_its_memory() {
    let first = builder().load().unwrap();
    let held = |model: &Model| model.machine().budget().held().total();
    let one = held(&first);
    let second = builder().machine(first.machine()).load().unwrap();
    assert_eq!((held(&first), held(&second)), (2 * one, 2 * one));
    drop(second);
    assert_eq!(held(&first), one);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn a_real_model_answers_as_the_engine_does() {
    let path = fetched::model("smollm2-135m-instruct-q4_1.gguf");
    let expected = by_hand(&ModelFile::open(&path).unwrap(), "Why is the sky blue?", 24, 5);
    let model = Model::builder(&path).context(1024).threads(2).load().unwrap();
    assert_eq!(ask(&model, "Why is the sky blue?").text().unwrap(), expected);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.session");
    let mut talk = model.conversation().system("Be brief.").temperature(0.0).max_tokens(24);
    let first = talk.say("Name a colour.").unwrap();
    talk.save(&file).unwrap();
    let second = talk.say("Another one.").unwrap();
    let known = first.finish.usage.prompt + first.finish.usage.completion;
    println!("first {:?}, second {:?}", first.finish.usage, second.finish.usage);
    assert!(second.finish.usage.cached + 2 >= known, "only the end of the turn and what follows is fed");
    let mut other = model.load_conversation(&file).unwrap().temperature(0.0).max_tokens(24);
    let again = other.say("Another one.").unwrap();
    assert_eq!((again.text, again.finish.usage.cached), (second.text, second.finish.usage.cached));
}
