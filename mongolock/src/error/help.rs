//! The advice for each error.

use mongodb::error::{Error, ErrorKind};

use super::codes::{
    DATABASE_DIFFERS_IN_CASE, DOCUMENT_VALIDATION_FAILURE, DUPLICATE_KEY, OUT_OF_DISK_SPACE, UNAUTHORIZED,
};
use super::failure::Failure;
use super::{LockError, LossReason, driver_text, no_server};

/// What to do about a log-in that was refused.
const LOG_IN: &str = "Check the user name, the password and `authSource` in the connection string.";

/// What to do about a server that rejects commands for overload.
const OVERLOAD: &str = "Retry later, with fewer calls at a time: MongoDB rejects commands until its load falls, and leases are \
                        renewed meanwhile.";

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
            Self::NoFencingToken => {
                "Hold a lock for the data as well, and write with its token: tokens of different permits do not order \
                 each other."
            }
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
            Self::InvalidOption {
                option: "database", ..
            } => {
                "Name a database of the application: in the connection string, such as \
                 `mongodb://host/app?authSource=admin`, or with `.database(\"app\")` on the builder. `authSource` says \
                 where the user is, and the path where the locks are."
            }
            Self::InvalidOption { .. } => "Set the option to a value within its bounds.",
            Self::Reentrant { .. } => {
                "Use the `LockContext` of the hold, or an annotated function or `run`, which joins the hold."
            }
            Self::ShutDown { .. } => "Acquire before `shutdown`, or make a new provider.",
            Self::InvalidHandle { .. } => {
                "Use the whole text of the handle, with a provider of the collection that has its locks; \
                 `resume_permit` takes the handle of a permit, and `resume` any other."
            }
            Self::CorruptDocument { .. } => "Release the lock by force, which sets the document right.",
            Self::Mongo(error) => mongo_help(error),
        }
    }
}

impl LossReason {
    const fn help(self) -> &'static str {
        match self {
            Self::Expired => {
                "Check what the work has changed and repeat it under a new hold. A longer `expiry` survives longer \
                 pauses and outages. A detached lease lasts for the time given to `detach` or `extend`. With a \
                 client of the application the event `mongolock.renewal_waiting` says that it may have used all connections: \
                 raise `maxPoolSize`, or use `LockProvider::connect`, which has a client of its own."
            }
            Self::Gone => {
                "Check what the work has changed and repeat it under a new hold. The handle of a detached lease is used up \
                 by the first `resume` or `release`. Else look for a forced release in the operator's log \
                 (`mongolock.forced`), and for other programs that write to the lock \
                 collection."
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
            "Check that MongoDB can be reached, has a primary and is not overloaded, and that the application leaves \
             connections of the pool free. With a client of your own, set \
             `serverSelectionTimeoutMS` below `acquire_timeout` to learn why the driver finds no server; \
             a client of `LockProvider::connect` reports a server that cannot be reached \
             within 2 s to a call that does not wait."
        }
        (Some(Failure::Unreachable { servers, .. }), _) => no_server::help(servers),
        (Some(Failure::Overloaded { .. }), _) => OVERLOAD,
        (None, _) if driver_text::says_overloaded(error) => OVERLOAD,
        (None, ErrorKind::Authentication { .. }) => LOG_IN,
        (None, _) if driver_text::is_refused_elsewhere(error) => LOG_IN,
        (Some(Failure::WrongHosts { .. }), _) => {
            "Name hosts of one replica set in the connection string, in all processes the same set, and correct `replicaSet` there: each \
             process works with the set that answers it first. `mongosh` shows the members of a host's set with `db.hello().hosts`."
        }
        (Some(Failure::EndedRuntime), _) => {
            "Make the client and the provider on the runtime that uses them: each `#[tokio::test]` has one of its own."
        }
        (Some(Failure::RuntimeEnded), _) => "Await the call before the tokio runtime ends.",
        (Some(Failure::Forked), _) => "Make a provider in each process, after `fork`.",
        (Some(Failure::Closed), _) => "Await the call before `shutdown`.",
        (Some(Failure::BlockedDocument { .. }), _) => {
            "Commit or abort open transactions that changed the lock's document, and look for long operations in \
             `db.currentOp()`."
        }
        (Some(Failure::Unended { source, .. }), _) => source.help(),
        (Some(Failure::NoStreams), _) => {
            "Use a replica set or a sharded cluster for the past, for an end, and for waiters."
        }
        (Some(Failure::StreamEnded), _) => "Do not drop or rename the lock collection while programs use it.",
        (Some(Failure::ConnectionString { help, .. }), _) => help,
        (None, ErrorKind::ServerSelection { message, .. }) => no_server::help(message),
        (None, _) => help_of_server(error).unwrap_or(
            "Read the driver's error in `source()`. Transient errors are retried until `acquire_timeout`; others need a \
             change of the program, the database or the network.",
        ),
    }
}

/// What to do about an error with which the server has replied.
fn help_of_server(error: &Error) -> Option<&'static str> {
    if driver_text::is_unsupported(error) {
        return Some(
            "mongolock needs MongoDB 4.4.2 or newer, or a server that runs update pipelines with `$$NOW`. Amazon DocumentDB, Azure \
             Cosmos DB and FerretDB are not known to.",
        );
    }
    Some(match driver_text::coded(error)?.0 {
        UNAUTHORIZED if driver_text::is_without_user(error) => {
            "Put a user and a password into the connection string: the server has access control."
        }
        UNAUTHORIZED => {
            "Grant the database user the privileges that the guide lists: \
             https://docs.rs/mongolock/latest/mongolock/guide/production/index.html."
        }
        DOCUMENT_VALIDATION_FAILURE => {
            "Remove the validator of the lock collection with `collMod`, or let it admit every document of a lock: a release writes \
             an empty `lockId`, and a mark one that begins with `done:`."
        }
        DUPLICATE_KEY => {
            "Drop the unique index of the lock collection that the message names: only `_id` is unique there, and every released lock \
             has the same `lockId`."
        }
        DATABASE_DIFFERS_IN_CASE => {
            "Write the name of the database as that of the one that exists: upper and lower case are not enough to tell two apart."
        }
        OUT_OF_DISK_SPACE => {
            "Make room on the disk of MongoDB's primary, or enlarge it. Requests are repeated meanwhile, until `acquire_timeout`; \
             a lock is lost if no renewal succeeds before its lease ends."
        }
        _ => return None,
    })
}
