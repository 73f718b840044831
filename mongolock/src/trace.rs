//! Every span and event in one place: their names, targets and fields are part of the public interface (see the table in
//! the crate's documentation).

use std::time::Duration;

use mongodb::Namespace;
use tokio::time::Instant;
use tracing::{Level, Span, debug, info, span, trace, warn};

use crate::{FencingToken, LockError};

macro_rules! target {
    () => {
        "mongolock"
    };
}

/// The wait for a lock, from the call to its outcome.
pub(crate) fn acquire_span(name: &str, owner: &str) -> Span {
    span!(
        target: target!(), Level::DEBUG, "mongolock.acquire",
        lock.name = name, lock.owner = owner,
        lock.token = tracing::field::Empty, waited_ms = tracing::field::Empty, outcome = tracing::field::Empty,
    )
}

/// How the wait ended; recorded on its span.
pub(crate) fn acquire_ended(
    span: &Span,
    waited: Duration,
    outcome: Result<Option<FencingToken>, &LockError>,
) {
    if span.is_disabled() {
        return;
    }
    span.record("waited_ms", millis(waited));
    span.record(
        "outcome",
        match outcome {
            Ok(Some(_)) => "acquired",
            Ok(None) => "busy",
            Err(LockError::Timeout { .. }) => "timeout",
            Err(LockError::ShutDown { .. }) => "shut_down",
            Err(_) => "error",
        },
    );
    if let Ok(Some(token)) = outcome {
        span.record("lock.token", token.get());
    }
}

/// The fields of one hold in events.
pub(crate) struct HoldFields<'a> {
    pub(crate) name: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) token: FencingToken,
    pub(crate) acquired: Instant,
}

impl HoldFields<'_> {
    fn held_ms(&self) -> u64 {
        millis(self.acquired.elapsed())
    }
}

/// The body of an annotated function, or of `run`, under its lock.
pub(crate) fn hold_span(hold: &HoldFields<'_>) -> Span {
    span!(
        target: target!(), Level::DEBUG, "mongolock.hold",
        lock.name = hold.name, lock.owner = hold.owner, lock.token = hold.token.get(),
        held_ms = tracing::field::Empty, outcome = tracing::field::Empty,
    )
}

pub(crate) fn hold_ended(span: &Span, hold: &HoldFields<'_>, outcome: &'static str) {
    span.record("held_ms", hold.held_ms());
    span.record("outcome", outcome);
}

pub(crate) fn waiting(name: &str, remaining: Option<Duration>, pause: Duration) {
    debug!(
        name: "mongolock.waiting", target: target!(),
        { lock.name = name, remaining_ms = remaining.map(millis), pause_ms = millis(pause) },
        "held by another"
    );
}

pub(crate) fn retrying(name: &str, error: &LockError, pause: Duration) {
    warn!(
        name: "mongolock.retrying", target: target!(),
        { lock.name = name, error = %error, pause_ms = millis(pause) },
        "attempt failed, it is repeated"
    );
}

/// A query that looks at the locks of several waiters has failed.
pub(crate) fn look_failed(locks: usize, first: &str, error: &LockError, pause: Duration) {
    warn!(
        name: "mongolock.retrying", target: target!(),
        { locks = locks, lock.name = first, error = %error, pause_ms = millis(pause) },
        "a look at awaited locks failed, it is repeated"
    );
}

pub(crate) fn acquired(hold: &HoldFields<'_>) {
    debug!(
        name: "mongolock.acquired", target: target!(),
        { lock.name = hold.name, lock.owner = hold.owner, lock.token = hold.token.get() },
        "acquired"
    );
}

pub(crate) fn renewed(hold: &HoldFields<'_>) {
    trace!(
        name: "mongolock.renewed", target: target!(),
        { lock.name = hold.name, lock.token = hold.token.get() },
        "renewed"
    );
}

pub(crate) fn released(hold: &HoldFields<'_>) {
    debug!(
        name: "mongolock.released", target: target!(),
        { lock.name = hold.name, lock.token = hold.token.get(), held_ms = hold.held_ms() },
        "released"
    );
}

pub(crate) fn lost(hold: &HoldFields<'_>, reason: &'static str) {
    warn!(
        name: "mongolock.lost", target: target!(),
        { lock.name = hold.name, lock.token = hold.token.get(), held_ms = hold.held_ms(), reason = reason },
        "lost"
    );
}

/// An operator has released a lock by force.
pub(crate) fn forced(name: &str) {
    info!(name: "mongolock.forced", target: target!(), { lock.name = name }, "released by force");
}

/// An operator has released all locks of an owner by force.
pub(crate) fn owner_forced(owner: &str, locks: u64) {
    info!(
        name: "mongolock.forced", target: target!(),
        { lock.owner = owner, locks = locks },
        "all locks of an owner released by force"
    );
}

/// The write of a stale holder was refused.
pub(crate) fn stale(collection: &Namespace, token: FencingToken, seen: FencingToken) {
    warn!(
        name: "mongolock.stale", target: target!(),
        { collection = %collection, lock.token = token.get(), seen = seen.get() },
        "a late write was refused"
    );
}

pub(crate) fn renewal_failed(locks: usize, first: &str, error: &LockError) {
    warn!(
        name: "mongolock.renewal_failed", target: target!(),
        { locks = locks, lock.name = first, error = %error },
        "renewal failed, it is repeated while the leases last"
    );
}

pub(crate) fn release_failed(locks: usize, first: &str, error: &LockError) {
    warn!(
        name: "mongolock.release_failed", target: target!(),
        { locks = locks, lock.name = first, error = %error },
        "release failed, the leases end by themselves"
    );
}

pub(crate) fn wake_up_failed(error: &LockError) {
    debug!(
        name: "mongolock.wake_up_failed", target: target!(),
        { error = %error },
        "no stream of releases, waiting polls"
    );
}

/// The change stream is closed for this time, because it costs more than it brings.
pub(crate) fn stream_costs_too_much(pause: Duration) {
    debug!(
        name: "mongolock.wake_up_failed", target: target!(),
        { pause_ms = millis(pause) },
        "the change stream costs more than it brings, waiting polls for a while"
    );
}

/// The names in the filter of the change stream could not be changed.
pub(crate) fn switch_failed(error: &LockError) {
    debug!(
        name: "mongolock.wake_up_failed", target: target!(),
        { error = %error },
        "the change stream goes on without the locks that are awaited since a moment ago"
    );
}

pub(crate) fn index(is_ready: bool, state: &dyn std::fmt::Debug) {
    if is_ready {
        debug!(name: "mongolock.index", target: target!(), { state = ?state }, "unused documents are tidied up");
    } else {
        warn!(name: "mongolock.index", target: target!(), { state = ?state }, "unused documents are not tidied up");
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
