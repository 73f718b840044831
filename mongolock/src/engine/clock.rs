//! The clock of a provider.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::{Span, Time};

/// The clock of a provider: that of the operating system, or for a provider in memory tokio's clock, which a test can
/// pause.
#[derive(Clone, Copy)]
pub(super) enum Clock {
    System(std::time::Instant),
    Tokio(Instant),
}

impl Clock {
    pub(super) fn now(&self) -> Time {
        let elapsed = match self {
            Self::System(begun) => begun.elapsed(),
            Self::Tokio(begun) => begun.elapsed(),
        };
        Time(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX))
    }

    /// The instant until which tokio waits.
    pub(super) fn instant(&self, at: Time) -> Instant {
        match self {
            Self::System(begun) => (*begun + duration(at.0)).into(),
            Self::Tokio(begun) => *begun + duration(at.0),
        }
    }
}

pub(super) fn duration(span: Span) -> Duration {
    Duration::from_micros(u64::try_from(span).unwrap_or_default())
}
