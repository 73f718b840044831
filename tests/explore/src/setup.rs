//! The bounds of one search or of one random run.

use std::sync::Arc;

use crate::core::{Join, MS, OncePolicy, Rules, Span};
use crate::network::Cell;
use crate::protocol::{Ms, Name};

/// What is explored.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says of one rule whether it applies"
)]
pub(crate) struct Setup {
    /// The callers of each process.
    pub(crate) processes: Vec<Vec<Caller>>,
    /// The names that each of them wants; of a semaphore its name, with the separator at its end.
    names: Vec<Vec<Arc<[Name]>>>,
    pub(crate) start: Start,
    /// The size of each process's connection pool.
    pub(crate) pool: usize,
    /// Whether change streams may be used.
    pub(crate) may_listen: bool,
    /// The takeover margin.
    pub(crate) margin: Ms,
    /// How many faults of each kind there may be.
    pub(crate) faults: Faults,
    /// Whether a caller comes again, for ever.
    pub(crate) again: bool,
    /// The longest time for which a lock may be free while a caller waits for it.
    pub(crate) most_free: Span,
    /// The longest time for which a caller may wait for the end of its hold.
    pub(crate) most_end: Span,
    /// Whether a command may arrive when its claim was won and released: then that has the lock for one lease, without a user.
    pub(crate) has_ghosts: bool,
    /// Whether the server refuses one command, and no other fault occurs.
    pub(crate) is_refused_once: bool,
    /// Whether each lease is renewed when a third of it is over: each process has one caller, and nothing but crashes goes wrong.
    pub(crate) renews_in_time: bool,
    /// A command takes effect within this time, or never; `None`: within its limit after its end in the process.
    pub(crate) latest: Option<Span>,
}

/// One caller and what it does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) wants: Wants,
    pub(crate) limit: Option<Span>,
    pub(crate) is_try: bool,
    pub(crate) expiry: Ms,
    pub(crate) once: Option<OncePolicy>,
    pub(crate) min_hold: Ms,
    pub(crate) max_hold: Option<Ms>,
    /// How its hold may end.
    pub(crate) ends: &'static [Finish],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    /// All of these locks.
    Locks(&'static [&'static str]),
    /// Any of so many permits.
    Permit(u32),
    /// The lease that another caller has detached.
    Lease,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Finish {
    Release,
    Done,
    Detach,
    /// A transaction commits under the hold, and may mark the work as done. The hold is released afterwards.
    Commit {
        marks: bool,
    },
}

/// How a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Plain,
    /// The first caller has the lock by a copy of its claim, and the claim itself is on its way for as long as it likes.
    Copied,
    /// The same; then an operator has released the lock, another process has had it, and the late claim has it again.
    Freed,
    /// The first caller has left at its deadline without a reply to its claim, which is on its way for as long as it likes.
    Left,
    /// The first caller has the lock until its lease ends: no renewal has had a reply, and the first one is on its way for as long as it
    /// likes.
    Renewing,
    /// The first caller of the second process has its lock, and that process has ended.
    Crashed,
}

/// The number of faults that may still occur, by their kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Faults {
    /// A command or a reply is lost.
    pub(crate) lost: u16,
    /// A command ends with an unclear error: it was applied, or may be later.
    pub(crate) unclear: u16,
    /// A command ends at its limit at the server, applied in part.
    pub(crate) blocked: u16,
    /// A command is rejected because of the server's load, or its reply says that a part of it was.
    pub(crate) rejected: u16,
    /// The server refuses a command, and would refuse it again.
    pub(crate) refused: u16,
    /// The server refuses the last row of a command that stops at a miss, and would refuse it again.
    pub(crate) refused_rows: u16,
    /// A command ends with an error before it is sent.
    pub(crate) unsent: u16,
    /// The server has no change streams, and says so when one is opened.
    pub(crate) refused_streams: u16,
    /// A command arrives twice.
    pub(crate) doubled: u16,
    /// Time passes while messages are on their way.
    pub(crate) slow: u16,
    pub(crate) cancelled: u16,
    pub(crate) crashes: u16,
    pub(crate) lost_events: u16,
    /// An event arrives a second time, from the stream before.
    pub(crate) doubled_events: u16,
    pub(crate) closed_streams: u16,
    /// An operator releases a lock by force.
    pub(crate) forced: u16,
    /// The document of a released lock is deleted.
    pub(crate) deleted: u16,
    /// A process drains, and then closes.
    pub(crate) shutdowns: u16,
    /// A transaction is aborted.
    pub(crate) aborts: u16,
    /// Not a fault: time passes while a caller holds a lock.
    pub(crate) holds: u16,
}

impl Faults {
    /// The faults of these words; `hold*3` stands for three of a kind.
    pub(crate) fn of(words: &str) -> Self {
        let mut faults = Self::default();
        for word in words.split_whitespace() {
            let (word, number) = word.split_once('*').unwrap_or((word, "1"));
            *faults.named(word) += number.parse().unwrap_or(u16::MAX);
        }
        faults
    }

    fn named(&mut self, word: &str) -> &mut u16 {
        match word {
            "lost" => &mut self.lost,
            "unclear" => &mut self.unclear,
            "blocked" => &mut self.blocked,
            "rejected" => &mut self.rejected,
            "refused" => &mut self.refused,
            "refused-row" => &mut self.refused_rows,
            "unsent" => &mut self.unsent,
            "refused-stream" => &mut self.refused_streams,
            "doubled" => &mut self.doubled,
            "late" => &mut self.slow,
            "cancel" => &mut self.cancelled,
            "crash" => &mut self.crashes,
            "lost-event" => &mut self.lost_events,
            "doubled-event" => &mut self.doubled_events,
            "closed-stream" => &mut self.closed_streams,
            "forced" => &mut self.forced,
            "deleted" => &mut self.deleted,
            "shutdown" => &mut self.shutdowns,
            "abort" => &mut self.aborts,
            "hold" => &mut self.holds,
            word => panic!("no fault is called {word}"),
        }
    }
}

/// The time within which a late command takes effect: it may stay in the server for a minute.
pub(crate) const LATEST: Span = 85_000 * MS;

/// A caller that waits for a lock without a limit.
pub(crate) const PLAIN: Caller = Caller {
    wants: Wants::Locks(&["n"]),
    limit: None,
    is_try: false,
    expiry: 30_000,
    once: None,
    min_hold: 0,
    max_hold: None,
    ends: &[Finish::Release],
};

impl Caller {
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            expiry: self.expiry,
            renew_every: self.expiry / 3,
            max_hold: self.max_hold,
            min_hold: self.min_hold,
            once: self.once,
        }
    }

    pub(crate) fn join(&self, is_inside_hold: bool, cell: Cell) -> Join<Cell> {
        Join {
            limit: self.limit,
            is_try: self.is_try,
            is_inside_hold,
            cell,
        }
    }

    fn may_commit(&self) -> bool {
        self.ends.iter().any(|end| matches!(end, Finish::Commit { .. }))
    }

    /// The caller of these words, which are joined by hyphens.
    fn of(words: &str) -> Self {
        words.split('-').fold(PLAIN, Self::with)
    }

    fn with(self, word: &str) -> Self {
        let wants = |wants| Self { wants, ..self };
        let once = |once, ends| Self {
            once: Some(once),
            ends,
            ..self
        };
        let expiring = |expiry| Self { expiry, ..self };
        let ends = |ends| Self { ends, ..self };
        let limit = |ms, is_try| Self {
            limit: Some(ms * MS),
            is_try,
            ..self
        };
        match word {
            "lock" => self,
            "a" => wants(Wants::Locks(&["a"])),
            "b" => wants(Wants::Locks(&["b"])),
            "c" => wants(Wants::Locks(&["c"])),
            "d" => wants(Wants::Locks(&["d"])),
            "e" => wants(Wants::Locks(&["e"])),
            "ab" => wants(Wants::Locks(&["a", "b"])),
            "bc" => wants(Wants::Locks(&["b", "c"])),
            "permit1" => wants(Wants::Permit(1)),
            "permit2" => wants(Wants::Permit(2)),
            "resume" => Self {
                wants: Wants::Lease,
                ..limit(5000, false)
            },
            "try" => limit(10_000, true),
            "deadline" => limit(3000, false),
            "short" => expiring(3000),
            "long" => expiring(120_000),
            "least" => Self {
                min_hold: 2000,
                ..self
            },
            "most" => Self {
                max_hold: Some(2500),
                ..self
            },
            "period" => once(OncePolicy::PerPeriod(3000), &[Finish::Done, Finish::Release]),
            "kept" => once(OncePolicy::Kept(5000), &[Finish::Done, Finish::Release]),
            "detach" => ends(&[Finish::Detach]),
            "commit" => ends(&[Finish::Commit { marks: false }, Finish::Release]),
            // The mark stands for longer than the lease.
            "done" => once(
                OncePolicy::Kept(5000),
                &[Finish::Commit { marks: true }, Finish::Done, Finish::Release],
            ),
            word => panic!("no caller is called {word}"),
        }
    }
}

impl Setup {
    /// Processes that are separated by commas, with callers that are separated by blanks.
    pub(crate) fn new(processes: &str, faults: &str) -> Self {
        let callers = |process: &str| process.split_whitespace().map(Caller::of).collect();
        let processes: Vec<Vec<Caller>> = processes.split(',').map(callers).collect();
        let faults = Faults::of(faults);
        let name = |text: &&str| Name::from(*text);
        let names = |caller: &Caller| match caller.wants {
            Wants::Locks(names) => names.iter().map(name).collect(),
            Wants::Permit(_) => Arc::new([Name::from("s\u{1f}")]) as Arc<[Name]>,
            Wants::Lease => Arc::new([]),
        };
        let of_process = |callers: &Vec<Caller>| callers.iter().map(names).collect();
        Self {
            names: processes.iter().map(of_process).collect(),
            start: Start::Plain,
            pool: 16,
            may_listen: true,
            margin: 0,
            faults,
            again: false,
            most_free: most_free(&processes, &faults),
            most_end: most_end(&faults),
            renews_in_time: processes
                .iter()
                .all(|callers| callers.len() == 1 && !callers[0].may_commit())
                && Faults {
                    holds: 0,
                    crashes: 0,
                    ..faults
                } == Faults::default(),
            latest: Some(LATEST),
            is_refused_once: faults == Faults::of("refused"),
            has_ghosts: faults.doubled > 0 || faults.unclear > 0 && faults.slow > 0,
            processes,
        }
    }

    pub(crate) fn caller(&self, process: usize, caller: usize) -> &Caller {
        &self.processes[process][caller]
    }

    pub(crate) fn names(&self, process: usize, caller: usize) -> &Arc<[Name]> {
        &self.names[process][caller]
    }
}

/// The longest time for which a caller may wait for what is free.
fn most_free(processes: &[Vec<Caller>], faults: &Faults) -> Span {
    let is_set = |caller: &Caller| matches!(caller.wants, Wants::Locks([_, _, ..]));
    let has_set = processes.iter().flatten().any(is_set);
    let ms = match faults {
        // Who has a lock learns of a forced release by its renewal.
        Faults { forced: 1.., .. } => 12_000,
        Faults {
            lost: 0,
            slow: 0,
            lost_events: 0,
            doubled_events: 0,
            closed_streams: 0,
            unclear,
            ..
        } => {
            // A command for several locks has a limit of 500 ms, and for so long it may arrive.
            if has_set && *unclear > 0 { 600 } else { 150 }
        }
        // A call asks after a second of silence in any case.
        Faults { lost: 0, slow: 0, .. } => 1000,
        // A release and a claim, or a claim and both of its copies, may be late by two seconds each.
        Faults { slow: 3.., .. } => 6500,
        // What is lost is repeated after two seconds, and a release is so once more.
        _ => 5100,
    };
    ms * MS
}

/// The longest time for which a caller may wait for the end of its hold.
fn most_end(faults: &Faults) -> Span {
    if faults.slow > 0 {
        return Span::MAX;
    }
    let lost = 2000 * Span::from(faults.lost);
    // A command for several locks has a limit of 500 ms.
    let failed = 600 * Span::from(faults.unclear + faults.blocked + faults.unsent);
    (100 + lost + failed + 400 * Span::from(faults.rejected)) * MS
}
