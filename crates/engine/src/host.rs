//! Host memory for rows that are swapped out of the KV cache, and who accounts for it.

use std::fmt;
use std::sync::Arc;

/// Memory that is accounted for until this is dropped.
pub trait HostLease: Send + Sync {
    /// All of the memory is in use from now on: the system no longer counts it as free.
    fn taken(&mut self) {}
}

/// Memory without an account.
struct Unbounded;

impl HostLease for Unbounded {}

/// What an engine asks before it swaps rows out to host memory. By default every request is
/// granted.
#[derive(Clone)]
pub struct HostMemory(Arc<dyn Fn(u64) -> Option<Box<dyn HostLease>> + Send + Sync>);

impl HostMemory {
    /// `lend` gets a number of bytes and returns a lease for them, or `None` to refuse.
    pub fn new(lend: impl Fn(u64) -> Option<Box<dyn HostLease>> + Send + Sync + 'static) -> HostMemory {
        HostMemory(Arc::new(lend))
    }

    /// A lease for `bytes`, or `None` where they are refused.
    pub fn lend(&self, bytes: u64) -> Option<Box<dyn HostLease>> {
        (self.0)(bytes)
    }

    /// Leased memory for `bytes`, or `None` where the lease or the allocation is refused.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<SwapSpace> {
        let lease = self.lend(bytes)?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(usize::try_from(bytes).ok()?).ok()?;
        Some(SwapSpace { bytes: memory, lease })
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

/// Memory with its lease. The memory is freed before the lease ends.
pub(crate) struct SwapSpace {
    pub(crate) bytes: Vec<u8>,
    lease: Box<dyn HostLease>,
}

impl SwapSpace {
    /// All of the bytes have been written.
    pub(crate) fn filled(&mut self) {
        self.lease.taken();
    }
}

impl fmt::Debug for SwapSpace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SwapSpace").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}
