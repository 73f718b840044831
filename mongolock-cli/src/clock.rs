//! The clock that runs while the machine is suspended, and its times.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The clock of a [`BootTime`]. On other systems than Linux it may stop while the machine is suspended.
#[cfg(target_os = "linux")]
const BOOT_CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: ClockId = ClockId::Monotonic;

/// The longest time between two readings of a clock that count as simultaneous.
const READING: Duration = Duration::from_millis(1);

/// A time in nanoseconds of the boot clock: the same number is the same time in each process of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(pub(crate) u64);

impl BootTime {
    /// The present time.
    pub(crate) fn now() -> Self {
        Self::from_start(read(BOOT_CLOCK))
    }

    /// The time this long after the clock's start.
    pub(crate) fn from_start(time: Duration) -> Self {
        Self(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(Self::from_start(time).0))
    }

    pub(crate) fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(Self::from_start(time).0))
    }

    /// The time from now until this time; zero if it has passed.
    pub(crate) fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Self::now().0))
    }
}

/// The time of the clock that leases are counted on, which stops while the machine is suspended, and how far the boot
/// clock is ahead of it: by the time of all suspensions.
pub(crate) fn monotonic_and_offset() -> (Duration, Duration) {
    loop {
        let before = read(ClockId::Monotonic);
        let boot = read(BOOT_CLOCK);
        let after = read(ClockId::Monotonic);
        // Between two readings this thread may have paused, which is not a suspension.
        if after.saturating_sub(before) < READING {
            return (before, boot.saturating_sub(before));
        }
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}
