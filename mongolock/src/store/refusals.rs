//! For how long the server has given the same answer: it refuses the user of a provider, or rejects commands for overload.

use std::time::Duration;

use tokio::time::Instant;

use crate::LockError;
use crate::timing::REFUSAL_LIMIT;

/// The first and the last of such answers; after a pause they begin anew.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Streak(Option<(Instant, Instant)>);

impl Streak {
    pub(super) fn note(&mut self, now: Instant, pause: Duration) {
        self.0 = Some((self.since(now, pause).unwrap_or(now), now));
    }

    /// The time of the first answer; `None` if the last one is past for this pause.
    pub(super) fn since(self, now: Instant, pause: Duration) -> Option<Instant> {
        let (first, last) = self.0?;
        (now.saturating_duration_since(last) < pause).then_some(first)
    }
}

/// The refusals of the user by the server, with no other reply in between.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Refusals(Streak);

impl Refusals {
    /// Notes the error of a request, and returns whether it is useless to repeat the request: the error is final, or the server has
    /// refused the user for [`REFUSAL_LIMIT`].
    pub(crate) fn end(&mut self, now: Instant, error: &LockError) -> bool {
        self.note(now, error);
        error.meaning().is_useless(self.last_for(now))
    }

    /// Notes the error of a request.
    pub(crate) fn note(&mut self, now: Instant, error: &LockError) {
        if error.meaning().is_refusal() {
            self.0.note(now, REFUSAL_LIMIT);
        } else {
            *self = Self::default();
        }
    }

    /// For how long the server has refused the user. After a long pause the time begins anew.
    pub(crate) fn last_for(self, now: Instant) -> Duration {
        let since = self.0.since(now, REFUSAL_LIMIT);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use mongodb::error::{Error, ErrorKind};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_the_user_is_final_after_ten_seconds_without_a_pause() {
        let said = serde_json::json!({ "code": 13, "codeName": "", "errmsg": "refused" });
        let refused: LockError =
            Error::from(ErrorKind::Command(serde_json::from_value(said).unwrap())).into();
        let mut refusals = Refusals::default();
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert!(!refusals.end(at(0), &refused) && !refusals.end(at(9), &refused));
        assert!(refusals.end(at(10), &refused));
        assert!(!refusals.end(at(20), &refused), "it was not refused for 10 s");
        let passes = LockError::no_reply("release", REFUSAL_LIMIT);
        assert!(!refusals.end(at(25), &passes) && !refusals.end(at(31), &refused));
    }
}
