//! Where barriers stand between steps, and whether a step's own values lie where it can write them.

/// How a step's work is split between workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    /// Each worker takes an equal run of rows of this symbol, in worker order.
    Rows(minfer_graph::Symbol),
    /// A free worker claims the next chunk.
    Chunks,
}

/// What a step reads and writes, at the largest extents.
#[derive(Debug, Clone, Default)]
pub(super) struct Footprint {
    /// Read.
    pub(super) reads: Vec<Region>,
    /// Written.
    pub(super) writes: Vec<Region>,
}

/// The rows of one value: row `r` is the `columns` elements from `start + r * stride` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    /// Which memory: the workspace, an external buffer, or scratch of the backend.
    pub(super) memory: usize,
    /// First element.
    pub(super) start: u64,
    /// Elements of a row.
    pub(super) columns: u64,
    /// Elements from one row to the next.
    pub(super) stride: u64,
    /// Rows at the largest extents.
    pub(super) rows: u64,
}

/// What two regions have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overlap {
    /// No element.
    Apart,
    /// Row `r` of one shares elements with row `r` of the other and with no other row.
    SameRows,
    /// Row `r` of one may share elements with another row than `r` of the other.
    OtherRows,
}

impl Region {
    fn end(&self) -> u64 {
        let last = self.rows.saturating_sub(1).saturating_mul(self.stride);
        self.start.saturating_add(last).saturating_add(if self.rows == 0 { 0 } else { self.columns })
    }

    fn overlap(&self, other: &Region) -> Overlap {
        if self.memory != other.memory || self.end() <= other.start || other.end() <= self.start {
            return Overlap::Apart;
        }
        let ends = [self.start.saturating_add(self.columns), other.start.saturating_add(other.columns)];
        // Row `r` of both lies in the window of `stride` elements from `first + r * stride` on.
        let first = self.start.min(other.start);
        if self.stride != other.stride || ends[0].max(ends[1]) - first > self.stride {
            return Overlap::OtherRows;
        }
        let columns_apart = ends[0] <= other.start || ends[1] <= self.start;
        if columns_apart { Overlap::Apart } else { Overlap::SameRows }
    }
}

/// For each step whether a barrier must stand before it. It may be left out where the step and all
/// steps since the last barrier are split by the same rows, and no row of one shares elements with
/// another row of the other.
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
    let conflict = |a: &Region, b: &Region| a.overlap(b) == Overlap::OtherRows;
    let pairs = |a: &[Region], b: &[Region]| a.iter().any(|a| b.iter().any(|b| conflict(a, b)));
    pairs(&earlier.writes, &later.reads)
        || pairs(&earlier.reads, &later.writes)
        || pairs(&earlier.writes, &later.writes)
}

/// What stands against running a step with its values at these places: workers would write what
/// another one reads or writes. `in_place` steps read each element of a row before they write it,
/// so results may lie exactly where operands lie, row by row.
pub(super) fn objection(in_place: bool, footprint: &Footprint) -> Option<&'static str> {
    let Footprint { reads, writes } = footprint;
    let narrow = |region: &Region| region.rows > 1 && region.stride < region.columns;
    if reads.iter().chain(writes).any(narrow) {
        return Some("rows of one of its values overlap in the plan");
    }
    for (index, write) in writes.iter().enumerate() {
        if writes[..index].iter().any(|other| write.overlap(other) != Overlap::Apart) {
            return Some("its results overlap in the plan");
        }
        let allowed = |overlap| overlap == Overlap::Apart || (in_place && overlap == Overlap::SameRows);
        if !reads.iter().all(|read| allowed(write.overlap(read))) {
            return Some("a result overlaps an operand in the plan");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use minfer_graph::Symbol;

    use super::*;

    fn region(start: u64, columns: u64, stride: u64) -> Region {
        Region { memory: 0, start, columns, stride, rows: 4 }
    }

    fn rows(reads: &[Region], writes: &[Region]) -> (Split, Footprint) {
        (Split::Rows(Symbol::Tokens), Footprint { reads: reads.to_vec(), writes: writes.to_vec() })
    }

    #[test]
    fn a_chain_over_the_same_rows_needs_no_barrier() {
        let (a, b, c) = (region(0, 100, 100), region(400, 100, 100), region(800, 100, 100));
        let steps = [rows(&[a], from_ref(&b)), rows(&[b], &[c])];
        assert_eq!(barriers(&steps), [false, false]);
    }

    #[test]
    fn rows_of_another_stride_over_the_same_bytes_need_one() {
        let (a, b, over_a) = (region(0, 100, 100), region(400, 100, 100), region(0, 200, 200));
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
        let (a, b, c) = (region(0, 100, 100), region(400, 100, 100), region(800, 100, 100));
        let over_a = region(0, 50, 50);
        let steps = [rows(&[a], from_ref(&b)), rows(&[b], from_ref(&c)), rows(&[c], &[over_a])];
        assert_eq!(barriers(&steps), [false, false, true]);
    }

    /// The truth by counting: every element of every row.
    fn counted(a: &Region, b: &Region) -> Overlap {
        let row = |region: &Region, row: u64| {
            let start = region.start + row * region.stride;
            start..start + region.columns
        };
        let mut found = Overlap::Apart;
        for r in 0..a.rows {
            for s in 0..b.rows {
                let (left, right) = (row(a, r), row(b, s));
                if left.start < right.end && right.start < left.end {
                    if r != s {
                        return Overlap::OtherRows;
                    }
                    found = Overlap::SameRows;
                }
            }
        }
        found
    }

    #[test]
    fn overlaps_are_those_of_the_elements() {
        let shapes = [(1, 8), (3, 8), (5, 8), (8, 8), (4, 12)];
        let mut seen = [false; 3];
        for ((columns, stride), (other_columns, other_stride)) in
            shapes.into_iter().flat_map(|a| shapes.map(|b| (a, b)))
        {
            for (start, other_start) in (0..20).flat_map(|a| (0..20).map(move |b| (a, b))) {
                let (a, b) =
                    (region(start, columns, stride), region(other_start, other_columns, other_stride));
                let (told, truth) = (a.overlap(&b), counted(&a, &b));
                // What is told may be worse than the truth, never better.
                assert!(told as u8 >= truth as u8, "{a:?} {b:?}: {told:?}, {truth:?}");
                if stride == other_stride && start.abs_diff(other_start) < stride - columns.max(other_columns)
                {
                    assert_eq!(told, truth, "{a:?} {b:?}");
                }
                seen[told as usize] = true;
            }
        }
        assert_eq!(seen, [true; 3]);
    }

    /// Columns 128.. and 256.. of rows of 4096: where both fit into a row nothing meets, where the
    /// second one reaches into the next row the first one of that row does.
    #[test]
    fn equal_strides_with_other_starts_meet_where_a_row_reaches_into_the_next() {
        let (a, inside, across) = (region(128, 64, 4096), region(256, 3840, 4096), region(256, 4000, 4096));
        assert_eq!(barriers(&[rows(&[], from_ref(&a)), rows(&[], &[inside])]), [false, false]);
        assert_eq!(barriers(&[rows(&[], from_ref(&a)), rows(&[], &[across])]), [false, true]);
    }

    #[test]
    fn places_that_workers_would_write_at_once_are_objected_to() {
        let footprint = |reads: &[Region], writes: &[Region]| rows(reads, writes).1;
        let (a, same, shifted) = (region(0, 8, 8), region(0, 8, 8), region(4, 8, 8));
        let (left, right) = (region(0, 4, 8), region(4, 4, 8));
        for in_place in [false, true] {
            assert!(objection(in_place, &footprint(from_ref(&a), from_ref(&shifted))).is_some());
            assert!(objection(in_place, &footprint(&[], &[a.clone(), same.clone()])).is_some());
            assert!(objection(in_place, &footprint(&[], &[region(0, 8, 4)])).is_some());
            assert!(objection(in_place, &footprint(from_ref(&left), from_ref(&right))).is_none());
            let told = objection(in_place, &footprint(from_ref(&a), from_ref(&same)));
            assert_eq!(told.is_none(), in_place);
        }
    }
}
