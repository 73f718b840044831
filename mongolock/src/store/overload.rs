//! Finds out from the results of a provider's commands whether its server rejects commands for overload.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::refusals::Streak;
use crate::error::meaning::Meaning;
use crate::sync::lock;
use crate::timing::OVERLOAD_MEMORY;
use crate::{LockError, trace};

/// The rejections of the commands on one client.
#[derive(Default)]
pub(crate) struct Overload {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rejections: Streak,
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
        let report = lock(&self.state).rejected(Instant::now());
        if let Some((rejected, since)) = report {
            trace::overloaded(rejected, since);
        }
    }

    /// The time since the first rejection; `None` if there was no rejection in the last [`OVERLOAD_MEMORY`].
    pub(crate) fn duration(&self) -> Option<Duration> {
        let now = Instant::now();
        let since = lock(&self.state).rejections.since(now, OVERLOAD_MEMORY)?;
        Some(now - since)
    }
}

impl State {
    /// Notes a rejection. Returns the number of those that an event shall report now, and the time since the first one: the first
    /// rejection is reported at once, and later ones together.
    fn rejected(&mut self, now: Instant) -> Option<(u64, Duration)> {
        self.rejections.note(now, OVERLOAD_MEMORY);
        self.unreported += 1;
        if self.reported.is_some_and(|at| now - at < OVERLOAD_MEMORY) {
            return None;
        }
        self.reported = Some(now);
        let since = self.rejections.since(now, OVERLOAD_MEMORY).unwrap_or(now);
        Some((std::mem::take(&mut self.unreported), now - since))
    }
}

#[cfg(test)]
mod tests {
    use mongodb::error::{Error, ErrorKind};

    use super::*;

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
        let mut state = State::default();
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
