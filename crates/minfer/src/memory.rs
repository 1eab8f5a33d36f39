//! Free, resident and addressable memory, as the operating system reports it. A query that fails is
//! an error, not 0.

mod control_group;

use std::fs;
use std::path::Path;

use minfer_text::TEMPLATE_STACK_BYTES;

/// Address space that a process needs beside its leases, at most: the deep stack of chat templates,
/// stacks of other threads, the allocator.
const OTHER_ADDRESSES: u64 = TEMPLATE_STACK_BYTES as u64 + (128 << 20);

/// The operating system did not report its memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the operating system does not tell its memory: {0}")]
pub struct MemoryError(String);

impl MemoryError {
    /// `reason` is a clause, such as `/proc/meminfo: permission denied`.
    pub fn new(reason: impl Into<String>) -> MemoryError {
        MemoryError(reason.into())
    }
}

/// Bytes that can be taken without swapping: the least of what the machine and its control groups
/// have left.
///
/// # Errors
/// The figures could not be read.
pub fn available_memory() -> Result<u64, MemoryError> {
    let machine = field_of("/proc/meminfo", "MemAvailable:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok();
    let room = groups.and_then(|groups| control_group::room(&groups, Path::new("/sys/fs/cgroup")));
    Ok(machine.min(room.unwrap_or(u64::MAX)))
}

/// The limit of the process's address space (`ulimit -v`), and how much of it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressLimit {
    /// Bytes of address space that the process may have.
    pub limit: u64,
    /// Bytes in use.
    pub mapped: u64,
    /// Bytes reserved for stacks and the allocator.
    pub kept: u64,
}

impl AddressLimit {
    /// `None` where the process has no limit.
    pub(crate) fn of_process() -> Option<AddressLimit> {
        let limit = address_limit(&fs::read_to_string("/proc/self/limits").ok()?)?;
        let mapped = field_of("/proc/self/status", "VmSize:").ok()?;
        Some(AddressLimit { limit, mapped, kept: OTHER_ADDRESSES })
    }

    /// Bytes that are left to be leased.
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.mapped).saturating_sub(self.kept)
    }

    /// The least limit, in KiB as `ulimit -v` takes it, under which so many bytes can be leased; it
    /// includes 4 MiB for the allocator.
    pub(crate) fn kibibytes_for(&self, bytes: u64) -> u64 {
        (self.mapped.saturating_add(self.kept).saturating_add(bytes).saturating_add(4 << 20)).div_ceil(1024)
    }
}

/// Makes all threads share one allocator arena where the address space is limited (`ulimit -v`): by
/// default the C library reserves 64 MiB for each thread. Call it before other threads start.
pub fn spare_addresses() {
    if AddressLimit::of_process().is_some() {
        minfer_cpu::share_allocator_arena();
    }
}

/// The soft limit of the address space in the text of `/proc/self/limits`.
fn address_limit(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Resident memory of this process, in bytes.
///
/// # Errors
/// The figures could not be read.
pub fn resident_memory() -> Result<u64, MemoryError> {
    field_of("/proc/self/status", "VmRSS:")
}

/// A field of a `/proc` file that is in KiB, as bytes.
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
