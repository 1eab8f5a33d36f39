//! An answer as a blocking iterator.

use std::iter::FusedIterator;
use std::sync::Weak;

use minfer_engine::{Events, RequestId};

use super::answer::{Answer, Chunk, collect};
use super::model::{Inner, Running};
use super::{Error, Model};

/// The chunks of an answer as they are generated. Dropping it before the end cancels the request.
///
/// The iterator blocks until the next chunk. It ends after the chunk that has a
/// [`finish`](Chunk::finish), or after an error. Several requests that were started before the
/// first is read run at the same time.
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub struct Chunks {
    running: Running,
    events: Events,
    ended: bool,
}

impl Chunks {
    pub(super) fn new(running: Running, events: Events) -> Chunks {
        Chunks { running, events, ended: false }
    }

    /// Waits for the answer. Chunks that were read before are not part of it.
    ///
    /// # Errors
    /// The generation failed or was cancelled.
    pub fn answer(mut self) -> Result<Answer, Error> {
        collect(&mut self)
    }

    /// A handle that cancels the request from anywhere, such as a handler of Ctrl-C.
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle::new(&self.running)
    }
}

impl Iterator for Chunks {
    type Item = Result<Chunk, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        loop {
            let Some(event) = self.events.recv() else {
                self.ended = true;
                return Some(Err(Error::stopped()));
            };
            self.ended = event.is_terminal();
            if let Some(chunk) = Chunk::of(event) {
                return Some(chunk);
            }
        }
    }
}

impl FusedIterator for Chunks {}

impl Drop for Chunks {
    fn drop(&mut self) {
        if !self.ended {
            self.running.cancel();
        }
    }
}

/// Cancels a request. The reader of its chunks gets an error of the kind
/// [`Cancelled`](crate::ErrorKind::Cancelled), unless the answer has ended by then.
#[derive(Clone)]
pub struct CancelHandle {
    model: Weak<Inner>,
    id: RequestId,
}

impl CancelHandle {
    pub(super) fn new(running: &Running) -> CancelHandle {
        CancelHandle { model: running.model.downgrade(), id: running.id }
    }

    /// Cancels the request. Returns at once.
    pub fn cancel(&self) {
        if let Some(model) = self.model.upgrade() {
            model.engine.cancel(self.id);
        }
    }
}

impl std::fmt::Debug for CancelHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CancelHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A compile-time check of what can be sent to other threads and shared between them.
const _: () = {
    const fn sent<T: Send>() {}
    const fn shared<T: Send + Sync + 'static>() {}
    sent::<Chunks>();
    shared::<Model>();
    shared::<Error>();
    shared::<CancelHandle>();
};
