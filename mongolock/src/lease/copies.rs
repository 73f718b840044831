use std::sync::Mutex;

use tokio::time::Instant;

use crate::LockError;
use crate::store::AcquireReply;
use crate::store::driver_error;
use crate::sync::lock;
use crate::timing::{LATE_RELEASES, SLOW_ANSWER};

/// What is known of the requests that were sent for one claim. They are copies of one another: whichever of them takes
/// effect first makes the claim, and the others find it there.
#[derive(Default)]
pub(crate) struct Copies(Mutex<State>);

#[derive(Default)]
struct State {
    in_flight: u32,
    last_sent: Option<Instant>,
    /// A request may take effect after its reply, or although it failed.
    is_uncertain: bool,
    /// A reply said that the claim has the lock.
    has_acquired: bool,
    phase: Phase,
}

/// What becomes of a claim.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It is wanted: a caller waits for it or holds it.
    #[default]
    Wanted,
    /// It is being released. A reply that came meanwhile leaves open whether it stands again.
    Ending { stands_again: bool },
    /// It is released, and whatever makes it stand again is released, too.
    GivenUp,
}

impl Copies {
    pub(crate) fn sent(&self) {
        let mut state = lock(&self.0);
        state.in_flight += 1;
        state.last_sent = Some(Instant::now());
    }

    /// Notes a reply, or that there will be none, and says whether the claim has to be released because of it: it was given up before.
    ///
    /// A reply that took longer than a healthy server needs may be that of a repetition on the way whose first
    /// copy arrives later.
    pub(crate) fn answered(&self, sent: Instant, answer: Option<&Result<AcquireReply, LockError>>) -> bool {
        let mut state = lock(&self.0);
        state.in_flight -= 1;
        let (may_stand, is_certain) = match answer {
            Some(Ok(AcquireReply::Acquired { .. })) => {
                state.has_acquired = true;
                (true, true)
            }
            Some(Ok(AcquireReply::Held { .. })) => (false, true),
            Some(Err(error)) if driver_error::was_not_applied(error) => (false, true),
            Some(Err(_)) | None => (true, false),
        };
        state.is_uncertain |= !is_certain || sent.elapsed() >= SLOW_ANSWER;
        if let Phase::Ending { stands_again } = &mut state.phase {
            *stands_again |= may_stand;
        }
        state.phase == Phase::GivenUp && may_stand
    }

    /// Nobody wants the claim any more. Whether it may stand, now or later.
    pub(crate) fn give_up(&self) -> bool {
        let mut state = lock(&self.0);
        state.phase = Phase::GivenUp;
        state.has_acquired || state.may_take_effect()
    }

    /// The claim is released from now on. Until the server has confirmed that, nothing else may release it: another
    /// release would end a minimum hold, and would make the confirmed one look like a loss.
    pub(crate) fn begin_release(&self) {
        lock(&self.0).phase = Phase::Ending { stands_again: false };
    }

    /// The release has ended. Whether the claim may stand again because of a reply that came meanwhile.
    pub(crate) fn end_release(&self) -> bool {
        let ended = std::mem::replace(&mut lock(&self.0).phase, Phase::GivenUp);
        ended == Phase::Ending { stands_again: true }
    }

    /// Whether a request of the claim may take effect from now on.
    pub(crate) fn may_take_effect(&self) -> bool {
        lock(&self.0).may_take_effect()
    }

    /// When the id is to be released next because of a request that may take effect late.
    pub(crate) fn next_release(&self) -> Option<Instant> {
        let state = lock(&self.0);
        let last = state.last_sent.filter(|_| state.may_take_effect())?;
        let now = Instant::now();
        LATE_RELEASES
            .iter()
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
        holder: None,
        remaining: None,
    });

    fn failed() -> LockError {
        LockError::Mongo(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_prompt_reply_settles_its_request() {
        let copies = Copies::default();
        copies.sent();
        assert!(copies.may_take_effect(), "it is under way");
        assert!(!copies.answered(Instant::now(), Some(&HELD)));
        assert!(!copies.may_take_effect() && !copies.give_up());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_a_failed_and_a_missing_reply_settle_nothing() {
        for (pause, reply) in [
            (SLOW_ANSWER, Some(HELD)),
            (Duration::ZERO, Some(Err(failed()))),
            (Duration::ZERO, None),
        ] {
            let (copies, sent) = (Copies::default(), Instant::now());
            copies.sent();
            tokio::time::sleep(pause).await;
            copies.answered(sent, reply.as_ref());
            assert!(copies.may_take_effect() && copies.give_up(), "{reply:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_two_requests_without_a_reply_may_take_effect() {
        let copies = Copies::default();
        copies.sent();
        copies.sent();
        copies.answered(Instant::now(), Some(&HELD));
        assert!(copies.give_up());
        assert!(
            copies.answered(Instant::now(), Some(&Err(failed()))),
            "it may stand now"
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
}
