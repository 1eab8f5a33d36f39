//! What the operating system says of memory. A failed query is an error, never a zero.

use std::fs;

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

/// Bytes that can be taken without swapping: the machine's, or the control group's where that is less.
///
/// # Errors
/// The figures could not be read.
pub fn available_memory() -> Result<u64, MemoryError> {
    let machine = field_of("/proc/meminfo", "MemAvailable:")?;
    Ok(machine.min(control_group_room().unwrap_or(u64::MAX)))
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

/// Room below the control group's limit; `None` where there is no limit.
fn control_group_room() -> Option<u64> {
    let number =
        |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok();
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
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
}
