//! Several models behind one server.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::{Place, Settings, Stream, served, until};
use minfer_server::{LoadFault, Source};
use serde_json::{Value, json};

/// A model that counts its loads; where `room` says so there is no memory for it.
fn source(
    name: &str,
    loads: &Arc<Mutex<Vec<String>>>,
    fault: impl Fn() -> Option<bool> + Send + Sync + 'static,
) -> Source {
    let (served_as, loads) = (name.to_owned(), Arc::clone(loads));
    let load = move || match fault() {
        Some(wants_memory) => Err(LoadFault { message: "no room".to_owned(), wants_memory }),
        None => {
            loads.lock().expect("no panic").push(served_as.clone());
            let mut model = served(2, 8, 1 << 16, None);
            model.name = served_as.clone();
            Ok(model)
        }
    };
    Source { name: name.to_owned(), load: Box::new(load) }
}

fn ask(place: &Place, model: Option<&str>) -> (u16, Value) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3});
    let response = place.post("/v1/chat/completions", &body);
    (response.status, response.json())
}

#[test]
fn models_are_loaded_when_they_are_named() {
    let loads = Arc::default();
    let place = Place::serving(
        Settings::default(),
        vec![
            source("first", &loads, || None),
            source("second", &loads, || None),
            source("broken", &loads, || Some(false)),
        ],
    );
    let listed = place.get("/v1/models").json();
    let names: Vec<&str> = listed["data"]
        .as_array()
        .expect("models")
        .iter()
        .map(|model| model["id"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["first", "second", "broken"]);
    assert_eq!(*loads.lock().unwrap(), ["first"]);
    for (asked, answered) in [
        (None, "first"),
        (Some("second"), "second"),
        (Some("first"), "first"),
        (Some("second:latest"), "second"),
    ] {
        assert_eq!(ask(&place, asked).1["model"], answered);
    }
    assert_eq!(*loads.lock().unwrap(), ["first", "second"], "each once");
    let (status, error) = ask(&place, Some("third"));
    assert_eq!((status, &error["error"]["param"]), (404, &json!("model")));
    assert!(error["error"]["message"].as_str().is_some_and(|text| text.contains("first, second, broken")));
    let (status, error) = ask(&place, Some("broken"));
    assert_eq!((status, &error["error"]["message"]), (503, &json!("no room")));
    assert_eq!(ask(&place, Some("first")).0, 200, "a model that cannot be loaded unloads no other");
    assert_eq!(*loads.lock().unwrap(), ["first", "second"]);
}

#[test]
fn idle_models_make_room_and_busy_ones_stay() {
    let (loads, loaded) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicUsize::new(0)));
    // Each load after the second is refused once for want of memory, as if two models filled it.
    let room = |loaded: &Arc<AtomicUsize>| {
        let loaded = Arc::clone(loaded);
        move || {
            let tries = loaded.fetch_add(1, Ordering::Relaxed);
            (tries >= 2 && tries.is_multiple_of(2)).then_some(true)
        }
    };
    let sources = ["first", "second", "third"].map(|name| source(name, &loads, room(&loaded)));
    let place = Place::serving(Settings { n_ctx: 1 << 16, ..Settings::default() }, sources.into());
    assert_eq!(ask(&place, Some("second")).0, 200);
    // The first one is in use: the second, though younger, is the idle one.
    let body = json!({"model": "first", "messages": [{"role": "user", "content": "hello"}],
                      "max_tokens": 60_000, "ignore_eos": true, "stream": true});
    let mut running = Stream::open(&place, "/v1/chat/completions", &body);
    running.next().expect("it runs");
    assert_eq!(ask(&place, Some("third")).1["model"], "third");
    let models = place.get("/api/ps").json();
    let names: Vec<&str> = models["models"]
        .as_array()
        .expect("models")
        .iter()
        .map(|model| model["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["first", "third"]);
    assert!(running.next().is_some(), "its answer goes on");
    drop(running);
    until(|| place.metric("minfer_running") == 0);
    assert_eq!(ask(&place, Some("second")).1["model"], "second", "loaded again");
    assert_eq!(*loads.lock().unwrap(), ["first", "second", "third", "second"]);
}
