//! Credit that came with a copy of the memory: a forked child has its parent's, which the parent spends or gives back.

use super::Engine;

impl Engine {
    /// The engine of this process settles from now on, and no credit is its own that came with a copy of the memory.
    pub(crate) fn adopt_link(&self) {
        let lanes = self.limits.lanes().map(|lane| lane.id());
        let shared: Vec<_> = lanes.filter_map(|lane| Some((lane, self.limits.clustered(lane)?))).collect();
        for found in self.slab.occupied() {
            for (lane, shared) in &shared {
                let (cells, retried) = (self.limits.cells(*lane), || self.slab.count_retry());
                // A record that changes hands meanwhile has no credit: checks do not honour it yet.
                let _ = found.record.update_lane(found.tag, cells, |words| shared.disowned(words), retried);
            }
        }
        self.limits.adopt_link();
    }
}
