//! Runs template code on a thread with a large stack.
//!
//! The template engine recurses over nested values and expressions. Fuel and source size limit the
//! depth, and this stack is large enough for that limit. Only touched pages take memory.

use std::thread::Builder;

use super::TemplateError;

/// Stack size, in bytes of address space, of a rendering.
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
