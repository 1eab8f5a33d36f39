//! The host's memory beside the cache.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Memory that is accounted for until this is dropped.
pub type HostLease = Box<dyn Any + Send + Sync>;

/// Whom an engine asks before it copies rows from the cache to the host's memory. By default nobody: there is always room.
#[derive(Clone)]
pub struct HostMemory(Arc<dyn Fn(u64) -> Option<HostLease> + Send + Sync>);

impl HostMemory {
    /// `lend` is given bytes, and gives a lease for them or `None` where they are not to be had.
    pub fn new(lend: impl Fn(u64) -> Option<HostLease> + Send + Sync + 'static) -> HostMemory {
        HostMemory(Arc::new(lend))
    }

    /// Leased room for so many bytes, where there is any.
    pub(crate) fn room(&self, bytes: u64) -> Option<HostRoom> {
        let lease = (self.0)(bytes)?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(usize::try_from(bytes).ok()?).ok()?;
        Some(HostRoom { bytes: memory, lease })
    }
}

impl Default for HostMemory {
    fn default() -> HostMemory {
        HostMemory::new(|_| Some(Box::new(())))
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HostMemory").finish_non_exhaustive()
    }
}

/// Memory with its lease, which goes after it.
#[derive(Debug)]
pub(crate) struct HostRoom {
    pub(crate) bytes: Vec<u8>,
    #[expect(dead_code, reason = "it stands for the memory until it is dropped")]
    lease: HostLease,
}
