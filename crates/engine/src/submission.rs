//! What a client hands over with a request: where events go, and how urgent it is.

use std::time::Instant;

use crate::constraint::Constraint;
use crate::reply::EventSink;
use crate::request::Request;

/// A request on its way into the queue.
pub struct Submission {
    pub(crate) request: Request,
    pub(crate) sink: Box<dyn EventSink>,
    pub(crate) constraint: Option<Box<dyn Constraint>>,
    pub(crate) priority: i32,
    pub(crate) deadline: Option<Instant>,
}

impl Submission {
    /// The worker thread calls `sink` with the request's events; a sink that panics fails this
    /// request only.
    pub fn new(request: Request, sink: impl EventSink + 'static) -> Submission {
        Submission { request, sink: Box::new(sink), constraint: None, priority: 0, deadline: None }
    }

    /// Chooses only tokens that the constraint allows.
    #[must_use]
    pub fn constraint(self, constraint: Box<dyn Constraint>) -> Submission {
        Submission { constraint: Some(constraint), ..self }
    }

    /// Waits before requests of a lower priority; 0 is that of other requests.
    #[must_use]
    pub fn priority(self, priority: i32) -> Submission {
        Submission { priority, ..self }
    }

    /// Fails with [`EngineError::Deadline`](crate::EngineError::Deadline) when it has not ended by
    /// then.
    #[must_use]
    pub fn deadline(self, deadline: Instant) -> Submission {
        Submission { deadline: Some(deadline), ..self }
    }
}

impl std::fmt::Debug for Submission {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Submission").field("request", &self.request).finish_non_exhaustive()
    }
}
