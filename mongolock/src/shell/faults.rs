//! What an error of the store says about its command.

use std::sync::Arc;
use std::time::Duration;

use crate::LockError;
use crate::core::{Fault, FaultKind};
use crate::error::failure::Failure;
use crate::store::driver_error;

pub(super) fn fault(error: LockError) -> Fault {
    Fault {
        kind: kind(&error),
        error: Arc::new(error),
    }
}

/// A command had no reply within its limit, or its runtime has ended.
pub(super) fn no_reply(waited: Duration) -> Fault {
    fault(Failure::no_reply("command", waited).into_error())
}

fn kind(error: &LockError) -> FaultKind {
    let was_not_applied = driver_error::was_not_applied(error);
    match error {
        _ if error.is_rejection() => FaultKind::Overloaded {
            may_be_applied: !was_not_applied,
        },
        _ if driver_error::is_blocked_document(error) => FaultKind::Blocked,
        _ if driver_error::is_permanent(error) || !is_of_driver(error) => FaultKind::Lasting,
        _ if was_not_applied => FaultKind::NotApplied,
        _ if driver_error::is_transient(error) => FaultKind::Unclear,
        _ => FaultKind::Lasting,
    }
}

/// Whether it is an error of the driver or a missing reply, and not one of a document.
fn is_of_driver(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(_))
}
