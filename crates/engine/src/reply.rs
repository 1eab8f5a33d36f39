//! The way of events from the worker to a client, and the promise of one terminal event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::event::Event;
use crate::guard::guarded;
use crate::{EngineError, RequestId};

/// Where a request's events go. [`Events`] is the receiving end of the usual one; a server brings
/// its own.
pub trait EventSink: Send {
    /// Takes an event without blocking. Returns whether anybody still listens. A panic here, as in
    /// [`is_closed`](Self::is_closed), fails the request and no other.
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

/// A request's place among the live ones, and the way to its client. Dropped without an ending it
/// reports that the engine stopped. A sink that panics fails its own request and nothing else.
pub(crate) struct Reply {
    pub(crate) id: RequestId,
    /// Taken when the terminal event is sent.
    sink: Option<Box<dyn EventSink>>,
    /// Requests that were accepted and have not ended.
    live: Arc<AtomicUsize>,
    /// The sink said that nobody listens.
    gone: bool,
    /// The sink panicked.
    fault: Option<EngineError>,
}

impl Reply {
    /// `live` counts this request already.
    pub(crate) fn new(id: RequestId, sink: Box<dyn EventSink>, live: Arc<AtomicUsize>) -> Reply {
        Reply { id, sink: Some(sink), live, gone: false, fault: None }
    }

    /// Sends an event that is not the last.
    pub(crate) fn send(&mut self, event: Event) {
        debug_assert!(!event.is_terminal(), "a terminal event goes through end()");
        let listens = self.call(|sink| sink.send(event));
        self.gone |= listens == Some(false);
    }

    /// Whether nobody listens any more.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.gone || self.call(|sink| sink.is_closed()) == Some(true)
    }

    /// The panic of the sink, if it has panicked: its request cannot go on.
    pub(crate) fn fault(&self) -> Option<EngineError> {
        self.fault.clone()
    }

    /// Sends the terminal event; the request no longer counts as live when the client receives it.
    pub(crate) fn end(mut self, event: Event) {
        debug_assert!(event.is_terminal(), "{event:?} ends nothing");
        self.finish(event);
    }

    /// Calls the sink, unless it has panicked before.
    fn call<R>(&mut self, call: impl FnOnce(&mut dyn EventSink) -> R) -> Option<R> {
        let sink = self.sink.as_deref_mut().filter(|_| self.fault.is_none())?;
        guarded(|| call(sink)).map_err(|error| self.fault = Some(error)).ok()
    }

    fn finish(&mut self, event: Event) {
        let Some(mut sink) = self.sink.take() else { return };
        self.live.fetch_sub(1, Ordering::AcqRel);
        // A panic here has no request left to fail. Sending and dropping are guarded one by one: a
        // sink that is dropped while its own panic unwinds, and panics again, would abort the
        // process.
        let _ = guarded(|| sink.send(event));
        let _ = guarded(move || drop(sink));
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let lost_to_a_panic = std::thread::panicking();
        self.finish(Event::Failed(match lost_to_a_panic {
            true => EngineError::Panicked("the step that the request was in".to_owned()),
            false => EngineError::Stopped,
        }));
    }
}
