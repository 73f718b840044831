//! What must be true in every situation. The judge keeps its own notes of what a process was told, apart from the library's.

use std::rc::Rc;
use std::time::Duration;

use crate::acquire::{Call, Told};
use crate::id::{Id, Token};
use crate::process::{Caller, Kept, Process};
use crate::queue::Holder;
use crate::server::Server;
use crate::setup::Setup;
use crate::time::Instant;
use crate::timing::SLOW_REPLY;

// What can be wrong, as far as a mutant must show it.
pub(crate) const TOKEN: &str = "a token is not greater than all before";
pub(crate) const UNSAID: &str = "a caller is told that the lock is busy, and nothing has said so";
pub(crate) const SILENT: &str =
    "a caller is told that the lock is busy, and there was no reply for half a second";
pub(crate) const FREE: &str = "the lock is free for too long while a caller waits";
pub(crate) const GIVEN_UP: &str = "a waiter loses too much time to a claim that its process has given up";
pub(crate) const NOT_IDLE: &str = "a process is not idle at the end";
pub(crate) const LEFT_CLAIM: &str = "a claim without a user is never released";
pub(crate) const OVER: &str = "a hold is delivered whose lease is over";

#[derive(Clone, Hash)]
pub(crate) struct Judge {
    /// What is wrong.
    breach: Option<&'static str>,
    last_token: Token,
    heard: Vec<Heard>,
    /// The time since which a caller waits, if one does.
    waits_since: Option<Instant>,
}

/// What one process was told of the lock.
#[derive(Debug, Clone, Hash, Default)]
struct Heard {
    /// Whether anything has said that the lock is held.
    was_told: bool,
    /// The holder that was named last, unless something later has said that it has the lock no more.
    named: Option<Id>,
    /// The time of the first question since the last reply.
    silent_since: Option<Instant>,
    last_asked: Option<Instant>,
    /// The time since which a claim without a user has the lock while a caller waits.
    given_up_since: Option<Instant>,
}

/// The longest times that were seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Longest {
    /// The lock was free while a caller waited.
    pub(crate) free: Duration,
    /// A claim without a user had the lock while a caller of its process waited.
    pub(crate) given_up: Duration,
}

impl Longest {
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            free: self.free.max(other.free),
            given_up: self.given_up.max(other.given_up),
        }
    }
}

impl Judge {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            breach: None,
            last_token: Token(0),
            heard: vec![Heard::default(); usize::from(setup.processes)],
            waits_since: None,
        }
    }

    pub(crate) fn breach(&mut self, breach: &'static str) {
        self.breach.get_or_insert(breach);
    }

    pub(crate) fn found(&self) -> Option<&'static str> {
        self.breach
    }

    fn heard(&mut self, process: u8) -> &mut Heard {
        &mut self.heard[usize::from(process)]
    }

    /// A request or a look is due in a process, and is sent as soon as it is allowed.
    pub(crate) fn would_ask(&mut self, process: u8) {
        self.heard(process).silent_since.get_or_insert_with(Instant::now);
    }

    /// A process sends a request or a look that is no copy.
    pub(crate) fn asks(&mut self, process: u8) {
        self.would_ask(process);
        self.heard(process).last_asked = Some(Instant::now());
    }

    /// A reply arrives to a command that was sent then.
    pub(crate) fn answered(&mut self, process: u8, sent: Instant) {
        let heard = self.heard(process);
        if heard.silent_since.is_some() {
            let is_older = heard.last_asked.is_some_and(|asked| asked > sent);
            heard.silent_since = is_older.then(Instant::now);
        }
    }

    /// A reply names the holder, or says that there is none.
    pub(crate) fn named(&mut self, process: &Process, holder: Option<Id>) {
        let is_given_up = |id: &Id| process.releases.iter().any(|release| release.id == *id);
        let heard = self.heard(process.index);
        heard.was_told = true;
        heard.named = holder.filter(|id| !is_given_up(id));
    }

    /// A release is sent whose call has returned.
    pub(crate) fn no_holder(&mut self, process: u8) {
        self.heard(process).named = None;
    }

    /// An event has named another holder.
    pub(crate) fn heard_of(&mut self, process: u8, id: Id) {
        let heard = self.heard(process);
        (heard.was_told, heard.named, heard.silent_since) = (true, Some(id), None);
    }

    /// A caller leaves the lock to others before its first request.
    pub(crate) fn yields(&mut self, process: u8) {
        self.heard(process).was_told = true;
    }

    /// A call ends.
    pub(crate) fn told(&mut self, process: &Process, call: &Call, told: &Told) {
        match told {
            Told::Hold(lease) => {
                if lease.is_over() {
                    self.breach(OVER);
                }
                if lease.token <= self.last_token {
                    self.breach(TOKEN);
                }
                self.last_token = self.last_token.max(lease.token);
                let id = lease.id;
                self.heard_of(process.index, id);
            }
            Told::Busy(holder) | Told::Timeout(holder) => self.told_busy(process.index, call, holder),
            Told::Failed | Told::NoReply => {}
        }
        if call.deadline.is_some_and(|deadline| deadline < Instant::now()) {
            self.breach("a caller is told after its deadline");
        }
    }

    /// A single try behind another caller of its process may be told so after half a second, whatever was heard.
    fn told_busy(&mut self, process: u8, call: &Call, holder: &Holder) {
        let (heard, now) = (self.heard(process), Instant::now());
        let is_silent = |since: Instant| now - since > SLOW_REPLY;
        let id = holder.lock_id().and_then(|id| Id::of(id));
        let is_behind = call.is_try && call.attempt.is_none() && now - call.begun >= SLOW_REPLY;
        let breach = if !heard.was_told && !is_behind {
            UNSAID
        } else if heard.silent_since.is_some_and(is_silent) {
            SILENT
        } else if id.is_some() && id != heard.named {
            "a caller is told of a holder that was not named last"
        } else {
            return;
        };
        self.breach(breach);
    }

    /// Judges a situation.
    pub(crate) fn judge(&mut self, setup: &Setup, processes: &[Rc<Kept>], server: &Server) -> Longest {
        let now = Instant::now();
        let (mut holders, mut waits) = (0, false);
        let alive = || processes.iter().filter(|process| process.is_alive);
        for caller in alive().flat_map(|process| &process.callers) {
            match caller {
                Caller::Holds(lease) if !lease.is_over() => holders += 1,
                Caller::Waits(call) => {
                    waits = true;
                    if call.deadline.is_some_and(|deadline| deadline < now) {
                        self.breach("a caller waits beyond its deadline");
                    }
                }
                _ => {}
            }
        }
        if holders > 1 {
            self.breach("two callers rely on the lock");
        }
        self.waits_since = waits.then(|| self.waits_since.unwrap_or(now));
        let longest = Longest {
            free: self.free_for(server),
            given_up: alive()
                .map(|process| self.given_up_for(process, server))
                .max()
                .unwrap_or_default(),
        };
        if longest.free > setup.most_free {
            self.breach(FREE);
        }
        if longest.given_up > setup.most_given_up {
            self.breach(GIVEN_UP);
        }
        longest
    }

    fn free_for(&self, server: &Server) -> Duration {
        let since = self.waits_since.filter(|_| server.is_free());
        since.map_or(Duration::ZERO, |since| Instant::now() - since.max(server.expires))
    }

    fn given_up_for(&mut self, process: &Process, server: &Server) -> Duration {
        let id = server.holder.filter(|_| !server.is_free());
        let is_lost = |id: Id| {
            let of = |caller: &Caller| matches!(caller, Caller::Lost(lease) if lease.id == id);
            process.callers.iter().any(of)
        };
        let is_unused = |id: Id| id.process == process.index && !process.uses(id) && !is_lost(id);
        let waits = |caller: &Caller| matches!(caller, Caller::Waits(_));
        let is_met = id.is_some_and(is_unused) && process.callers.iter().any(waits);
        let now = Instant::now();
        let since = &mut self.heard(process.index).given_up_since;
        *since = is_met.then(|| since.unwrap_or(now));
        since.map_or(Duration::ZERO, |since| now - since)
    }

    /// Judges the end of a run, after which nothing happens any more.
    pub(crate) fn judge_end(&mut self, processes: &[Rc<Kept>], server: &Server) {
        for process in processes.iter().filter(|process| process.is_alive) {
            if process
                .callers
                .iter()
                .any(|caller| matches!(caller, Caller::Waits(_)))
            {
                self.breach("a caller waits for ever");
            }
            if process.is_in_use() || process.queue.has_turn || !process.releases.is_empty() {
                self.breach(NOT_IDLE);
            }
            if process.lines.has_line() {
                self.breach("a process stands in line for ever");
            }
        }
        let is_of_a_process = |id: Id| processes[usize::from(id.process)].is_alive;
        if !server.is_free() && server.holder.is_some_and(is_of_a_process) {
            self.breach(LEFT_CLAIM);
        }
    }
}
