//! A clock whose times can be compared between processes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time of the system's monotonic clock.
///
/// `CLOCK_MONOTONIC` counts from the start of the machine for every process, is never set, and does not go backwards
/// between cores. A process that is woken by another one therefore reads no smaller time than the other one did before
/// that. `std::time::Instant` uses the same clock, but does not expose its value.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}
