//! Streams of a generation's outputs: server-sent events, or a JSON object a line.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde_json::Value as Json;

use crate::error::ApiError;
use crate::generate::output::Output;
use crate::generate::run::Generation;

/// After this long without an event a comment shows that the connection lives.
const SILENCE: Duration = Duration::from_secs(15);

/// A chunk of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Name of the event, for APIs that name them.
    pub(crate) event: Option<String>,
    pub(crate) data: String,
}

impl Chunk {
    /// An event that is named by its `type`.
    pub(crate) fn typed(data: &Json) -> Chunk {
        Chunk { event: data["type"].as_str().map(str::to_owned), data: data.to_string() }
    }
}

impl From<Json> for Chunk {
    fn from(data: Json) -> Chunk {
        Chunk { event: None, data: data.to_string() }
    }
}

/// Writes outputs as the chunks of an API.
pub(crate) trait ChunkWriter: Send + 'static {
    /// Chunks before the first output.
    fn begin(&mut self) -> Vec<Chunk>;
    /// Chunks for an output.
    fn output(&mut self, output: Output) -> Vec<Chunk>;
    /// Chunks after the last output.
    fn end(&mut self) -> Vec<Chunk>;
    /// Chunks for an error, which ends the stream.
    fn fail(&mut self, error: &ApiError) -> Vec<Chunk>;
}

struct State<W> {
    generation: Generation,
    writer: W,
    queue: VecDeque<Chunk>,
    ended: bool,
}

/// The chunks of a generation. Dropping them, as when the client goes, cancels the generation.
fn chunks<W: ChunkWriter>(generation: Generation, mut writer: W) -> impl Stream<Item = Chunk> + Send {
    let queue = writer.begin().into();
    let state = State { generation, writer, queue, ended: false };
    stream::unfold(state, |mut state| async move {
        let chunk = state.next().await?;
        Some((chunk, state))
    })
}

/// The response that streams a generation as server-sent events.
pub(crate) fn events<W: ChunkWriter>(generation: Generation, writer: W) -> Response {
    let events = chunks(generation, writer).map(|Chunk { event, data }| {
        let written = match event {
            Some(name) => Event::default().event(name),
            None => Event::default(),
        };
        Ok::<_, Infallible>(written.data(data))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(SILENCE)).into_response()
}

/// The response that streams a generation as lines of JSON.
pub(crate) fn lines<W: ChunkWriter>(generation: Generation, writer: W) -> Response {
    let lines = chunks(generation, writer).map(|chunk| Ok::<_, Infallible>(chunk.data + "\n"));
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

impl<W: ChunkWriter> State<W> {
    async fn next(&mut self) -> Option<Chunk> {
        loop {
            if let Some(chunk) = self.queue.pop_front() {
                return Some(chunk);
            }
            if self.ended {
                return None;
            }
            let chunks = match self.generation.next().await {
                Some(Ok(output)) => self.writer.output(output),
                Some(Err(error)) => {
                    self.ended = true;
                    self.writer.fail(&error)
                }
                None => {
                    self.ended = true;
                    self.writer.end()
                }
            };
            self.queue.extend(chunks);
        }
    }
}
