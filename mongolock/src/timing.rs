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

/// The limit at the server of a call's first request for a permit: the call tries another permit after this time if a
/// foreign transaction blocks the document.
pub(crate) const PERMIT_LIMIT: Duration = seconds(1);

/// The shortest limit at the server of one acquire request: a shorter one would end healthy requests.
pub(crate) const ACQUIRE_LIMIT_MIN: Duration = millis(200);

/// The time in which a healthy server replies to an acquire request, even over a long distance: the last known status of
/// a lock stays valid for it while a request is in flight.
pub(crate) const SLOW_REPLY: Duration = millis(500);

/// The time after which an acquire request without a reply is overdue: its connection may be dead, and a copy of it is
/// sent on another one.
pub(crate) const ACQUIRE_OVERDUE: Duration = seconds(2);

/// The longest limit at the server of an acquire request that takes one of the last places among the commands in flight,
/// and of a copy: if its document is blocked, a request for another name gets the place after this time.
pub(crate) const CROWDED_LIMIT: Duration = seconds(2);

/// The time after its limit at the server after which a command without a reply is given up, which closes its connection:
/// the server has ended the command by then, so the connection is dead, and its place is for another command.
pub(crate) const NO_REPLY: Duration = seconds(2);

/// The time after which this process gives up an acquire request without a reply, at the latest: [`ACQUIRE_LIMIT`] and
/// [`NO_REPLY`], after which the server has ended it.
pub(crate) const ACQUIRE_NO_REPLY: Duration = seconds(7);

/// The time without any reachable server after which an acquire request fails: three heartbeats of the driver, one each
/// 500 ms, have failed by then, and a caller learns of the outage within 2 s.
pub(crate) const UNREACHABLE: Duration = millis(1500);

/// The limit at the server of a command with requests of several calls: if one of their documents is blocked, it delays the
/// others by this time at most. A healthy server needs some 10 ms for it, and a busy one 100.
pub(crate) const TOGETHER_LIMIT: Duration = millis(500);

/// The time after this limit for which the other requests of its lane wait for the reply.
pub(crate) const LANE_GRACE: Duration = millis(300);

/// The time for which a command keeps others of its lane: it has a reply by then, or waits for a blocked document or a dead
/// connection. It is the limit of a command with several requests and [`LANE_GRACE`].
pub(crate) const LANE_LIMIT: Duration = millis(800);

/// The time for which requests that were admitted together wait for one that has not come: its thread is kept busy by other
/// code.
pub(crate) const GATHER_LIMIT: Duration = millis(2);

/// The pause after a rejection for overload, before the next acquire request may take the place of the rejected one. It grows by
/// a tenth with each rejection of a long row.
pub(crate) const OVERLOAD_PAUSE_MIN: Duration = millis(25);

/// The longest such pause: a server that rejects everything gets some seven requests a second from each provider, and the
/// end of its overload is found within this time.
pub(crate) const OVERLOAD_PAUSE_MAX: Duration = millis(600);

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

/// The time for which a request is repeated that the server refuses for a missing right or a refused log-in: a right that is
/// granted again, or a password that is being changed, passes within seconds, and a wrong one never does.
pub(crate) const REFUSAL_LIMIT: Duration = seconds(10);

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

/// The time after which a waiter that should have been woken checks the task that wakes it: the runtime of that task may
/// have stopped, and few callers give up before.
pub(crate) const LOOKER_CHECK: Duration = seconds(1);

/// The initial time, from the reply to the acquire request, for which a process hands a lock over among its own waiters
/// before other processes get it.
pub(crate) const HANDOVER_MIN: Duration = millis(20);

/// The longest such time, when no other process has acquired the lock for long.
pub(crate) const HANDOVER_MAX: Duration = millis(160);

/// A process hands a lock over for at least as long as this number of acquire requests takes, because a busy server gets
/// busier with every row of hand-overs that ends early.
pub(crate) const HANDOVER_REQUESTS: u32 = 3;

/// The longest time for which a process hands a lock over because the server is slow.
pub(crate) const HANDOVER_MAX_SLOW: Duration = millis(500);

// Renewals.

/// The shortest limit at the server of one renewal, which is otherwise a sixth of the expiry: that leaves time for several
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

/// The part of the rest of a lease after which a failed renewal is repeated: a lease lasts for a hundred such repetitions, so it
/// is kept even if only a few of a hundred commands succeed.
pub(crate) const RENEWAL_RETRY_PART: u32 = 128;

/// The bounds of that pause: a shorter one would add to the load, and a longer one wastes the first reply after the failure.
pub(crate) const RENEWAL_RETRY: RangeInclusive<Duration> = millis(20)..=millis(250);

/// The time after which a renewal without a reply is sent again while the server rejects commands: the driver repeats a
/// rejected command after pauses of its own, which are longer.
pub(crate) const REJECTED_RENEWAL_COPY: Duration = millis(50);

/// The time for which a rejection for overload, or a failed connection, counts as the reason why replies are missing.
pub(crate) const OVERLOAD_MEMORY: Duration = seconds(10);

/// The time after which a hold that was handed over is first renewed: most holds have ended by then, and an operator may
/// have released the claim just before the hand-over, which sends no command.
pub(crate) const HANDED_OVER_CHECK: Duration = seconds(1);

// Releases.

/// The limit at the server of a release, for instance at a document that a foreign transaction blocks.
pub(crate) const RELEASE_LIMIT: Duration = seconds(4);

/// The limit at the server of a release that is repeated for one claim alone: it is short, because the release is sent
/// again, and other releases wait for it.
pub(crate) const RELEASE_REPEAT_LIMIT: Duration = seconds(1);

/// The time after which the connection of a release without a reply counts as dead, and another command is sent; it
/// doubles with each command, so that few connections are kept.
pub(crate) const RELEASE_NO_REPLY: Duration = seconds(5);

/// The time for which a caller waits until its release is confirmed; the release goes on in the background after that.
pub(crate) const RELEASE_REPLY_LIMIT: Duration = seconds(6);

/// The times after the last request of a claim at which its id is released once more: a working operating system and
/// network deliver a late request within the last of them.
pub(crate) const LATE_RELEASES: [Duration; 3] = [seconds(10), seconds(30), seconds(90)];

/// An earlier one for the claims of a set, when the server has ended the update: an update of several locks goes on when one
/// of them is blocked, so it is more often granted late.
pub(crate) const LATE_RELEASE_OF_SET: Duration = millis(5500);

/// The limit at the server of a request that marks a lock as done.
pub(crate) const MARK_LIMIT: Duration = seconds(4);

/// The time after which such a request without a reply is overdue: a copy of it is sent on another connection. The same is true
/// of requests about detached leases.
pub(crate) const MARK_OVERDUE: Duration = seconds(2);

/// The time after which such a request without a reply is given up, which closes its connection: the server has ended it by
/// then.
pub(crate) const MARK_NO_REPLY: Duration = seconds(7);

/// The least time for which a lease is renewed after its work has ended, until its mark or its detachment is confirmed; a longer
/// `expiry` counts instead. An election with its retries takes less, and a mark that is always refused ends.
pub(crate) const END_LIMIT: Duration = seconds(60);

/// The time for which `shutdown` waits until every release and detachment is confirmed.
pub(crate) const SHUTDOWN_LIMIT: Duration = seconds(15);

/// The time for which the end of a shutdown waits until the tasks of this process have dropped their commands: they do so
/// when they are next polled.
pub(crate) const CLOSE_LIMIT: Duration = seconds(1);

/// The time for which a shutdown waits for the end of the client that the provider has made itself: to close its cursors and
/// sessions at the server takes one round trip.
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

/// The time for which an operator's call waits for a reply, which is long enough for a failover; the command goes on.
pub(crate) const ADMIN_REPLY_LIMIT: Duration = seconds(30);

/// The time after which this process gives up a command without a reply, which closes its connection: by then the server
/// has ended the command, and no outcome depends on the reply.
pub(crate) const DEAD_CONNECTION: Duration = seconds(60);

// The hosts of a connection string.

/// The time for which a host that the driver has removed is asked for its replica set: the driver itself waits for so long for
/// a connection.
pub(crate) const SEED_LIMIT: Duration = seconds(10);

/// The time after the removal of a host for which calls wait for its answer: a far host answers within it, and a silent one
/// delays only the first call of a process.
pub(crate) const SEED_WAIT: Duration = seconds(2);

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

/// The longest time for which the server waits for an event before it replies that there is none: a process with a waiter
/// sends less than two commands a second while nothing happens.
pub(crate) const STREAM_AWAIT: Duration = millis(1250);

/// The longest time for which the server waits for an event of a stream that has an end: it is read for the past.
pub(crate) const HISTORY_AWAIT: Duration = millis(1);

/// The pause before such a stream is asked again whose end is not reached.
pub(crate) const HISTORY_PAUSE: Duration = millis(50);

/// The time that a reply may take while the server reads the past, of which it sends nothing before it has a batch of changes or
/// is at the end: about 11 s for 1 GB.
pub(crate) const HISTORY_LIMIT: Duration = seconds(10 * 60);

/// The pause before a stream of events that has failed is opened again.
pub(crate) const EVENTS_REOPEN: Duration = seconds(1);

/// The pause between two queries for leases that have ended, so that many of them are one query.
pub(crate) const EVENTS_TOGETHER: Duration = millis(250);

/// The pause between two looks for events at a server without change streams.
pub(crate) const EVENTS_LOOK: Duration = seconds(1);

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

/// The longest pause of a waiter while a process polls instead of reading a stream that costs too much: longer pauses in
/// the options rely on the stream.
pub(crate) const STREAM_POLL_PAUSE: Duration = millis(500);

/// The time for which a process polls after its stream has cost too much, varied by a fifth and doubled each time in a row.
pub(crate) const STREAM_POLL_MIN: Duration = seconds(60);

/// The longest time for which a process polls after its stream has cost too much.
pub(crate) const STREAM_POLL_MAX: Duration = seconds(10 * 60);

/// The time after which a stream has proved to be worth its cost, so that the next time of polling is short again.
pub(crate) const STREAM_PROVED: Duration = seconds(10 * 60);

// The order between processes.

/// The time slot that each waiter leaves to each one before it after a release, besides twice the time of its requests.
pub(crate) const LINE_MARGIN: Duration = millis(5);

/// The same for a waiter without a change stream, which learns of a release by polling.
pub(crate) const LINE_SLOT_POLLING: Duration = millis(30);

/// The longest sum of the time slots that a waiter leaves to all before it.
pub(crate) const LINE_SLOTS_MAX: Duration = millis(50);

/// The number of waiters in front from which on a provider reads its stream with pauses: 64 providers read 37 replies for
/// each acquisition with them, and 128 without them, for the same waits (`simulation/README.md`).
pub(crate) const LINE_FAR: usize = 8;

/// The pause of such a provider after every other reply of its stream, which is shorter than the holds of so many waiters
/// together.
pub(crate) const LINE_FAR_PAUSE: Duration = millis(25);

/// The time from which on an event of the stream has come with a reply of its own; it was in memory already otherwise.
pub(crate) const STREAM_REPLY: Duration = Duration::from_micros(200);

/// The time for which a process remembers that another one has acquired the lock: it may be one that cannot stand in line.
pub(crate) const LINE_REMEMBER: Duration = millis(500);

/// The time for which a process remembers that a program without a place in line has acquired the lock.
pub(crate) const LINE_REMEMBER_WITHOUT_LINE: Duration = seconds(5);

/// The time slot that is left to such a program after each release in that time: it polls, and each millisecond in which the
/// lock is free lets it in more often (`simulation/README.md` has the figures).
pub(crate) const LINE_SLOT_WITHOUT_LINE: Duration = millis(2);

/// The longest time for which a process waits after its own release until another one has acquired the lock.
pub(crate) const YIELD_MAX: Duration = millis(30);

/// The same without a change stream: the others may have none either, and poll.
pub(crate) const YIELD_MAX_POLLING: Duration = millis(50);

/// The time for which a process stays in line after its last user of the name has left: it often asks again.
pub(crate) const LINE_LINGER: Duration = millis(100);

/// The length of a wait from which on operators see it, if the provider stood in line when it began: it costs a write and a
/// query, which the order does not need.
pub(crate) const LINE_SHOWN: Duration = millis(500);

/// The time after its own release within which a process that acquires the lock again looks whether others wait.
pub(crate) const LINE_REACQUIRED: Duration = millis(100);

/// The least time between two such looks, each for all such names; the first ones come sooner.
pub(crate) const LINE_REACQUIRED_EVERY: Duration = seconds(1);

/// The longest pause of a waiter that hears of no release: an event can be lost.
pub(crate) const LINE_SILENCE: Duration = seconds(1);

/// The pause of the first in line without a change stream; the others pause longer by their places.
pub(crate) const LINE_POLL: Duration = millis(20);

/// The part of the time for which the present holder is known to have the lock that a waiter without a change stream pauses
/// at least: it sends few requests for a lock that is held for long, and comes late by this part at most.
pub(crate) const LINE_POLL_PART: u32 = 8;

/// The initial time without a change stream: another process needs longer to find the lock free.
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

/// The time after which the document of a waiter expires if it is not prolonged, because its process may have ended; a
/// failover takes less.
pub(crate) const WAITER_KEPT: Duration = seconds(90);

/// The longest time by which the place of a waiter may be after the server's time: the clocks of members differ by less, and
/// a damaged place must not decide where all later places are.
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

/// The time until the next check of an index that exists, varied by a fifth: an operator may drop it, or rename or drop its
/// collection while no stream tells that. Documents of unused locks stay for a day or longer anyway.
pub(crate) const INDEX_RECHECK: Duration = seconds(60 * 60);

/// The pause after a stream has told that the collection was dropped or renamed: a drop of the database is under way for longer,
/// and refuses an index, and a restoration makes the collection itself.
pub(crate) const INDEX_AFTER_END: Duration = seconds(1);

/// The time for which a caller waits for the state of the index; the check itself goes on after that.
pub(crate) const INDEX_REPLY_LIMIT: Duration = seconds(30);

// The path holds from `tests/explore` as well, which compiles this file.
#[cfg(test)]
#[path = "timing/tests.rs"]
mod tests;
