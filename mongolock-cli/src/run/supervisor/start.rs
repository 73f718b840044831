//! The start of the guardian and of the supervisor.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};

use super::super::Verdict;
use super::super::children::{reap, start_guardian};
use super::super::deadline::{LeaseClock, Limits};
use super::super::events::Failures;
use super::super::messages::Message;
use super::super::notices::Notices;
use super::super::renewals::Renewals;
use super::super::terminal::Foreground;
use super::{Supervisor, TICK};
use crate::acquire::{CommandHold, Signals};

/// How long the guardian may take to start.
const START_LIMIT: Duration = Duration::from_secs(5);

impl<'a> Supervisor<'a> {
    /// Starts the guardian, and waits until it keeps the limits of the lease.
    pub(in super::super) fn start(
        hold: &'a CommandHold,
        mut clock: LeaseClock,
        failures: Failures,
        mut signals: Signals,
    ) -> io::Result<Self> {
        let notices = Notices::new()?;
        signals.add_always(Signal::CHILD)?;
        let foreground = Foreground::find();
        let limits = clock.limits(|| hold.context.remaining());
        let (group, channel) = start_guardian(foreground.as_ref())?;
        let mut supervisor = Self {
            hold,
            clock,
            renewals: Renewals::new(failures),
            notices,
            signals,
            group,
            channel,
            command: None,
            foreground,
            is_in_foreground: false,
            accepted: limits,
            sent: limits,
            verdict: Verdict::Own,
            status: None,
            terminated: None,
            killed: None,
            last_reaped: Instant::now(),
            resumed: None,
            is_stopped: false,
            asked_to_end: None,
            is_stop_told: false,
            received: Vec::new(),
        };
        if let Err(error) = supervisor.until_accepted(limits) {
            supervisor.discard();
            return Err(error);
        }
        Ok(supervisor)
    }

    fn until_accepted(&mut self, limits: Limits) -> io::Result<()> {
        self.channel.send(Message::Until(limits))?;
        let begun = Instant::now();
        loop {
            // This process may be stopped at any line, so the reply is checked once more after the time limit.
            let is_late = begun.elapsed() >= START_LIMIT;
            let wait = Timespec::try_from(TICK).ok();
            let _ = poll(
                &mut [PollFd::new(self.channel.socket(), PollFlags::IN)],
                wait.as_ref(),
            );
            let received = self.channel.receive();
            if received.messages.contains(&Message::Accepted(limits)) {
                return Ok(());
            }
            if received.has_ended {
                return Err(io::Error::other("it has ended"));
            }
            if is_late {
                return Err(io::Error::other("it does not answer"));
            }
        }
    }

    /// Ends the guardian before a command has started.
    pub(super) fn discard(&self) {
        self.group.signal(Signal::KILL);
        until_reaped(self.group.leader());
    }
}

/// The guardian has got SIGKILL, so it ends soon.
pub(super) fn until_reaped(guardian: Pid) {
    let begun = Instant::now();
    while !reap(guardian) && begun.elapsed() < START_LIMIT {
        std::thread::sleep(Duration::from_millis(1));
    }
}
