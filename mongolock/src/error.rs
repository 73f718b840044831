use std::time::Duration;

use crate::FencingToken;

/// Why a lock was not acquired or is not held any more, or why a write under it was refused.
///
/// "Held by another" ([`Timeout`](Self::Timeout), [`Busy`](Self::Busy)) and "MongoDB does not work"
/// ([`Mongo`](Self::Mongo)) are never mixed up.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock stayed with others until the acquire timeout had passed.
    #[error(
        "lock `{name}` did not become free within {waited:?}: try again later, raise `acquire_timeout`, \
         or shorten the work done under the lock"
    )]
    Timeout {
        /// The lock's name.
        name: String,
        /// How long the call waited.
        waited: Duration,
    },
    /// The lock is held by another, and the call was not to wait for it.
    #[error("lock `{name}` is held by another: try again later, or wait for it (`on_busy = \"wait\"`)")]
    Busy {
        /// The lock's name.
        name: String,
    },
    /// The lease ended before the work did: somebody else may hold the lock by now.
    #[error(
        "lock `{name}` (fencing token {token}) was lost before its work was done: check what the work has \
         changed and repeat it under a new hold; a longer `expiry` survives longer pauses and outages"
    )]
    Lost {
        /// The lock's name.
        name: String,
        /// The token of the hold that was lost.
        token: FencingToken,
    },
    /// A fenced write came too late: what it would have changed has seen a later holder.
    #[error(
        "a write with fencing token {token} was refused, because a later holder of the lock has written with {seen}: \
         read again and repeat the work under a new hold"
    )]
    Stale {
        /// The token of the refused write.
        token: FencingToken,
        /// The greater token that was found.
        seen: FencingToken,
    },
    /// The field that keeps the token of a document cannot do so.
    #[error("the fence field `{field}` is not usable: {reason}")]
    InvalidFence {
        /// The field's name.
        field: String,
        /// What is wrong with it or with the write, and what to do.
        reason: String,
    },
    /// There is no transaction that the lock could guard.
    #[error("lock `{name}` cannot guard a commit: {reason}")]
    NoTransaction {
        /// The lock's name.
        name: String,
        /// What is missing, and what to do.
        reason: String,
    },
    /// An annotated function was called before a provider was set.
    #[error(
        "no lock provider: call `LockProvider::set_global` at start-up, wrap the call in \
         `LockProvider::scope`, or name one with `provider = ..`"
    )]
    NoProvider,
    /// A second global provider was offered; the first one stays.
    #[error(
        "the global lock provider is set already: set it once at start-up, use `LockProvider::scope` in tests"
    )]
    ProviderAlreadySet,
    /// The lock's name breaks a rule.
    #[error("lock name {name:?} is not usable: {reason}")]
    InvalidName {
        /// The name as it was rendered.
        name: String,
        /// The broken rule, and what to do.
        reason: String,
    },
    /// An option of the provider or of a lock is out of its bounds.
    #[error("option `{option}` is {value}: {bound}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// What is allowed.
        bound: String,
    },
    /// The caller's own task holds this lock: waiting for it would never end.
    #[error(
        "lock `{name}` is held by this very task: use its `LockContext`, or an annotated function \
         (or `run`), which joins the hold"
    )]
    Reentrant {
        /// The lock's name.
        name: String,
    },
    /// The provider was shut down.
    #[error(
        "lock `{name}` was not acquired: its provider is shut down; acquire before `shutdown`, or make a new provider"
    )]
    ShutDown {
        /// The lock's name.
        name: String,
    },
    /// The lock's document is not one that mongolock or DistributedLock.MongoDB writes.
    #[error("the document of lock `{name}` is damaged: {problem}; delete the document to start afresh")]
    CorruptDocument {
        /// The lock's name.
        name: String,
        /// Which field is wrong, and how.
        problem: String,
    },
    /// MongoDB refused the operation or could not be reached.
    #[error("MongoDB failed a lock operation: {}", .0.kind)]
    Mongo(#[source] mongodb::error::Error),
}

impl LockError {
    /// The error for a request without any reply: MongoDB is broken or unreachable, and the lock is not known to be held.
    pub(crate) fn no_reply(request: &str, waited: Duration) -> Self {
        let message =
            format!("no answer to a {request} within {waited:?}; is MongoDB reachable and has it a primary?");
        Self::Mongo(std::io::Error::new(std::io::ErrorKind::TimedOut, message).into())
    }

    /// The error for a task that ended with its runtime: the outcome of its request is not known.
    pub(crate) fn cut_off() -> Self {
        let message = "the tokio runtime ended before the answer of MongoDB was there";
        Self::Mongo(std::io::Error::other(message).into())
    }
}

/// An error of the driver; or the one of this library that a callback of the driver has passed through it.
impl From<mongodb::error::Error> for LockError {
    fn from(error: mongodb::error::Error) -> Self {
        match error.get_custom::<Self>() {
            Some(own) => own.clone(),
            None => Self::Mongo(error),
        }
    }
}

/// For the callbacks of the driver, which return its errors: those are passed on as they are, with their labels, so
/// that it repeats what can be repeated; others are wrapped, and unwrapped when they become a `LockError` again.
impl From<LockError> for mongodb::error::Error {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Mongo(error) => error,
            other => Self::custom(other),
        }
    }
}
