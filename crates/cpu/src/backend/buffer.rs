//! Host memory of values: workspace and the values that cross the edge of a graph.

use std::any::Any;

use minfer_graph::BackendError;
use minfer_graph::backend::Buffer;
use zerocopy::FromBytes;

use crate::memory::Region;

/// Elements of four bytes, f32 unless somebody writes words. They start on a cache line, so that no
/// vector of a row that is a multiple of 16 elements long straddles two.
pub(crate) struct HostBuffer {
    memory: Region,
}

impl HostBuffer {
    /// `bytes` bytes, rounded up to whole elements, all zero.
    ///
    /// # Errors
    /// The memory was refused.
    pub(crate) fn new(bytes: u64, what: &str) -> Result<HostBuffer, BackendError> {
        let refused = || BackendError::OutOfMemory { what: what.to_owned(), bytes };
        let count = usize::try_from(bytes.div_ceil(4)).map_err(|_| refused())?;
        let mut memory = Region::new(count.checked_mul(4).ok_or_else(refused)?).map_err(|_| refused())?;
        // Every page is taken now, when it was counted, and not in the middle of a request.
        memory.fill(0);
        Ok(HostBuffer { memory })
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// The elements, as workers share them.
    pub(crate) fn floats(&mut self) -> &mut [f32] {
        <[f32]>::mut_from_bytes(&mut self.memory).expect(WHOLE_ELEMENTS)
    }

    /// The elements as words.
    pub(crate) fn words(&mut self) -> &mut [u32] {
        <[u32]>::mut_from_bytes(&mut self.memory).expect(WHOLE_ELEMENTS)
    }

    fn elements(&self) -> &[f32] {
        <[f32]>::ref_from_bytes(&self.memory).expect(WHOLE_ELEMENTS)
    }
}

const WHOLE_ELEMENTS: &str = "buffers hold whole elements and start on a cache line";

impl Buffer for HostBuffer {
    fn read_f32(&self, first: usize, out: &mut [f32]) -> Result<(), BackendError> {
        let elements = self.elements();
        let end = first.checked_add(out.len()).filter(|&end| end <= elements.len());
        let end = end
            .ok_or_else(|| BackendError::BadBatch(format!("elements from {first} on are past the buffer")))?;
        out.copy_from_slice(&elements[first..end]);
        Ok(())
    }

    fn host_f32(&self) -> Option<&[f32]> {
        Some(self.elements())
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
