//! The advice for each error.

use mongodb::error::{Error, ErrorKind};

use super::codes::{DOCUMENT_VALIDATION_FAILURE, DUPLICATE_KEY, OUT_OF_DISK_SPACE, UNAUTHORIZED};
use super::failure::Failure;
use super::{LockError, LossReason, driver_text};

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
        (Some(Failure::NoSet { .. }), _) => {
            "Run `rs.initiate()` in `mongosh` once: the server was started with `--replSet`. A member that has just started \
             again needs a moment."
        }
        (Some(Failure::Unreachable { .. }), _) => {
            "Check the host and the port in the connection string, that MongoDB runs, and that this host may connect \
             to it (firewall, bind address, TLS)."
        }
        (Some(Failure::Overloaded { .. }), _) => OVERLOAD,
        (None, _) if driver_text::says_overloaded(error) => OVERLOAD,
        (Some(Failure::RefusedLogIn { .. }), _) | (None, ErrorKind::Authentication { .. }) => LOG_IN,
        (None, _) if driver_text::is_refused_elsewhere(error) => LOG_IN,
        (Some(Failure::TwoSets { .. }), _) => {
            "Name hosts of one replica set in the connection string, in all processes the same set: each process \
             works with the set that answers it first. `mongosh` shows the members of a host's set with `db.hello().hosts`."
        }
        (Some(Failure::WrongSet { .. }), _) => "Correct `replicaSet` in the connection string, or the hosts.",
        (Some(Failure::EndedRuntime), _) => {
            "Make the client and the provider on the runtime that uses them: each `#[tokio::test]` has one of its own."
        }
        (Some(Failure::RuntimeEnded), _) => "Await the call before the tokio runtime ends.",
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
        (Some(Failure::ConnectionString { reason }), _) => connection_string_help(reason),
        (None, ErrorKind::ServerSelection { .. }) => {
            "Check that MongoDB runs, can be reached from this host and has a primary."
        }
        (None, ErrorKind::Command(error)) if error.code == UNAUTHORIZED => {
            "Grant the database user the privileges that the guide page on production lists."
        }
        (None, _) if has_code(error, DOCUMENT_VALIDATION_FAILURE) => {
            "Remove the validator of the lock collection with `collMod`, or let it admit every document of a lock: a release writes \
             an empty `lockId`, and a mark one that begins with `done:`."
        }
        (None, _) if has_code(error, DUPLICATE_KEY) => {
            "Drop the unique index of the lock collection that the message names: only `_id` is unique there, and every released lock \
             has the same `lockId`."
        }
        (None, _) if has_code(error, OUT_OF_DISK_SPACE) => {
            "Make room on the disk of MongoDB's primary, or enlarge it. Requests are repeated meanwhile, until `acquire_timeout`; \
             a lock is lost if no renewal succeeds before its lease ends."
        }
        (Some(Failure::Together { .. }) | None, _) => {
            "Read the driver's error in `source()`. Transient errors are retried until `acquire_timeout`; others need a \
             change of the program, the database or the network."
        }
    }
}

fn has_code(error: &Error, wanted: i32) -> bool {
    driver_text::coded(error).is_some_and(|(code, ..)| code == wanted)
}

/// What is wrong with a connection string, by the driver's words: it has no other sign for the part.
fn connection_string_help(reason: &str) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|word| reason.contains(word));
    if says(&["is left out"]) {
        "Correct the connection string: percent-encode special characters in the user name and the password; a port is \
         a number from 1 to 65535, and an option is `name=value`."
    } else if says(&["'dns-resolver' feature"]) {
        "Switch on the feature `dns-resolver`, or name the servers in a string that begins with `mongodb://`."
    } else if says(&["scheme"]) {
        "Begin the connection string with `mongodb://` or `mongodb+srv://`."
    } else if says(&["URL encoded", "unescaped %"]) {
        "Percent-encode special characters in the user name, the password and the name of the database."
    } else if says(&["database name"]) {
        "Correct the name of the database, which stands between the hosts and the options."
    } else if says(&[
        "server address",
        "a port cannot",
        "exactly one host",
        "unix sockets",
    ]) {
        "Correct the hosts: `host` or `host:port`, separated by commas. A `mongodb+srv` string has one host without a port."
    } else if says(&["username", "password", "mechanism", "authSource"]) {
        "Correct the user name, the password, or the options `authSource` and `authMechanism` of the connection string."
    } else {
        "Correct or remove the option of the connection string that the message names."
    }
}

#[cfg(test)]
mod tests {
    use crate::LockProvider;

    /// The words are those of the driver, which an update may change.
    #[tokio::test]
    async fn the_help_for_a_connection_string_names_the_wrong_part() {
        for (uri, wanted) in [
            ("host/app", "Begin the connection string"),
            ("mongo://host", "Begin the connection string"),
            ("mongodb://anna:p@ss@host", "Percent-encode"),
            ("mongodb://anna:p%zz@host", "Percent-encode"),
            ("mongodb://host/a%ffb", "Percent-encode"),
            ("mongodb://host/a b", "Correct the name of the database"),
            ("mongodb://", "Correct the hosts"),
            ("mongodb://one,", "Correct the hosts"),
            ("mongodb://anna@one:x", "Correct the hosts"),
            ("mongodb://one:99999", "a port is a number"),
            ("mongodb://host/?tls", "an option is `name=value`"),
            ("mongodb://@host", "Correct the user name"),
            ("mongodb://host/?authMechanism=none", "Correct the user name"),
            ("mongodb://host/?replicaset", "an option is `name=value`"),
            ("mongodb://host/?foo=1", "remove the option"),
            ("mongodb://host/?tls=perhaps", "remove the option"),
            ("mongodb://host/?maxPoolSize=-1", "remove the option"),
            ("mongodb://one,two/?directConnection=true", "remove the option"),
        ] {
            let error = LockProvider::connect(uri).await.expect_err(uri);
            assert!(error.help().contains(wanted), "{uri}: {error}: {}", error.help());
        }
    }

    #[cfg(not(feature = "dns-resolver"))]
    #[tokio::test]
    async fn a_string_that_needs_a_feature_names_it() {
        let error = LockProvider::connect("mongodb+srv://host")
            .await
            .expect_err("the feature is off");
        assert!(error.help().contains("`dns-resolver`"), "{}", error.help());
    }
}
