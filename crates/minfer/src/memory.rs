//! What the operating system says of memory. A failed query is an error, never a zero.

mod control_group;

use std::fs;
use std::path::Path;

use minfer_text::TEMPLATE_STACK_BYTES;

/// Addresses that a process needs beside what is leased, at most: the deep stack that a chat template runs on, stacks of other
/// threads, the allocator's own.
const OTHER_ADDRESSES: u64 = TEMPLATE_STACK_BYTES as u64 + (128 << 20);

/// The operating system did not say how much memory there is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the operating system does not tell its memory: {0}")]
pub struct MemoryError(String);

impl MemoryError {
    /// With the reason in words.
    pub fn new(reason: impl Into<String>) -> MemoryError {
        MemoryError(reason.into())
    }
}

/// Bytes that can be taken without swapping: the machine's, or those that control groups leave where that is less.
///
/// # Errors
/// The figures could not be read.
pub fn available_memory() -> Result<u64, MemoryError> {
    let machine = field_of("/proc/meminfo", "MemAvailable:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok();
    let room = groups.and_then(|groups| control_group::room(&groups, Path::new("/sys/fs/cgroup")));
    Ok(machine.min(room.unwrap_or(u64::MAX)))
}

/// A limit of the process's addresses (`ulimit -v`), and what is gone of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressLimit {
    /// Bytes of addresses that the process may have.
    pub limit: u64,
    /// Those that it has.
    pub mapped: u64,
    /// Those that are kept for stacks and the allocator.
    pub kept: u64,
}

impl AddressLimit {
    /// The limit of this process; `None` where there is none.
    pub(crate) fn of_process() -> Option<AddressLimit> {
        let limit = address_limit(&fs::read_to_string("/proc/self/limits").ok()?)?;
        let mapped = field_of("/proc/self/status", "VmSize:").ok()?;
        Some(AddressLimit { limit, mapped, kept: OTHER_ADDRESSES })
    }

    /// Bytes that can be leased.
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.mapped).saturating_sub(self.kept)
    }

    /// The least limit that leaves this many bytes to be leased, in the unit of `ulimit -v`, with a little for the allocator.
    pub(crate) fn kibibytes_for(&self, bytes: u64) -> u64 {
        (self.mapped.saturating_add(self.kept).saturating_add(bytes).saturating_add(4 << 20)).div_ceil(1024)
    }
}

/// Where addresses are limited (`ulimit -v`), lets all threads of the process share what the allocator takes of them: by
/// default each thread of the C library's takes 64 MiB. To be called before there are other threads.
pub fn spare_addresses() {
    if AddressLimit::of_process().is_some() {
        minfer_cpu::share_allocator_arena();
    }
}

/// The soft limit in the table of a process's limits.
fn address_limit(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes of memory that this process holds now.
///
/// # Errors
/// The figures could not be read.
pub fn resident_memory() -> Result<u64, MemoryError> {
    field_of("/proc/self/status", "VmRSS:")
}

/// A field of kibibytes in one of the system's tables, as bytes.
fn field_of(path: &str, field: &str) -> Result<u64, MemoryError> {
    let text = fs::read_to_string(path).map_err(|cause| MemoryError(format!("{path}: {cause}")))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.map(|count| count * 1024).ok_or_else(|| MemoryError(format!("{path} has no usable {field}")))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn figures_are_plausible() {
        assert!(available_memory().expect("available") > 1 << 20);
        assert!(resident_memory().expect("resident") > 1 << 16);
    }

    #[test]
    fn a_missing_field_is_an_error_that_names_it() {
        let error = field_of("/proc/meminfo", "NoSuchField:").unwrap_err();
        assert!(error.to_string().contains("NoSuchField"), "{error}");
    }

    #[test]
    fn a_limit_of_addresses_is_read_or_absent() {
        let table = |soft: &str| {
            format!(
                "Limit  Soft Limit  Hard Limit  Units\nMax processes  7  8  processes\nMax address space         {soft}            unlimited            bytes\n"
            )
        };
        assert_eq!(address_limit(&table("204800000")), Some(204_800_000));
        assert_eq!((address_limit(&table("unlimited")), address_limit("")), (None, None));
    }
}
