//! How often the work under a lock may succeed.

use super::time::{MS, Span, Time};
use crate::protocol::{Ms, Until};

/// How often the work under a lock may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OncePolicy {
    /// Once in each period: the periods are multiples of this time since 1970-01-01 UTC by the server's clock.
    PerPeriod(Ms),
    /// Once until the mark ends, this time after the success.
    Kept(Ms),
}

/// The period of a call: the one in which the call began, computed from the server's first reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Period {
    /// The end of the period by the server's clock.
    pub(super) end: Ms,
    /// The end of the period by the clock of this process.
    pub(super) ends: Time,
}

impl OncePolicy {
    /// The end of the mark for work whose lock was acquired at this time of the server, and an earliest time of this process for
    /// that end. It counts from when the command that acquired the lock was sent.
    pub(crate) fn mark_of(self, acquired_at: Ms, sent: Time) -> (Until, Time) {
        match self {
            Self::PerPeriod(period) => {
                let end = end_of_period(period, acquired_at);
                let left = end.saturating_sub(acquired_at).saturating_mul(MS);
                (Until::At(end), sent + left)
            }
            Self::Kept(retention) => (Until::After(retention), Time::NEVER),
        }
    }

    /// The period of a call. The reply with this time of the server arrives now, and the call had waited for this time
    /// before that request.
    pub(super) fn period(self, now: Time, server: Ms, waited: Span) -> Option<Period> {
        let Self::PerPeriod(length) = self else {
            return None;
        };
        let end = end_of_period(length, server.saturating_sub(waited / MS));
        let ends = now + (end.saturating_sub(server)).max(0).saturating_mul(MS);
        Some(Period { end, ends })
    }
}

fn end_of_period(length: Ms, now: Ms) -> Ms {
    let length = length.max(1);
    now.div_euclid(length).saturating_add(1).saturating_mul(length)
}
