use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::queue::SLOW_ANSWER;
use crate::store::Answer;
use crate::sync::lock;
use crate::{LockError, fault};

/// How long after the last request of a claim its id is released once more, if one of the requests may take effect late.
/// The server ends a request after 5 s, a silent connection is closed after 60 s, and what was under way then has arrived
/// or is lost after 90 s.
const LATE_RELEASES: [Duration; 3] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(90),
];

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
    is_given_up: bool,
    /// With which the claim is released: that of its hold, if it had one, whose own release may come after this one.
    min_hold: Duration,
}

impl Copies {
    pub(crate) fn sent(&self) {
        let mut state = lock(&self.0);
        state.in_flight += 1;
        state.last_sent = Some(Instant::now());
    }

    /// Notes a reply, or that there will be none, and says whether the claim has to be released because of it: it was given up before.
    ///
    /// A reply that took longer than a healthy server needs may be that of a repetition on the way (by the driver or
    /// a proxy), whose first copy arrives later.
    pub(crate) fn answered(&self, sent: Instant, answer: Option<&Result<Answer, LockError>>) -> bool {
        let mut state = lock(&self.0);
        state.in_flight -= 1;
        let (may_stand, is_certain) = match answer {
            Some(Ok(Answer::Mine { .. })) => {
                state.has_acquired = true;
                (true, true)
            }
            Some(Ok(Answer::Other { .. })) => (false, true),
            Some(Err(error)) if fault::did_nothing(error) => (false, true),
            Some(Err(_)) | None => (true, false),
        };
        state.is_uncertain |= !is_certain || sent.elapsed() >= SLOW_ANSWER;
        state.is_given_up && may_stand
    }

    /// Nobody wants the claim any more. Whether it may stand, now or later.
    pub(crate) fn give_up(&self, min_hold: Duration) -> bool {
        let mut state = lock(&self.0);
        state.is_given_up = true;
        state.min_hold = min_hold;
        state.has_acquired || state.may_take_effect()
    }

    pub(crate) fn min_hold(&self) -> Duration {
        lock(&self.0).min_hold
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
