//! Views of memory that several workers hold at once.
//!
//! A view can be copied to every worker, and its accessors hand out `&mut` parts of it. That is
//! sound under one promise, which the `unsafe` constructors state and their callers give:
//!
//! * between two barriers no element is written by one worker and touched by another;
//! * on one worker no two parts that overlap are in use at once, unless both are only read.
//!
//! `backend::compiled` gives it for a run: the plan's places were checked when the graph was
//! lowered (`backend::schedule`), the batch when it was submitted (`backend::check`), and every
//! kernel takes a part only while it uses it. The accessors check bounds.

use std::marker::PhantomData;
use std::ops::Range;

/// A matrix of f32 rows, `stride` elements apart, shared between workers.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    base: *mut f32,
    stride: usize,
    rows: usize,
    columns: usize,
    memory: PhantomData<&'a mut [f32]>,
}

// SAFETY: the promise of `Rows::new` is exactly that concurrent use is free of conflicting
// accesses.
unsafe impl Send for Rows<'_> {}
// SAFETY: as above.
unsafe impl Sync for Rows<'_> {}

impl<'a> Rows<'a> {
    /// A view of `rows` rows of `columns` elements from `base` on.
    ///
    /// # Safety
    /// The memory of all rows is allocated and initialised for `'a`, and the module's promise is
    /// kept by every user of the view and of other views of the memory.
    unsafe fn new(base: *mut f32, stride: usize, rows: usize, columns: usize) -> Rows<'a> {
        debug_assert!(columns <= stride || rows <= 1);
        Rows { base, stride, rows, columns, memory: PhantomData }
    }

    /// A view for tests, which keep the promise of [`new`](Rows::new) as steps do.
    #[cfg(test)]
    pub(crate) fn from_slice(memory: &'a mut [f32], stride: usize, columns: usize) -> Rows<'a> {
        let rows = if memory.len() < columns { 0 } else { (memory.len() - columns) / stride.max(1) + 1 };
        // SAFETY: the rows lie inside the borrowed slice; tests split them between workers by row.
        unsafe { Rows::new(memory.as_mut_ptr(), stride, rows, columns) }
    }

    /// Rows in the view.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// One row.
    pub(crate) fn row(&self, row: usize) -> &'a [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: in bounds; no one writes these elements meanwhile by the promise of `new`.
        unsafe { std::slice::from_raw_parts(self.base.add(row * self.stride), self.columns) }
    }

    /// Some columns of one row, to be written by this worker alone.
    #[allow(clippy::mut_from_ref, reason = "disjointness is the promise of `new`")]
    #[inline(always)]
    pub(crate) fn row_mut(&self, row: usize, columns: Range<usize>) -> &'a mut [f32] {
        assert!(row < self.rows && columns.end <= self.columns, "row {row}, columns {columns:?}");
        assert!(columns.start <= columns.end);
        // SAFETY: in bounds; no one else touches these elements meanwhile by the promise of `new`.
        unsafe {
            std::slice::from_raw_parts_mut(self.base.add(row * self.stride + columns.start), columns.len())
        }
    }
}

/// A run of plain values shared between workers.
#[derive(Clone, Copy)]
pub(crate) struct SharedSlice<'a, T> {
    base: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: the promise of `SharedSlice::new` is exactly that concurrent use is free of conflicting
// accesses.
unsafe impl<T: Send> Send for SharedSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedSlice<'_, T> {}

impl<'a, T: Copy> SharedSlice<'a, T> {
    /// A view of `len` values from `base` on.
    ///
    /// # Safety
    /// The memory is allocated and initialised for `'a`, and the module's promise is kept by every
    /// user of the view and of other views of the memory.
    pub(crate) unsafe fn new(base: *mut T, len: usize) -> SharedSlice<'a, T> {
        SharedSlice { base, len, memory: PhantomData }
    }

    /// A view of memory that is borrowed exclusively.
    ///
    /// # Safety
    /// The module's promise is kept by every user of the view.
    pub(crate) unsafe fn share(memory: &'a mut [T]) -> SharedSlice<'a, T> {
        // SAFETY: it is the borrowed slice itself, and the promise is the caller's.
        unsafe { SharedSlice::new(memory.as_mut_ptr(), memory.len()) }
    }

    /// A view for tests, which keep the module's promise as steps do.
    #[cfg(test)]
    pub(crate) fn from_slice(memory: &'a mut [T]) -> SharedSlice<'a, T> {
        // SAFETY: tests split what they write between workers by row.
        unsafe { SharedSlice::share(memory) }
    }

    /// Values in the view.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Values that no one writes meanwhile.
    pub(crate) fn get(&self, range: Range<usize>) -> &'a [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: in bounds; no one writes these elements meanwhile by the promise of `new`.
        unsafe { std::slice::from_raw_parts(self.base.add(range.start), range.len()) }
    }

    /// Values to be written by this worker alone.
    #[allow(clippy::mut_from_ref, reason = "disjointness is the promise of `new`")]
    pub(crate) fn get_mut(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: in bounds; no one else touches these elements meanwhile by the promise of `new`.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(range.start), range.len()) }
    }
}

impl<'a> SharedSlice<'a, f32> {
    /// A matrix inside the run.
    ///
    /// # Panics
    /// A row reaches past the end.
    pub(crate) fn matrix(&self, offset: usize, stride: usize, rows: usize, columns: usize) -> Rows<'a> {
        let last = rows.saturating_sub(1).checked_mul(stride).and_then(|last| last.checked_add(offset));
        let end = last.and_then(|last| last.checked_add(if rows == 0 { 0 } else { columns }));
        let fits = end.is_some_and(|end| end <= self.len);
        assert!(fits, "{rows} rows of {columns} from {offset} on in {} elements", self.len);
        // SAFETY: in bounds of this view, whose promise the matrix inherits.
        unsafe { Rows::new(self.base.add(offset), stride, rows, columns) }
    }
}
