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

/// Bytes that can be leased below the process's limit of addresses (`ulimit -v`), with room for its stacks; `None` where there is
/// no limit.
pub(crate) fn address_room() -> Option<u64> {
    let limit = address_limit(&fs::read_to_string("/proc/self/limits").ok()?)?;
    let mapped = field_of("/proc/self/status", "VmSize:").ok()?;
    Some(limit.saturating_sub(mapped).saturating_sub(OTHER_ADDRESSES))
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
