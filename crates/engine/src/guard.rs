//! Turns panics into errors, so that one request's panic does not end the engine.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::EngineError;

/// Runs `work`; a panic in it is the error [`EngineError::Panicked`] with the panic's message. The
/// caller decides what of the state that `work` changed can still be used.
pub(crate) fn guarded<R>(work: impl FnOnce() -> R) -> Result<R, EngineError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| EngineError::Panicked(panic_message(&*panic)))
}

/// The message that a panic was raised with.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
