//! What the C library's allocator takes of the process's addresses for its threads.

/// From here on every thread of the process has its memory from one arena of the allocator. By
/// default each new thread gets an arena of its own of 64 MiB of addresses, which a limit of them
/// (`ulimit -v`) has better uses for. Does nothing where the allocator is another one.
pub fn share_allocator_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets a number of the allocator's, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
