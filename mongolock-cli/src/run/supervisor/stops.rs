//! Signals that this process has received, and stops of the command.

use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};

use super::super::group::is_session_leader;
use super::super::terminal::Foreground;
use super::Supervisor;
use crate::acquire::PASSED_ON;

/// The signals that ask a command to end.
const ENDING: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

/// For this time after a stop, SIGTSTP is the one that this program has sent to its own group.
const OWN_STOP: Duration = Duration::from_millis(200);

impl Supervisor<'_> {
    pub(super) fn on_signal(&mut self, signal: Signal) {
        if PASSED_ON.contains(&signal) {
            if self.killed.is_none() {
                self.received.push(signal);
                self.group.signal(signal);
                if ENDING.contains(&signal) {
                    self.asked_to_end = Some(Instant::now());
                    self.continue_stopped();
                }
            }
        } else if signal == Signal::TSTP {
            self.on_terminal_stop();
        } else if signal == Signal::CONT {
            self.resume();
        }
    }

    /// A stopped process gets a signal only when it continues; until then `run` would wait for its end.
    pub(super) fn continue_stopped(&mut self) {
        if self.is_stopped {
            self.is_stopped = false;
            self.group.signal(Signal::CONT);
        }
    }

    /// Ctrl-Z while the command is not in the foreground: it and this program stop.
    fn on_terminal_stop(&mut self) {
        if self.resumed.is_some_and(|at| at.elapsed() < OWN_STOP) {
            return;
        }
        self.group.signal(Signal::TSTP);
        self.stop();
    }

    /// The command was stopped. In the foreground it was Ctrl-Z, or a debugger: the job has stopped.
    pub(super) fn on_stop(&mut self) {
        if self.is_in_foreground {
            self.give_up_terminal();
            let _ = kill_current_process_group(Signal::TSTP);
            self.stop();
        } else if self.foreground.is_none() && self.resumed.is_none() && !self.is_stop_told {
            // No other process has taken the terminal from this process, and the command may never end.
            self.is_stop_told = true;
            self.notices.say(
                "the command was stopped, and keeps the lock; if it reads from the terminal, its output must go there, too",
            );
        }
    }

    /// Stops this process until it is continued. The lease is not renewed meanwhile.
    fn stop(&mut self) {
        // A session leader has no shell that would continue it.
        if !is_session_leader() {
            let _ = kill_process(getpid(), Signal::STOP);
        }
        self.resumed = Some(Instant::now());
        self.resume();
    }

    /// Continues the command, in the foreground if this program is there.
    fn resume(&mut self) {
        // The limits may have passed meanwhile; then the command gets SIGTERM or SIGKILL instead.
        self.keep_limits();
        if self.killed.is_some() {
            return;
        }
        if self.foreground.as_ref().is_some_and(Foreground::is_own) {
            self.is_in_foreground = Foreground::give_to(self.group.leader()).is_ok();
        }
        self.is_stopped = false;
        self.group.signal(Signal::CONT);
    }
}
