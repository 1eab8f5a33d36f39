//! Where barriers stand between steps.

use std::ops::Range;

/// How a step's work is split between workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    /// Each worker takes an equal run of rows of this symbol, in worker order.
    Rows(minfer_graph::Symbol),
    /// Whoever is free claims the next chunk.
    Chunks,
}

/// What a step touches: regions of the workspace in bytes at the largest extents, each with its row stride.
#[derive(Debug, Clone, Default)]
pub(super) struct Footprint {
    /// Read.
    pub(super) reads: Vec<Region>,
    /// Written.
    pub(super) writes: Vec<Region>,
}

/// Bytes that rows of one value occupy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    /// Which memory: the workspace, an external buffer, or scratch of the backend.
    pub(super) memory: usize,
    /// First and last byte.
    pub(super) bytes: Range<u64>,
    /// Bytes from one row to the next.
    pub(super) stride: u64,
}

impl Region {
    /// Whether row `r` of one may share bytes with another row than `r` of the other.
    fn conflicts(&self, other: &Region) -> bool {
        let apart = self.bytes.end <= other.bytes.start || other.bytes.end <= self.bytes.start;
        let aligned = self.stride == other.stride
            && self.bytes.start / self.stride.max(1) == other.bytes.start / other.stride.max(1);
        let same_rows = aligned && self.bytes.start.abs_diff(other.bytes.start) < self.stride;
        self.memory == other.memory && !apart && !same_rows
    }
}

/// For each step whether a barrier must stand before it: always, but where it and all steps since the last barrier are split
/// by the same rows and no row of one may meet another row of the other in memory.
pub(super) fn barriers(steps: &[(Split, Footprint)]) -> Vec<bool> {
    let mut out = Vec::with_capacity(steps.len());
    let mut since = 0;
    for (index, (split, footprint)) in steps.iter().enumerate() {
        let free = index > since
            && steps[since..index].iter().all(|(earlier, touched)| {
                earlier == split && matches!(split, Split::Rows(_)) && !meet(touched, footprint)
            });
        if index > 0 && !free {
            since = index;
        }
        out.push(index > 0 && !free);
    }
    out
}

fn meet(earlier: &Footprint, later: &Footprint) -> bool {
    let pairs = |a: &[Region], b: &[Region]| a.iter().any(|a| b.iter().any(|b| a.conflicts(b)));
    pairs(&earlier.writes, &later.reads)
        || pairs(&earlier.reads, &later.writes)
        || pairs(&earlier.writes, &later.writes)
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use minfer_graph::Symbol;

    use super::*;

    fn region(start: u64, end: u64, stride: u64) -> Region {
        Region { memory: 0, bytes: start..end, stride }
    }

    fn rows(reads: &[Region], writes: &[Region]) -> (Split, Footprint) {
        (Split::Rows(Symbol::Tokens), Footprint { reads: reads.to_vec(), writes: writes.to_vec() })
    }

    #[test]
    fn a_chain_over_the_same_rows_needs_no_barrier() {
        let (a, b, c) = (region(0, 400, 100), region(400, 800, 100), region(800, 1200, 100));
        let steps = [rows(&[a], from_ref(&b)), rows(&[b], &[c])];
        assert_eq!(barriers(&steps), [false, false]);
    }

    #[test]
    fn rows_of_another_stride_over_the_same_bytes_need_one() {
        let (a, b, over_a) = (region(0, 400, 100), region(400, 800, 100), region(0, 800, 200));
        let steps = [rows(&[a], from_ref(&b)), rows(&[], &[over_a])];
        assert_eq!(barriers(&steps), [false, true]);
    }

    #[test]
    fn chunks_are_fenced_on_both_sides() {
        let chunks = (Split::Chunks, Footprint::default());
        let row = rows(&[], &[]);
        assert_eq!(barriers(&[row.clone(), chunks.clone(), chunks, row]), [false, true, true, true]);
    }

    #[test]
    fn a_conflict_with_an_earlier_step_of_the_chain_counts() {
        let (a, b, c) = (region(0, 400, 100), region(400, 800, 100), region(800, 1200, 100));
        let over_a = region(0, 300, 50);
        let steps = [rows(&[a], from_ref(&b)), rows(&[b], from_ref(&c)), rows(&[c], &[over_a])];
        assert_eq!(barriers(&steps), [false, false, true]);
    }
}
