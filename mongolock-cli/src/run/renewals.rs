//! Why renewals fail. The library tells it in an event.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::driver;
use crate::text::short;

/// The event of a renewal that has failed, and its field with the error.
const EVENT: &str = "mongolock.renewal_failed";
const ERROR: &str = "error";

/// The failures of the renewals of this process.
#[derive(Clone, Default)]
pub(super) struct Failures(Arc<Mutex<Option<String>>>);

impl Failures {
    /// Notes the failures of this process from now on.
    pub(super) fn listen() -> Self {
        let failures = Self::default();
        // It fails if this process listens already, which it does once.
        let _ = tracing::subscriber::set_global_default(failures.clone());
        failures
    }

    /// The error of the newest failure, if it is one since the last call.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Subscriber for Failures {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.name() == EVENT
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Reason(self));
    }

    // No span is enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Notes the error of an event.
struct Reason<'a>(&'a Failures);

impl Visit for Reason<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == ERROR {
            let noted = &self.0.0;
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{value:?}"));
        }
    }
}

/// What is said about the renewals of a lease.
pub(super) struct Renewals {
    failures: Failures,
    /// Why the last one has failed, if none has succeeded since.
    reason: Option<String>,
}

impl Renewals {
    pub(super) fn new(failures: Failures) -> Self {
        Self {
            failures,
            reason: None,
        }
    }

    /// Notes a renewal, and returns whether those before it had failed.
    pub(super) fn succeed(&mut self) -> bool {
        self.reason.take().is_some()
    }

    /// Why a lease is not renewed, once for each reason. So much time is left of its expiry.
    pub(super) fn news(&mut self, left: Duration, expiry: Duration) -> Option<String> {
        let newest = self.failures.take();
        if left.is_zero() {
            return None;
        }
        let reason = match newest {
            Some(error) => driver::brief(&error),
            // A renewal was due a third of the expiry after the last one. It may wait long for its reply.
            None if self.reason.is_none() && left < expiry / 2 => {
                format!("none was confirmed for {}", short(expiry.saturating_sub(left)))
            }
            None => return None,
        };
        if self.reason.as_ref() == Some(&reason) {
            return None;
        }
        let news = format!("renewal failed, {} left: {reason}", short(left));
        self.reason = Some(reason);
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_once() {
        let failures = Failures::default();
        let mut renewals = Renewals::new(failures.clone());
        let fail = |error: &str| *failures.0.lock().unwrap() = Some(error.to_owned());
        let mut news = |left| renewals.news(Duration::from_secs(left), Duration::from_secs(30));
        assert_eq!(news(15), None);
        assert_eq!(
            news(14).as_deref(),
            Some("renewal failed, 14.0s left: none was confirmed for 16.0s")
        );
        assert_eq!(news(13), None);
        fail("no server");
        assert_eq!(news(12).as_deref(), Some("renewal failed, 12.0s left: no server"));
        fail("no server");
        assert_eq!(news(11), None);
        fail("no primary");
        assert_eq!(news(0), None, "the lock is lost");
        assert!(renewals.succeed() && !renewals.succeed());
    }

    #[test]
    fn the_error_of_an_event_is_noted_once() {
        let failures = Failures::default();
        tracing::subscriber::with_default(failures.clone(), || {
            let error = "no server";
            tracing::warn!(name: "mongolock.lost", error = %error, "it is lost");
            assert_eq!(failures.take(), None);
            tracing::warn!(name: "mongolock.renewal_failed", locks = 1, error = %error, "it has failed");
        });
        assert_eq!(failures.take().as_deref(), Some("no server"));
        assert_eq!(failures.take(), None);
    }
}
