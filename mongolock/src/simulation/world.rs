//! The data that all processes share: the server, its state, and the record of events.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::ledger::Ledger;
use super::plan::Plan;
use crate::protocol::{Ms, Name, Reply, Row, RowOrder, Sight};
use crate::store::{ALL, Looked, MemoryStore};
use crate::sync::lock;

/// The beginning of the server's clock.
const START: Ms = 1_800_000_000_000;

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) memory: MemoryStore,
    ledger: Mutex<Ledger>,
    /// The time until which there is no primary, and the number of elections.
    pub(super) no_primary_until: AtomicI64,
    pub(super) elections: AtomicU64,
    /// The number of a thousand commands that are rejected because of the load.
    pub(super) rejected: AtomicU32,
    begun: Instant,
    is_over: AtomicBool,
    digest: AtomicU64,
    prints: bool,
}

impl World {
    pub(super) fn new(plan: Plan, prints: bool) -> Self {
        Self {
            plan,
            memory: MemoryStore::simulated(START),
            ledger: Mutex::default(),
            no_primary_until: AtomicI64::new(0),
            elections: AtomicU64::new(0),
            rejected: AtomicU32::new(0),
            begun: Instant::now(),
            is_over: AtomicBool::new(false),
            digest: AtomicU64::new(0),
            prints,
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// The milliseconds since the beginning.
    pub(super) fn now(&self) -> i64 {
        whole(self.begun.elapsed())
    }

    /// The same for a time of the server's clock.
    pub(super) fn of_server(at: Ms) -> i64 {
        at - START
    }

    /// Records an event. Runs with the same events have the same digest.
    pub(super) fn note(&self, event: impl FnOnce() -> String) {
        let (now, event) = (self.now(), event());
        let mut hasher = DefaultHasher::new();
        (self.digest(), now, &event).hash(&mut hasher);
        self.digest.store(hasher.finish(), Relaxed);
        if self.prints {
            println!("{now:>7} {event}");
        }
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest.load(Relaxed)
    }

    pub(super) fn check(&self, holds: bool, breach: impl FnOnce() -> String) {
        if !holds {
            let breach = format!("{} at {}", breach(), self.now());
            self.note(|| format!("BREACH: {breach}"));
            self.ledger().breaches.push(breach);
        }
    }

    /// Whether the faults have stopped, and callers begin no more calls.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    pub(super) fn end_faults(&self) {
        self.is_over.store(true, Relaxed);
        self.note(|| "no more faults".to_owned());
    }

    /// The time until there is a primary.
    pub(super) fn without_primary(&self) -> Duration {
        let left = self.no_primary_until.load(Relaxed) - self.now();
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }

    /// Runs the first rows of a command at the server, which has read its clock at this time.
    pub(super) fn serve(&self, by: usize, now: Ms, rows: &[Row], order: RowOrder, most: usize) -> Vec<Reply> {
        let mut has_ended = false;
        let serve = |row: &Row| {
            if has_ended {
                return Reply::UNSEEN;
            }
            let reply = self.memory.run_row(now, row);
            has_ended = order == RowOrder::StopAtMiss && row.is_missed(&reply);
            self.note(|| served(by, row, &reply));
            reply
        };
        rows.iter().take(most).map(serve).collect()
    }

    /// Runs a query at the server.
    pub(super) fn look(&self, by: usize, looked: &Looked) -> Vec<(Name, Sight)> {
        let found = self.memory.find(looked, None, ALL);
        let is_free = |(_, sight): &&(Name, Sight)| sight.is_free(0);
        let free = found.iter().filter(is_free).count();
        self.note(|| format!("  {by} finds {} documents, {free} are free", found.len()));
        found
    }

    /// The time since which one of these locks is free, or all of them. A lock without a document is free since its
    /// deletion.
    pub(super) fn free_since(&self, names: &[Name], wants_all: bool) -> Option<Ms> {
        let deleted = |name: &Name| self.ledger().deleted.get(name).copied().unwrap_or(0);
        let since = |name: &Name| Some(self.memory.free_since(name)?.max(deleted(name)));
        let mut since = names.iter().map(since);
        if wants_all {
            since.try_fold(0, |latest, since| Some(since?.max(latest)))
        } else {
            since.flatten().min()
        }
    }
}

pub(super) fn whole(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A row and its reply in short.
fn served(by: usize, row: &Row, reply: &Reply) -> String {
    let then = format!("{:?}", row.then);
    let then = then.split(' ').next().unwrap_or_default();
    let sight = reply
        .sight
        .as_ref()
        .map(|sight| (sight.lock_id(), sight.document.token.long(), sight.left()));
    format!("  {by} {} {then}: {:?} {sight:?}", row.name, reply.is_applied)
}
