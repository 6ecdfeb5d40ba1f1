//! The contents of the file of used budgets, by the records of its agents.

/// Words of a row before those of the lanes: the record's tenant, by its tag,
/// and the offset of its entry in the file.
const HEAD: usize = 2;

/// A row for every record: 8 bytes each for tenant, offset and every budget.
#[derive(Default)]
pub(super) struct SavedRows {
    rows: Vec<u64>,
    width: usize,
}

impl SavedRows {
    /// `None` if there is not enough memory. Rows that are never written take none.
    pub(super) fn new(records: u64, lanes: usize) -> Option<Self> {
        let width = HEAD + lanes;
        let words = usize::try_from(records).ok()?.checked_mul(width)?;
        Vec::<u64>::new().try_reserve_exact(words).ok()?;
        // In one piece, so that its zeros come from the system as they are touched.
        Some(Self { rows: vec![0; words], width })
    }

    /// The most memory it takes.
    pub(super) fn bytes(records: u64, lanes: usize) -> u64 {
        8 * (HEAD + lanes) as u64 * records
    }

    pub(super) fn positions(&self) -> usize {
        self.rows.len().checked_div(self.width).unwrap_or(0)
    }

    fn row(&self, position: usize) -> &[u64] {
        let row = self.rows.get(position * self.width..(position + 1) * self.width);
        row.filter(|row| !row.is_empty()).unwrap_or(&[0; HEAD])
    }

    /// 0 if the file has no entry for the record.
    pub(super) fn tenant(&self, position: usize) -> u64 {
        self.row(position)[0]
    }

    pub(super) fn offset(&self, position: usize) -> u64 {
        self.row(position)[1]
    }

    /// What is used of each lane.
    pub(super) fn words(&self, position: usize) -> &[u64] {
        &self.row(position)[HEAD..]
    }

    /// Whether the file has these words for the record's tenant, or has no entry
    /// and needs none. A window that is over counts as unused.
    pub(super) fn is(&self, position: usize, tenant: u64, words: &[u64], is_over: impl Fn(u64, usize) -> bool) -> bool {
        if self.tenant(position) != tenant {
            return self.tenant(position) == 0 && words.iter().all(|word| *word == 0);
        }
        let saved = self.words(position).iter().enumerate();
        saved.map(|(lane, word)| if is_over(*word, lane) { 0 } else { *word }).eq(words.iter().copied())
    }

    /// Stores a row: position, tenant, offset, words.
    pub(super) fn set(&mut self, row: &[u64]) {
        let [position, row @ ..] = row else { return };
        let start = *position as usize * self.width;
        if let Some(place) = self.rows.get_mut(start..start + self.width) {
            place.copy_from_slice(row);
        }
    }

    /// Stores rows whose offsets count from `start`.
    pub(super) fn set_all(&mut self, rows: &[u64], start: u64) {
        for row in rows.chunks_exact(1 + self.width) {
            self.set(row);
            if let Some(offset) = self.rows.get_mut(row[0] as usize * self.width + 1) {
                *offset += start;
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.rows.fill(0);
    }
}
