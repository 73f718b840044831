//! For how long the server has given the same answer: it refuses the user of a provider, or rejects commands for overload.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::meaning::Meaning;
use crate::sync::lock;
use crate::timing::{OVERLOAD_MEMORY, REFUSAL_LIMIT};
use crate::{LockError, trace};

/// The first and the last of such answers; after a pause they begin anew.
#[derive(Debug, Clone, Copy, Default)]
struct Streak(Option<(Instant, Instant)>);

impl Streak {
    fn note(&mut self, now: Instant, pause: Duration) {
        let lasted = self.lasted(now, pause).unwrap_or_default();
        self.0 = Some((now - lasted, now));
    }

    /// The time since the first answer; `None` if the last one is past for this pause.
    fn lasted(self, now: Instant, pause: Duration) -> Option<Duration> {
        let (first, last) = self.0?;
        let is_present = now.saturating_duration_since(last) < pause;
        is_present.then(|| now.saturating_duration_since(first))
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
        self.0.lasted(now, REFUSAL_LIMIT).unwrap_or_default()
    }
}

/// The rejections of the commands on one client.
#[derive(Default)]
pub(super) struct Overload(Mutex<Rejections>);

#[derive(Default)]
struct Rejections {
    streak: Streak,
    /// The number of rejections that no event has reported yet.
    unreported: u64,
    /// The time of the last event.
    reported: Option<Instant>,
}

impl Overload {
    /// Notes how a command has ended.
    pub(super) fn note<T>(&self, outcome: &Result<T, LockError>) {
        if !matches!(outcome, Err(error) if error.meaning() == Meaning::Overloaded) {
            return;
        }
        let report = lock(&self.0).rejected(Instant::now());
        if let Some((rejected, since)) = report {
            trace::overloaded(rejected, since);
        }
    }

    /// The time since the first rejection; `None` if there was no rejection in the last [`OVERLOAD_MEMORY`].
    pub(crate) fn duration(&self) -> Option<Duration> {
        lock(&self.0).streak.lasted(Instant::now(), OVERLOAD_MEMORY)
    }
}

impl Rejections {
    /// Notes a rejection. Returns the number of those that an event shall report now, and the time since the first one: the first
    /// rejection is reported at once, and later ones together.
    fn rejected(&mut self, now: Instant) -> Option<(u64, Duration)> {
        self.streak.note(now, OVERLOAD_MEMORY);
        self.unreported += 1;
        if self.reported.is_some_and(|at| now - at < OVERLOAD_MEMORY) {
            return None;
        }
        self.reported = Some(now);
        let lasted = self.streak.lasted(now, OVERLOAD_MEMORY).unwrap_or_default();
        Some((std::mem::take(&mut self.unreported), lasted))
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

    fn rejection() -> LockError {
        let said = serde_json::json!({ "code": 462, "codeName": "", "errmsg": "busy" });
        Error::from(ErrorKind::Command(serde_json::from_value(said).unwrap())).into()
    }

    fn failed(error: LockError) -> Result<(), LockError> {
        Err(error)
    }

    #[tokio::test(start_paused = true)]
    async fn an_overload_lasts_as_long_as_rejections_follow_each_other() {
        let overload = Overload::default();
        overload.note(&Ok(()));
        assert_eq!(overload.duration(), None);
        let rejected = || failed(rejection());
        overload.note(&rejected());
        tokio::time::sleep(OVERLOAD_MEMORY / 2).await;
        overload.note(&rejected());
        tokio::time::sleep(OVERLOAD_MEMORY * 3 / 4).await;
        assert_eq!(overload.duration(), Some(OVERLOAD_MEMORY * 5 / 4));
        tokio::time::sleep(OVERLOAD_MEMORY / 4).await;
        assert_eq!(overload.duration(), None);
        overload.note(&rejected());
        assert_eq!(overload.duration(), Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_rejection_is_reported_at_once_and_later_ones_together() {
        let mut state = Rejections::default();
        let begun = Instant::now();
        let mut reported = |after: Duration| state.rejected(begun + after).map(|(rejected, _)| rejected);
        assert_eq!(reported(Duration::ZERO), Some(1));
        assert_eq!(
            [OVERLOAD_MEMORY / 4, OVERLOAD_MEMORY / 2].map(&mut reported),
            [None, None]
        );
        assert_eq!(reported(OVERLOAD_MEMORY), Some(3));
        assert_eq!(reported(OVERLOAD_MEMORY * 5 / 4), None);
        assert_eq!(reported(OVERLOAD_MEMORY * 9 / 4), Some(2), "with the one before");
    }
}
