//! Host memory of values: workspace and the values that cross the edge of a graph.

use std::any::Any;

use minfer_graph::BackendError;
use minfer_graph::backend::Buffer;

use crate::threads::SharedSlice;

/// Zeroed f32 elements.
pub(crate) struct HostBuffer {
    elements: Vec<f32>,
}

impl HostBuffer {
    /// `bytes` bytes, rounded up to whole elements.
    ///
    /// # Errors
    /// The memory was refused.
    pub(crate) fn new(bytes: u64, what: &str) -> Result<HostBuffer, BackendError> {
        let refused = || BackendError::OutOfMemory { what: what.to_owned(), bytes };
        let count = usize::try_from(bytes.div_ceil(4)).map_err(|_| refused())?;
        let mut elements = Vec::new();
        elements.try_reserve_exact(count).map_err(|_| refused())?;
        elements.resize(count, 0.0);
        Ok(HostBuffer { elements })
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        4 * self.elements.len() as u64
    }

    /// The elements as workers share them.
    pub(crate) fn shared(&mut self) -> SharedSlice<'_, f32> {
        SharedSlice::from_slice(&mut self.elements)
    }
}

impl Buffer for HostBuffer {
    fn read_f32(&self, first: usize, out: &mut [f32]) -> Result<(), BackendError> {
        let end = first.checked_add(out.len()).filter(|&end| end <= self.elements.len());
        let end = end
            .ok_or_else(|| BackendError::BadBatch(format!("elements from {first} on are past the buffer")))?;
        out.copy_from_slice(&self.elements[first..end]);
        Ok(())
    }

    fn host_f32(&self) -> Option<&[f32]> {
        Some(&self.elements)
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
