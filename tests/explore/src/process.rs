//! One process: its callers, and what the folders of the library keep for one lock.

use std::cell::Cell;
use std::fmt::{self, Display, Formatter};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{Call, Pause, Phase};
use crate::hash::fingerprint;
use crate::id::{Id, Token};
use crate::judge::Judge;
use crate::lease::book::Book;
use crate::lease::{Lease, Release};
use crate::line::Lines;
use crate::network::{Body, Message};
use crate::notifier::Notifier;
use crate::queue::{Queue, RequestNumber};
use crate::server::Server;
use crate::setup::Setup;
use crate::time::Instant;

/// A process has at most this number of steps at one moment: more of them never end.
const MOST_STEPS: usize = 200;

#[derive(Clone, Hash)]
pub(crate) struct Process {
    pub(crate) index: u8,
    pub(crate) is_alive: bool,
    pub(crate) callers: Vec<Caller>,
    pub(crate) queue: Queue,
    pub(crate) notifier: Notifier,
    pub(crate) lines: Lines,
    /// What is known of the requests of each claim.
    pub(crate) books: Vec<(Id, Book)>,
    pub(crate) requests: Vec<Request>,
    pub(crate) releases: Vec<Release>,
    /// The releases of claims that a waiter has met, by their commands.
    pub(crate) clears: Vec<(u32, RequestNumber)>,
    last_id: u16,
    last_no: u32,
}

/// A process that situations share as long as nothing changes it, and its fingerprint.
#[derive(Clone)]
pub(crate) struct Kept {
    process: Process,
    /// The fingerprint, and the time and the token that it is relative to.
    fingerprint: Cell<Option<(Instant, Token, u64)>>,
}

impl Kept {
    pub(crate) fn new(process: Process) -> Self {
        Self {
            process,
            fingerprint: Cell::new(None),
        }
    }

    pub(crate) fn change(&mut self) -> &mut Process {
        self.fingerprint.set(None);
        &mut self.process
    }

    pub(crate) fn fingerprint(&self, token: Token) -> u64 {
        let now = Instant::now();
        match self.fingerprint.get() {
            Some((at, before, fingerprint)) if at == now && before == token => fingerprint,
            _ => {
                let fingerprint = fingerprint(&self.process);
                self.fingerprint.set(Some((now, token, fingerprint)));
                fingerprint
            }
        }
    }
}

impl Deref for Kept {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

#[derive(Clone, Hash)]
pub(crate) enum Caller {
    Idle,
    Waits(Box<Call>),
    /// Its future is being polled.
    Polled,
    Holds(Lease),
    /// Its lease is over, and it does not know of that yet.
    Lost(Lease),
    Done,
}

impl Caller {
    /// After a call that has ended, or its hold.
    pub(crate) fn after(setup: &Setup) -> Self {
        if setup.again { Self::Idle } else { Self::Done }
    }
}

impl Display for Caller {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Idle => "-",
            Self::Waits(_) | Self::Polled => "w",
            Self::Holds(_) => "H",
            Self::Lost(_) => "L",
            Self::Done => ".",
        })
    }
}

/// An acquire request without a reply.
#[derive(Clone, Copy, Hash)]
pub(crate) struct Request {
    pub(crate) no: u32,
    pub(crate) id: Id,
    pub(crate) number: RequestNumber,
    pub(crate) sent: Instant,
    /// Its limit at the server.
    pub(crate) limit: Duration,
    /// The time at which it is given up.
    pub(crate) until: Instant,
}

/// What surrounds a process while it runs.
pub(crate) struct Cx<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) server: &'a mut Server,
    pub(crate) network: &'a mut Vec<Message>,
    pub(crate) judge: &'a mut Judge,
}

impl Process {
    pub(crate) fn new(index: u8, setup: &Setup) -> Self {
        Self {
            index,
            is_alive: true,
            callers: vec![Caller::Idle; setup.callers],
            queue: Queue::new(setup),
            notifier: Notifier::new(setup),
            lines: Lines::default(),
            books: Vec::new(),
            requests: Vec::new(),
            releases: Vec::new(),
            clears: Vec::new(),
            last_id: 0,
            last_no: 0,
        }
    }

    /// Whether no caller has called yet.
    pub(crate) fn is_new(&self) -> bool {
        self.last_id == 0 && self.callers.iter().all(|caller| matches!(caller, Caller::Idle))
    }

    /// Whether no caller will call again and nothing waits for an event.
    pub(crate) fn is_done(&self) -> bool {
        let is_done = |caller: &Caller| matches!(caller, Caller::Done);
        self.callers.iter().all(is_done) && !self.lines.has_line()
    }

    /// A call is cancelled.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>, caller: usize) {
        if let Some(call) = self.take_call(caller) {
            self.drop_call(cx, caller, *call);
        }
    }

    /// Takes the call of a caller that waits.
    pub(crate) fn take_call(&mut self, caller: usize) -> Option<Box<Call>> {
        match std::mem::replace(&mut self.callers[caller], Caller::Polled) {
            Caller::Waits(call) => Some(call),
            other => {
                self.callers[caller] = other;
                None
            }
        }
    }

    /// The calls that wait.
    pub(crate) fn calls(&mut self) -> impl Iterator<Item = &mut Call> {
        self.callers.iter_mut().filter_map(|caller| match caller {
            Caller::Waits(call) => Some(&mut **call),
            _ => None,
        })
    }

    /// The mark of the provider.
    pub(crate) fn mark(&self) -> Arc<str> {
        Arc::from(self.index.to_string())
    }

    pub(crate) fn new_id(&mut self) -> Id {
        self.last_id += 1;
        Id {
            process: self.index,
            number: self.last_id,
        }
    }

    /// Sends a command, and returns its number.
    pub(crate) fn send(&mut self, cx: &mut Cx<'_>, body: Body) -> u32 {
        self.last_no += 1;
        cx.network.push(Message {
            process: self.index,
            no: self.last_no,
            sent: Instant::now(),
            body,
        });
        self.last_no
    }

    pub(crate) fn book(&mut self, id: Id) -> &mut Book {
        let known = self.books.iter().position(|(own, _)| *own == id);
        let index = known.unwrap_or_else(|| {
            self.books.push((id, Book::default()));
            self.books.len() - 1
        });
        &mut self.books[index].1
    }

    /// Whether the queue of the name exists: a caller waits or holds, or a claim is not yet released.
    pub(crate) fn is_in_use(&self) -> bool {
        let is_caller = |caller: &Caller| {
            matches!(
                caller,
                Caller::Waits(_) | Caller::Polled | Caller::Holds(_) | Caller::Lost(_)
            )
        };
        self.callers.iter().any(is_caller)
            || self.queue.handed_over.is_some()
            || !self.requests.is_empty()
            || self.releases.iter().any(Release::is_awaited)
    }

    /// Whether a call or a hold uses the claim.
    pub(crate) fn uses(&self, id: Id) -> bool {
        let of_caller = |caller: &Caller| match caller {
            Caller::Waits(call) => call.attempt.as_ref().is_some_and(|attempt| attempt.id == id),
            Caller::Holds(lease) => lease.id == id,
            _ => false,
        };
        self.callers.iter().any(of_caller)
            || self
                .queue
                .handed_over
                .as_ref()
                .is_some_and(|lease| lease.id == id)
    }

    /// Does everything that is due, until nothing is.
    pub(crate) fn settle(&mut self, cx: &mut Cx<'_>) {
        for _ in 0..MOST_STEPS {
            if !self.run(cx) {
                self.forget_books();
                return;
            }
        }
        cx.judge.breach("a process never comes to rest");
    }

    /// Runs each task once, and returns whether one of them has done something.
    fn run(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut has_run = self.give_requests_up(cx);
        has_run |= self.run_releases(cx);
        has_run |= self.run_stream(cx);
        has_run |= self.run_looker(cx);
        for caller in 0..self.callers.len() {
            has_run |= self.poll(cx, caller);
        }
        has_run |= self.give_turn(cx);
        has_run | self.run_keeper(cx)
    }

    /// Forgets what nothing refers to any more.
    fn forget_books(&mut self) {
        let mut books = std::mem::take(&mut self.books);
        books.retain(|(id, _)| {
            self.uses(*id)
                || self.requests.iter().any(|request| request.id == *id)
                || self.releases.iter().any(|release| release.id == *id)
                || self
                    .callers
                    .iter()
                    .any(|caller| matches!(caller, Caller::Lost(lease) if lease.id == *id))
        });
        self.books = books;
    }

    /// The next time at which something is due.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        let calls = self.callers.iter().filter_map(|caller| match caller {
            Caller::Waits(call) => self.due_of_call(call),
            Caller::Holds(lease) => Some(lease.deadline),
            _ => None,
        });
        let requests = self.requests.iter().map(|request| request.until);
        let releases = self.releases.iter().map(Release::due);
        let others = [self.notifier.next_time(), self.lines.next_time(self.is_in_use())];
        calls
            .chain(requests)
            .chain(releases)
            .chain(others.into_iter().flatten())
            .min()
    }

    fn due_of_call(&self, call: &Call) -> Option<Instant> {
        let limit = call
            .deadline
            .or_else(|| self.queue.front.no_reply_ends(call.begun));
        let phase = match &call.phase {
            Phase::Asks(check) => check.until(),
            Phase::Yields { until } | Phase::Clears { until, .. } | Phase::First { overdue: until } => {
                Some(*until)
            }
            Phase::Place { until } => *until,
            Phase::Requests { overdue, .. } => *overdue,
            Phase::Pauses(Pause::Sleeps(until) | Pause::WokenWithin(until)) => Some(*until),
            Phase::InQueue | Phase::Pauses(Pause::Woken) => None,
        };
        limit.into_iter().chain(phase).min()
    }
}
