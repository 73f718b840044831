//! What an error of the store says about its command.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::LockError;
use crate::core::limits::SLOW;
use crate::core::{Fault, FaultKind, Span};
use crate::error::failure::Failure;
use crate::store::NotRun;
use crate::store::driver_error;

/// What an error of a command with this limit says, if the server has refused the user for that time. Of a group of rows that may go
/// apart it may refuse one.
pub(super) fn fault(failed: NotRun, limit: Span, is_group: bool, refused_for: Duration) -> Fault {
    let NotRun {
        error,
        may_be_applied,
    } = failed;
    let kind = if is_group && driver_error::is_of_statement(&error) {
        FaultKind::Blocked
    } else {
        kind(&error, may_be_applied, refused_for)
    };
    let is_out_of_time = limit < SLOW && driver_error::is_delayed(&error);
    let error: Arc<dyn Error + Send + Sync> = if is_out_of_time {
        Arc::new(OutOfTime(error))
    } else {
        Arc::new(error)
    };
    Fault { kind, error }
}

/// The error of a command that had little time at the server and was ended there while it waited: one with more time might have met
/// the end of what it waited for. It says nothing of a lock that is known to be held.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OutOfTime(LockError);

/// The error of the store in a fault of the core.
pub(super) fn error_of(fault: &Fault) -> LockError {
    let error = fault.error.downcast_ref::<LockError>();
    let error = error.or_else(|| Some(&fault.error.downcast_ref::<OutOfTime>()?.0));
    error.expect("only the engine makes faults").clone()
}

/// Whether the command of this fault had too little time.
pub(super) fn is_out_of_time(fault: &Fault) -> bool {
    fault.error.is::<OutOfTime>()
}

/// A command had no reply within its limit, or its runtime has ended.
pub(super) fn no_reply(waited: Duration) -> Fault {
    let error = Failure::no_reply("command", waited).into_error();
    let kind = FaultKind::Unclear;
    Fault {
        kind,
        error: Arc::new(error),
    }
}

fn kind(error: &LockError, may_be_applied: bool, refused_for: Duration) -> FaultKind {
    let may_be_applied = may_be_applied || driver_error::is_untrusted(error);
    let was_not_applied = !may_be_applied && driver_error::was_not_applied(error);
    let is_lasting = !is_of_driver(error) || driver_error::is_useless(error, refused_for);
    match error {
        LockError::CorruptDocument { .. } => FaultKind::Damaged,
        _ if error.is_rejection() => FaultKind::Overloaded {
            may_be_applied: !was_not_applied,
        },
        _ if is_lasting && may_be_applied => FaultKind::Damaged,
        _ if is_lasting => FaultKind::Lasting,
        _ if may_be_applied => FaultKind::Unclear,
        _ if driver_error::is_blocked_document(error) => FaultKind::Blocked,
        _ if driver_error::is_unreachable(error) => FaultKind::Unreachable {
            may_be_applied: !was_not_applied,
        },
        _ if was_not_applied => FaultKind::NotApplied,
        _ => FaultKind::Unclear,
    }
}

/// Whether it is an error of the driver or a missing reply, and not one of a document.
fn is_of_driver(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(_))
}
