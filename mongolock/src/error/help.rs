//! The advice for each error.

use mongodb::error::{Error, ErrorKind};

use super::failure::Failure;
use super::{LockError, LossReason};

/// The server's code for a missing privilege.
const UNAUTHORIZED: i32 = 13;

impl LockError {
    /// What to do about the error, in one or two sentences for the operator or the developer of the program.
    ///
    /// ```
    /// use mongolock::{LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let error = LockProvider::in_memory().lock("").acquire().await.unwrap_err();
    /// assert_eq!(error.to_string(), "lock name \"\" is invalid: it is empty");
    /// assert_eq!(
    ///     error.help(),
    ///     "Use 1 to 1024 bytes without control characters and without white space at the ends, and give every \
    ///      placeholder a value that is not empty."
    /// );
    /// # }
    /// ```
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => {
                "Retry later, raise `acquire_timeout`, or shorten the work under the lock. `LockProvider::admin` shows \
                 and releases a lock whose holder is stuck."
            }
            Self::Busy { .. } => "Retry later, or wait for the lock with `on_busy = \"wait\"`.",
            Self::Done { .. } => {
                "Skip the work: a run of it has succeeded. To run it again before, clear the mark with \
                 `LockAdmin::force_release`."
            }
            Self::Lost { reason, .. } => reason.help(),
            Self::Stale { .. } => "Read the data again and repeat the work under a new hold.",
            Self::InvalidFence { .. } => {
                "Choose a top-level field that nothing else writes, leave it out of updates, and remove values that \
                 are not fencing tokens from it."
            }
            Self::NoTransaction { .. } => {
                "Start the transaction under the lock, on a client of the deployment that has the lock collection; it \
                 must be a replica set or a sharded cluster."
            }
            Self::NoProvider => {
                "Call `LockProvider::set_global` at start-up, wrap the call in `LockProvider::scope`, or name a \
                 provider with `provider = …`."
            }
            Self::ProviderAlreadySet => "Set it once at start-up, and use `LockProvider::scope` in tests.",
            Self::InvalidName { .. } => {
                "Use 1 to 1024 bytes without control characters and without white space at the ends, and give every placeholder a value that is not empty."
            }
            Self::InvalidOption { .. } => "Set the option to a value within its bounds.",
            Self::Reentrant { .. } => {
                "Use the `LockContext` of the hold, or an annotated function or `run`, which joins the hold."
            }
            Self::ShutDown { .. } => "Acquire before `shutdown`, or make a new provider.",
            Self::CorruptDocument { .. } => "Delete the document to reset the lock.",
            Self::Mongo(error) => mongo_help(error),
        }
    }
}

impl LossReason {
    const fn help(self) -> &'static str {
        match self {
            Self::Expired => {
                "Check what the work has changed and repeat it under a new hold. A longer `expiry` survives longer \
                 pauses and outages."
            }
            Self::Gone => {
                "Check what the work has changed and repeat it under a new hold. Look for a forced release in the \
                 operator's log (`mongolock.forced`), and for other programs that write to the lock collection."
            }
            Self::ShutDown => {
                "Repeat the work in another process, or after the restart. `shutdown_after` with a longer grace period lets \
                 work end before."
            }
        }
    }
}

fn mongo_help(error: &Error) -> &'static str {
    match (Failure::of(error), &*error.kind) {
        (Some(Failure::NoReply { .. }), _) => {
            "Check that MongoDB can be reached, has a primary and is not overloaded. With a client of your own, set \
             `serverSelectionTimeoutMS` below `acquire_timeout` to learn why the driver finds no server; \
             a client of `LockProvider::connect` reports it within \
             2 s to a call that does not wait."
        }
        (Some(Failure::Unreachable { .. }), _) => {
            "Check the host and the port in the connection string, that MongoDB runs, and that this host may connect \
             to it (firewall, bind address, TLS)."
        }
        (Some(Failure::RuntimeEnded), _) => "Await the call before the tokio runtime ends.",
        (Some(Failure::Closed), _) => "Await the call before `shutdown`.",
        (Some(Failure::BlockedDocument { .. }), _) => {
            "Commit or abort open transactions that changed the lock's document, and look for long operations in \
             `db.currentOp()`."
        }
        (Some(Failure::StreamEnded), _) => "Do not drop or rename the lock collection while programs use it.",
        (Some(Failure::ConnectionString { .. }), _) => {
            "Correct the connection string: percent-encode special characters in the user name and the password."
        }
        (None, ErrorKind::Authentication { .. }) => {
            "Check the user name, the password and `authSource` in the connection string."
        }
        (None, ErrorKind::ServerSelection { .. }) => {
            "Check that MongoDB runs, can be reached from this host and has a primary."
        }
        (None, ErrorKind::Command(error)) if error.code == UNAUTHORIZED => {
            "Grant the database user the privileges that the guide page on rights lists."
        }
        (None, _) => {
            "Read the driver's error in `source()`. Transient errors are retried until `acquire_timeout`; others need a \
             change of the program, the database or the network."
        }
    }
}
