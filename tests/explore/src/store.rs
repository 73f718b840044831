//! What the files of the library know of the store: the same names, with as much in them as they use.

use std::sync::Arc;
use std::time::Duration;

use crate::bson::DateTime;
use crate::id::{Id, Token};

/// Among which commands of a provider a command is admitted. Their number is not modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AdmissionClass {
    Copy,
    Woken,
    First,
    Repeated,
}

/// How a claim ends that is no longer needed.
#[derive(Debug)]
pub(crate) struct ClaimEnd;

/// What a reply says about time: only calls whose work may succeed once ask for it.
#[derive(Debug)]
pub(crate) struct Dates;

/// What tells a provider from all others: here the number of its process.
#[derive(Debug, Clone)]
pub(crate) struct ProviderMark(pub(crate) Arc<str>);

impl ProviderMark {
    pub(crate) fn is_in(&self, lock_id: &str) -> bool {
        Self::in_lock_id(lock_id) == Some(&*self.0)
    }

    pub(crate) fn in_lock_id(lock_id: &str) -> Option<&str> {
        lock_id.split_once('#').map(|(process, _)| process)
    }
}

/// The server's reply to an acquire request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum AcquireReply {
    Acquired { last_token: Token, remaining: Duration },
    Held { holder: Option<Id>, remaining: Duration },
}

/// What a look says of a lock that is held.
#[derive(Debug, Clone)]
pub(crate) struct RunningLease {
    pub(crate) holder: Option<Arc<str>>,
    pub(crate) held_for: Option<Duration>,
    pub(crate) remaining: Duration,
}

/// A place in the line of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Waiter {
    pub(crate) provider: Arc<str>,
    pub(crate) at: DateTime,
    pub(crate) time_slot: Duration,
}

/// What an error says.
pub(crate) mod driver_error {
    use std::time::Duration;

    use tokio::time::Instant;

    use crate::LockError;

    pub(crate) fn is_useless(error: &LockError, _: Duration) -> bool {
        !matches!(error, LockError::Unclear | LockError::Blocked)
    }

    /// The time for which the server has refused the user: none of the model does.
    #[derive(Debug, Clone, Copy, Default)]
    pub(crate) struct Refusals(Duration);

    impl Refusals {
        pub(crate) fn note(&mut self, _: Instant, _: &LockError) {
            self.0 = Duration::ZERO;
        }

        pub(crate) fn last_for(self, _: Instant) -> Duration {
            self.0
        }
    }

    pub(crate) fn is_unreachable(_: &LockError) -> bool {
        false
    }

    pub(crate) fn is_blocked_document(error: &LockError) -> bool {
        *error == LockError::Blocked
    }

    pub(crate) fn is_delayed(error: &LockError) -> bool {
        is_blocked_document(error)
    }

    pub(crate) fn wrote_nothing(_: &LockError) -> bool {
        false
    }

    pub(crate) fn was_not_applied(_: &LockError) -> bool {
        false
    }
}
