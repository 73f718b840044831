//! The messages about failed renewals.

use std::time::Duration;

use super::events::{Failures, RENEWAL_FAILED};
use crate::driver;
use crate::text::short;

/// The state of the renewals of a lease, for the lines about them.
pub(super) struct Renewals {
    failures: Failures,
    /// The reason of the last failure, if no renewal has succeeded since.
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

    /// The message that says why a lease is not renewed, once for each reason. `left` is the rest of its `expiry`.
    pub(super) fn news(&mut self, left: Duration, expiry: Duration) -> Option<String> {
        let newest = self.failures.take(RENEWAL_FAILED);
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
        let fail = |error: &str| failures.note(RENEWAL_FAILED, error.to_owned());
        let mut news = |left| renewals.news(Duration::from_secs(left), Duration::from_secs(30));
        assert_eq!(news(15), None);
        let unknown = "renewal failed, 14.0s left: none was confirmed for 16.0s";
        assert_eq!(news(14).as_deref(), Some(unknown));
        assert_eq!(news(13), None);
        fail("no server");
        assert_eq!(news(12).as_deref(), Some("renewal failed, 12.0s left: no server"));
        fail("no server");
        assert_eq!(news(11), None);
        fail("no primary");
        assert_eq!(news(0), None, "the lock is lost");
        assert!(renewals.succeed() && !renewals.succeed());
    }
}
