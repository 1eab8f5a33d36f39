//! SHA-256 of streams, in lower-case hexadecimal.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::HubError;

/// Bytes moved at a time when a file is hashed or copied.
pub(crate) const CHUNK: usize = 1 << 20;

/// A running SHA-256.
#[derive(Clone, Default)]
pub(crate) struct Sha(Sha256);

impl Sha {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest so far, in lower-case hexadecimal.
    pub(crate) fn hex(&self) -> String {
        self.0.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Hashes the first `bytes` bytes of a file, or fewer where it is shorter; `report` hears how far
/// it is.
pub(crate) fn hash_prefix(path: &Path, bytes: u64, report: &mut dyn FnMut(u64)) -> Result<Sha, HubError> {
    let mut reader = File::open(path).map_err(HubError::io(path))?.take(bytes);
    let mut sha = Sha::default();
    let mut buffer = vec![0; CHUNK];
    let mut done = 0;
    loop {
        let n = reader.read(&mut buffer).map_err(HubError::io(path))?;
        if n == 0 {
            return Ok(sha);
        }
        sha.update(&buffer[..n]);
        done += n as u64;
        report(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_abc() {
        // FIPS 180-2, appendix B.1.
        let mut sha = Sha::default();
        sha.update(b"ab");
        sha.update(b"c");
        assert_eq!(sha.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_prefix_stops_where_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, b"abcdef").unwrap();
        let mut seen = 0;
        let sha = hash_prefix(&path, 3, &mut |done| seen = done).unwrap();
        assert_eq!((seen, &sha.hex()[..8]), (3, "ba7816bf"));
    }
}
