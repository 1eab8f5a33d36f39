//! Identifiers of answers, calls and requests.

use std::time::{SystemTime, UNIX_EPOCH};

/// A new identifier that begins with `prefix`.
pub(crate) fn new(prefix: &str) -> String {
    let random = getrandom::u64().unwrap_or_else(|_| nanoseconds());
    format!("{prefix}{random:016x}")
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn nanoseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
