//! Starting anew when what is known of the blocks cannot be trusted.

use minfer_graph::KvSpec;

use super::store::{Store, StoreOptions};

impl Store {
    /// Forgets every sequence and every cached row; counters go on, and no sequence's name is used
    /// again. Returns the blocks that were in use, whose memory the caller releases.
    pub(crate) fn reset(&mut self, spec: &KvSpec, options: StoreOptions) -> Vec<(usize, u32)> {
        let mut used = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            let free = group.pool.free_blocks();
            used.extend((0u32..).zip(free).filter(|&(_, free)| !free).map(|(block, _)| (index, block)));
        }
        let Store { next_id, clock, .. } = *self;
        let counters = std::mem::take(&mut self.counters);
        *self = Store { next_id, clock, counters, ..Store::new(spec, options) };
        used
    }
}
