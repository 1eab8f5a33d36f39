//! Resident memory of this process, as the operating system reports it.

use std::io;
use std::ops::Range;

/// Bytes of a range of addresses that are in memory or swapped out, in whole pages of `page` bytes,
/// at whose multiples the range begins and ends. From `pagemap(5)` of proc: 64 bits a page, of
/// which the highest says that it is in memory and the next that it is swapped.
///
/// # Errors
/// The system does not tell: it is no Linux, or keeps its table to itself.
#[cfg(target_os = "linux")]
pub fn resident_bytes(addresses: Range<usize>, page: usize) -> io::Result<u64> {
    use std::io::{Read, Seek, SeekFrom};
    let mut map = std::fs::File::open("/proc/self/pagemap")?;
    let mut entries = vec![0; addresses.len() / page * 8];
    map.seek(SeekFrom::Start((addresses.start / page * 8) as u64))?;
    map.read_exact(&mut entries)?;
    let entries = entries.as_chunks::<8>().0.iter().map(|entry| u64::from_le_bytes(*entry));
    Ok(entries.filter(|entry| entry >> 62 != 0).count() as u64 * page as u64)
}

/// As on Linux, where there is such a table.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn resident_bytes(_addresses: Range<usize>, _page: usize) -> io::Result<u64> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Memory that was asked for is there once it is written.
    #[test]
    fn what_is_written_is_there() {
        let (page, pages) = (1 << 16, 64);
        let mut bytes = vec![0u8; page * (pages + 1)];
        let start = (bytes.as_ptr() as usize).next_multiple_of(page);
        let offset = start - bytes.as_ptr() as usize;
        // Pages of the system are no larger than these.
        let system = |range: Range<usize>| resident_bytes(range, 4096).expect("a table");
        let before = system(start..start + page * pages);
        for index in [3, 4, 40] {
            bytes[offset + index * page..][..page].fill(1);
            assert_eq!(system(start + index * page..start + (index + 1) * page), page as u64);
        }
        assert!(system(start..start + page * pages) >= before);
        assert_eq!(std::hint::black_box(bytes)[offset + 3 * page], 1);
    }
}
