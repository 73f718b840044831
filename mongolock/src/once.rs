//! How often the work under a lock may succeed: once in each period, or once for as long as its mark is kept.

use std::time::Duration;

/// How often the work under a lock may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Once {
    /// Once in each period: the periods are multiples of this time since 1970-01-01 UTC by the server's clock.
    PerPeriod(Duration),
    /// Once until the mark ends, this time after the success.
    Kept(Duration),
}
