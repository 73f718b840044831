use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::contacts::Present;
use super::errors;
use super::wish::Wish;
use super::worker::Worker;
use crate::LockError;
use crate::store::driver_error;

/// The time without a reply after which a call must no longer fail with "held" but with an error of MongoDB, with some
/// tolerance.
const SILENT: Duration = Duration::from_millis(520);

/// The longest time between two requests of the front of a queue; releases take less.
const ASKS_AGAIN: Duration = Duration::from_secs(13);

/// The time after which earlier requests no longer have an effect.
const SETTLED: Duration = Duration::from_secs(30);

/// The time in which a lock that is free and reachable is acquired: a waiter may pause for most of a second.
const SURELY: Duration = Duration::from_secs(2);

/// The time in which such a lock is acquired if one request has no reply: a copy is sent after 2 s, and a lost wake-up
/// costs up to 6 s.
const WITH_ONE_LOST: Duration = Duration::from_millis(8500);

/// The time in which a healthy server always replies.
pub(super) const ONE_ANSWER: Duration = Duration::from_millis(100);

/// One call, kept to judge how it failed.
pub(super) struct JudgedCall {
    pub(super) name: Arc<str>,
    pub(super) begun: Instant,
    /// Whether other callers in this process waited for the lock or held it when the call began.
    others: bool,
    _present: Present,
}

impl Worker {
    pub(super) fn begin_call(&self, wish: &Wish) -> JudgedCall {
        let name: Arc<str> = wish.name.to_string().into();
        let contact = self.process.contacts.contact(&name);
        let was_held = contact.held.is_some_and(|held| held.elapsed() < ASKS_AGAIN);
        JudgedCall {
            begun: Instant::now(),
            others: contact.callers + contact.holding > 0 || was_held,
            _present: self.process.contacts.call(&name),
            name,
        }
    }

    /// Checks a call that failed with "busy": the lock must be held, and a reply must have said so.
    pub(super) fn check_busy(&self, wish: &Wish, call: &JudgedCall) {
        if self.process.was_paused_within(call.begun.elapsed() + SETTLED) {
            return;
        }
        let contact = self.process.contacts.contact(&call.name);
        let is_held_here = contact.holding > 0;
        let silent = contact.silent_since.map(|since| since.elapsed());
        self.check(
            is_held_here || silent.is_none_or(|silent| silent < SILENT),
            || format!("{wish:?} ended with \"busy\", though there was no reply for {silent:?}"),
        );
        let was_reported_held = contact.held.is_some_and(|held| held.elapsed() < ASKS_AGAIN);
        let awaited = wish.asks_once() && call.others;
        // A call that leaves the lock to others may end before the reply to its first request.
        let left_it_to_others = contact
            .others_in_line
            .is_some_and(|seen| seen.elapsed() < ASKS_AGAIN);
        // The request that follows such a reply may wait for its place.
        let found_free = contact.free.is_some_and(|free| free.elapsed() < SILENT);
        let may_be_busy = is_held_here || was_reported_held || awaited || left_it_to_others || found_free;
        self.check(may_be_busy, || {
            format!(
                "{wish:?} ended with \"busy\", though no reply said that others hold the lock or wait for it"
            )
        });
        if !awaited {
            self.check_free(wish, call, "busy");
        }
        if !(is_held_here || awaited || left_it_to_others || found_free) {
            self.check_not_overloaded(wish, call);
        }
    }

    /// Checks that a call that failed with "busy" did not take rejections of its requests for a held lock.
    fn check_not_overloaded(&self, wish: &Wish, call: &JudgedCall) {
        let server = &self.world.server;
        // What was known before a short call stays valid during it.
        let is_short = call.begun.elapsed() < SILENT;
        let was_held = server.tenures.any_since(&call.name, call.begun, |_| true);
        self.check(is_short || was_held || self.world.plan.knobs.overload.is_none(), || {
            format!(
                "{wish:?} ended with \"busy\", though the lock was free and the server only rejects commands"
            )
        });
    }

    /// Checks that an error of MongoDB names the overload, if the process has learned of it.
    pub(super) fn check_says_overloaded(&self, error: &LockError) {
        let is_known = self.world.server.overload.is_known_to(self.process.number);
        let is_wrong = matches!(error, LockError::Mongo(_)) && !driver_error::is_overload(error);
        self.check(!(is_known && is_wrong), || {
            format!("an error does not name the overload: {error}")
        });
    }

    /// Checks a call that failed with an error of MongoDB: a request must have failed.
    pub(super) fn check_error(&self, wish: &Wish, call: &JudgedCall, error: &LockError) {
        let LockError::Mongo(of_driver) = error else {
            return;
        };
        self.check_says_overloaded(error);
        let is_refused = errors::is_permanent(of_driver);
        if is_refused || self.process.was_paused_within(call.begun.elapsed() + SETTLED) {
            return;
        }
        let Some(limit) = wish.attempt_limit() else {
            return self.check_silence(wish, call);
        };
        let waited = call.begun.elapsed();
        let is_early = waited + Duration::from_millis(10) < limit;
        self.check(!is_early || call.others && wish.asks_once(), || {
            format!("{wish:?} gave up after {waited:?}: {error}")
        });
        if limit >= ONE_ANSWER {
            self.check(!self.is_untroubled(call), || {
                format!("{wish:?} failed, though every request had a reply: {error}")
            });
        }
        if !(wish.asks_once() && call.others) {
            self.check_free(wish, call, "an error");
        }
    }

    /// Checks that a wait without a limit ended after a minute without a reply, and not much later.
    fn check_silence(&self, wish: &Wish, call: &JudgedCall) {
        let contact = self.process.contacts.contact(&call.name);
        let since_reply = contact.last_reply.map(|reply| reply.elapsed());
        let silent = contact.silent_since.map(|since| since.elapsed());
        let (least, most) = (Duration::from_millis(59_900), Duration::from_secs(70));
        let waited = call.begun.elapsed();
        let is_late = silent.is_some_and(|silent| silent.min(waited) > most);
        self.check(
            !is_late && since_reply.is_none_or(|since_reply| since_reply >= least),
            || {
                format!(
                    "{wish:?} gave up after {waited:?}, without a reply for {silent:?} and {since_reply:?}"
                )
            },
        );
    }

    fn is_untroubled(&self, call: &JudgedCall) -> bool {
        self.is_untroubled_since(call.begun, std::slice::from_ref(&call.name))
    }

    /// Whether every request of the process since then had a prompt reply, and nothing blocked these documents.
    pub(super) fn is_untroubled_since(&self, begun: Instant, documents: &[Arc<str>]) -> bool {
        let troubles = self.process.contacts.troubled_since(begun.checked_sub(SETTLED));
        let blocks = &self.world.server.blocks;
        let blocked = |document| blocks.blocked_until(document);
        let was_blocked = documents
            .iter()
            .any(|document| blocked(document).is_some_and(|until| until + SETTLED >= begun));
        troubles == 0 && !was_blocked && !self.process.was_paused_within(begun.elapsed() + SETTLED)
    }

    fn troubles(&self, call: &JudgedCall) -> usize {
        let since = call.begun.checked_sub(SETTLED);
        self.process.contacts.troubled_since(since)
    }

    fn was_blocked(&self, call: &JudgedCall) -> bool {
        let until = self.world.server.blocks.blocked_until(&call.name);
        until.is_some_and(|until| until + SETTLED >= call.begun)
    }

    /// Checks that the call did not fail although the lock was free and reachable all the time.
    fn check_free(&self, wish: &Wish, call: &JudgedCall, outcome: &str) {
        let (Some(limit), server) = (wish.attempt_limit(), &self.world.server) else {
            return;
        };
        if !self.world.plan.scenario.has_sound_clock() || self.was_blocked(call) {
            return;
        }
        let enough = match self.troubles(call) {
            0 if wish.asks_once() && !call.others => ONE_ANSWER,
            0 => SURELY,
            1 => WITH_ONE_LOST,
            _ => return,
        };
        // A claim of this process on which no hold has begun must not make the lock busy.
        let is_foreign = |id: &str| !self.process.owns(id) || server.ledger.has_begun(id);
        let was_held = server.tenures.any_since(&call.name, call.begun, is_foreign);
        self.check(was_held || limit < enough, || {
            let waited = call.begun.elapsed();
            format!("{wish:?} ended with {outcome} after {waited:?}, though the lock was free")
        });
    }
}
