//! Running template code where hostile nesting cannot exhaust the stack.
//!
//! Templates can build lists inside lists and sums of thousands of terms, and
//! the template engine walks and drops both by recursion. The fuel and the
//! size of the source bound how deep that can go; this stack is deep enough
//! for what they allow. Only the pages that are touched take memory.

use std::thread::Builder;

use super::TemplateError;

/// Addresses that rendering a template takes while it lasts.
pub const TEMPLATE_STACK_BYTES: usize = 512 << 20;

/// Runs `work` on a thread of its own with a deep stack.
pub(super) fn run<T: Send>(
    work: impl FnOnce() -> Result<T, TemplateError> + Send,
) -> Result<T, TemplateError> {
    std::thread::scope(|scope| {
        let thread = Builder::new().name("chat-template".to_owned()).stack_size(TEMPLATE_STACK_BYTES);
        let handle =
            thread.spawn_scoped(scope, work).map_err(|error| TemplateError::NoThread(error.to_string()))?;
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
