//! A timer for a time of the boot clock.

use rustix::event::{PollFd, Timespec};

use crate::clock::BootTime;

pub(super) use imp::Timer;

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::event::PollFlags;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
    };

    use super::{BootTime, PollFd, Timespec};

    /// A timer of the kernel: it counts the time in which the machine was suspended.
    pub(in super::super) struct Timer(OwnedFd);

    impl Timer {
        pub(in super::super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
        }

        /// Sets the timer to a time, or to none.
        pub(in super::super) fn set(&mut self, time: Option<BootTime>) -> io::Result<()> {
            let nanos = time.map_or(0, |time| time.0.max(1));
            let never = Timespec::default();
            let value = Timespec {
                tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or_default(),
            };
            let spec = Itimerspec {
                it_interval: never,
                it_value: value,
            };
            timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec)?;
            Ok(())
        }

        #[expect(clippy::unnecessary_wraps, reason = "elsewhere the timer is no source")]
        pub(in super::super) fn as_source(&self) -> Option<PollFd<'_>> {
            Some(PollFd::new(&self.0, PollFlags::IN))
        }

        /// The timer is a source of its own.
        #[expect(clippy::unused_self, reason = "elsewhere the timer is the timeout")]
        pub(in super::super) fn timeout(&self) -> Option<Timespec> {
            None
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;

    use super::{BootTime, PollFd, Timespec};

    /// The time to wait, which does not count suspensions of the machine.
    pub(in super::super) struct Timer(Option<BootTime>);

    impl Timer {
        pub(in super::super) fn new() -> io::Result<Self> {
            Ok(Self(None))
        }

        pub(in super::super) fn set(&mut self, time: Option<BootTime>) -> io::Result<()> {
            self.0 = time;
            Ok(())
        }

        pub(in super::super) fn as_source(&self) -> Option<PollFd<'_>> {
            None
        }

        pub(in super::super) fn timeout(&self) -> Option<Timespec> {
            Timespec::try_from(self.0?.left()).ok()
        }
    }
}
