//! A server on loopback with a tiny model, and a client that knows little HTTP.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use minfer::engine::EngineConfig;
use minfer::{ContextLength, LoadOptions, Loaded, Machine, MachineOptions, Model, ModelFile};
use minfer_server::{Observer, Served, ServerConfig, ServerError, Source};
use minfer_testkit::fetched;
use minfer_testkit::synthetic::Family;
use serde_json::Value;

/// Begin and end tokens around each message; one word is refused.
const TEMPLATE: &str = "\
{%- for m in messages -%}
{%- if m.content == 'raise' %}{{ raise_exception('not this word') }}{% endif -%}
{{ '<|bos|>' + m.role + '\\n' + m.content + '<|eos|>' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|bos|>assistant\\n' }}{% endif -%}";

/// Tokens of an answer that no test waits for.
pub(crate) const ENDLESS: u32 = 1 << 18;

/// A server in this process. It is stopped when it is dropped.
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    server: Option<JoinHandle<Result<(), ServerError>>>,
    ready: Mutex<Receiver<()>>,
}

/// Settings of a place.
pub(crate) struct Settings {
    pub(crate) config: ServerConfig,
    pub(crate) n_slots: u32,
    pub(crate) queue: usize,
    pub(crate) n_ctx: u32,
    /// A fetched model in place of the tiny one.
    pub(crate) real: Option<&'static str>,
}

impl Default for Settings {
    fn default() -> Settings {
        let config = ServerConfig { port: 0, ..ServerConfig::default() };
        Settings { config, n_slots: 4, queue: 16, n_ctx: 2048, real: None }
    }
}

struct Told {
    listening: Sender<SocketAddr>,
    ready: Sender<()>,
}

impl Observer for Told {
    fn listening(&self, _: &[String], addresses: &[SocketAddr]) {
        let _ = self.listening.send(addresses[0]);
    }

    fn ready(&self, _: &Served) {
        let _ = self.ready.send(());
    }
}

impl Place {
    /// A server whose model is loaded.
    pub(crate) fn new(settings: Settings) -> Place {
        let (release, place) = Place::loading(settings);
        drop(release);
        place.wait_until_ready();
        place
    }

    /// A server whose model is not loaded before the sender is dropped.
    pub(crate) fn loading(settings: Settings) -> (Sender<()>, Place) {
        let (release, held) = mpsc::channel::<()>();
        let Settings { n_slots, queue, n_ctx, real, .. } = settings;
        let held = Mutex::new(held);
        let load = move || {
            let _ = held.lock().expect("no panic").recv();
            Ok(served(n_slots, queue, n_ctx, real))
        };
        let source = Source { name: "tiny".to_owned(), load: Box::new(load) };
        (release, Place::start(settings.config, vec![source]))
    }

    /// A server of these models, the first of which is loaded.
    pub(crate) fn serving(settings: Settings, sources: Vec<Source>) -> Place {
        let place = Place::start(settings.config, sources);
        place.wait_until_ready();
        place
    }

    /// Why a server does not start.
    pub(crate) fn refused(settings: Settings, source: Source) -> ServerError {
        Place::start(settings.config, vec![source]).wait().expect_err("it does not start")
    }

    fn start(config: ServerConfig, sources: Vec<Source>) -> Place {
        let (listening, address) = mpsc::channel();
        let (ready_sender, ready) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = std::thread::spawn(move || {
            let stop = async move { drop(stopped.await) };
            minfer_server::run(config, sources, &Told { listening, ready: ready_sender }, stop)
        });
        let address = address.recv().expect("it listens");
        Place { address, stop: Some(stop), server: Some(server), ready: Mutex::new(ready) }
    }

    pub(crate) fn wait_until_ready(&self) {
        self.ready.lock().expect("no panic").recv().expect("it loads");
        until(|| self.get("/health").status == 200);
    }

    /// Tells the server to end, as a signal does.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for the server's end.
    pub(crate) fn end(mut self) -> Result<(), ServerError> {
        self.stop();
        self.wait()
    }

    fn wait(mut self) -> Result<(), ServerError> {
        self.server.take().expect("not joined").join().expect("no panic")
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.request("GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.request("POST", path, &[("content-type", "application/json")], &body.to_string())
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        Response::read(self.send(method, path, headers, body))
    }

    /// Sends a request, whose response has yet to be read.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        stream.write_all(head.as_bytes()).expect("sent");
        // A server that refuses a body may close before it has read all of it.
        let _ = stream.write_all(body.as_bytes());
        stream
    }

    /// Starts an endless answer, and waits for its first token.
    pub(crate) fn endless(&self) -> Stream {
        let body = serde_json::json!({
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": ENDLESS, "ignore_eos": true, "stream": true,
        });
        let mut stream = Stream::open(self, "/v1/chat/completions", &body);
        while stream.next().expect("a chunk")["choices"][0]["delta"]["content"]
            .as_str()
            .is_none_or(str::is_empty)
        {}
        stream
    }

    /// A metric without labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop();
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// A tiny model, or a fetched one.
pub(crate) fn served(n_slots: u32, queue: usize, n_ctx: u32, real: Option<&str>) -> Served {
    let file = match real {
        Some(name) => ModelFile::open(&fetched::model(name)).expect("a sound file"),
        None => {
            let mut file = Family::Llama.model();
            file.set_context_length(n_ctx);
            file.set("tokenizer.chat_template", TEMPLATE);
            ModelFile::from_bytes(file.to_bytes()).expect("a sound file")
        }
    };
    let machine = Machine::new(&MachineOptions { threads: Some(2), ..MachineOptions::default() });
    let machine = machine.expect("a machine");
    let options =
        LoadOptions { n_ctx: ContextLength::Fixed(n_ctx), n_slots, n_batch: 64, ..LoadOptions::default() };
    let loaded = Loaded::new(&machine, &file, &options).expect("it loads");
    let config = EngineConfig { queue, ..loaded.engine_config() };
    let model = Model::from_loaded(loaded, config, machine, "tiny").expect("an engine");
    Served::new("tiny", model, 0)
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn read(stream: TcpStream) -> Response {
        let mut reader = BufReader::new(stream);
        let (status, head) = read_head(&mut reader);
        let mut body = Vec::new();
        match chunked(&head) {
            true => while read_chunk(&mut reader, &mut body) {},
            false => {
                let _ = reader.read_to_end(&mut body);
            }
        }
        Response { status, head, body: String::from_utf8(body).expect("text") }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")))?;
        Some(line[name.len() + 1..].trim())
    }
}

/// A response of server-sent events.
pub(crate) struct Stream {
    reader: BufReader<TcpStream>,
    pub(crate) status: u16,
    buffer: Vec<u8>,
}

impl Stream {
    pub(crate) fn open(place: &Place, path: &str, body: &Value) -> Stream {
        let stream = place.send("POST", path, &[("content-type", "application/json")], &body.to_string());
        let mut reader = BufReader::new(stream);
        let (status, _) = read_head(&mut reader);
        Stream { reader, status, buffer: Vec::new() }
    }

    /// The next event's data as JSON; `None` after `[DONE]` or the end of the connection.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.buffer.drain(..at + 2).collect();
                let event = String::from_utf8(event).expect("text");
                match event.trim().strip_prefix("data: ") {
                    Some("[DONE]") => return None,
                    Some(data) => return Some(serde_json::from_str(data).expect("JSON")),
                    None => continue,
                }
            }
            if !read_chunk(&mut self.reader, &mut self.buffer) {
                return None;
            }
        }
    }

    pub(crate) fn all(mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

fn read_head(reader: &mut impl BufRead) -> (u16, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            break;
        }
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, head)
}

fn chunked(head: &str) -> bool {
    head.to_lowercase().contains("transfer-encoding: chunked")
}

/// Appends a chunk; `false` after the last one.
fn read_chunk(reader: &mut impl BufRead, to: &mut Vec<u8>) -> bool {
    let mut size = String::new();
    if reader.read_line(&mut size).unwrap_or(0) == 0 {
        return false;
    }
    let size = usize::from_str_radix(size.trim(), 16).expect("a size");
    let mut chunk = vec![0; size + 2];
    if reader.read_exact(&mut chunk).is_err() {
        return false;
    }
    to.extend(&chunk[..size]);
    size > 0
}

/// Waits for something that happens soon, however busy the machine is.
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
