use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::{Holder, Period};
use crate::LockError;
use crate::store::driver_error;
use crate::sync::lock;
use crate::timing::{NO_REPLY_LIMIT, NO_REPLY_LIMIT_MIN, SLOW_REPLY};

/// What this process knows about a lock: it decides the error of a wait that reaches its limit.
#[derive(Debug, Clone)]
pub(crate) enum FrontStatus {
    /// A reply said that the lock is held, or a caller in this process holds it.
    Held(Holder),
    /// The last known holder has the lock no more, and no reply has named another one: this process is giving the lock back, or
    /// a reply found it free, or held by a claim that this process has given up.
    NoHolder,
    /// The last request failed. The error is boxed to keep a queue small, because few queues store one.
    Failed(Box<LockError>),
    /// There was no reply yet, or none for longer than a healthy server needs.
    NoReply,
}

impl FrontStatus {
    /// The holder that a call which ends now names, if a reply has told whether the lock is held; otherwise the status.
    pub(crate) fn holder(self) -> Result<Holder, Self> {
        match self {
            Self::Held(holder) => Ok(holder),
            Self::NoHolder => Ok(Holder::default()),
            other => Err(other),
        }
    }
}

/// What the waiters at the front of one queue have learned from the server. The waiters behind share it, and the next one
/// at the front continues from there.
pub(crate) struct Front {
    state: Mutex<State>,
    /// Notified when a reply or an error has arrived.
    changed: Notify,
}

/// The number of a request or a query about one lock, in the order in which this process has sent them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct RequestNumber(u64);

struct State {
    /// The status after the last reply or error.
    status: FrontStatus,
    /// The time of the first request since the last usable reply.
    no_reply_since: Option<Instant>,
    /// The last request that was sent.
    last_request: RequestNumber,
    /// The release of a claim that no call of this process uses any more, if it is sent and not yet confirmed.
    release: Option<RequestNumber>,
    /// Whether the call at the front leaves the lock to others and has sent no request since.
    stands_back: bool,
}

impl Front {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                status: FrontStatus::NoReply,
                no_reply_since: None,
                last_request: RequestNumber::default(),
                release: None,
                stands_back: false,
            }),
            changed: Notify::new(),
        }
    }

    /// Notes that the call at the front leaves the lock to others: if its time ends before its first request, it has waited for
    /// them, and for no reply.
    pub(crate) fn stand_back(&self) {
        lock(&self.state).stands_back = true;
    }

    /// Notes that a request or a query is to be sent, as soon as it is allowed. The last status stays valid for the time that a
    /// healthy server needs for its reply.
    pub(crate) fn request_due(&self) {
        lock(&self.state).note_request();
    }

    /// Notes that a request or a query is sent, as [`request_due`](Self::request_due) does, and returns its number.
    pub(crate) fn request_sent(&self) -> RequestNumber {
        lock(&self.state).send()
    }

    /// Notes that a release is sent for which no holder waits: its call has returned, or has given its claim up. Until it is
    /// confirmed, the lock is neither free nor held by another caller. Returns its number.
    pub(crate) fn release_sent(&self) -> RequestNumber {
        let mut state = lock(&self.state);
        let number = state.send();
        state.release = Some(number);
        if matches!(state.status, FrontStatus::Held(_)) {
            state.status = FrontStatus::NoHolder;
        }
        number
    }

    /// Notes that the server has confirmed such a release. The next caller of this process may still leave the lock to other
    /// processes, and a call that ends meanwhile has not missed a reply. Nobody is notified: the turn passes on now, and who
    /// waits for it must not learn instead that the lock was held before.
    pub(super) fn release_confirmed(&self) {
        lock(&self.state).confirm_release();
    }

    /// Notes that the server has confirmed this release. That says nothing of a request that was sent after it: the call goes
    /// on to wait for its reply.
    pub(crate) fn released(&self, release: RequestNumber) {
        let mut state = lock(&self.state);
        if state.release == Some(release) {
            state.confirm_release();
        }
    }

    /// Whether a release is on its way for which no holder waits.
    pub(crate) fn is_releasing(&self) -> bool {
        lock(&self.state).release.is_some()
    }

    /// Notes a reply of the server to this request, perhaps to one whose caller has left. It says nothing of the requests
    /// that were sent later: if there is no reply to them yet, their time without a reply begins now.
    pub(crate) fn replied(&self, request: RequestNumber) {
        lock(&self.state).note_reply(request);
    }

    /// Notes that a reply has said who has the lock; [`replied`](Self::replied) notes which requests have their reply.
    pub(crate) fn set_holder(&self, holder: Holder) {
        lock(&self.state).set_status(FrontStatus::Held(holder));
        self.changed.notify_waiters();
    }

    /// Notes that a reply has found no holder: the lock is free, or a claim has it that this process has given up. The holder
    /// that an earlier reply has named must not be that of an error any more.
    pub(crate) fn set_no_holder(&self) {
        lock(&self.state).set_status(FrontStatus::NoHolder);
    }

    /// Notes that the lock is held, whatever is the reply to the requests in flight: a caller of this process has acquired it,
    /// or an event has told of another holder.
    pub(crate) fn set_held(&self, holder: Holder) {
        let mut state = lock(&self.state);
        state.no_reply_since = None;
        state.set_status(FrontStatus::Held(holder));
        drop(state);
        self.changed.notify_waiters();
    }

    /// Notes that a request has failed. The time without a reply goes on, unless the server said that the document is
    /// blocked.
    pub(crate) fn set_failed(&self, error: LockError) {
        let mut state = lock(&self.state);
        if driver_error::is_blocked_document(&error) {
            state.no_reply_since = None;
        }
        state.set_status(FrontStatus::Failed(Box::new(error)));
        drop(state);
        self.changed.notify_waiters();
    }

    /// Notes that one of several permits was acquired, which says nothing of those that hold the others: the last failure is no
    /// longer what is known.
    pub(crate) fn forget_failure(&self) {
        let status = &mut lock(&self.state).status;
        if matches!(status, FrontStatus::Failed(_)) {
            *status = FrontStatus::NoReply;
        }
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
            if let FrontStatus::Held(holder) = &lock(&self.state).status
                && let Some(period) = holder.period().and_then(&take)
            {
                return period;
            }
            changed.await;
        }
    }

    pub(crate) fn status(&self) -> FrontStatus {
        let state = lock(&self.state);
        match (&state.status, state.no_reply_since) {
            (FrontStatus::Held(_) | FrontStatus::NoHolder, Some(since)) if since.elapsed() >= SLOW_REPLY => {
                FrontStatus::NoReply
            }
            (FrontStatus::NoReply, since)
                if state.stands_back && since.is_none_or(|since| since.elapsed() < SLOW_REPLY) =>
            {
                FrontStatus::Held(Holder::default())
            }
            (status, _) => status.clone(),
        }
    }

    /// Whether a reply is missing for longer than a healthy server needs.
    pub(crate) fn is_reply_slow(&self) -> bool {
        let since = lock(&self.state).no_reply_since;
        since.is_some_and(|since| since.elapsed() >= SLOW_REPLY)
    }

    /// The time since the first request without a reply; zero if there is none.
    pub(crate) fn without_reply(&self) -> Duration {
        let since = lock(&self.state).no_reply_since;
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Resolves when a wait without a limit that began at this time has to end, because the server does not reply. The
    /// time without a reply belongs to the name: it does not start anew for later waiters and those behind.
    pub(crate) async fn no_reply(&self, begun: Instant) {
        loop {
            let now = Instant::now();
            match self.no_reply_ends(begun) {
                Some(end) if end <= now => return,
                Some(end) => tokio::time::sleep_until(end).await,
                // If replies are missing from now on, the limit passes no earlier.
                None => tokio::time::sleep(NO_REPLY_LIMIT).await,
            }
        }
    }

    fn no_reply_ends(&self, begun: Instant) -> Option<Instant> {
        let since = lock(&self.state).no_reply_since?;
        Some((since + NO_REPLY_LIMIT).max(begun + NO_REPLY_LIMIT_MIN))
    }
}

impl State {
    fn note_request(&mut self) {
        self.no_reply_since.get_or_insert_with(Instant::now);
        self.release = None;
        self.stands_back = false;
    }

    fn send(&mut self) -> RequestNumber {
        self.note_request();
        self.last_request.0 += 1;
        self.last_request
    }

    fn set_status(&mut self, status: FrontStatus) {
        self.status = status;
        self.release = None;
    }

    fn confirm_release(&mut self) {
        if let Some(release) = self.release.take() {
            self.note_reply(release);
        }
    }

    fn note_reply(&mut self, request: RequestNumber) {
        if self.no_reply_since.is_some() {
            self.no_reply_since = (request < self.last_request).then(Instant::now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_status_is_held_only_after_a_reply() {
        let front = Front::new();
        assert!(
            matches!(front.status(), FrontStatus::NoReply),
            "there was no reply yet"
        );
        front.request_sent();
        assert!(matches!(front.status(), FrontStatus::NoReply));
        front.set_failed(LockError::NoProvider);
        assert!(matches!(front.status(), FrontStatus::Failed(_)));
        front.set_held(Holder::default());
        front.request_sent();
        assert!(
            matches!(front.status(), FrontStatus::Held(_)),
            "a reply takes some time"
        );
        tokio::time::sleep(SLOW_REPLY).await;
        front.request_sent();
        assert!(
            matches!(front.status(), FrontStatus::NoReply),
            "the time goes on for the next waiter at the front"
        );
    }

    /// While too many commands are in flight, none is sent.
    #[tokio::test(start_paused = true)]
    async fn held_is_not_the_status_while_a_request_may_not_be_sent() {
        let front = Front::new();
        front.set_held(Holder::default());
        front.request_due();
        tokio::time::sleep(SLOW_REPLY).await;
        assert!(matches!(front.status(), FrontStatus::NoReply));
        assert_eq!(front.without_reply(), SLOW_REPLY);
    }

    /// A call that leaves the lock to others waits for them, until it has to send a request.
    #[tokio::test(start_paused = true)]
    async fn held_is_the_status_while_a_call_stands_back() {
        let front = Front::new();
        front.stand_back();
        assert!(matches!(front.status(), FrontStatus::Held(_)));
        front.request_due();
        assert!(matches!(front.status(), FrontStatus::NoReply));
        tokio::time::sleep(SLOW_REPLY).await;
        front.stand_back();
        assert!(
            matches!(front.status(), FrontStatus::NoReply),
            "a reply is missing"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_confirmed_release_is_a_reply() {
        let front = Front::new();
        front.set_held(Holder::default());
        front.release_sent();
        assert!(front.is_releasing());
        front.release_confirmed();
        assert!(!front.is_releasing());
        tokio::time::sleep(SLOW_REPLY).await;
        assert!(!front.is_reply_slow() && front.without_reply().is_zero());
    }

    /// The caller goes on after a while without a reply to a release. The late reply says that the server is there, and not
    /// who has the lock.
    #[tokio::test(start_paused = true)]
    async fn a_late_reply_to_a_release_does_not_answer_the_next_request() {
        let front = Front::new();
        front.set_held(Holder::default());
        let release = front.release_sent();
        tokio::time::sleep(SLOW_REPLY).await;
        front.request_sent();
        front.released(release);
        assert!(matches!(front.status(), FrontStatus::NoReply));
        assert_eq!(front.without_reply(), SLOW_REPLY);
        let release = front.release_sent();
        front.released(release);
        assert!(matches!(front.status(), FrontStatus::NoHolder));
    }

    /// The reply to the request of a caller that has left says nothing of the next caller's request.
    #[tokio::test(start_paused = true)]
    async fn a_reply_does_not_answer_the_other_requests_in_flight() {
        let front = Front::new();
        front.set_held(Holder::default());
        let (left, next) = (front.request_sent(), front.request_sent());
        tokio::time::sleep(SLOW_REPLY).await;
        front.replied(left);
        assert!(
            matches!(front.status(), FrontStatus::Held(_)),
            "the server is there"
        );
        tokio::time::sleep(SLOW_REPLY).await;
        assert!(matches!(front.status(), FrontStatus::NoReply));
        front.replied(next);
        assert!(matches!(front.status(), FrontStatus::Held(_)));
    }

    /// A request on a dead connection has no reply for long. That says nothing if a later one has one.
    #[tokio::test(start_paused = true)]
    async fn an_earlier_request_without_a_reply_does_not_matter_after_a_later_reply() {
        let front = Front::new();
        front.set_held(Holder::default());
        let (dead, copy) = (front.request_sent(), front.request_sent());
        front.replied(copy);
        tokio::time::sleep(SLOW_REPLY).await;
        assert!(matches!(front.status(), FrontStatus::Held(_)));
        front.replied(dead);
        tokio::time::sleep(SLOW_REPLY).await;
        assert!(
            matches!(front.status(), FrontStatus::Held(_)),
            "no request is without a reply"
        );
    }

    /// The status of a semaphore is that of all its permits.
    #[tokio::test]
    async fn a_failure_is_forgotten_after_a_success() {
        let front = Front::new();
        front.set_failed(LockError::NoProvider);
        front.forget_failure();
        assert!(matches!(front.status(), FrontStatus::NoReply));
        front.set_held(Holder::default());
        front.forget_failure();
        assert!(matches!(front.status(), FrontStatus::Held(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_status_is_awaited_as_long_as_a_healthy_server_needs() {
        let (front, begun) = (Front::new(), Instant::now());
        front.request_sent();
        assert!(matches!(front.first_status().await, FrontStatus::NoReply));
        assert_eq!(begun.elapsed(), SLOW_REPLY);
        assert!(matches!(front.first_status().await, FrontStatus::NoReply));
        assert_eq!(begun.elapsed(), SLOW_REPLY, "the reply is known to be missing");
        let front = Front::new();
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
        let (front, begun) = (Front::new(), Instant::now());
        assert!(matches!(front.first_status().await, FrontStatus::NoReply));
        assert_eq!(begun.elapsed(), SLOW_REPLY);
    }

    /// The hold of another caller begins, ends and is released before the task that asks for the status runs again.
    #[tokio::test(start_paused = true)]
    async fn the_first_status_is_not_that_of_a_hold_that_is_being_released() {
        let front = Front::new();
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
        let (front, begun) = (Front::new(), Instant::now());
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
        front.set_failed(driver_error::blocked(
            "n",
            mongodb::error::Error::custom("blocked"),
        ));
        assert_eq!(front.no_reply_ends(late), None, "the server has answered");
    }
}
