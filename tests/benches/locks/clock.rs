//! Time that can be compared between processes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Now, by the system's monotonic clock.
///
/// `CLOCK_MONOTONIC` counts from the start of the machine for every process, is never set, and does not go backwards from
/// one core to another: a process that another one wakes reads no earlier time than that one did. `std::time::Instant` is
/// the same clock, but does not show its value.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}
