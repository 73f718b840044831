//! The faults of the core: they are made of the errors of the store, and keep them.

use std::sync::Arc;
use std::time::Duration;

use crate::LockError;
use crate::core::limits::SLOW;
use crate::core::{Fault, FaultKind, Span};
use crate::error::meaning::{Meaning, is_max_time_expired};
use crate::store::{NotRun, is_of_statement};

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

/// Whether the command of this fault had a short time limit, and has waited for a blocked document until then.
pub(super) fn is_out_of_time(fault: &Fault) -> bool {
    CommandError::of(fault).is_out_of_time
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

/// Whether the server has ended a request because another operation blocked the document, or at its time limit because
/// no majority had confirmed the write.
fn is_delayed(error: &LockError) -> bool {
    error.meaning() == Meaning::Blocked
        || matches!(error, LockError::Mongo(error) if is_max_time_expired(error))
}
