//! The host's memory beside the cache.

use std::fmt;
use std::sync::Arc;

/// Memory that is accounted for until this is dropped.
pub trait HostLease: Send + Sync {
    /// All of the memory is in use from now on: the system no longer counts it as free.
    fn taken(&mut self) {}
}

/// Memory that nobody accounts for.
struct Unbounded;

impl HostLease for Unbounded {}

/// Whom an engine asks before it copies rows from the cache to the host's memory. By default nobody: there is always room.
#[derive(Clone)]
pub struct HostMemory(Arc<dyn Fn(u64) -> Option<Box<dyn HostLease>> + Send + Sync>);

impl HostMemory {
    /// `lend` is given bytes, and gives a lease for them or `None` where they are not to be had.
    pub fn new(lend: impl Fn(u64) -> Option<Box<dyn HostLease>> + Send + Sync + 'static) -> HostMemory {
        HostMemory(Arc::new(lend))
    }

    /// A lease for so many bytes, where they are to be had.
    pub fn lend(&self, bytes: u64) -> Option<Box<dyn HostLease>> {
        (self.0)(bytes)
    }

    /// Leased room for so many bytes, where there is any.
    pub(crate) fn room(&self, bytes: u64) -> Option<HostRoom> {
        let lease = self.lend(bytes)?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(usize::try_from(bytes).ok()?).ok()?;
        Some(HostRoom { bytes: memory, lease })
    }
}

impl Default for HostMemory {
    fn default() -> HostMemory {
        HostMemory::new(|_| Some(Box::new(Unbounded)))
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HostMemory").finish_non_exhaustive()
    }
}

/// Memory with its lease, which goes after it.
pub(crate) struct HostRoom {
    pub(crate) bytes: Vec<u8>,
    lease: Box<dyn HostLease>,
}

impl HostRoom {
    /// All of the bytes have been written.
    pub(crate) fn filled(&mut self) {
        self.lease.taken();
    }
}

impl fmt::Debug for HostRoom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HostRoom").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}
