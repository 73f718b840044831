//! Every span: names and fields.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::{Empty, debug};
use tracing::{Level, Span, span};

use super::{HoldFields, millis};
use crate::meter::AcquireOutcome;
use crate::{FencingToken, LockError, permit_id};

/// The wait for a lock, for several locks, or for a detached lease, from the call to its result. The title is the index
/// of the name that represents several.
pub(crate) fn acquire_span(
    names: &[Arc<str>],
    title: usize,
    template: Option<&'static str>,
    owner: &str,
) -> Span {
    let all = (names.len() > 1).then(|| debug(names));
    span!(
        target: target!(), Level::DEBUG, "mongolock.acquire",
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
        target: target!(), Level::DEBUG, "mongolock.hold",
        lock.name = hold.name(), lock.permit = hold.permit(), lock.names = names.map(debug), lock.template = template,
        lock.owner = hold.owner(), lock.token = hold.token(), held_ms = Empty, outcome = Empty,
    )
}

pub(crate) fn hold_ended(span: &Span, hold: &HoldFields<'_>, outcome: &'static str) {
    span.record("held_ms", hold.held_ms());
    span.record("outcome", outcome);
}
