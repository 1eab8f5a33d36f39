//! Counts what a thread allocates, so that tests can bound it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The bytes that `action` asks the allocator for on this thread, all requests together.
pub(crate) fn bytes_of<T>(action: impl FnOnce() -> T) -> (T, usize) {
    let before = REQUESTED.get();
    let result = action();
    (result, REQUESTED.get() - before)
}

thread_local! {
    static REQUESTED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system allocator unchanged; counting touches only a thread-local
// without destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and the pointer came from the system
        // allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller keeps the contract of `realloc`, and the pointer came from the system
        // allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn count(size: usize) {
    let _ = REQUESTED.try_with(|requested| requested.set(requested.get().wrapping_add(size)));
}
