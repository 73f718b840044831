mod busy;
pub(crate) mod connection_string;
pub(crate) mod driver_text;
mod help;
pub(crate) mod meaning;
mod no_server;
mod text;

use std::time::Duration;

use mongodb::bson::DateTime;

pub use busy::Busy;

use crate::{FencingToken, LossReason};

/// Why a lock was not acquired or is no longer held, or why a write under it was refused.
///
/// "Held by another" ([`Timeout`](Self::Timeout), [`Busy`](Self::Busy)) and "MongoDB does not work"
/// ([`Mongo`](Self::Mongo)) are always different errors.
///
/// `Display` is one short fact, [`help`](Self::help) is the advice, and `source()` is the driver's error. The texts name
/// locks, owners and hosts: log them, and send callers of a service a text of your own.
///
/// ```
/// use mongolock::{LockError, LockProvider};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// let provider = LockProvider::in_memory().to_builder().owner("billing-1").build()?;
/// let report = provider.lock("report:42").acquire_timeout(std::time::Duration::ZERO);
/// let guard = report.acquire().await?;
/// match report.acquire().await {
///     Err(error @ LockError::Timeout { .. }) => eprintln!("{error}; {}", error.help()),
///     other => panic!("{other:?}"),
/// }
/// # guard.release().await
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LockError {
    /// The lock was held until the acquire timeout had passed.
    ///
    /// Retry later, raise `acquire_timeout`, or shorten the work under the lock.
    #[non_exhaustive]
    Timeout {
        /// The lock's name.
        name: String,
        /// How long the call waited.
        waited: Duration,
        /// The owner of the lease that the last attempt found, as in [`Busy`](Busy::holder).
        holder: Option<String>,
        /// Whether a caller of the same provider holds the lock, in this process.
        in_this_process: bool,
        /// How long the present holder has had the lock by the server's clock, as in [`Busy`](Busy::held_for).
        held_for: Option<Duration>,
        /// The rest of the holder's lease, as in [`Busy`](Busy::remaining). **The lock is not free after this time**, because
        /// the holder renews its lease until the work ends: do not use it as a `Retry-After`.
        remaining: Option<Duration>,
    },
    /// The lock is held, and the call must not wait for it.
    ///
    /// Retry later, or wait for the lock (`on_busy = "wait"`).
    #[non_exhaustive]
    Busy {
        /// The lock's name.
        name: String,
        /// The owner of the lease that the attempt found, as in [`Busy`](Busy::holder).
        holder: Option<String>,
        /// Whether a caller of the same provider holds the lock, in this process.
        in_this_process: bool,
        /// How long the present holder has had the lock by the server's clock, as in [`Busy`](Busy::held_for).
        held_for: Option<Duration>,
        /// The rest of the holder's lease, as in [`Busy`](Busy::remaining). **The lock is not free after this time**:
        /// do not use it as a `Retry-After`. For calls that have joined one hold it is the rest of their own lease.
        remaining: Option<Duration>,
    },
    /// The work under the lock is done, and needs no other run before the given time: the lock has
    /// [`once_per`](crate::DistributedLock::once_per) or [`once`](crate::DistributedLock::once), and a run of this or
    /// another process has succeeded.
    ///
    /// This is not a failure: skip the work.
    #[non_exhaustive]
    Done {
        /// The lock's name.
        name: String,
        /// The owner that has done the work.
        by: String,
        /// The time at which the mark ends, by the server's clock.
        until: DateTime,
    },
    /// The lease ended before the work did: another holder may have the lock by now.
    ///
    /// Check what the work has changed, and repeat it under a new hold.
    #[non_exhaustive]
    Lost {
        /// The lock's name.
        name: String,
        /// The token of the hold that was lost; `i64::MIN` for a permit, which has none.
        token: FencingToken,
        /// Why it was lost.
        reason: LossReason,
    },
    /// A fenced write was refused, because a newer lock holder has already written.
    ///
    /// Read the data again and repeat the work under a new hold.
    #[non_exhaustive]
    Stale {
        /// The token of the refused write.
        token: FencingToken,
        /// The greater token that was found.
        seen: FencingToken,
    },
    /// A fenced write was made under a permit, which has no fencing token, because tokens of different permits cannot
    /// be compared. Nothing was written.
    ///
    /// Hold a lock for the data as well, and write with its token.
    NoFencingToken,
    /// The field that stores the fencing token of a document cannot be used.
    ///
    /// Choose a top-level field that nothing else writes, and leave it out of updates.
    #[non_exhaustive]
    InvalidFence {
        /// The field's name.
        field: String,
        /// What is wrong with the field, the write or the document.
        reason: String,
    },
    /// There is no transaction that the lock could guard.
    ///
    /// Start a transaction under the lock, on a replica set or a sharded cluster, and on the deployment that has the
    /// lock collection.
    #[non_exhaustive]
    NoTransaction {
        /// The lock's name.
        name: String,
        /// What is missing.
        reason: String,
    },
    /// An annotated function was called before a provider was set.
    ///
    /// Call [`LockProvider::set_global`](crate::LockProvider::set_global) at start-up, wrap the call in
    /// [`LockProvider::scope`](crate::LockProvider::scope), or name a provider with `provider = …`.
    NoProvider,
    /// A global provider is already set; it was kept.
    ///
    /// Set it once at start-up, and use [`LockProvider::scope`](crate::LockProvider::scope) in tests.
    ProviderAlreadySet,
    /// The lock's name breaks a rule.
    ///
    /// A name has 1 to 1024 bytes, no control characters and no white space at its ends. No placeholder renders to an
    /// empty string, and no `Display` that the name is rendered with returns an error.
    #[non_exhaustive]
    InvalidName {
        /// The name as far as it was rendered; a long one is shortened.
        name: String,
        /// The rule that is broken.
        reason: String,
    },
    /// An option of the provider or of a lock is out of its bounds.
    ///
    /// Set a value within the bounds.
    #[non_exhaustive]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// What is allowed.
        bound: String,
    },
    /// The caller's own task holds this lock: waiting for it would be a deadlock.
    ///
    /// Use its [`LockContext`](crate::LockContext), or an annotated function (or `run`), which joins the hold.
    #[non_exhaustive]
    Reentrant {
        /// The lock's name.
        name: String,
    },
    /// The provider was shut down.
    ///
    /// Acquire before `shutdown`, or make a new provider.
    #[non_exhaustive]
    ShutDown {
        /// The lock's name.
        name: String,
    },
    /// A [`LeaseHandle`](crate::LeaseHandle) cannot be used: its text is not one, its locks are in another collection, or it is of
    /// another kind than the call takes.
    ///
    /// Use the whole text as [`text`](crate::LeaseHandle::text) returned it, with a provider of the same collection.
    #[non_exhaustive]
    InvalidHandle {
        /// What is wrong with it. It does not repeat the text, because everyone who has the text can use the lock.
        reason: String,
    },
    /// The lock's document is not one that mongolock or DistributedLock.MongoDB writes.
    ///
    /// Release the lock by force with [`LockAdmin::force_release`](crate::LockAdmin::force_release), which repairs the
    /// document, and find the program that has written it.
    #[non_exhaustive]
    CorruptDocument {
        /// The lock's name.
        name: String,
        /// Which field is wrong, and how.
        problem: String,
    },
    /// MongoDB refused an operation or could not be reached.
    ///
    /// The driver's error has the details: match its `kind`. `Display` does not repeat its text, because it is also the
    /// [`source`](std::error::Error::source). If the driver finds no server, `Display` names the servers instead, and
    /// there is no source.
    ///
    /// A failure that mongolock has found itself (a missing reply, an unreachable server) is an I/O error of the driver
    /// with a text of its own: `Display` is that text, and `source()` is its cause, if there is one.
    Mongo(mongodb::error::Error),
}

impl LossReason {
    /// The reason as the field `reason` of the event `mongolock.lost`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::ShutDown => "shut_down",
        }
    }
}

/// Constructors: `stale` for code that compares tokens itself, the others for tests of what a program does with an error.
impl LockError {
    /// The error of a call that must not wait for a held lock, for tests of a program's own code.
    ///
    /// ```
    /// use mongolock::{Busy, LockError};
    ///
    /// fn status(error: &LockError) -> u16 {
    ///     match error {
    ///         LockError::Busy { .. } => 409,
    ///         LockError::Timeout { .. } | LockError::ShutDown { .. } | LockError::Mongo(_) => 503,
    ///         _ => 500,
    ///     }
    /// }
    /// assert_eq!(status(&LockError::busy(Busy::new("report:7"))), 409);
    /// ```
    pub fn busy(lock: Busy) -> Self {
        Self::Busy {
            name: lock.name,
            holder: lock.holder,
            in_this_process: lock.in_this_process,
            held_for: lock.held_for,
            remaining: lock.remaining,
        }
    }

    /// The error of a call that has waited for this time, for tests of a program's own code.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use mongolock::{Busy, LockError};
    ///
    /// let mut lock = Busy::new("report:7");
    /// lock.holder = Some("billing-1".to_owned());
    /// let error = LockError::timeout(lock, Duration::from_secs(10));
    /// assert_eq!(error.to_string(), "lock `report:7` not acquired within 10 s: held by billing-1");
    /// ```
    pub fn timeout(lock: Busy, waited: Duration) -> Self {
        Self::Timeout {
            name: lock.name,
            waited,
            holder: lock.holder,
            in_this_process: lock.in_this_process,
            held_for: lock.held_for,
            remaining: lock.remaining,
        }
    }

    /// The error for a hold that was lost, for tests of a program's own code.
    ///
    /// ```
    /// use mongolock::{FencingToken, LockError, LossReason};
    ///
    /// let error = LockError::lost("report:7", FencingToken::from(33), LossReason::Gone);
    /// assert!(matches!(error, LockError::Lost { reason: LossReason::Gone, .. }));
    /// ```
    pub fn lost(name: impl Into<String>, token: FencingToken, reason: LossReason) -> Self {
        Self::Lost {
            name: name.into(),
            token,
            reason,
        }
    }

    /// The error for work that is done already, for tests of a program's own code.
    ///
    /// ```
    /// use mongodb::bson::DateTime;
    /// use mongolock::LockError;
    ///
    /// let error = LockError::done("nightly", "web-2:7", DateTime::from_millis(1_772_409_600_000));
    /// assert_eq!(error.to_string(), "the work of lock `nightly` is done by web-2:7, until 2026-03-02T00:00:00Z");
    /// ```
    pub fn done(name: impl Into<String>, by: impl Into<String>, until: DateTime) -> Self {
        Self::Done {
            name: name.into(),
            by: by.into(),
            until,
        }
    }

    /// The error of an acquire after the shutdown of its provider, for tests of a program's own code.
    ///
    /// ```
    /// use mongolock::LockError;
    ///
    /// assert!(matches!(LockError::shut_down("nightly"), LockError::ShutDown { name, .. } if name == "nightly"));
    /// ```
    pub fn shut_down(name: impl Into<String>) -> Self {
        Self::ShutDown { name: name.into() }
    }

    /// The error for a stale write, for code that compares tokens itself: for a file, a table or a service. Documents
    /// in MongoDB have [`FencedCollection`](crate::FencedCollection), values in memory have [`Fenced`](crate::Fenced).
    ///
    /// ```
    /// use mongolock::{FencingToken, LockError};
    ///
    /// fn check(token: FencingToken, seen: FencingToken) -> Result<(), LockError> {
    ///     if seen > token { Err(LockError::stale(token, seen)) } else { Ok(()) }
    /// }
    /// assert!(check(FencingToken::from(33), FencingToken::from(34)).is_err());
    /// ```
    pub const fn stale(token: FencingToken, seen: FencingToken) -> Self {
        Self::Stale { token, seen }
    }
}

impl Busy {
    /// The value for an error that says that the lock is busy.
    pub(crate) fn of(error: &LockError) -> Option<Self> {
        match error.clone() {
            LockError::Busy {
                name,
                holder,
                in_this_process,
                held_for,
                remaining,
            }
            | LockError::Timeout {
                name,
                holder,
                in_this_process,
                held_for,
                remaining,
                ..
            } => Some(Self {
                name,
                holder,
                in_this_process,
                held_for,
                remaining,
            }),
            _ => None,
        }
    }
}

/// Converts an error of the driver, or unwraps an error of this library that a callback has passed through the driver.
impl From<mongodb::error::Error> for LockError {
    fn from(error: mongodb::error::Error) -> Self {
        match error.get_custom::<Self>() {
            Some(own) => own.clone(),
            None => Self::Mongo(error),
        }
    }
}

/// For the callbacks of the driver, which return its errors: errors of the driver are passed on unchanged, with their
/// labels, so that the driver repeats what can be repeated; others are wrapped, and unwrapped when they become a
/// `LockError` again.
impl From<LockError> for mongodb::error::Error {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Mongo(error) => error,
            other => Self::custom(other),
        }
    }
}
