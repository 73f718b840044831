//! The errors for the failures of the core, and the faults of the core for errors of the store.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use mongodb::error::{ErrorKind, WriteFailure};

use super::clock::duration;
use super::state::{Engine, How, Lease};
use crate::core::limits::SLOW;
use crate::core::{CallFailure, Cause, EndResult, Ended, Fault, FaultKind, MS, Seen, Span, Time};
use crate::error::meaning::{Meaning, OwnFailure, is_max_time_expired};
use crate::options::OnBusy;
use crate::protocol::Id;
use crate::store::NotRun;
use crate::{Busy, FencingToken, LockError, LossReason, lock_id, permit_id};

/// Why a call has not got what it wanted: of a try `Busy` if another holder has the lock.
pub(super) fn failed(lease: &Lease, failure: &CallFailure, waited: Duration) -> LockError {
    let engine = &lease.engine;
    let resumed = lease.about.resumes.unwrap_or(FencingToken::NONE);
    let title = lease.name();
    let name = failure.name.as_deref().map_or(title, permit_id::shown);
    let seen = failure.seen.as_ref();
    let own = failure.name.as_deref().and_then(|name| engine.holder_of(name));
    let fault = failure.fault.as_ref();
    let fault = fault.filter(|(_, fault)| seen.is_none() || !CommandError::of(fault).is_out_of_time);
    let is_newer = |age: &Span| fault.is_none_or(|(fault, _)| age <= fault);
    let error = fault.map(|(_, fault)| error_of(fault));
    let error = error.filter(|error| error.meaning() != Meaning::NoReply);
    let busy = || busy(engine, name, own.as_deref(), seen);
    let timeout = || LockError::timeout(busy(), waited);
    let held = || match lease.about.on_busy {
        OnBusy::Wait => timeout(),
        OnBusy::TryOnce => LockError::busy(busy()),
    };
    let cause = match failure.cause {
        // A resumption depends only on its own lease, and no reply has shown the state of that lease.
        Cause::Busy | Cause::Timeout if lease.about.resumes.is_some() => Cause::Unanswered,
        cause => cause,
    };
    match cause {
        Cause::Done => done(name, seen),
        Cause::PeriodOver => timeout(),
        Cause::Busy => held(),
        Cause::Timeout if own.is_some() || seen.is_some_and(|(age, _)| is_newer(age)) => held(),
        Cause::Timeout if fault.is_none() && failure.silent_for < SLOW => timeout(),
        Cause::Timeout | Cause::Refused | Cause::Unanswered => {
            error.unwrap_or_else(|| engine.store.unanswered("acquire request", waited))
        }
        Cause::Gone => LockError::lost(title, resumed, LossReason::Gone),
        Cause::Expired => LockError::lost(title, resumed, LossReason::Expired),
        Cause::ShutDown => LockError::shut_down(title),
    }
}

/// The data of a held lock for its caller.
fn busy(engine: &Engine, name: &str, own: Option<&Lease>, seen: Option<&(Span, Seen)>) -> Busy {
    if let Some(own) = own {
        return own.busy(name);
    }
    let mut busy = Busy::new(name);
    let Some((age, seen)) = seen else { return busy };
    let since = |ms: i64| duration(ms.saturating_mul(MS) + age);
    // A lock that is taken by a minimum hold has no holder.
    if !lock_id::taken_by(&seen.lock_id).is_empty() {
        busy.holder = lock_id::owner(&seen.lock_id).map(str::to_owned);
        busy.in_this_process =
            Id::parse(&seen.lock_id).is_some_and(|id| !id.is_detached() && id.mark() == engine.mark);
        busy.held_for = seen.held_for.map(since);
    }
    busy.remaining = seen.left.map(|left| duration(left.saturating_mul(MS) - age));
    busy
}

fn done(name: &str, seen: Option<&(Span, Seen)>) -> LockError {
    let (by, until) = seen.map_or(("", 0), |(_, seen)| {
        let by = lock_id::owner(&seen.lock_id).unwrap_or_default();
        (by, seen.ends.unwrap_or_default())
    });
    LockError::done(name, by, DateTime::from_millis(until))
}

/// The error of a hold whose end its holder has asked for at this time, if it has not ended well.
pub(super) fn unended(lease: &Lease, how: How, ended: EndResult, begun: Time) -> Result<(), LockError> {
    let fault = match ended {
        Ok(Ended::Lost) => return Err(lease.lost_error()),
        Ok(_) => return Ok(()),
        Err(fault) => fault,
    };
    let (engine, request) = (&lease.engine, how.as_str());
    let no_reply = || engine.store.no_reply(request, duration(engine.now() - begun));
    let source = fault.as_ref().map_or_else(no_reply, error_of);
    if how == How::Release {
        return Err(source);
    }
    let is_refused = how == How::Mark && fault.is_some_and(|fault| fault.kind == FaultKind::Refused);
    let left = (!is_refused).then_some(lease.about.options.expiry);
    Err(OwnFailure::unended(request, lease.name(), left, source))
}

/// The error of a command in a fault of the core.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
struct CommandError {
    error: LockError,
    /// The command had a short time limit, and was ended by the server while it waited for a blocked document: the
    /// error does not say whether the lock is held.
    is_out_of_time: bool,
}

impl CommandError {
    fn of(fault: &Fault) -> &Self {
        let error = fault.error.downcast_ref();
        error.expect("only the engine makes faults")
    }
}

/// The fault for an error of a command with this time limit. `refused_for` is the time for which the server has refused
/// the user. `is_group`: the error may be that of one row, and the rows may be sent alone.
pub(super) fn fault(failed: NotRun, limit: Span, is_group: bool, refused_for: Duration) -> Fault {
    let error = failed.error;
    let (kind, may_be_applied) = if is_group && is_of_statement(&error) {
        (FaultKind::Blocked, false)
    } else {
        kind(&error, failed.may_be_applied, refused_for)
    };
    let is_out_of_time = limit < SLOW && is_delayed(&error);
    Fault {
        kind,
        may_be_applied,
        error: Arc::new(CommandError {
            error,
            is_out_of_time,
        }),
    }
}

/// A command had no reply within its time limit, or its runtime has ended.
pub(super) fn no_reply(waited: Duration) -> Fault {
    let failed = NotRun {
        error: LockError::no_reply("command", waited),
        may_be_applied: true,
    };
    fault(failed, SLOW, false, Duration::ZERO)
}

pub(super) fn error_of(fault: &Fault) -> LockError {
    CommandError::of(fault).error.clone()
}

/// The kind of a fault, and whether the command may have been applied.
fn kind(error: &LockError, may_be_applied: bool, refused_for: Duration) -> (FaultKind, bool) {
    let meaning = error.meaning();
    // A reply of one of two replica sets is not trusted.
    let is_unclear = may_be_applied || meaning == Meaning::WrongHosts && error.may_be_applied();
    let may_be_applied = is_unclear || error.may_be_applied();
    match meaning {
        _ if matches!(error, LockError::CorruptDocument { .. }) => (FaultKind::Refused, true),
        Meaning::Overloaded => (FaultKind::Overloaded, may_be_applied),
        _ if meaning.is_useless(refused_for) => (FaultKind::Refused, is_unclear),
        _ if is_unclear => (FaultKind::Failed, true),
        Meaning::Blocked => (FaultKind::Blocked, false),
        Meaning::Unreachable => (FaultKind::Unreachable, may_be_applied),
        _ => (FaultKind::Failed, may_be_applied),
    }
}

/// Whether the server has refused one statement of a command, and not the whole command.
fn is_of_statement(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(error)
        if matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(_))))
}

/// Whether the server has ended a request because another operation blocked the document, or at its time limit because
/// no majority had confirmed the write.
fn is_delayed(error: &LockError) -> bool {
    error.meaning() == Meaning::Blocked
        || matches!(error, LockError::Mongo(error) if is_max_time_expired(error))
}
