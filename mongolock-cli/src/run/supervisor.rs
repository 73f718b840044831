//! Watches the command while it runs, and like the guardian makes sure that no process of the command's group outlives
//! the lock.

mod start;
mod stops;

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};
use tokio::time::sleep;

use self::start::until_reaped;
use super::children::{ChildChange, Status, change_of, reap, start_command};
use super::deadline::{LeaseClock, Limits};
use super::group::{Group, own_zombies};
use super::messages::{Channel, Message};
use super::notices::Notices;
use super::renewals::Renewals;
use super::terminal::Foreground;
use super::{CommandEnd, Errand, Verdict};
use crate::acquire::{CommandHold, Signals};
use crate::clock::BootTime;
use crate::text::short;

/// The longest delay with which a stop may be reported.
const LATE_NEWS: Duration = Duration::from_secs(1);

/// The time between two reads of the lease, which is sent to the guardian if it was renewed.
const TICK: Duration = Duration::from_millis(100);

/// How often the processes of the group are counted while they end.
const COUNT_INTERVAL: Duration = Duration::from_millis(20);

/// How long the rest of the group may take to end after SIGTERM, and after SIGKILL.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The time between two searches for ended orphans of the command.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// A smaller difference between two limits, in nanoseconds, comes from the readings of the clocks and is not a renewal.
const RENEWAL: u64 = 5_000_000;

/// How long this process waits with SIGTERM for the guardian to send it: the command gets it once.
const TERM_GRACE: Duration = Duration::from_millis(50);

/// The process that holds the lock while the command runs.
pub(super) struct Supervisor<'a> {
    hold: &'a CommandHold,
    clock: LeaseClock,
    renewals: Renewals,
    notices: Notices,
    signals: Signals,
    group: Group,
    channel: Channel,
    command: Option<Pid>,
    /// The terminal, if the command may use it, and whether it is in its foreground now.
    foreground: Option<Foreground>,
    is_in_foreground: bool,
    /// The limits that the guardian keeps.
    accepted: Limits,
    /// The newest limits that were sent to it.
    sent: Limits,
    /// The reason why the command must end.
    verdict: Verdict,
    status: Option<Status>,
    /// When the rest of the group got SIGTERM and SIGKILL.
    terminated: Option<Instant>,
    killed: Option<Instant>,
    last_reaped: Instant,
    resumed: Option<Instant>,
    /// Whether the command was stopped, and not continued by this process since.
    is_stopped: bool,
    /// When a signal that asks the command to end was passed on.
    asked_to_end: Option<Instant>,
    /// Whether a stop outside the foreground was reported.
    is_stop_told: bool,
    /// The signals that were passed on.
    received: Vec<Signal>,
}

impl Supervisor<'_> {
    /// Runs the command, and returns when no process of its group is left, or none that can be killed.
    pub(super) async fn run(mut self, errand: &Errand<'_>) -> io::Result<CommandEnd> {
        if let Err(error) = self.start_command(errand) {
            self.give_up_terminal();
            self.discard();
            return Err(error);
        }
        if self.command.is_none() {
            self.give_up_terminal();
            self.discard();
            return Ok(self.outcome());
        }
        while !self.has_ended() {
            self.look_at_children();
            self.read_reports();
            self.tell_failures();
            self.keep_limits();
            self.end_group();
            let pause = if self.status.is_some() {
                COUNT_INTERVAL
            } else {
                self.pause()
            };
            tokio::select! {
                signal = self.signals.next() => self.on_signal(signal),
                () = sleep(pause) => {}
                () = self.hold.context.lost(), if self.killed.is_none() => self.lose(),
            }
        }
        self.finish();
        Ok(self.outcome())
    }

    fn outcome(self) -> CommandEnd {
        CommandEnd {
            status: self.status,
            verdict: self.verdict,
            received: self.received,
            signals: self.signals,
        }
    }

    /// Starts the command, unless its time is over.
    fn start_command(&mut self, errand: &Errand<'_>) -> io::Result<()> {
        if self.foreground.is_some() {
            self.signals.add(Signal::CONT)?;
            Foreground::give_to(self.group.leader())?;
            self.is_in_foreground = true;
        }
        // From now on a stop of `run` also stops the command.
        self.signals.add(Signal::TSTP)?;
        // This process may have been stopped since the guardian has accepted the limits. The guardian has sent its signals to
        // no process then, and a command that starts now would not get them.
        if BootTime::now() >= self.accepted.term_at {
            self.decide(Verdict::Lost);
            return Ok(());
        }
        let kill_at = self.accepted.kill_at;
        self.command = Some(start_command(
            errand.command,
            &errand.environment,
            self.group,
            kill_at,
        )?);
        Ok(())
    }

    /// Checks whether the command and the guardian have ended or stopped.
    fn look_at_children(&mut self) {
        if let Some(command) = self.command.filter(|_| self.status.is_none()) {
            match change_of(command) {
                Some(ChildChange::Ended(status)) => self.status = Some(status),
                Some(ChildChange::Stopped) => {
                    self.is_stopped = true;
                    // The stop may have come first.
                    if self.asked_to_end.is_some_and(|at| at.elapsed() < LATE_NEWS) {
                        self.continue_stopped();
                    } else {
                        self.on_stop();
                    }
                }
                None => {}
            }
        }
        match change_of(self.group.leader()) {
            Some(ChildChange::Stopped) => {
                let _ = kill_process(self.group.leader(), Signal::CONT);
            }
            Some(ChildChange::Ended(_)) if self.killed.is_none() => {
                // The guardian reports it before it kills the group.
                self.read_reports();
                self.decide(Verdict::Failed(
                    "the guardian was killed, so the command was ended",
                ));
                self.kill();
            }
            _ => {}
        }
        self.reap_orphans();
    }

    /// On Linux orphans of the command become children of this process; elsewhere it has none.
    fn reap_orphans(&mut self) {
        if !cfg!(target_os = "linux") || self.last_reaped.elapsed() < REAP_INTERVAL {
            return;
        }
        self.last_reaped = Instant::now();
        for zombie in own_zombies().unwrap_or_default() {
            if zombie != self.group.leader() && Some(zombie) != self.command {
                reap(zombie);
            }
        }
    }

    fn read_reports(&mut self) {
        for report in self.channel.receive().messages {
            match report {
                Message::Accepted(limits) => self.accepted = limits,
                Message::Terminated | Message::Killing if self.killed.is_none() => self.decide(Verdict::Lost),
                _ => {}
            }
        }
    }

    /// Reports why the lock is not renewed: the command may have to end soon.
    fn tell_failures(&mut self) {
        if self.verdict == Verdict::Own {
            let (left, expiry) = (self.hold.context.remaining(), self.clock.expiry());
            if let Some(news) = self.renewals.news(left, expiry) {
                self.notices.say(news);
            }
        }
    }

    /// Sends a renewal to the guardian, and ends the command when a limit has passed.
    fn keep_limits(&mut self) {
        if self.killed.is_some() {
            return;
        }
        if self.verdict == Verdict::Own {
            self.send_renewal();
        }
        // A guardian that does not read keeps the limits that it accepted last.
        let now = BootTime::now();
        if now >= self.accepted.kill_at {
            self.lose();
        } else if now >= self.accepted.term_at.plus(TERM_GRACE) && self.verdict == Verdict::Own {
            self.decide(Verdict::Lost);
            self.group.terminate();
        }
    }

    fn send_renewal(&mut self) {
        let limits = self.clock.limits(|| self.hold.context.remaining());
        let is_renewal = limits.kill_at.0 > self.sent.kill_at.0.saturating_add(RENEWAL);
        if is_renewal {
            self.sent = limits;
            if self.renewals.succeed() {
                self.notices.say("the lock is renewed again");
            }
        }
        if is_renewal || self.sent != self.accepted {
            // A guardian that does not read keeps its limits, and so does this process.
            let _ = self.channel.send(Message::Until(self.sent));
        }
    }

    /// The lock is lost, or will be before the command could end: the group is killed at once.
    fn lose(&mut self) {
        self.decide(Verdict::Lost);
        let _ = self.channel.send(Message::Kill);
        self.kill();
    }

    /// Kills each process of the group, and the command even if it has left the group. It is not reaped, so its id is its
    /// own.
    fn kill(&mut self) {
        self.group.signal(Signal::KILL);
        if let Some(command) = self.command {
            if getpgid(Some(command)) == Ok(command) {
                let _ = kill_process_group(command, Signal::KILL);
            }
            let _ = kill_process(command, Signal::KILL);
        }
        self.killed.get_or_insert_with(Instant::now);
    }

    /// When the command has ended, ends the rest of its group.
    fn end_group(&mut self) {
        if self.status.is_none() || self.killed.is_some() {
            return;
        }
        let is_late = self.terminated.is_some_and(|at| at.elapsed() > END_LIMIT);
        match self.group.living() {
            // If the group cannot be counted, it is killed.
            Ok(0) | Err(_) => self.kill(),
            Ok(_) if is_late => self.kill(),
            Ok(_) if self.terminated.is_none() => {
                self.terminated = Some(Instant::now());
                self.group.terminate();
            }
            Ok(_) => {}
        }
    }

    /// Whether nothing is left to wait for. After SIGKILL to the whole group none of its processes can start another one,
    /// so that counting misses none.
    fn has_ended(&mut self) -> bool {
        let Some(killed) = self.killed else { return false };
        let living = self.group.living();
        let has_ended = matches!(living, Ok(0)) && self.status.is_some();
        if !has_ended && killed.elapsed() > END_LIMIT {
            let number = living.unwrap_or_default();
            self.verdict = Verdict::Unkillable(number.max(1));
            return true;
        }
        has_ended
    }

    /// Takes the terminal back, and reaps the children: the guardian last, because the group has its id.
    fn finish(&mut self) {
        self.give_up_terminal();
        if let Some(command) = self.command {
            reap(command);
        }
        until_reaped(self.group.leader());
    }

    fn give_up_terminal(&mut self) {
        if let Some(foreground) = self.foreground.as_ref().filter(|_| self.is_in_foreground) {
            foreground.take_back_from(self.group.leader());
            self.is_in_foreground = false;
        }
    }

    /// The first reason counts. A command that is ended before the lease is over does not see the reason itself.
    fn decide(&mut self, verdict: Verdict) {
        let left = self.hold.context.remaining();
        if self.verdict == Verdict::Own && verdict == Verdict::Lost && !left.is_zero() {
            let left = short(left);
            self.notices.say(format_args!(
                "the lock was not renewed, {left} left: the command is ended"
            ));
        }
        if self.verdict == Verdict::Own && self.status.is_none() {
            self.verdict = verdict;
        } else if self.verdict == Verdict::Own && verdict == Verdict::Lost {
            // The command has ended in time; the rest of its group has not.
            self.verdict = verdict;
        }
    }

    /// The time to the next limit, or to the next look at the lease.
    fn pause(&self) -> Duration {
        let next = if self.verdict == Verdict::Own {
            self.accepted.term_at.plus(TERM_GRACE).min(self.accepted.kill_at)
        } else {
            self.accepted.kill_at
        };
        next.left().clamp(Duration::from_millis(1), TICK)
    }
}
