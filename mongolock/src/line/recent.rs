use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;

use crate::timing::LINE_REACQUIRED;

/// The number of names that can be remembered. If two have the same cell, one is forgotten, which costs nothing but a
/// later look at its line.
const CELLS: usize = 128;

/// The names that this provider has released recently, as hashes: it takes no memory per name and no mutex.
pub(super) struct RecentReleases {
    start: Instant,
    /// The upper half of a cell is a part of the hash, the lower half the time in milliseconds.
    cells: Box<[AtomicU64]>,
}

impl RecentReleases {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            start: now,
            cells: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn add(&self, now: Instant, name: &str) {
        let (cell, hash) = self.cell(name);
        cell.store(hash | u64::from(self.millis(now)), Relaxed);
    }

    /// Whether the name was released within [`LINE_REACQUIRED`].
    pub(super) fn contains(&self, now: Instant, name: &str) -> bool {
        let (cell, hash) = self.cell(name);
        let value = cell.load(Relaxed);
        // Another thread may have noted a release after this time was read: that one is recent as well.
        let since = self
            .millis(now)
            .wrapping_sub(low_half(value))
            .cast_signed()
            .max(0);
        value >> 32 == hash >> 32 && u128::from(since.unsigned_abs()) < LINE_REACQUIRED.as_millis()
    }

    fn cell(&self, name: &str) -> (&AtomicU64, u64) {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let hash = hasher.finish();
        // A cell that was never used is zero, and equals no name.
        let upper = (hash | 1 << 32) & !u64::from(u32::MAX);
        (&self.cells[low_half(hash) as usize % CELLS], upper)
    }

    /// The time in milliseconds, which begins anew after 49 days.
    fn millis(&self, now: Instant) -> u32 {
        low_half(u64::try_from((now - self.start).as_millis()).unwrap_or_default())
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the half is meant")]
fn low_half(value: u64) -> u32 {
    value as u32
}
