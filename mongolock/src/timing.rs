//! Every time limit of the library, with its reason and its relation to the others.
//!
//! A limit *at the server* is sent with the command (`maxTimeMS`), and the server ends the command after it. A limit *in
//! this process* ends a wait; the comment on the constant says what happens to the command then.

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

/// The limit at the server of a call's first request for a permit. If a foreign transaction blocks its document, the call goes
/// on with another permit after this time.
pub(crate) const PERMIT_LIMIT: Duration = seconds(1);

/// The shortest limit at the server of one acquire request: a shorter one would end healthy requests.
pub(crate) const ACQUIRE_LIMIT_MIN: Duration = millis(200);

/// The time in which a healthy server replies to an acquire request, even over a long distance. The last known status of
/// a lock stays valid for this time while a request is in flight. After a slower reply another copy of the request may
/// still take effect.
pub(crate) const SLOW_REPLY: Duration = millis(500);

/// The time after which an acquire request without a reply is overdue: its connection may be dead, and a copy of it is
/// sent on another one.
pub(crate) const ACQUIRE_OVERDUE: Duration = seconds(2);

/// The longest limit at the server of an acquire request that takes one of the last places among the commands in flight,
/// and of a copy: if its document is blocked, a request for another name gets the place after this time. The request that
/// follows has the longer limit, among few of its kind.
pub(crate) const CROWDED_LIMIT: Duration = seconds(2);

/// The time after its limit at the server after which a command without a reply is given up, which closes its connection:
/// the server has ended the command by then, so the connection is dead, and its place is for another command.
pub(crate) const NO_REPLY: Duration = seconds(2);

/// The time after which this process gives up an acquire request without a reply, at the latest. If it acquired the lock,
/// the lock is released by the claim's id.
pub(crate) const ACQUIRE_NO_REPLY: Duration = seconds(7);

/// The time without any reachable server after which an acquire request fails. The driver repeats a failed heartbeat after
/// 500 ms, so that three of them have failed, and a caller learns of the outage within 2 s.
pub(crate) const UNREACHABLE: Duration = millis(1500);

/// The pause before the next query for many waiters while enough of them are in flight.
pub(crate) const LOOK_ALLOWED_POLL: Duration = millis(100);

/// The time after which a single try ends if the call sets no timeout: a longer one would be a wait.
pub(crate) const TRY_LIMIT: Duration = seconds(10);

/// The longest time for which a call waits for the rest of its locks while it runs under some of them: two such calls may
/// wait for each other.
pub(crate) const NESTED_SET_LIMIT: Duration = seconds(10);

/// The time without a usable reply about a name after which a wait without a limit ends: an election takes less, and a
/// wait for a server that does not come back would never end.
pub(crate) const NO_REPLY_LIMIT: Duration = seconds(60);

/// The shortest time after which a wait without a limit ends: a caller that begins when replies have been missing for
/// long waits this long for the server to come back.
pub(crate) const NO_REPLY_LIMIT_MIN: Duration = seconds(10);

// Waiting for a held lock.

/// The pause before a waiter with an open change stream sends another request although no release was reported: an event
/// can be lost.
pub(crate) const POLL_BESIDE_STREAM: Duration = seconds(5);

/// The limit at the server of one query that looks at the locks of many waiters.
pub(crate) const LOOK_LIMIT: Duration = seconds(5);

/// The least time between two such queries, for each lock that is awaited: locks that are due at nearly the same time
/// are looked at with one query.
pub(crate) const LOOK_GAP_PER_NAME: Duration = Duration::from_micros(10);

/// The longest time between two such queries while locks are due.
pub(crate) const LOOK_GAP_MAX: Duration = millis(100);

/// The time after which a waiter that should have been woken checks that the task works which wakes it: that task belongs
/// to the runtime that it was started on. It is so short that few callers give up before.
pub(crate) const LOOKER_CHECK: Duration = seconds(1);

/// The initial time for which a process hands a lock over among its own waiters, before other processes get a turn. It
/// begins with the reply to the acquire request.
pub(crate) const HANDOVER_MIN: Duration = millis(20);

/// The longest time for which a process hands a lock over among its own waiters, when no other process has taken the lock
/// for a while.
pub(crate) const HANDOVER_MAX: Duration = millis(160);

/// A process hands a lock over for at least as long as this number of acquire requests takes, because a busy server gets
/// busier with every row of hand-overs that ends early.
pub(crate) const HANDOVER_REQUESTS: u32 = 3;

/// The longest time for which a process hands a lock over because the server is slow.
pub(crate) const HANDOVER_MAX_SLOW: Duration = millis(500);

// Renewals.

/// The shortest limit at the server of one renewal. The limit is a sixth of the expiry, which leaves time for several
/// attempts.
pub(crate) const RENEWAL_LIMIT_MIN: Duration = millis(50);

/// The part of that limit that a repeated renewal has, of fewer leases: if one of them is blocked, the others of its kind
/// wait for it.
pub(crate) const RENEWAL_LIMIT_PART: u32 = 5;

/// The shortest limit at the server of a repeated renewal, if that of the first one is longer.
pub(crate) const RENEWAL_REPEATED_LIMIT_MIN: Duration = millis(250);

/// The longest limit at the server of one renewal.
pub(crate) const RENEWAL_LIMIT_MAX: Duration = seconds(5);

/// The part of the limit of a renewal command for each of its statements, which takes a healthy server a tenth of a
/// millisecond: a busy server must not run out of time.
pub(crate) const RENEWAL_STATEMENT: Duration = millis(2);

/// The pause before a failed renewal is repeated, while the lease lasts.
pub(crate) const RENEWAL_RETRY: Duration = millis(250);

/// The time after which a hold that was handed over is first renewed: an operator may have released the claim just before
/// the hand-over, which sends no command. Most holds have ended by then.
pub(crate) const HANDED_OVER_CHECK: Duration = seconds(1);

/// The longest time by which a renewal leaves the end of a lease after the end that it grants itself: it is longer than
/// any command stays in the server.
pub(crate) const LATE_COMMAND: Duration = seconds(60);

// Releases.

/// The limit at the server of a release, for instance at a document that a foreign transaction blocks.
pub(crate) const RELEASE_LIMIT: Duration = seconds(4);

/// The limit at the server of a release that is repeated for one claim alone: it is short, because the release is sent
/// again, and other releases wait for it.
pub(crate) const RELEASE_REPEAT_LIMIT: Duration = seconds(1);

/// The time after which the connection of a release without a reply counts as dead, and another command is sent. Each
/// further command gets twice the time, so that few connections are kept.
pub(crate) const RELEASE_NO_REPLY: Duration = seconds(5);

/// The time for which a caller waits until its release is confirmed; the release goes on in the background after that.
pub(crate) const RELEASE_REPLY_LIMIT: Duration = seconds(6);

/// The times after the last request of a claim at which its id is released once more, if one of the requests may take
/// effect late. The server ends a request after [`ACQUIRE_LIMIT`], and a connection without a reply is closed after
/// [`ACQUIRE_NO_REPLY`]. A working operating system and network deliver the rest within the last of these times.
pub(crate) const LATE_RELEASES: [Duration; 3] = [seconds(10), seconds(30), seconds(90)];

/// The same for the claims of a set, before the others: the update that claims several locks goes on with the rest when one
/// of them is blocked, so that it is more often granted late. By then the server has ended the update.
pub(crate) const LATE_RELEASE_OF_SET: Duration = millis(5500);

/// The limit at the server of a request that marks a lock as done.
pub(crate) const MARK_LIMIT: Duration = seconds(4);

/// The time after which such a request without a reply is overdue: a copy of it is sent on another connection.
pub(crate) const MARK_OVERDUE: Duration = seconds(2);

/// The time after which such a request without a reply is given up, which closes its connection. The server has ended it
/// by then.
pub(crate) const MARK_NO_REPLY: Duration = seconds(7);

/// The time for which `shutdown` waits until every release is confirmed.
pub(crate) const SHUTDOWN_LIMIT: Duration = seconds(15);

/// The time for which the end of a shutdown waits until the tasks of this process have dropped their commands: they do so
/// when they are next polled.
pub(crate) const CLOSE_LIMIT: Duration = seconds(1);

/// The time for which a shutdown waits for the end of the client that the provider has made itself. The client closes its
/// cursors and sessions at the server, which takes one round trip.
pub(crate) const CLIENT_LIMIT: Duration = seconds(3);

// Guarded commits.

/// The time for which a commit whose outcome is not known is repeated.
pub(crate) const COMMIT_LIMIT: Duration = seconds(30);

/// The time after which one command of a commit without a reply is given up, which closes its connection, and another one
/// is sent: a commit is made once even if it is sent several times.
pub(crate) const COMMIT_NO_REPLY: Duration = seconds(10);

// Other commands.

/// The limit at the server of an operator's command, or of a query for a claim.
pub(crate) const COMMAND_LIMIT: Duration = seconds(5);

/// The time for which an operator's call waits for a reply: long enough for a failover. The command goes on after that.
pub(crate) const ADMIN_REPLY_LIMIT: Duration = seconds(30);

/// The time after which this process gives up a command without a reply, because its connection is dead. Dropping the
/// driver's future closes the connection and frees its place in the pool. By then the outcome no longer depends on the
/// reply: the server has ended the command, a claim was released by its id, and a lease was confirmed by another renewal
/// or has ended.
pub(crate) const DEAD_CONNECTION: Duration = seconds(60);

// Health.

/// The time for which a health check waits for a server: probes of load balancers have limits of a few seconds.
pub(crate) const PROBE_LIMIT: Duration = seconds(2);

/// The part of it for which a health check waits for the primary, before any other member may reply.
pub(crate) const PROBE_PRIMARY: Duration = seconds(1);

/// The time after which a health check's request without a reply is given up, which closes its connection, so that a
/// later check sends another one.
pub(crate) const PROBE_NO_REPLY: Duration = seconds(5);

/// The expiry of the internal lock that a health check asks for, as long as the server has refused the last acquire or
/// renewal: the check releases it at once.
pub(crate) const ASK_AGAIN_EXPIRY: Duration = seconds(1);

// The change stream.

/// The longest time for which the server waits for an event before it replies that there is none. With the requests of a
/// waiter beside the stream, one each second, a process sends less than two commands in a second while nothing happens.
pub(crate) const STREAM_AWAIT: Duration = millis(1250);

/// The time without a reply after which a stream no longer counts as open, because it wakes no waiter.
pub(crate) const STREAM_SILENT: Duration = seconds(10);

/// The time without a waiter after which the stream is closed: it costs the server a cursor and the client a connection.
pub(crate) const STREAM_IDLE: Duration = seconds(5);

/// The time after which an unavailable stream is tried again, varied by a fifth: the server has no change streams, or the
/// user may not open one.
pub(crate) const STREAM_UNAVAILABLE: Duration = seconds(5 * 60);

/// The largest number of names in the filter of the stream: the server compares each release with all of them.
pub(crate) const FILTER_MOST: usize = 64;

/// The number of awaited names below which a stream without a filter has one again.
pub(crate) const FILTER_FEW: usize = 48;

/// The least time between two changes of the names in the filter of the stream: each costs the server a new stream.
pub(crate) const FILTER_SWITCH: Duration = seconds(2);

/// The time for which a name stays in the filter after its waiter has left: it is often awaited again.
pub(crate) const FILTER_KEEPS: Duration = seconds(1);

/// The time over which the events of the stream that wake no waiter are counted.
pub(crate) const STREAM_COST_WINDOW: Duration = seconds(10);

/// The number of such events a second from which on polling costs less than the stream, if no more locks are awaited:
/// each event costs the server as much as looks at several locks.
pub(crate) const STREAM_USELESS_EVENTS: u32 = 300;

/// The lateness of a reply of the stream, compared with the fastest one, from which on the server counts as too busy for
/// streams: wake-ups are as late.
pub(crate) const STREAM_LATE: Duration = millis(100);

/// The number of replies without an event whose lateness counts: one a second, so that a short delay means nothing.
pub(crate) const STREAM_LATE_REPLIES: usize = 20;

/// The longest pause of a waiter while a process polls instead of reading a stream that costs too much: a user who has
/// set longer pauses relies on the stream.
pub(crate) const STREAM_POLL_PAUSE: Duration = millis(500);

/// The time for which a process polls after its stream has cost too much, varied by a fifth. It is doubled each time in a
/// row.
pub(crate) const STREAM_POLL_MIN: Duration = seconds(60);

/// The longest time for which a process polls after its stream has cost too much.
pub(crate) const STREAM_POLL_MAX: Duration = seconds(10 * 60);

/// The time after which a stream has proved to be worth its cost, so that the next time of polling is short again.
pub(crate) const STREAM_PROVED: Duration = seconds(10 * 60);

// The order between processes.

/// The time that each waiter leaves to those before it after a release, besides twice the time that their requests take.
pub(crate) const LINE_MARGIN: Duration = millis(5);

/// The same for a waiter without a change stream, which learns of a release by polling.
pub(crate) const LINE_SLOT_POLLING: Duration = millis(30);

/// The longest time that a waiter leaves to all before it together.
pub(crate) const LINE_SLOTS_MAX: Duration = millis(50);

/// The number of waiters in front from which on a provider reads its stream with pauses: with many of them each event costs
/// the server more than the time until the next release. In the simulation 64 providers with one waiter read 37 replies of
/// their streams for each turn with the pauses and 128 without them, and 16 providers 14 and 32. The waits are the same.
pub(crate) const LINE_FAR: usize = 8;

/// The pause of such a provider after a reply of its stream, unless there was one after the reply before. It is shorter than
/// the turns of so many waiters together.
pub(crate) const LINE_FAR_PAUSE: Duration = millis(25);

/// The time from which on an event of the stream has come with a reply of its own; it was in memory already otherwise.
pub(crate) const STREAM_REPLY: Duration = Duration::from_micros(200);

/// The time for which a process remembers that another one has acquired the lock: it may be one that cannot stand in line.
pub(crate) const LINE_REMEMBER: Duration = millis(500);

/// The time for which a process remembers that a program without a place in line has acquired the lock.
pub(crate) const LINE_REMEMBER_WITHOUT_LINE: Duration = seconds(5);

/// The moment that is left to such a program after each release in that time: it looks seldom and at any moment, and each
/// millisecond in which the lock is free lets it in more often. In the simulation 4 of them beside 4 times 4 tasks have 5.3
/// turns a second with it and 1.7 without it, for 1.33 instead of 1.17 of the time of the sections. Beside 8 times 1 task it
/// is 13 and 6.3.
pub(crate) const LINE_SLOT_WITHOUT_LINE: Duration = millis(2);

/// The longest time for which a process waits after its own release until another one has acquired the lock.
pub(crate) const YIELD_MAX: Duration = millis(30);

/// The same without a change stream: the others may have none either, and poll.
pub(crate) const YIELD_MAX_POLLING: Duration = millis(50);

/// The time for which a process stays in line after its last user of the name has left: it often asks again.
pub(crate) const LINE_LINGER: Duration = millis(100);

/// The length of a wait from which on operators see it, if the provider stood in line when it began: its document says only
/// then since when it waits. That is one write and one query more for each turn with such a wait: 6.2 commands instead of
/// 4.2 in the simulation, with 16 processes and sections of 50 ms. The order needs neither.
pub(crate) const LINE_SHOWN: Duration = millis(500);

/// The time after its own release within which a process that acquires the lock again looks whether others wait.
pub(crate) const LINE_REACQUIRED: Duration = millis(100);

/// The least time between two such looks, each for all such names. The first looks come sooner.
pub(crate) const LINE_REACQUIRED_EVERY: Duration = seconds(1);

/// The longest pause of a waiter that hears of no release: an event can be lost.
pub(crate) const LINE_SILENCE: Duration = seconds(1);

/// The pause of the first in line without a change stream; the others pause longer by their places.
pub(crate) const LINE_POLL: Duration = millis(20);

/// The part of the time for which the present holder is known to have the lock that a waiter without a change stream pauses
/// at least: it sends few requests for a lock that is held for long, and comes late by this part at most.
pub(crate) const LINE_POLL_PART: u32 = 8;

/// The time for which a process without a change stream hands a lock over among its own waiters: another one needs longer
/// to find the lock free.
pub(crate) const HANDOVER_POLLING: Duration = millis(60);

/// The time after the beginning of a row of hand-overs in which later callers of this process still belong to it.
pub(crate) const HANDOVER_OPEN: Duration = millis(5);

/// The pause between two checks which lines this process still needs.
pub(crate) const LINE_CHECK: Duration = seconds(1);

/// The least pause between two such checks, each of which goes over all names in whose lines this process stands.
pub(crate) const LINE_CHECK_LEAST: Duration = millis(20);

/// The time for which a look at locks waits for their lines, which are read at the same time.
pub(crate) const LINE_LOOK_LIMIT: Duration = millis(20);

/// The pause between two times at which all lines are read where nothing else shows a change.
pub(crate) const LINE_READ: Duration = seconds(60);

/// The pause between two times at which the documents of waiters are prolonged.
pub(crate) const LINE_PROLONGED: Duration = seconds(30);

/// The limit at the server of one write of a document in line.
pub(crate) const LINE_LIMIT: Duration = seconds(2);

/// The limit at the server of one query for lines.
pub(crate) const LINE_READ_LIMIT: Duration = seconds(1);

/// The time for which a process waits for no order after the server has refused its documents.
pub(crate) const LINE_REFUSED: Duration = seconds(5 * 60);

/// The time for which a shutdown waits until the documents of this process are removed.
pub(crate) const LINE_SHUTDOWN: Duration = seconds(5);

// The documents of waiters.

/// The time until which the document of a waiter is kept if it is not prolonged, so that a process that has died leaves the
/// line. It is longer than a failover takes.
pub(crate) const WAITER_KEPT: Duration = seconds(90);

/// The longest time by which the place of a waiter may be after the server's time. The clocks of members differ by less. A
/// place later than that is damaged, and must not decide where all later places are.
pub(crate) const WAITER_AHEAD: Duration = seconds(3600);

// The TTL index.

/// The limit at the server of an index build: a build waits for all open transactions on the collection, and every later
/// command of every process waits behind it.
pub(crate) const INDEX_BUILD_LIMIT: Duration = seconds(1);

/// The bounds in seconds of the random pause after a failed build: frequent builds would delay commands again and again.
pub(crate) const INDEX_BUILD_PAUSE: RangeInclusive<u64> = 300..=600;

/// The bounds in seconds of the random pause after which a provider that enters a line checks again whether the indexes of
/// the waiters' documents exist: one command.
pub(crate) const WAITERS_INDEX_CHECK: RangeInclusive<u64> = 60..=120;

/// The time until the next check of an index that is missing, if the build did not fail.
pub(crate) const INDEX_RETRY: Duration = seconds(60);

/// The time for which a caller waits for the state of the index; the check itself goes on after that.
pub(crate) const INDEX_REPLY_LIMIT: Duration = seconds(30);

const fn is_less(one: Duration, other: Duration) -> bool {
    one.as_millis() < other.as_millis()
}

/// The relations between the limits that the reasons above rely on.
const _: () = {
    // The server ends every command long before `LATE_COMMAND`.
    assert!(is_less(ACQUIRE_LIMIT, LATE_COMMAND) && is_less(RENEWAL_LIMIT_MAX, LATE_COMMAND));
    assert!(is_less(RELEASE_LIMIT, LATE_COMMAND) && is_less(COMMAND_LIMIT, LATE_COMMAND));

    // The stages of an acquire request: a healthy reply, overdue, given up, a minute without a reply.
    assert!(is_less(SLOW_REPLY, UNREACHABLE) && is_less(UNREACHABLE, ACQUIRE_OVERDUE));
    assert!(is_less(ACQUIRE_OVERDUE, ACQUIRE_LIMIT) && is_less(CROWDED_LIMIT, ACQUIRE_LIMIT));
    assert!(ACQUIRE_NO_REPLY.as_millis() == ACQUIRE_LIMIT.as_millis() + NO_REPLY.as_millis());
    assert!(is_less(ACQUIRE_NO_REPLY, DEAD_CONNECTION) && is_less(ACQUIRE_NO_REPLY, NO_REPLY_LIMIT));
    assert!(is_less(LOOK_LIMIT, ACQUIRE_NO_REPLY) && is_less(LOOK_GAP_MAX, SLOW_REPLY));
    assert!(is_less(SLOW_REPLY, PERMIT_LIMIT) && is_less(PERMIT_LIMIT, ACQUIRE_LIMIT));
    assert!(is_less(ACQUIRE_LIMIT_MIN, SLOW_REPLY) && is_less(NO_REPLY_LIMIT_MIN, NO_REPLY_LIMIT));

    // The server has ended a request before its id is released late, and the last release comes after its connection is
    // closed.
    assert!(is_less(ACQUIRE_LIMIT, LATE_RELEASE_OF_SET) && is_less(LATE_RELEASE_OF_SET, LATE_RELEASES[0]));
    assert!(is_less(ACQUIRE_LIMIT, LATE_RELEASES[0]) && is_less(LATE_RELEASES[0], LATE_RELEASES[1]));
    assert!(is_less(DEAD_CONNECTION, LATE_RELEASES[2]) && is_less(LATE_RELEASES[1], LATE_RELEASES[2]));

    // The server ends a release before this process repeats it, and a caller knows the outcome before a shutdown ends.
    assert!(is_less(RELEASE_REPEAT_LIMIT, RELEASE_LIMIT) && is_less(RELEASE_LIMIT, RELEASE_NO_REPLY));
    assert!(is_less(RELEASE_NO_REPLY, RELEASE_REPLY_LIMIT) && is_less(RELEASE_REPLY_LIMIT, SHUTDOWN_LIMIT));
    // What follows a shutdown is short beside it.
    assert!(is_less(CLOSE_LIMIT, CLIENT_LIMIT) && is_less(CLIENT_LIMIT, SHUTDOWN_LIMIT));

    assert!(is_less(UNREACHABLE, PROBE_LIMIT) && is_less(PROBE_LIMIT, PROBE_NO_REPLY));
    assert!(is_less(PROBE_PRIMARY, PROBE_LIMIT));
    assert!(is_less(RENEWAL_LIMIT_MIN, RENEWAL_LIMIT_MAX) && is_less(HANDOVER_MIN, HANDOVER_MAX));
    assert!(is_less(HANDOVER_MAX, HANDOVER_MAX_SLOW));
    assert!(is_less(COMMIT_NO_REPLY, COMMIT_LIMIT) && is_less(COMMAND_LIMIT, ADMIN_REPLY_LIMIT));
    assert!(is_less(LINE_READ_LIMIT, LINE_LIMIT));
    assert!(is_less(YIELD_MAX, LINE_SLOTS_MAX) && is_less(LINE_SLOTS_MAX, LINE_SILENCE));
    assert!(is_less(STREAM_AWAIT, STREAM_SILENT) && is_less(STREAM_SILENT, DEAD_CONNECTION));
    assert!(is_less(STREAM_COST_WINDOW, STREAM_POLL_MIN) && is_less(STREAM_POLL_MIN, STREAM_POLL_MAX));
    assert!(is_less(STREAM_LATE, STREAM_AWAIT) && is_less(FILTER_KEEPS, FILTER_SWITCH));
    assert!(is_less(INDEX_BUILD_LIMIT, COMMAND_LIMIT) && is_less(INDEX_REPLY_LIMIT, DEAD_CONNECTION));
};
