use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::front_state::{FrontState, FrontStatus, RequestNumber};
use super::{Holder, Period};
use crate::LockError;
use crate::sync::lock;
use crate::timing::{NO_REPLY_LIMIT, SLOW_REPLY};

/// The state of the front of one queue, which its waiters share: those behind learn from it, and the next one at the front
/// continues from there. [`FrontState`] says what each method notes; those that name the holder, or that a request has
/// failed, wake the calls that wait for a change.
#[derive(Default)]
pub(crate) struct Front {
    state: Mutex<FrontState>,
    /// Notified when a reply or an error has arrived.
    changed: Notify,
}

impl Front {
    pub(crate) fn yield_lock(&self) {
        lock(&self.state).yield_lock();
    }

    pub(crate) fn request_due(&self) {
        lock(&self.state).request_due(Instant::now());
    }

    pub(crate) fn request_sent(&self) -> RequestNumber {
        lock(&self.state).request_sent(Instant::now())
    }

    pub(crate) fn release_sent(&self) -> RequestNumber {
        lock(&self.state).release_sent(Instant::now())
    }

    /// No waiter is notified: the turn passes on now, and the next caller must not learn instead that the lock was held before.
    pub(super) fn release_confirmed(&self) {
        lock(&self.state).release_confirmed(Instant::now());
    }

    pub(crate) fn released(&self, release: RequestNumber) {
        lock(&self.state).released(Instant::now(), release);
    }

    pub(crate) fn is_releasing(&self) -> bool {
        lock(&self.state).is_releasing()
    }

    pub(crate) fn replied(&self, request: RequestNumber) {
        lock(&self.state).replied(Instant::now(), request);
    }

    pub(crate) fn set_holder(&self, holder: Holder) {
        lock(&self.state).set_holder(holder);
        self.changed.notify_waiters();
    }

    pub(crate) fn set_no_holder(&self) {
        lock(&self.state).set_no_holder();
    }

    pub(crate) fn set_held(&self, holder: Holder) {
        lock(&self.state).set_held(holder);
        self.changed.notify_waiters();
    }

    pub(crate) fn set_failed(&self, error: LockError) {
        lock(&self.state).set_failed(Instant::now(), error);
        self.changed.notify_waiters();
    }

    pub(crate) fn forget_failure(&self) {
        lock(&self.state).forget_failure();
    }

    /// The status after the first reply or error, or after the time that a healthy server needs for one. During a release
    /// it waits for the next caller's reply. Cancel safe.
    pub(crate) async fn first_status(&self) -> FrontStatus {
        loop {
            let changed = self.changed.notified();
            if self.is_releasing() {
                changed.await;
                continue;
            }
            let status = self.status();
            let is_unknown = matches!(status, FrontStatus::NoReply | FrontStatus::NoHolder);
            if !is_unknown || self.is_reply_slow() {
                return status;
            }
            // A hold may begin and be released before this task runs again, so a change is not yet a status.
            if timeout(SLOW_REPLY, changed).await.is_err() && !self.is_releasing() {
                return self.status();
            }
        }
    }

    /// Waits until a call of this process knows a period that meets the condition. Cancel safe.
    pub(crate) async fn until_period(&self, take: impl Fn(Period) -> Option<Period>) -> Period {
        loop {
            let changed = self.changed.notified();
            let known = lock(&self.state).period(&take);
            if let Some(period) = known {
                return period;
            }
            changed.await;
        }
    }

    pub(crate) fn status(&self) -> FrontStatus {
        lock(&self.state).status(Instant::now())
    }

    pub(crate) fn refused_for(&self) -> Duration {
        lock(&self.state).refused_for(Instant::now())
    }

    pub(crate) fn is_reply_slow(&self) -> bool {
        lock(&self.state).is_reply_slow(Instant::now())
    }

    pub(crate) fn without_reply(&self) -> Duration {
        lock(&self.state).without_reply(Instant::now())
    }

    /// Resolves when a wait without a limit that began at this time has to end, because the server does not reply.
    pub(crate) async fn no_reply(&self, begun: Instant) {
        loop {
            let end = lock(&self.state).no_reply_ends(begun);
            match end {
                Some(end) if end <= Instant::now() => return,
                Some(end) => tokio::time::sleep_until(end).await,
                // If replies are missing from now on, the limit passes no earlier.
                None => tokio::time::sleep(NO_REPLY_LIMIT).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_status_is_awaited_as_long_as_a_healthy_server_needs() {
        let (front, begun) = (Front::default(), Instant::now());
        front.request_sent();
        assert!(matches!(front.first_status().await, FrontStatus::NoReply));
        assert_eq!(begun.elapsed(), SLOW_REPLY);
        assert!(matches!(front.first_status().await, FrontStatus::NoReply));
        assert_eq!(begun.elapsed(), SLOW_REPLY, "the reply is known to be missing");
        let front = Front::default();
        let replying = async {
            tokio::task::yield_now().await;
            front.set_held(Holder::default());
        };
        let (status, ()) = tokio::join!(front.first_status(), replying);
        assert!(matches!(status, FrontStatus::Held(_)));
        assert_eq!(begun.elapsed(), SLOW_REPLY);
    }

    /// The caller at the front may leave the lock to other processes for a while, and then sends no request.
    #[tokio::test(start_paused = true)]
    async fn the_first_status_is_not_awaited_for_longer_if_no_request_is_sent() {
        let (front, begun) = (Front::default(), Instant::now());
        assert!(matches!(front.first_status().await, FrontStatus::NoReply));
        assert_eq!(begun.elapsed(), SLOW_REPLY);
    }

    /// The hold of another caller begins, ends and is released before the task that asks for the status runs again.
    #[tokio::test(start_paused = true)]
    async fn the_first_status_is_not_that_of_a_hold_that_is_being_released() {
        let front = Front::default();
        front.request_sent();
        let holding = async {
            tokio::task::yield_now().await;
            front.set_held(Holder::default());
            front.release_sent();
            tokio::time::sleep(SLOW_REPLY / 2).await;
            front.set_failed(LockError::NoProvider);
        };
        let (status, ()) = tokio::join!(front.first_status(), holding);
        assert!(matches!(status, FrontStatus::Failed(_)), "{status:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_without_a_reply_belongs_to_the_name() {
        let (front, begun) = (Front::default(), Instant::now());
        front.request_sent();
        tokio::join!(front.no_reply(begun), front.no_reply(begun));
        assert_eq!(begun.elapsed().as_secs(), 60);
        let late = Instant::now();
        front.no_reply(late).await;
        assert_eq!(
            late.elapsed().as_secs(),
            10,
            "a later waiter has some time as well"
        );
    }
}
