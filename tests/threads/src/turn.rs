//! The turn of a queue, as tokio's semaphore makes it: one permit, which is taken with `Acquire` and given with `Release`.

use loom::sync::atomic::{AtomicUsize, Ordering};

/// The semaphore of the turn.
pub(crate) struct Turns(AtomicUsize);

/// The turn; dropping it gives it back.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(crate) fn new(permits: usize) -> Self {
        Self(AtomicUsize::new(permits))
    }

    pub(crate) fn try_acquire(&self) -> Option<Turn<'_>> {
        let taken = self.0.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire);
        taken.ok().map(|_| Turn(self))
    }

    /// Gives a turn back that was taken without a [`Turn`].
    pub(crate) fn give(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.give();
    }
}
