//! Every time limit of the library, with its reason and its relation to the others. Those of the core alone are in its `limits`.
//!
//! A limit *at the server* is sent with the command (`maxTimeMS`), and the server ends the command after it. A limit
//! *in this process* ends a wait; the comment on the constant says what then happens to the command.

use std::time::Duration;

// Commands and requests.

/// The longest time limit at the server of a command for locks: the transaction of another client may block their
/// documents for this time. A health check's request is given up after it, so that a later check sends another one.
pub(crate) const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// If a reply is missing for this time, the connection may be dead. A claim, a release, or a request about a detached
/// lease is then sent once more; a release has no longer limit at the server. Calls wait no longer than this until the
/// hosts of a connection string are compared. A command is given up this time after its limit at the server, which closes
/// its connection: the server has ended the command by then.
pub(crate) const NO_REPLY: Duration = Duration::from_secs(2);

/// The time after which a call of the driver without a limit at the server is given up, which closes its connection. The
/// driver itself waits this long for a connection. A command of a commit is then sent again: a commit is made once even if
/// it is sent several times. A host that the driver has removed is asked for its primary for this time.
pub(crate) const DRIVER_LIMIT: Duration = Duration::from_secs(10);

/// The time for which an operator's call waits for a reply, and for which a commit whose outcome is not known is repeated:
/// it is long enough for a failover. The operator's command then continues.
pub(crate) const FAILOVER_LIMIT: Duration = Duration::from_secs(30);

/// The time after which a request is given up that has no shorter limit: a command without a reply, which closes its
/// connection, because no outcome depends on the reply any more; a call without a timeout that has no reply; and the
/// repetition of a mark or a detachment that is refused, if the lease is shorter.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// The pause of a loop whose last request has failed, so that an immediate failure does not cause a busy loop: of a
/// candidate for the lead, of the change stream, and of a stream of events. Without change streams it is the pause between
/// two reads. After a stream has reported that the collection was dropped or renamed, it is the pause before the check of
/// the TTL index: a drop of the database takes longer, and refuses an index, and a restore creates the collection itself.
pub(crate) const FAILED_PAUSE: Duration = Duration::from_secs(1);

// Acquire requests.

/// The time without any reachable server after which an acquire request fails: three heartbeats of the driver, one each
/// 500 ms, have failed by then, and a caller learns of the outage within 2 s.
pub(crate) const UNREACHABLE: Duration = Duration::from_millis(1500);

/// The longest time of a call that must not wait for long, if it sets no timeout: a single attempt, and a call that waits
/// for the rest of its locks while it runs under some of them, because two such calls may wait for each other. A timeout of
/// the latter is not longer.
pub(crate) const SHORT_CALL: Duration = Duration::from_secs(10);

/// The time for which a request is repeated if the server refuses it for a missing right or a refused log-in: a right
/// is granted again, or a password is changed, within seconds, whereas a wrong password stays wrong.
pub(crate) const REFUSAL_LIMIT: Duration = Duration::from_secs(10);

/// The time for which a rejection for overload counts as the reason why replies are missing.
pub(crate) const OVERLOAD_MEMORY: Duration = Duration::from_secs(10);

// Releases.

/// The time for which a caller waits until its release is confirmed; the release then continues in the background.
pub(crate) const RELEASE_REPLY_LIMIT: Duration = Duration::from_secs(6);

/// The time for which `shutdown` waits until every release and detachment is confirmed.
pub(crate) const SHUTDOWN_LIMIT: Duration = Duration::from_secs(15);

/// The time for which the end of a shutdown waits until the tasks of this process have dropped their commands: they do so
/// when they are next polled.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// The time for which a shutdown waits for the end of the client that the provider has made itself: to close its cursors and
/// sessions at the server takes one round trip.
pub(crate) const CLIENT_LIMIT: Duration = Duration::from_secs(3);

// Health.

/// The time for which a health check waits for a server: probes of load balancers have limits of a few seconds. For half of
/// it the check waits for the primary, before any other member may reply.
pub(crate) const PROBE_LIMIT: Duration = Duration::from_secs(2);

// The change stream.

/// The longest time for which the server waits for an event before it replies that there is none: a process with a waiter
/// sends less than two commands a second while nothing happens.
pub(crate) const STREAM_AWAIT: Duration = Duration::from_millis(1250);

/// The pause between two queries for leases that have ended, so that one query serves many of them, and before a stream
/// of events goes on behind the end of the collection, which the past may have several times.
pub(crate) const EVENTS_TOGETHER: Duration = Duration::from_millis(250);

/// The time that a reply may take while the server reads the past. The server sends nothing until it has a batch of
/// changes or has reached the end: about 11 s for 1 GB.
pub(crate) const HISTORY_LIMIT: Duration = Duration::from_secs(10 * 60);

// The TTL index.

/// The limit at the server of an index build: a build waits for all open transactions on the collection, and every later
/// command of every process waits behind it.
pub(crate) const INDEX_BUILD_LIMIT: Duration = Duration::from_secs(1);

/// The time until the next check of the index, varied by a fifth: an operator may drop the index, or rename or drop its
/// collection while no stream reports that. After a failed check or build it is the same: documents of unused locks stay
/// for a day or longer anyway, and frequent builds would delay commands repeatedly.
pub(crate) const INDEX_RECHECK: Duration = Duration::from_secs(60 * 60);

// The path holds from `tests/explore` as well, which compiles this file.
#[cfg(test)]
#[path = "timing/tests.rs"]
mod tests;
