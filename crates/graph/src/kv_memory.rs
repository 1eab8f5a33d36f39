//! How the KV arena takes memory: granularity, limit, bytes kept warm.

use std::fmt;

/// The unit in which an arena takes memory and gives it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KvGranule {
    /// The page of the operating system or the device's own unit.
    #[default]
    Page,
    /// The huge page of the operating system.
    Huge,
    /// This many bytes: a power of two and a multiple of the page.
    Bytes(u64),
}

impl fmt::Display for KvGranule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KvGranule::Page => formatter.write_str("a page"),
            KvGranule::Huge => formatter.write_str("a huge page"),
            KvGranule::Bytes(bytes) => write!(formatter, "{bytes} bytes"),
        }
    }
}

/// How an arena takes its memory and gives it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvMemory {
    /// The unit.
    pub granule: KvGranule,
    /// Bytes that all groups may hold together, what is kept warm included; absent: no bound but
    /// the system's.
    pub limit: Option<u64>,
    /// Bytes of granules without blocks that stay in memory for the next block at most: taking
    /// memory from the system costs about as much as writing it.
    pub keep_warm: u64,
}

impl Default for KvMemory {
    fn default() -> Self {
        KvMemory { granule: KvGranule::Page, limit: None, keep_warm: 64 << 20 }
    }
}

/// Memory of an arena in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvMemoryStats {
    /// Address space.
    pub reserved: u64,
    /// Granules in which committed blocks lie.
    pub committed: u64,
    /// Granules that are in memory without a committed block.
    pub warm: u64,
    /// One granule.
    pub granule: u64,
    /// Upper bound of `committed` plus `warm`.
    pub limit: Option<u64>,
}
