//! The guardian: the process that ends the command when its lock ends, whatever has happened to `run`.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, getpid};

use super::deadline::Limits;
use super::group::{Group, own_group};
use super::messages::{Channel, Message};
use super::timer::Timer;
use crate::cli::GuardArguments;
use crate::clock::BootTime;
use crate::failure::Failure;

/// Guards the group that this process leads, until it kills the group and itself with it.
pub(crate) fn guard(arguments: &GuardArguments) -> Result<Infallible, Failure> {
    // If a user starts it, it would kill the job in which it was started.
    if own_group() != Some(getpid()) {
        return Err(Failure::new("this command is for `mongolock run` only"));
    }
    // This process starts no other one and so has no descendants: only `run`, which starts the command, is a subreaper.
    // The signals that the group gets are for the command. Blocked ones neither end nor stop this process.
    SigSet::all()
        .thread_block()
        .map_err(Failure::io("cannot block signals"))?;
    let failed = || Failure::io("the guardian cannot start");
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed())?;
    let channel = Channel::new(UnixStream::from(socket)).map_err(failed())?;
    let timer = Timer::new().map_err(failed())?;
    let terminal = arguments.terminal.and_then(Terminal::of_group);
    let group = Group::of(getpid());
    let guardian = Guardian {
        channel,
        timer,
        terminal,
        group,
        limits: None,
        has_terminated: false,
    };
    guardian.guard()
}

/// The process that leads the group of the command, and ends the command if the lock is lost.
struct Guardian {
    channel: Channel,
    timer: Timer,
    terminal: Option<Terminal>,
    group: Group,
    /// The limits of the lease; none before the first order.
    limits: Option<Limits>,
    /// Whether SIGTERM was sent. After that a renewal has no effect.
    has_terminated: bool,
}

impl Guardian {
    fn guard(mut self) -> ! {
        loop {
            // All orders are read before a decision, because this process may have been stopped for a long time, and
            // the newest order may arrive late or early.
            self.read_orders();
            self.keep_limits();
            self.wait();
        }
    }

    fn read_orders(&mut self) {
        let received = self.channel.receive();
        for order in received.messages {
            match order {
                Message::Until(limits) if !self.has_terminated => {
                    self.limits = Some(limits);
                    self.report(Message::Accepted(limits));
                }
                Message::Kill => self.kill(),
                _ => {}
            }
        }
        if received.has_ended {
            self.kill();
        }
    }

    fn keep_limits(&mut self) {
        let Some(limits) = self.limits else { return };
        let now = BootTime::now();
        if now >= limits.kill_at {
            self.kill();
        }
        if now >= limits.term_at && !self.has_terminated {
            self.has_terminated = true;
            self.report(Message::Terminated);
            self.group.terminate();
        }
    }

    /// Waits for an order or for the next limit.
    fn wait(&mut self) {
        let next = self.limits.map(|limits| {
            if self.has_terminated {
                limits.kill_at
            } else {
                limits.term_at
            }
        });
        // Without a timer the limits could not be kept.
        if self.timer.set(next).is_err() {
            self.kill();
        }
        let mut sources = vec![PollFd::new(self.channel.socket(), PollFlags::IN)];
        sources.extend(self.timer.as_source());
        // A signal or an error ends the wait early, which changes nothing.
        let _ = poll(&mut sources, self.timer.timeout().as_ref());
    }

    fn report(&mut self, report: Message) {
        // If `run` cannot read it, `run` has ended or is stopped.
        let _ = self.channel.send(report);
    }

    /// Kills every process of the group at once, this one among them.
    fn kill(&mut self) -> ! {
        self.report(Message::Killing);
        if let Some(terminal) = &self.terminal {
            terminal.give_back();
        }
        loop {
            self.group.signal(Signal::KILL);
        }
    }
}

/// The terminal in whose foreground the command is.
struct Terminal {
    device: File,
    /// The group that was in the foreground before.
    before: Pid,
}

impl Terminal {
    fn of_group(before: i32) -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let before = Pid::from_raw(before)?;
        Some(Self { device, before })
    }

    /// Puts the group of `run` into the foreground, unless the shell has put another one there.
    fn give_back(&self) {
        if rustix::termios::tcgetpgrp(&self.device) == Ok(getpid()) {
            let _ = rustix::termios::tcsetpgrp(&self.device, self.before);
        }
    }
}
