//! A call that waits for a lock, and the results that it may have.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ledger::Waiting;
use super::plan::Work;
use super::process::Process;
use super::wish::Wish;
use super::world::World;
use crate::LockError;
use crate::protocol::Ms;

/// The tolerance of times.
pub(super) const BLUR: Duration = Duration::from_millis(60);

/// A waiter asks for a free lock within this time, in milliseconds. Without a change stream it asks every 800 ms, and looks for a free permit each second.
const IDLE: i64 = 2000;

/// The milliseconds for which a process may still wait for the reply to its own release, or yield a free lock to
/// others.
const RELEASED: i64 = 150;

/// The milliseconds for which a holder may not have noticed that its lock was released by force.
const FORCED: i64 = 7000;

/// A wait without a limit fails after this time without a reply.
const UNANSWERED: Duration = Duration::from_secs(60);

pub(super) struct Call {
    pub(super) process: Arc<Process>,
    pub(super) wish: Wish,
    /// By the server's clock.
    pub(super) called: Ms,
    begun: Instant,
    key: u64,
}

impl Call {
    pub(super) fn begin(process: &Arc<Process>, wish: Wish) -> Self {
        let world = process.world();
        world.note(|| format!("{} wants {:?} {:?}", process.line.number, wish.work, wish.names));
        let called = world.memory.now();
        let waiting = Waiting {
            line: Arc::clone(&process.line),
            names: wish.documents.clone(),
            wants_all: wish.wants_all(),
            begun: called,
        };
        let (process, mut ledger) = (Arc::clone(process), world.ledger());
        ledger.next += 1;
        let key = ledger.next;
        ledger.calls.insert(key, waiting);
        drop(ledger);
        let begun = Instant::now();
        Self {
            process,
            wish,
            called,
            begun,
            key,
        }
    }

    /// The call no longer waits.
    fn ends(&self) {
        self.process.world().ledger().calls.remove(&self.key);
    }

    /// Checks the result of the call: its lock, no lock, or an error.
    pub(super) fn judge(&self, outcome: Result<bool, &LockError>) {
        self.ends();
        let (world, wish, waited) = (self.process.world(), &self.wish, self.begun.elapsed());
        world.note(|| format!("{} got {:?}: {outcome:?}", self.process.line.number, wish.names));
        let deadline = wish.deadline();
        let is_late = deadline.is_some_and(|deadline| waited > deadline + BLUR);
        let is_early = waited + BLUR < deadline.unwrap_or(UNANSWERED);
        let fits = match outcome {
            Ok(true) => true,
            Ok(false) => !self.was_free(),
            // The period may be over.
            Err(LockError::Timeout { .. }) if wish.work == Work::Period => true,
            Err(LockError::Timeout { .. }) => !is_early && !self.was_free(),
            Err(LockError::Done { until, .. }) => {
                let until = until.timestamp_millis();
                world.ledger().is_done(&wish.documents[0], self.called, until)
            }
            Err(LockError::Mongo(_)) if is_early => false,
            // The first request for its last lock may be in flight.
            Err(LockError::Mongo(_)) if wish.wants_all() && deadline <= Some(Duration::from_millis(500)) => {
                true
            }
            Err(error) => self.process.may_fail(self.called, error),
        };
        let number = self.process.line.number;
        world.check(fits && !is_late, || {
            format!("{wish:?} of {number} ended after {waited:?}: {outcome:?}")
        });
    }

    /// Whether the lock was free and the server could be reached during the whole call. A call for a permit looks for a
    /// free one each second.
    fn was_free(&self) -> bool {
        let (world, wish) = (self.process.world(), &self.wish);
        let least = if wish.work == Work::Permit { 1500 } else { 500 };
        let is_long = wish
            .limit
            .is_none_or(|limit| limit >= Duration::from_millis(least));
        let was_forced = |name| world.ledger().was_forced(name, self.called - FORCED);
        let since = world.free_since(&wish.documents, wish.wants_all());
        let was_free = since.is_some_and(|since| since + RELEASED < self.called);
        is_long
            && was_free
            && !wish.documents.iter().any(was_forced)
            && self.process.is_quiet_since(self.called)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.ends();
    }
}

/// Looks for locks that stay free although calls wait for them.
pub(super) fn look_for_idle_locks(world: &World) {
    let (now, calls) = (world.memory.now(), world.ledger().calls.clone());
    for waiting in calls.values() {
        let Some(since) = world.free_since(&waiting.names, waiting.wants_all) else {
            continue;
        };
        let quiet_since = waiting.line.trouble_until() + now - world.now();
        let idle = now - since.max(waiting.begun).max(quiet_since);
        world.check(idle <= IDLE, || {
            format!("{waiting:?} waits for a lock that is free for {idle} ms")
        });
    }
}
