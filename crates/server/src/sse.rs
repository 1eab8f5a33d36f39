//! Streams of a generation's outputs as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value as Json;

use crate::error::ApiError;
use crate::generate::output::Output;
use crate::generate::run::Generation;

/// After this long without an event a comment shows that the connection lives.
const SILENCE: Duration = Duration::from_secs(15);

/// Writes outputs as the chunks of an API.
pub(crate) trait ChunkWriter: Send + 'static {
    /// Chunks before the first output.
    fn begin(&mut self) -> Vec<Json>;
    /// Chunks for an output.
    fn output(&mut self, output: Output) -> Vec<Json>;
    /// Chunks after the last output.
    fn end(&mut self) -> Vec<Json>;
}

struct State<W> {
    generation: Generation,
    writer: W,
    queue: VecDeque<String>,
    ended: bool,
}

/// The response that streams a generation. Dropping it, as when the client goes, cancels the
/// generation.
pub(crate) fn response<W: ChunkWriter>(generation: Generation, mut writer: W) -> Response {
    let queue = writer.begin().iter().map(Json::to_string).collect();
    let state = State { generation, writer, queue, ended: false };
    let events = stream::unfold(state, |mut state| async move {
        let data = state.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(data)), state))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(SILENCE)).into_response()
}

impl<W: ChunkWriter> State<W> {
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.queue.pop_front() {
                return Some(data);
            }
            if self.ended {
                return None;
            }
            let chunks = match self.generation.next().await {
                Some(Ok(output)) => self.writer.output(output),
                Some(Err(error)) => self.fail(&error),
                None => {
                    self.ended = true;
                    self.writer.end()
                }
            };
            self.queue.extend(chunks.iter().map(Json::to_string));
            if self.ended {
                self.queue.push_back("[DONE]".to_owned());
            }
        }
    }

    /// An error in the middle of a stream ends it.
    fn fail(&mut self, error: &ApiError) -> Vec<Json> {
        self.ended = true;
        vec![error.to_openai_json()]
    }
}
