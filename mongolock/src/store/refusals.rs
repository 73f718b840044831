//! The time for which the server has refused the user of a provider.

use std::time::Duration;

use tokio::time::Instant;

use crate::LockError;
use crate::timing::REFUSAL_LIMIT;

/// The first and the last refusal of the user by the server, without another reply or a long pause between them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Refusals(Option<(Instant, Instant)>);

impl Refusals {
    /// Notes the error of a request, and returns whether it is useless to repeat the request: the error is final, or the server has
    /// refused the user for [`REFUSAL_LIMIT`].
    pub(crate) fn end(&mut self, now: Instant, error: &LockError) -> bool {
        self.note(now, error);
        error.meaning().is_useless(self.last_for(now))
    }

    /// Notes the error of a request.
    pub(crate) fn note(&mut self, now: Instant, error: &LockError) {
        let is_refused = error.meaning().is_refusal();
        self.0 = is_refused.then(|| (now.checked_sub(self.last_for(now)).unwrap_or(now), now));
    }

    /// The time for which the server has refused the user. After a pause of [`REFUSAL_LIMIT`] the time starts again.
    pub(crate) fn last_for(self, now: Instant) -> Duration {
        let goes_on = |(_, last): &(Instant, Instant)| now.saturating_duration_since(*last) < REFUSAL_LIMIT;
        let first = self.0.filter(goes_on).map(|(first, _)| first);
        first.map_or(Duration::ZERO, |first| now.saturating_duration_since(first))
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
