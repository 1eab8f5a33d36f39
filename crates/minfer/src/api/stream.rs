//! An answer as a `futures_core::Stream`. It needs no runtime and no thread: the engine's thread
//! puts chunks into a queue and wakes the task that waits for them.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use minfer_engine::{Event, EventSink, Request};

use super::answer::{Answer, Assembly, Chunk};
use super::conversation::{Conversation, Turn};
use super::model::Running;
use super::{CancelHandle, Error, Model};

/// The chunks of an answer for async code, as [`Chunks`](crate::Chunks) for blocking code.
/// Dropping it before the end cancels the request.
///
/// It works with any executor: the engine's thread wakes the task when a chunk is there.
#[must_use = "dropping it cancels the request"]
pub struct ChunkStream {
    running: Running,
    shared: Arc<Shared>,
    ended: bool,
}

/// What the engine's thread and the stream share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The stream was dropped.
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Result<Chunk, Error>>,
    /// Nothing comes after the chunks that are queued.
    complete: bool,
    waker: Option<Waker>,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Each change is one statement, so a panic of another holder leaves a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Sink(Arc<Shared>);

impl EventSink for Sink {
    fn send(&mut self, event: Event) -> bool {
        let complete = event.is_terminal();
        if let Some(chunk) = Chunk::of(event) {
            let mut state = self.0.state();
            state.chunks.push_back(chunk);
            state.complete = complete;
            let waker = state.waker.take();
            // A waker may run the task at once, which locks the state.
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        !self.is_closed()
    }

    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }
}

impl Model {
    pub(super) fn submit_async(&self, request: Request) -> Result<ChunkStream, Error> {
        let shared = Arc::new(Shared::default());
        let id = self.engine().submit_to(request, Sink(Arc::clone(&shared)))?;
        Ok(ChunkStream { running: Running { model: self.clone(), id }, shared, ended: false })
    }
}

impl ChunkStream {
    /// Waits for the answer. Chunks that were read before are not part of it.
    ///
    /// # Errors
    /// The generation failed or was cancelled.
    pub async fn answer(mut self) -> Result<Answer, Error> {
        collect(&mut self).await
    }

    /// A handle that cancels the request from anywhere.
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle::new(&self.running)
    }
}

impl Stream for ChunkStream {
    type Item = Result<Chunk, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut state = self.shared.state();
        let Some(chunk) = state.chunks.pop_front() else {
            match &mut state.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            return Poll::Pending;
        };
        let last = state.complete && state.chunks.is_empty();
        drop(state);
        self.ended = last;
        Poll::Ready(Some(chunk))
    }
}

impl FusedStream for ChunkStream {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl Drop for ChunkStream {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        if !self.ended {
            self.running.cancel();
        }
    }
}

impl fmt::Debug for ChunkStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ChunkStream").field("running", &self.running).finish_non_exhaustive()
    }
}

/// The chunks of a conversation's answer for async code, as
/// [`ConversationChunks`](crate::ConversationChunks) for blocking code.
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub struct ConversationStream<'c> {
    // Dropped first, so that the request is cancelled before the turn ends.
    chunks: ChunkStream,
    turn: Turn<'c>,
}

impl Conversation {
    /// As [`stream`](Self::stream), for async code.
    ///
    /// # Errors
    /// As [`stream`](Self::stream).
    pub fn stream_async(&mut self, text: impl Into<String>) -> Result<ConversationStream<'_>, Error> {
        let (turn, request) = self.begin(text.into())?;
        let chunks = turn.model().submit_async(request)?;
        Ok(ConversationStream { chunks, turn })
    }
}

impl ConversationStream<'_> {
    /// Waits for the answer. Chunks that were read before are not part of it.
    ///
    /// # Errors
    /// The generation failed or was cancelled.
    pub async fn answer(mut self) -> Result<Answer, Error> {
        collect(&mut self).await
    }
}

impl Stream for ConversationStream<'_> {
    type Item = Result<Chunk, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = Pin::new(&mut self.chunks).poll_next(context);
        if let Poll::Ready(Some(chunk)) = &polled {
            self.turn.note(chunk);
        }
        polled
    }
}

/// The answer that the chunks of a stream make.
async fn collect<S>(stream: &mut S) -> Result<Answer, Error>
where
    S: Stream<Item = Result<Chunk, Error>> + Unpin,
{
    let mut assembly = Assembly::default();
    while let Some(chunk) = poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await {
        if let Some(answer) = assembly.add(chunk?) {
            return Ok(answer);
        }
    }
    Err(Error::stopped())
}
