//! One arena of the C library's allocator for all threads, where addresses are limited.

/// Makes all threads of the process allocate from one arena from now on. By default the allocator
/// reserves 64 MiB of addresses for each new thread, which is much under a limit of addresses
/// (`ulimit -v`). Does nothing where the allocator is not glibc's.
pub fn share_allocator_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call sets an option of the allocator, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
