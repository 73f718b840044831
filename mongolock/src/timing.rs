//! Every time limit of the library, with its reason and its relation to the others.
//!
//! A limit *at the server* goes with the command (`maxTimeMS`): the server ends the command after it. A limit *here*
//! ends a wait of this process; what happens to the command then is said beside it.

use std::ops::RangeInclusive;
use std::time::Duration;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

// Acquire requests.

/// The longest limit at the server of one acquire request, for instance at a document that a foreign transaction blocks.
pub(crate) const ACQUIRE_LIMIT: Duration = seconds(5);

/// The shortest limit at the server of one acquire request: a shorter one would end healthy requests.
pub(crate) const ACQUIRE_LIMIT_MIN: Duration = millis(200);

/// A server that works answers an acquire request sooner, also in another city. What was heard of a lock counts for so
/// long beside a request that is under way, and a slower reply leaves open what else of the claim may take effect.
pub(crate) const SLOW_REPLY: Duration = millis(500);

/// An acquire request without a reply is overdue after this time: its connection may be dead, and a copy of it is sent on
/// another one.
pub(crate) const ACQUIRE_OVERDUE: Duration = seconds(2);

/// An acquire request without a reply is given up here after this time, which closes its connection: a few of them must
/// not use up the requests of the name. The server has ended the request by then, and what it may have done is released
/// by the claim's id.
pub(crate) const ACQUIRE_NO_REPLY: Duration = seconds(7);

/// The pause before another look whether a request may be sent, while too many are silent.
pub(crate) const ACQUIRE_ALLOWED_POLL: Duration = millis(100);

/// A single try ends after this time, unless the call says otherwise: waiting longer is not "trying".
pub(crate) const TRY_LIMIT: Duration = seconds(10);

/// A wait without a limit ends when MongoDB has given no usable answer about the name for so long: an election takes
/// less, and a wait for a server that is gone would never end.
pub(crate) const NO_REPLY_LIMIT: Duration = seconds(60);

/// A caller that begins when the server has been silent for long waits so long for it to come back.
pub(crate) const NO_REPLY_LIMIT_MIN: Duration = seconds(10);

// Waiting for a held lock.

/// The pause before a waiter asks again although no release was reported, with a change stream open: an event can be
/// lost.
pub(crate) const POLL_BESIDE_STREAM: Duration = seconds(5);

/// How much of a start a woken waiter leaves to those that were woken in vain more often: of several processes the one
/// that has waited longest comes next, and they do not all ask in the same moment.
pub(crate) const WOKEN_DELAY: [Duration; 3] = [millis(2), millis(1), Duration::ZERO];

/// How long a process hands a lock over inside itself at first, before others get a chance.
pub(crate) const HANDOVER_MIN: Duration = millis(20);

/// How long a process hands a lock over inside itself at most, when no other has wanted it for a while.
pub(crate) const HANDOVER_MAX: Duration = millis(160);

// Renewals.

/// The bounds of the limit at the server of one renewal, which is a sixth of the expiry: that leaves time for more
/// attempts.
pub(crate) const RENEWAL_LIMIT_MIN: Duration = millis(50);
pub(crate) const RENEWAL_LIMIT_MAX: Duration = seconds(5);

/// A failed renewal is repeated after this time, while the lease lasts.
pub(crate) const RENEWAL_RETRY: Duration = millis(250);

/// A hold that was handed over in the process is renewed first after this time: the claim may have been released by
/// force just before, and the server was not asked. Most holds have ended by then.
pub(crate) const HANDED_OVER_CHECK: Duration = seconds(1);

/// How far beyond its own grant a renewal leaves the end of a lease: longer than any command stays in the server.
pub(crate) const LATE_COMMAND: Duration = seconds(60);

// Releases.

/// The limit at the server of a release, for instance at a document that a foreign transaction blocks.
pub(crate) const RELEASE_LIMIT: Duration = seconds(4);

/// The limit at the server of a release that is repeated for one claim alone: it is sent again, and meanwhile others have
/// their turn.
pub(crate) const RELEASE_REPEAT_LIMIT: Duration = seconds(1);

/// A release without a reply is on a dead connection after this time, and another is sent. That one gets twice the time,
/// so that few connections are kept.
pub(crate) const RELEASE_NO_REPLY: Duration = seconds(5);

/// How long a caller waits to hear that its release has arrived; it goes on in the background after that.
pub(crate) const RELEASE_REPLY_LIMIT: Duration = seconds(6);

/// How long after the last request of a claim its id is released once more, if one of the requests may take effect late.
/// The server ends a request after [`ACQUIRE_LIMIT`], and a silent connection is closed after [`ACQUIRE_NO_REPLY`]. What
/// the operating system and the network still deliver after that comes within the last of these times, if they behave.
pub(crate) const LATE_RELEASES: [Duration; 3] = [seconds(10), seconds(30), seconds(90)];

/// How long `shutdown` waits for the server to be told of every release.
pub(crate) const SHUTDOWN_LIMIT: Duration = seconds(15);

// Guarded commits.

/// How long a commit is repeated whose outcome is not known.
pub(crate) const COMMIT_LIMIT: Duration = seconds(30);

/// One command of a commit without a reply is given up after this time, which closes its connection, and another is
/// sent: a commit is made once however often it is sent.
pub(crate) const COMMIT_NO_REPLY: Duration = seconds(10);

// Other commands.

/// The limit at the server of an operator's command, or of a look at a claim.
pub(crate) const COMMAND_LIMIT: Duration = seconds(5);

/// How long an operator waits for an answer: long enough for a failover. The command itself goes on after that.
pub(crate) const ADMIN_REPLY_LIMIT: Duration = seconds(30);

/// A command without a reply is given up here after this time: its connection is dead. Dropping the driver's future
/// closes the connection and gives its place in the pool back. By then the outcome no longer depends on the reply: the
/// server has ended the command, a claim has been released by its id, and a renewal's lease was confirmed by another or
/// has ended.
pub(crate) const DEAD_CONNECTION: Duration = seconds(60);

// The change stream.

/// The longest wait of the server for an event before it answers that there is none.
pub(crate) const STREAM_AWAIT: Duration = seconds(1);

/// A stream that has not answered for so long wakes nobody and does not count as open.
pub(crate) const STREAM_SILENT: Duration = seconds(10);

/// The stream is closed when nobody has waited for so long: it costs the server a cursor and the client a connection.
pub(crate) const STREAM_IDLE: Duration = seconds(5);

/// A stream that the server does not have, or that the user may not open, is tried again after this time, give or take
/// a fifth.
pub(crate) const STREAM_UNAVAILABLE: Duration = seconds(5 * 60);

// The TTL index.

/// The limit at the server of an index build: it waits for all open transactions on the collection, and every later
/// command of every process queues behind it.
pub(crate) const INDEX_BUILD_LIMIT: Duration = seconds(1);

/// The bounds in seconds of the random pause after a failed build: builds in a row would delay commands in a row.
pub(crate) const INDEX_BUILD_PAUSE: RangeInclusive<u64> = 300..=600;

/// The time until the next check of an index that is missing, if the build did not fail.
pub(crate) const INDEX_RETRY: Duration = seconds(60);

/// How long a caller that asks for the state of the index waits; the check itself goes on.
pub(crate) const INDEX_REPLY_LIMIT: Duration = seconds(30);

const fn is_less(one: Duration, other: Duration) -> bool {
    one.as_millis() < other.as_millis()
}

/// What the reasons above rest on.
const _: () = {
    // No command stays in the server for as long as a renewal looks ahead.
    assert!(is_less(ACQUIRE_LIMIT, LATE_COMMAND) && is_less(RENEWAL_LIMIT_MAX, LATE_COMMAND));
    assert!(is_less(RELEASE_LIMIT, LATE_COMMAND) && is_less(COMMAND_LIMIT, LATE_COMMAND));

    // A healthy reply, an overdue one, one that is given up, a minute of silence.
    assert!(is_less(SLOW_REPLY, ACQUIRE_OVERDUE) && is_less(ACQUIRE_OVERDUE, ACQUIRE_LIMIT));
    assert!(is_less(ACQUIRE_LIMIT, ACQUIRE_NO_REPLY));
    assert!(is_less(ACQUIRE_NO_REPLY, DEAD_CONNECTION) && is_less(ACQUIRE_NO_REPLY, NO_REPLY_LIMIT));
    assert!(is_less(ACQUIRE_LIMIT_MIN, SLOW_REPLY) && is_less(NO_REPLY_LIMIT_MIN, NO_REPLY_LIMIT));

    // The server has ended a request before its id is released late, and the last release comes after its connection is
    // closed.
    assert!(is_less(ACQUIRE_LIMIT, LATE_RELEASES[0]) && is_less(LATE_RELEASES[0], LATE_RELEASES[1]));
    assert!(is_less(DEAD_CONNECTION, LATE_RELEASES[2]) && is_less(LATE_RELEASES[1], LATE_RELEASES[2]));

    // The server gives a release up before this process repeats it, and a caller hears of that before a shutdown ends.
    assert!(is_less(RELEASE_REPEAT_LIMIT, RELEASE_LIMIT) && is_less(RELEASE_LIMIT, RELEASE_NO_REPLY));
    assert!(is_less(RELEASE_NO_REPLY, RELEASE_REPLY_LIMIT) && is_less(RELEASE_REPLY_LIMIT, SHUTDOWN_LIMIT));

    assert!(is_less(RENEWAL_LIMIT_MIN, RENEWAL_LIMIT_MAX) && is_less(HANDOVER_MIN, HANDOVER_MAX));
    assert!(is_less(COMMIT_NO_REPLY, COMMIT_LIMIT) && is_less(COMMAND_LIMIT, ADMIN_REPLY_LIMIT));
    assert!(is_less(STREAM_AWAIT, STREAM_SILENT) && is_less(STREAM_SILENT, DEAD_CONNECTION));
    assert!(is_less(INDEX_BUILD_LIMIT, COMMAND_LIMIT) && is_less(INDEX_REPLY_LIMIT, DEAD_CONNECTION));
};
