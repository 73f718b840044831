//! Every event and every span in one place: their names, targets and fields are part of the public interface (see the tables in
//! `guide/observing.md`).

use std::sync::Arc;
use std::time::Duration;

use mongodb::Namespace;
use tracing::field::{Empty, debug as shown};
use tracing::{Level, Span, debug, info, span, warn};

use crate::error::meaning::Meaning;
use crate::meter::AcquireOutcome;
use crate::{FencingToken, LockError, LossReason, lock_id, permit_id};

/// The target of all events and spans.
const TARGET: &str = "mongolock";

/// One event. Its message begins with its name, because `tracing-subscriber` does not print the name itself, and operators
/// look for it in their logs.
macro_rules! event {
    ($level:ident: $name:literal, $text:literal, $($fields:tt)*) => {
        $level!(name: $name, target: TARGET, { $($fields)* }, concat!($name, ": ", $text))
    };
}

/// A failure that is repeated: a warning, unless the server has rejected the command for overload, which `mongolock.overloaded`
/// reports for all commands together.
macro_rules! failure_event {
    ($kind:ident: $name:literal, $text:literal, $error:ident, $($fields:tt)*) => {
        if $error.meaning() == Meaning::Overloaded {
            $kind!(debug: $name, $text, $($fields)*, error = %$error.with_cause());
        } else {
            $kind!(warn: $name, $text, $($fields)*, error = %$error.with_cause());
        }
    };
}

/// The fields of one hold in events.
pub(crate) struct HoldFields<'a> {
    /// The id of the lock's document.
    pub(crate) id: &'a str,
    /// The id of the claim, which has the owner.
    pub(crate) lock_id: &'a str,
    /// The token in the document.
    pub(crate) token: FencingToken,
    pub(crate) held: Duration,
}

// These are computed only for an enabled span or event.
impl HoldFields<'_> {
    /// The name that users know: for a permit that of its semaphore.
    fn name(&self) -> &str {
        permit_id::shown(self.id)
    }

    /// The number of the permit, if the lock is one.
    fn permit(&self) -> Option<u32> {
        permit_id::number(self.id)
    }

    fn owner(&self) -> &str {
        lock_id::owner(self.lock_id).unwrap_or_default()
    }

    /// The fencing token; a permit has none.
    fn token(&self) -> Option<i64> {
        self.permit().is_none().then(|| self.token.get())
    }
}

pub(crate) fn waiting(name: &str, remaining: Option<Duration>, pause: Duration) {
    event!(
        debug: "mongolock.waiting", "another holder has the lock, waiting",
        lock.name = name, remaining_ms = remaining.map(millis), pause_ms = millis(pause),
    );
}

/// A request for these locks, of which this is the first, has failed and is repeated.
pub(crate) fn retrying(request: &str, locks: usize, first: &str, error: &LockError, pause: Duration) {
    failure_event!(
        event: "mongolock.retrying", "a request failed, it is repeated", error,
        request = request, locks = locks, lock.name = first, pause_ms = millis(pause)
    );
}

/// The server has rejected commands of the provider for overload, the first one this time ago.
pub(crate) fn overloaded(rejected: u64, since: Duration) {
    event!(
        warn: "mongolock.overloaded", "MongoDB rejects commands for overload, they are repeated",
        rejected = rejected, since_ms = millis(since),
    );
}

pub(crate) fn acquired(hold: &HoldFields<'_>) {
    event!(
        debug: "mongolock.acquired", "lock acquired",
        lock.name = hold.name(), lock.permit = hold.permit(), lock.token = hold.token(), lock.owner = hold.owner(),
    );
}

/// A hold has ended: its lock was released, its work marked as done, or its lease detached.
pub(crate) fn released(hold: &HoldFields<'_>, how: &str, owner: Option<&str>) {
    event!(
        debug: "mongolock.released", "the hold has ended",
        lock.name = hold.name(), lock.permit = hold.permit(), lock.token = hold.token(),
        lock.owner = owner.unwrap_or(hold.owner()), how = how, held_ms = millis(hold.held),
    );
}

/// A detached lease was released by its handle.
pub(crate) fn handle_released(id: &str, lock_id: &str) {
    let (name, permit) = (permit_id::shown(id), permit_id::number(id));
    event!(
        debug: "mongolock.released", "detached lease released",
        lock.name = name, lock.permit = permit, lock.owner = lock_id::owner(lock_id), how = "released",
    );
}

/// A query has found a permit beyond the number that a caller uses.
pub(crate) fn permits_differ(name: &str, permits: u32, seen: u32) {
    event!(
        warn: "mongolock.permits_differ", "another caller of the semaphore gives a larger number of permits",
        lock.name = name, permits = permits, seen = seen,
    );
}

/// A hold was lost.
pub(crate) fn lost(hold: &HoldFields<'_>, reason: LossReason) {
    event!(
        warn: "mongolock.lost", "the lease ended before the work did",
        lock.name = hold.name(), lock.permit = hold.permit(), lock.token = hold.token(),
        held_ms = millis(hold.held), reason = reason.as_str(),
    );
}

/// An operator has released a lock, or all locks of an owner, by force.
pub(crate) fn forced(id: Option<&str>, owner: Option<&str>, locks: u64) {
    event!(
        info: "mongolock.forced", "an operator released locks by force",
        lock.name = id.map(permit_id::shown), lock.permit = id.and_then(permit_id::number),
        lock.owner = owner, locks = locks,
    );
}

/// The write of a stale holder was refused.
pub(crate) fn stale(collection: &Namespace, token: FencingToken, seen: FencingToken) {
    event!(
        warn: "mongolock.stale", "the write of a stale lock holder was refused",
        collection = %collection, lock.token = token.get(), seen = seen.get(),
    );
}

pub(crate) fn renewal_failed(locks: usize, first: &str, error: &LockError) {
    failure_event!(
        event: "mongolock.renewal_failed", "renewal failed, retrying while the leases last", error,
        locks = locks, lock.name = permit_id::shown(first)
    );
}

/// A renewal has waited for a connection of the application's client for more than a third of the lease.
pub(crate) fn renewal_waiting(locks: usize, first: &str, waited: Duration) {
    event!(
        warn: "mongolock.renewal_waiting", "a renewal waits for a connection, the application may use all of the client's",
        locks = locks, lock.name = permit_id::shown(first), waited_ms = millis(waited),
    );
}

/// The request that ends a hold was finally refused, or given up. Without its mark the work may run again.
pub(crate) fn release_failed(request: &str, locks: usize, first: &str, error: &LockError) {
    event!(
        warn: "mongolock.release_failed", "ending the hold failed, its leases will expire",
        request = request, locks = locks, lock.name = permit_id::shown(first), error = %error.with_cause(),
    );
}

pub(crate) fn wake_up_failed(error: &LockError) {
    event!(
        debug: "mongolock.wake_up_failed", "change stream unavailable, falling back to polling",
        error = %error.with_cause(),
    );
}

pub(crate) fn index(is_ready: bool, state: &dyn std::fmt::Debug) {
    if is_ready {
        event!(debug: "mongolock.index", "TTL index ready", state = ?state);
    } else {
        event!(warn: "mongolock.index", "the TTL index or the collection needs attention", state = ?state);
    }
}

/// The wait for a lock, for several locks, or for a detached lease, from the call to its result. The title is the index
/// of the name that represents several.
pub(crate) fn acquire_span(
    names: &[Arc<str>],
    title: usize,
    template: Option<&'static str>,
    owner: &str,
) -> Span {
    let all = (names.len() > 1).then(|| shown(names));
    span!(
        target: TARGET, Level::DEBUG, "mongolock.acquire",
        lock.name = permit_id::shown(&names[title]), lock.names = all, lock.template = template,
        lock.owner = owner, lock.token = Empty, waited_ms = Empty, outcome = Empty, error.type = Empty,
    )
}

/// How the wait ended; recorded on its span. A call that found the lock busy, or that has failed, has an `error.type`.
pub(crate) fn acquire_ended(
    span: &Span,
    waited: Duration,
    outcome: AcquireOutcome,
    ended: Result<Option<FencingToken>, &LockError>,
) {
    span.record("waited_ms", millis(waited));
    span.record("outcome", outcome.as_str());
    match ended {
        Ok(Some(token)) => span.record("lock.token", token.get()),
        Ok(None) => span,
        Err(error) => span.record("error.type", &*error.error_type()),
    };
}

/// The body of an annotated function, or of `run`, under its lock; of several locks with all names.
pub(crate) fn hold_span(
    hold: &HoldFields<'_>,
    template: Option<&'static str>,
    names: Option<Vec<&str>>,
) -> Span {
    span!(
        target: TARGET, Level::DEBUG, "mongolock.hold",
        lock.name = hold.name(), lock.permit = hold.permit(), lock.names = names.map(shown), lock.template = template,
        lock.owner = hold.owner(), lock.token = hold.token(), held_ms = Empty, outcome = Empty,
    )
}

pub(crate) fn hold_ended(span: &Span, hold: &HoldFields<'_>, outcome: &'static str) {
    span.record("held_ms", millis(hold.held));
    span.record("outcome", outcome);
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
