//! The words of a record that belong to a lane.

/// The words of a record that belong to a lane: its own word, and further ones
/// after all lanes' own, for the permits of an exact window or the past of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cells {
    pub(crate) own: usize,
    /// Where the others begin.
    pub(crate) more: usize,
    /// How many there are in all.
    pub(crate) count: usize,
}

impl Cells {
    /// The place of one of them among the words of all lanes.
    pub(crate) const fn place(self, cell: usize) -> usize {
        if cell == 0 { self.own } else { self.more + cell - 1 }
    }

    /// The places of all of them.
    pub(crate) fn places(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |cell| self.place(cell))
    }
}
