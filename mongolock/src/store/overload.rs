//! For how long the server has rejected commands for overload.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::meaning::Meaning;
use crate::sync::lock;
use crate::timing::OVERLOAD_MEMORY;
use crate::{LockError, trace};

/// The rejections of the commands on one client.
#[derive(Default)]
pub(super) struct Overload(Mutex<Rejections>);

/// Rejections that follow each other without a long pause.
#[derive(Default)]
struct Rejections {
    /// The times of the first and the last one; after a pause they begin anew.
    span: Option<(Instant, Instant)>,
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
        lock(&self.0).lasted(Instant::now())
    }
}

impl Rejections {
    fn lasted(&self, now: Instant) -> Option<Duration> {
        let (first, last) = self.span?;
        let is_present = now.saturating_duration_since(last) < OVERLOAD_MEMORY;
        is_present.then(|| now.saturating_duration_since(first))
    }

    /// Notes a rejection. Returns the number of those that an event shall report now, and the time since the first one: the first
    /// rejection is reported at once, and later ones together.
    fn rejected(&mut self, now: Instant) -> Option<(u64, Duration)> {
        let lasted = self.lasted(now).unwrap_or_default();
        self.span = Some((now - lasted, now));
        self.unreported += 1;
        if self.reported.is_some_and(|at| now - at < OVERLOAD_MEMORY) {
            return None;
        }
        self.reported = Some(now);
        Some((std::mem::take(&mut self.unreported), lasted))
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
        let mut state = Rejections::default();
        let begun = Instant::now();
        let mut reported = |after: Duration| state.rejected(begun + after).map(|(rejected, _)| rejected);
        assert_eq!(reported(Duration::ZERO), Some(1));
        assert_eq!(reported(OVERLOAD_MEMORY / 4), None);
        assert_eq!(reported(OVERLOAD_MEMORY / 2), None);
        assert_eq!(reported(OVERLOAD_MEMORY), Some(3));
        assert_eq!(reported(OVERLOAD_MEMORY * 5 / 4), None);
        assert_eq!(reported(OVERLOAD_MEMORY * 9 / 4), Some(2), "with the one before");
    }
}
