use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::ReleaseNotifier;
use super::rest::Rest;
use crate::lease::Turn;
use crate::sync::lock;
use crate::timing::LOOKER_CHECK;

/// The registration of one waiter, until it is dropped. It borrows the waiter's turn: a name has one registration, so that
/// one which outlived the turn would be replaced by that of the next caller, and would never wake its waiter again.
pub(crate) struct Subscription<'t> {
    notifier: Arc<ReleaseNotifier>,
    name: Arc<str>,
    woken: Arc<Notify>,
    turn: PhantomData<&'t Turn>,
}

impl<'t> Subscription<'t> {
    pub(super) fn new(notifier: &Arc<ReleaseNotifier>, turn: &'t Turn, woken: Arc<Notify>) -> Self {
        Self {
            notifier: Arc::clone(notifier),
            name: Arc::clone(turn.entry().name()),
            woken,
            turn: PhantomData,
        }
    }

    /// Notes the id of the claim that the caller's requests have, and whether a mark of finished work ends the wait.
    pub(crate) fn set_claim(&self, lock_id: &Arc<str>, ends_with_mark: bool) {
        if let Some(waiter) = lock(&self.notifier.state).waiters.get(&self.name) {
            waiter.claim = Some(Arc::clone(lock_id));
            waiter.ends_with_mark = ends_with_mark;
        }
    }

    /// Begins to rest after a reply that found the lock held, for the remaining time of its lease if the reply has it. It
    /// returns for how long, unless a look at the lock makes it longer.
    pub(crate) fn rest(&self, remaining: Option<Duration>) -> Duration {
        let mut state = lock(&self.notifier.state);
        self.notifier.rest(&mut state, &self.name, remaining)
    }

    /// Begins to rest before the first request, until this time: others may acquire the lock until then, and the caller
    /// rests on if they do.
    pub(crate) fn rest_while_yielding(&self, until: Instant, ends_with_mark: bool) {
        let mut state = lock(&self.notifier.state);
        if let Some(waiter) = state.waiters.get(&self.name) {
            waiter.ends_with_mark = ends_with_mark;
        }
        self.notifier.rest_while_yielding(&mut state, &self.name, until);
    }

    /// Waits until the caller has to send a request: the lock may be free, or the caller has to find out. Cancel
    /// safe.
    pub(crate) async fn woken(&self) {
        let mut check = Instant::now() + LOOKER_CHECK;
        while timeout_at(check, self.woken.notified()).await.is_err() {
            match self.notifier.next_check(&self.name) {
                Some(next) => check = next,
                None => break,
            }
        }
        self.finish_rest();
    }

    /// [`Self::woken`] for at most this time.
    pub(crate) async fn woken_within(&self, longest: Duration) {
        let _ = timeout(longest, self.woken.notified()).await;
        self.finish_rest();
    }

    fn finish_rest(&self) {
        let mut state = lock(&self.notifier.state);
        state.waiters.change(&self.name, Rest::finish);
    }

    /// Whether releases wake the caller at present.
    #[cfg(test)]
    pub(super) fn is_open(&self) -> bool {
        lock(&self.notifier.state).reports(&self.name)
    }
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        let removed = self.notifier.unsubscribe(&self.name);
        drop(removed);
    }
}
