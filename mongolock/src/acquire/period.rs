use std::sync::OnceLock;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::Instant;

use crate::once::Once;
use crate::queue::Period;

/// The period that a call belongs to, once it is known: the one of the server's first answer to the call.
///
/// A call that waited behind others of its process before its first request belongs to the period in which it began: that
/// time is subtracted from the answer's.
#[derive(Default)]
pub(super) struct CallPeriod(OnceLock<Period>);

impl CallPeriod {
    /// Notes the first answer, and no later one: it arrived at the time `at`, `now` is the server's time in it, and the call had
    /// waited for the time `waited` before its first request.
    pub(super) fn answered(&self, at: Instant, once: Once, now: DateTime, waited: Duration) {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let begun = DateTime::from_millis(now.timestamp_millis().saturating_sub(millis(waited)));
        if let Some(end) = once.period_end(begun) {
            let left = end.timestamp_millis().saturating_sub(now.timestamp_millis());
            let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
            let ends = at + left;
            self.0.get_or_init(|| Period { end, ends });
        }
    }

    /// Takes over what another call of this process knows, if this call began in the same period.
    pub(super) fn adopt(&self, once: Once, known: Period, begun: Instant) {
        let Once::PerPeriod(length) = once else {
            return;
        };
        if known.ends > begun && known.ends <= begun + length {
            self.0.get_or_init(|| known);
        }
    }

    pub(super) fn known(&self) -> Option<Period> {
        self.0.get().copied()
    }

    /// Whether the period is over `waited` after the server's time `now`.
    pub(super) fn is_over_at(&self, now: DateTime, waited: Duration) -> bool {
        let is_over = |period: &Period| period.end.saturating_duration_since(now) <= waited;
        self.0.get().is_some_and(is_over)
    }
}
