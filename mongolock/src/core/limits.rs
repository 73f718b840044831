//! Every limit of the core, with its reason.

use super::time::{MS, Span};
use crate::protocol::Ms;

// Commands.

/// The longest limit at the server of a command with one row: a foreign transaction may block its document for so long.
pub(crate) const LIMIT: Span = 5000 * MS;

/// The same in each lane. An end is repeated, so that a shorter limit costs nothing.
pub(super) const LIMITS: [Span; 4] = [LIMIT, 2000 * MS, LIMIT, LIMIT];

/// The shortest limit of a claim whose caller has a deadline: a shorter one would end healthy commands.
pub(super) const LIMIT_LEAST: Span = 200 * MS;

/// The limit of a command with rows of several callers: if one of their documents is blocked, the others wait for no longer. A busy
/// server needs a fifth of it.
pub(super) const LIMIT_TOGETHER: Span = 500 * MS;

/// The same of a slow server is the time of this number of commands.
pub(super) const LIMIT_TRIPS: Span = 5;

/// The limit of a claim for one of several permits: others may be free.
pub(super) const LIMIT_OF_PERMIT: Span = 1000 * MS;

/// The limit of a copy of a claim: at a blocked document it would only wait with the first one, and take a connection from others.
pub(super) const LIMIT_OF_COPY: Span = 500 * MS;

/// The time for which a caller waits for its release, which goes on after that.
pub(super) const RELEASE_REPLY: Span = 6000 * MS;

/// A reply that takes longer is slow: the server may have begun a lease so much later than its holder counts.
pub(crate) const SLOW: Span = 500 * MS;

/// The time after the limit of a command after which the engine ends it. What the driver has sent by then ends at the server by its
/// limit.
pub(crate) const NO_REPLY: Span = 2000 * MS;

/// The time after which a command without a reply leaves its place to others: its connection is dead, or its document is blocked.
pub(super) const PLACE: Span = 800 * MS;

/// The time after which a claim or an end without a reply is sent once more: its connection may be dead.
pub(super) const COPY: Span = 2000 * MS;

/// The number of copies of a claim in flight: each takes a connection.
pub(super) const COPIES: u8 = 3;

/// A claim without a reply whose lease is longer than this is released once more, [`RELEASED_AGAIN`] after it was sent last.
pub(super) const LONG: Ms = 60_000;

/// The time that a command may stay in the server.
pub(super) const RELEASED_AGAIN: Span = 90_000 * MS;

/// A wait without a limit ends after this time without a reply.
pub(super) const UNANSWERED: Span = 60_000 * MS;

/// The pause after a failed command.
pub(super) const PAUSE: (Span, Span) = (20 * MS, 50 * MS);

/// The greatest number of failures in a row by which it is multiplied for the command that ends a hold.
pub(super) const PAUSES: u8 = 20;

/// The part of the time for which commands have failed that is the pause of a call, if it is longer.
pub(super) const PAUSE_PART: Span = 8;

/// The least time for which a lease is renewed after the end of the work, while the mark or the new id of the lease is refused.
pub(super) const KEPT_LEAST: Ms = 60_000;

// Lanes: a number for each is for renewals, ends, claims and looks.

/// The places. Four claims and four ends had the best least ratio to bare commands with a pool of
/// 16, over 1 to 1,000 tasks near the server and 3 ms farther: with three the far ones were slower, with five or six the many near ones.
pub(super) const PLACES: [usize; 4] = [2, 4, 4, 1];

/// The same for the driver's default pool of 10: two ends were as good as a bound for claims and ends together, and are simpler.
pub(super) const PLACES_OF_SMALL_POOL: [usize; 4] = [2, 2, 4, 1];

/// The connections that a change stream and an operator's query take of the pool.
pub(super) const OTHER_CONNECTIONS: usize = 2;

/// What is due at once is done in parts of this number, so that other threads get the mutex in between.
pub(super) const AT_ONCE: usize = 300;

/// The greatest number of rows in one command: 128 claims take some 10 ms, 500 renewals 7.
pub(super) const GROUP: [usize; 4] = [500, 128, 128, 500];

/// Fewer rows than this go alone, each with a command of its own: that is faster while the server has room.
pub(super) const LEAST_TOGETHER: [usize; 4] = [2, 2, 4, 2];

/// The number of renewals that go together after a command with more has failed.
pub(super) const RENEWALS_APART: usize = 25;

/// The least time between two looks.
pub(super) const LOOK_EVERY: Span = 100 * MS;

/// The pauses of a lane, the first and the longest, while the server rejects commands because of its load.
pub(super) const OVERLOAD_PAUSE: [(Span, Span); 4] = [
    (20 * MS, 100 * MS),
    (20 * MS, 200 * MS),
    (25 * MS, 400 * MS),
    (25 * MS, 400 * MS),
];

// Hand-over in this process.

/// The number of tokens that a claim reserves: one for each hold that it is handed over to.
pub(crate) const TOKENS: i64 = 1000;

/// For how long a claim is handed over while other processes want the lock.
pub(super) const TURN: Span = 20 * MS;

/// A call that comes in this time after the beginning of the turn belongs to it.
pub(super) const TURN_OPEN: Span = 5 * MS;

/// For how long a claim is handed over while no other process is known.
pub(super) const TURN_ALONE: Span = 160 * MS;

/// A turn lasts for the time of this number of commands at least, up to [`TURN_MOST`].
pub(super) const TURN_TRIPS: Span = 3;

/// The longest turn over a long distance.
pub(super) const TURN_MOST: Span = 500 * MS;

/// A claim that was handed over is renewed after this time, because an operator may have released the lock meanwhile.
pub(super) const HANDED_OVER_CHECK: Span = 1000 * MS;

// Renewals.

/// The part of a lease within which renewals go together.
pub(super) const RENEWAL_TOGETHER: Ms = 12;

/// The same while the server rejects commands.
pub(super) const RENEWAL_TOGETHER_OVERLOADED: Ms = 3;

/// The part of a lease that is the limit of its renewal, between these bounds.
pub(super) const RENEWAL_LIMIT_PART: Ms = 6;
pub(super) const RENEWAL_LIMIT: (Span, Span) = (50 * MS, LIMIT);

/// The limit of a renewal that goes apart, so that a blocked one holds up the others for a shorter time.
pub(super) fn after_split(limit: Span) -> Span {
    limit.min((limit / 5).max(250 * MS))
}

/// The pause after a failed renewal is this part of the rest of the lease, between these bounds.
pub(super) const RENEWAL_PAUSE_PART: Span = 128;
pub(super) const RENEWAL_PAUSE: (Span, Span) = (100 * MS, 250 * MS);

// The order between processes.

/// The time slot of a process that is near.
pub(super) const SLOT: Span = 5 * MS;

/// The longest time for which a process leaves a free lock to others.
pub(super) const SLOTS_MOST: Span = 50 * MS;

/// The number of time slots in a row that a process may let pass before it counts no longer; it halves with each that is gone.
pub(super) const PASSES: u8 = 6;
pub(super) const PASSES_LEAST: u8 = 2;

/// After this time alone a process leaves the lock to others once, for [`ALONE_PAUSE`], because a newcomer may wait unseen.
pub(super) const ALONE_FOR: Span = 160 * MS;
pub(super) const ALONE_PAUSE: (Span, Span) = (3 * MS, 5 * MS);

/// For how long another process counts as a rival that was seen once.
pub(super) const REMEMBER: Span = 500 * MS;

/// For how long a process yields after its release if no rival has a time slot, and the least time if some have.
pub(super) const YIELD_UNKNOWN: Span = 30 * MS;
pub(super) const YIELD_LEAST: Span = 15 * MS;

/// After this number of acquisitions by others a process is too far away to be in time for an event, and asks each [`LATE_POLL`].
pub(super) const OVERTAKEN: u32 = 10;
pub(super) const LATE_AFTER: Span = 100 * MS;
pub(super) const LATE_POLL: Span = 25 * MS;

/// The greatest number of rivals that are remembered.
pub(super) const RIVALS: usize = 64;

/// The first commands say how long one takes at least; the first ones of all have opened their connections.
pub(super) const FIRST_TRIPS: u8 = 4;

// Waiting.

/// The pause of a lock whose releases the change stream reports.
pub(super) const SILENCE: Span = 1000 * MS;

/// The pause after the first miss, times the number of misses, while the change stream is being opened.
pub(super) const FIRST_PAUSE: (Span, Span) = (5 * MS, 15 * MS);

/// The greatest number of misses by which it is multiplied.
pub(super) const FIRST_PAUSES: u32 = 20;

/// Without a change stream calls ask by claims, which get the lock if it is free, while no more than this number of locks is known here.
/// With more they look, because one query answers the calls of many locks and writes nothing.
pub(super) const CLAIMED_MOST: usize = 64;

/// The pause after the stream has closed.
pub(super) const STREAM_CLOSED_PAUSE: Span = 20 * MS;

/// After a lease has ended by its time, calls ask within this time and not all at once.
pub(super) const SPREAD: Span = 10 * MS;

/// For how long what is known of a lock is kept after its last use; longer if the change stream reports it.
pub(super) const LINGER: Span = 200 * MS;
pub(super) const LINGER_LISTENING: Span = 5000 * MS;

/// The change stream reports all locks if more than this number are to be reported: a longer filter costs the server more.
pub(super) const FILTER_MOST: usize = 64;

/// It reports single locks again if fewer than this number are: it does not change with each lock around the other number.
pub(super) const FILTER_FEW: usize = 48;

/// The pause before the change stream is opened again; the longer one if the server has none.
pub(super) const STREAM_RETRY: Span = 1000 * MS;
pub(super) const STREAM_UNAVAILABLE: Span = 300_000 * MS;
