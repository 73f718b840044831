use std::sync::Mutex;

use tokio::time::Instant;

use crate::LockError;
use crate::store::AcquireReply;
use crate::store::driver_error;
use crate::sync::lock;
use crate::timing::{LATE_RELEASE_OF_SET, LATE_RELEASES, SLOW_REPLY};

/// What this process knows about the acquire requests that were sent for one claim. They are copies of one another: the
/// first one that takes effect acquires the lock, and the others find their own claim in the document.
#[derive(Default)]
pub(crate) struct Copies(Mutex<State>);

#[derive(Default)]
struct State {
    /// The number of requests without a reply.
    in_flight: u32,
    /// The time at which the last request was sent.
    last_sent: Option<Instant>,
    /// Whether a request may take effect after its reply, or although it failed.
    is_uncertain: bool,
    /// Whether a reply said that the claim has the lock.
    has_acquired: bool,
    /// Whether the claim is one of several with one id.
    is_of_set: bool,
    phase: Phase,
}

/// How this process uses a claim.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A caller waits for the lock or holds it.
    #[default]
    InUse,
    /// The claim is being released. A reply in the meantime may mean that the claim has acquired the lock again.
    Releasing { may_be_reacquired: bool },
    /// The claim was released, and is released again whenever a request may have acquired the lock for it.
    GivenUp,
}

impl Copies {
    /// The requests of a claim that is one of several with one id.
    pub(crate) fn of_set() -> Self {
        let state = State {
            is_of_set: true,
            ..State::default()
        };
        Self(Mutex::new(state))
    }

    pub(crate) fn sent(&self) {
        let mut state = lock(&self.0);
        state.in_flight += 1;
        state.last_sent = Some(Instant::now());
    }

    /// Notes a reply, or that there will be none, and returns whether the claim has to be released because of it: the
    /// request may have acquired the lock, and the claim was given up before.
    ///
    /// If a reply took longer than a healthy server needs, the driver may have repeated the request, and its first copy
    /// may arrive at the server later.
    pub(crate) fn answered(&self, sent: Instant, answer: Option<Result<&AcquireReply, &LockError>>) -> bool {
        let mut state = lock(&self.0);
        state.in_flight -= 1;
        let (may_have_acquired, is_certain) = match answer {
            Some(Ok(AcquireReply::Acquired { .. })) => {
                state.has_acquired = true;
                (true, true)
            }
            Some(Ok(AcquireReply::Held { .. })) => (false, true),
            Some(Err(error)) if driver_error::was_not_applied(error) => (false, true),
            Some(Err(_)) | None => (true, false),
        };
        state.is_uncertain |= !is_certain || sent.elapsed() >= SLOW_REPLY;
        if let Phase::Releasing { may_be_reacquired } = &mut state.phase {
            *may_be_reacquired |= may_have_acquired;
        }
        state.phase == Phase::GivenUp && may_have_acquired
    }

    /// Gives the claim up, and returns whether it may have the lock, now or later.
    pub(crate) fn give_up(&self) -> bool {
        let mut state = lock(&self.0);
        state.phase = Phase::GivenUp;
        state.has_acquired || state.may_take_effect()
    }

    /// Notes that a release of the claim begins. Until the server has confirmed it, nothing else may release the claim:
    /// another release would end a minimum hold, and would make the confirmed one look like a loss.
    pub(crate) fn begin_release(&self) {
        lock(&self.0).phase = Phase::Releasing {
            may_be_reacquired: false,
        };
    }

    /// Notes that the release has ended, and returns whether a reply in the meantime may mean that the claim has the lock
    /// again.
    pub(crate) fn end_release(&self) -> bool {
        let phase = std::mem::replace(&mut lock(&self.0).phase, Phase::GivenUp);
        let reacquired = Phase::Releasing {
            may_be_reacquired: true,
        };
        phase == reacquired
    }

    /// Whether a request of the claim may take effect from now on.
    pub(crate) fn may_take_effect(&self) -> bool {
        lock(&self.0).may_take_effect()
    }

    /// The time of the next release of the id, if one of its requests may take effect late.
    pub(crate) fn next_release(&self) -> Option<Instant> {
        let state = lock(&self.0);
        let last = state.last_sent.filter(|_| state.may_take_effect())?;
        let now = Instant::now();
        let first = state.is_of_set.then_some(&LATE_RELEASE_OF_SET);
        first
            .into_iter()
            .chain(&LATE_RELEASES)
            .map(|later| last + *later)
            .find(|at| *at > now)
    }
}

impl State {
    fn may_take_effect(&self) -> bool {
        self.in_flight > 0 || self.is_uncertain
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HELD: Result<AcquireReply, LockError> = Ok(AcquireReply::Held {
        dates: None,
        holder: None,
        held_for: None,
        remaining: None,
    });

    fn failed() -> LockError {
        LockError::Mongo(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_prompt_reply_settles_its_request() {
        let copies = Copies::default();
        copies.sent();
        assert!(copies.may_take_effect(), "the request is in flight");
        assert!(!copies.answered(Instant::now(), Some(HELD.as_ref())));
        assert!(!copies.may_take_effect() && !copies.give_up());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_with_a_slow_failed_or_missing_reply_may_take_effect() {
        for (pause, reply) in [
            (SLOW_REPLY, Some(HELD)),
            (Duration::ZERO, Some(Err(failed()))),
            (Duration::ZERO, None),
        ] {
            let (copies, sent) = (Copies::default(), Instant::now());
            copies.sent();
            tokio::time::sleep(pause).await;
            copies.answered(sent, reply.as_ref().map(Result::as_ref));
            assert!(copies.may_take_effect() && copies.give_up(), "{reply:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_two_requests_without_a_reply_may_take_effect() {
        let copies = Copies::default();
        copies.sent();
        copies.sent();
        copies.answered(Instant::now(), Some(HELD.as_ref()));
        assert!(copies.give_up());
        assert!(
            copies.answered(Instant::now(), Some(Err(&failed()))),
            "the request may have acquired the lock"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_id_is_released_at_three_times_after_the_last_request() {
        let (copies, begun) = (Copies::default(), Instant::now());
        copies.sent();
        tokio::time::sleep(Duration::from_secs(2)).await;
        copies.sent();
        let mut times = Vec::new();
        while let Some(at) = copies.next_release() {
            tokio::time::sleep_until(at).await;
            times.push(begun.elapsed().as_secs());
        }
        assert_eq!(times, [12, 32, 92]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_id_of_a_set_is_released_once_more_when_the_server_has_ended_the_request() {
        let (copies, begun) = (Copies::of_set(), Instant::now());
        copies.sent();
        let mut times = Vec::new();
        while let Some(at) = copies.next_release() {
            tokio::time::sleep_until(at).await;
            times.push(begun.elapsed().as_millis());
        }
        assert_eq!(times, [5500, 10_000, 30_000, 90_000]);
    }
}
