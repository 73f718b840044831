//! A hold on its way from one caller of this process to the next: it is taken, or it is released.
//!
//! The suite `threads` compiles this file with the atomics of loom and explores every order of its steps.

use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::sync::{Mutex, lock};

/// The hold that is handed over with the turn, and the number of callers that can take it.
pub(super) struct HandedOver<H> {
    /// The number of callers that wait for the turn.
    waiters: AtomicUsize,
    /// A hold that is handed over and not yet taken. If it is dropped with the queue, it releases the lock. It is boxed,
    /// because most locks are never handed over.
    hold: Mutex<Option<Box<H>>>,
}

impl<H> HandedOver<H> {
    pub(super) fn new() -> Self {
        Self {
            waiters: AtomicUsize::new(0),
            hold: Mutex::new(None),
        }
    }

    /// Counts a caller that begins to wait for the turn.
    pub(super) fn join(&self) {
        self.waiters.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a caller no longer, because it has the turn or was cancelled.
    pub(super) fn leave<T>(&self, try_turn: impl FnOnce() -> Option<T>) {
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        self.release_if_abandoned(try_turn);
    }

    /// The number of callers that wait for the turn.
    pub(super) fn waiters(&self) -> usize {
        self.waiters.load(Ordering::Relaxed)
    }

    /// Leaves a hold for the caller that gets the turn next.
    pub(super) fn put(&self, hold: H) {
        *lock(&self.hold) = Some(Box::new(hold));
    }

    /// Takes the hold; the caller has the turn.
    pub(super) fn take(&self) -> Option<H> {
        lock(&self.hold).take().map(|hold| *hold)
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.hold).is_none()
    }

    /// Drops a hold that was handed over to a waiter that has just been cancelled, if no other waiter can take it. It
    /// is called after a hold was handed over and after a waiter has left: the later of the two calls sees both.
    pub(super) fn release_if_abandoned<T>(&self, try_turn: impl FnOnce() -> Option<T>) {
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) == 0
            && let Some(_turn) = try_turn()
        {
            drop(self.take());
        }
    }
}
