//! The way of events from the worker to a client, and the promise of one terminal event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::event::Event;
use crate::{EngineError, RequestId};

/// Where a request's events go. [`Events`] is the receiving end of the usual one; a server brings its own.
pub trait EventSink: Send {
    /// Takes an event without blocking. Tells whether anybody still listens.
    fn send(&mut self, event: Event) -> bool;

    /// Whether nobody listens any more. Asked once per step, also while there is nothing to send.
    fn is_closed(&self) -> bool;
}

/// A request's events in order. Dropping it before the terminal event cancels the request.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Event>,
    closed: Arc<AtomicBool>,
}

impl Events {
    /// A connected pair.
    pub(crate) fn channel() -> (ChannelSink, Events) {
        let (sender, receiver) = mpsc::channel();
        let closed = Arc::new(AtomicBool::new(false));
        (ChannelSink { sender, closed: Arc::clone(&closed) }, Events { receiver, closed })
    }

    /// Waits for the next event; `None` after the terminal one.
    pub fn recv(&self) -> Option<Event> {
        self.receiver.recv().ok()
    }

    /// The next event if there is one already.
    pub fn try_recv(&self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// Waits for the next event, but not longer than `timeout`.
    ///
    /// # Errors
    /// Nothing came in time, or nothing will come any more.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Event, mpsc::RecvTimeoutError> {
        self.receiver.recv_timeout(timeout)
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.recv()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// The sending end of [`Events`].
#[derive(Debug)]
pub(crate) struct ChannelSink {
    sender: mpsc::Sender<Event>,
    closed: Arc<AtomicBool>,
}

impl EventSink for ChannelSink {
    fn send(&mut self, event: Event) -> bool {
        self.sender.send(event).is_ok()
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// A request's place among the live ones, and the way to its client. Dropped without an ending it tells the client that
/// the engine stopped.
pub(crate) struct Reply {
    pub(crate) id: RequestId,
    sink: Box<dyn EventSink>,
    /// Requests that were accepted and have not ended.
    live: Arc<AtomicUsize>,
    /// The sink said that nobody listens.
    gone: bool,
    ended: bool,
}

impl Reply {
    /// `live` counts this request already.
    pub(crate) fn new(id: RequestId, sink: Box<dyn EventSink>, live: Arc<AtomicUsize>) -> Reply {
        Reply { id, sink, live, gone: false, ended: false }
    }

    /// Sends news that is not the last.
    pub(crate) fn send(&mut self, event: Event) {
        debug_assert!(!event.is_terminal(), "a terminal event goes through end()");
        self.gone |= !self.sink.send(event);
    }

    /// Whether nobody listens any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.gone || self.sink.is_closed()
    }

    /// Sends the terminal event; the request no longer counts as live when the client hears of it.
    pub(crate) fn end(mut self, event: Event) {
        debug_assert!(event.is_terminal(), "{event:?} ends nothing");
        self.finish(event);
    }

    fn finish(&mut self, event: Event) {
        self.ended = true;
        self.live.fetch_sub(1, Ordering::AcqRel);
        self.sink.send(event);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(Event::Failed(EngineError::Stopped));
        }
    }
}
