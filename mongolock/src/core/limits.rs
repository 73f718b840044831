//! Every limit of the core alone, with its reason. Those that it has in common with the rest of the library are in `timing`.

use super::time::{MS, Span};
use crate::protocol::Ms;

// Commands.

/// A command that takes longer is slow: a busy server needs a fifth of this time. The server may have begun a lease later
/// than its holder counts, by the time of a slow command. If others wait for a command, it has this limit at the server:
/// a command with rows of several callers, one for a permit while other permits may be free, and a copy of a claim, which
/// would only wait with the first command at a blocked document, and occupy a connection.
pub(crate) const SLOW: Span = 500 * MS;

/// For a slow server the same limit is the time of this number of commands.
pub(super) const LIMIT_TRIPS: Span = 5;

/// The shortest time limit of a claim whose caller has a deadline, and of a renewal unless a quarter of its lease is
/// shorter: a shorter one would end normal commands.
pub(super) const LIMIT_LEAST: Span = 200 * MS;

/// The greatest number of copies of a claim in flight: if no task of the engine runs, none of them ends.
pub(super) const COPIES: u8 = 3;

/// After this time a command without a reply no longer counts as in flight: its connection is dead, or its document is
/// blocked.
pub(super) const PLACE: Span = 800 * MS;

/// The longest time for which a command may stay in the network and the server.
pub(super) const RELEASED_AGAIN: Span = 90_000 * MS;

/// The pause after a failed command. The shortest one is also the first pause of a lane while the server rejects commands
/// because of its load.
pub(super) const PAUSE: (Span, Span) = (20 * MS, 50 * MS);

/// The pause after the failure of a command that ends a hold, and the pause after a miss while the change stream is being
/// opened, are multiplied by the number of these in a row, up to this number: the longest pause is a second.
pub(super) const MULTIPLIED: u32 = 20;

/// A call whose commands have failed for some time pauses for that time divided by this number, if that is longer than
/// the pause above.
pub(super) const PAUSE_PART: Span = 8;

// Lanes: each array has one number for renewals, ends, claims and looks.

/// The greatest number of commands in flight. With a pool of 16, four claims and four ends had the best worst-case
/// ratio to bare commands, over 1 to 1,000 tasks near the server and 3 ms farther away. With three, many far tasks were
/// slower; with five or six, many near ones.
pub(super) const PLACES: [usize; 4] = [2, 4, 4, 1];

/// The same for the driver's default pool of 10: a limit of two ends was as fast as a common limit for claims and ends,
/// and is simpler.
pub(super) const PLACES_OF_SMALL_POOL: [usize; 4] = [2, 2, 4, 1];

/// The connections of the pool that are left for a change stream and an operator's query.
pub(super) const OTHER_CONNECTIONS: usize = 2;

/// If many timers are due at once, this number is handled at a time, so that other threads get the mutex in between.
pub(super) const AT_ONCE: usize = 300;

/// The greatest number of rows in one command: 128 claims take some 10 ms, 500 renewals 7.
pub(super) const GROUP: [usize; 4] = [500, 128, 128, 500];

/// Fewer rows than this get a command each: that is faster while the server is not busy.
pub(super) const LEAST_TOGETHER: [usize; 4] = [2, 2, 4, 2];

/// The number of renewals that share a command after a command with more has failed.
pub(super) const RENEWALS_APART: usize = 25;

/// The shortest time between two looks.
pub(super) const LOOK_EVERY: Span = 100 * MS;

/// The longest pause of a lane while the server rejects commands because of its load. That of renewals is also the pause
/// after each renewal that has failed, or has no reply within its limit.
pub(super) const LANE_PAUSES: [Span; 4] = [100 * MS, 200 * MS, 400 * MS, 400 * MS];

// Hand-over in this process.

/// The number of tokens that a claim reserves: one for each hold that it is handed over to.
pub(crate) const TOKENS: i64 = 1000;

/// The time for which a claim is handed over while other processes want the lock.
pub(super) const TURN: Span = 20 * MS;

/// The time for which a claim is handed over while no other process is known. If a process has used a lock alone for this
/// time, it yields once, for [`ALONE_PAUSE`], because a new process may wait without having been seen.
pub(super) const TURN_ALONE: Span = 160 * MS;

/// The limit of a turn is at least the time of this number of commands, up to [`TURN_MOST`].
pub(super) const TURN_TRIPS: Span = 3;

/// The longest turn of a process that is far from the server.
pub(super) const TURN_MOST: Span = 500 * MS;

/// What nothing has contradicted is checked after this time: a claim that was handed over is renewed, because an operator
/// may have released the lock meanwhile, and a call looks at a held lock whose release the change stream has to report.
pub(super) const CHECK_EVERY: Span = 1000 * MS;

// Renewals.

/// Renewals are sent together if they are due within the lease divided by this number.
pub(super) const RENEWAL_TOGETHER: Ms = 12;

/// The same while the server rejects commands.
pub(super) const RENEWAL_TOGETHER_OVERLOADED: Ms = 3;

/// The time limit of a renewal is the lease divided by this number.
pub(super) const RENEWAL_LIMIT_PART: Ms = 6;

// The order between processes.

/// The time slot of a process near the server. A call that arrives within such a time after the beginning of a turn is
/// served in that turn.
pub(super) const SLOT: Span = 5 * MS;

/// The time slot of all programs that do not use this library. They poll, so they find a lock free only if it stays free for longer.
pub(super) const FOREIGN_SLOT: Span = 15 * MS;

/// The longest time for which a process waits for the time slots of others when a lock is free.
pub(super) const SLOTS_MOST: Span = 50 * MS;

/// A process may leave this number of time slots in a row unused before it no longer counts. One other process that does
/// not count halves the number, and more of them leave a third.
pub(super) const PASSES: u8 = 6;

/// The pause of a process that yields although no other one is known.
pub(super) const ALONE_PAUSE: (Span, Span) = (3 * MS, 5 * MS);

/// The time for which another process counts as a rival after it was seen once.
pub(super) const REMEMBER: Span = 500 * MS;

/// The time for which a process yields after its release if no rival has a time slot, and the shortest time if some
/// have one.
pub(super) const YIELD_UNKNOWN: Span = 30 * MS;
pub(super) const YIELD_LEAST: Span = 15 * MS;

/// After this number of acquisitions by others a process is too far away to use events in time, and asks each
/// [`LATE_POLL`] instead.
pub(super) const OVERTAKEN: u32 = 10;
pub(super) const LATE_AFTER: Span = 100 * MS;
pub(super) const LATE_POLL: Span = 25 * MS;

/// The number of first commands from which the time of a command is estimated, as their minimum. The very first ones
/// include the time to open a connection.
pub(super) const FIRST_TRIPS: u8 = 4;

// Waiting.

/// The pause after the first miss while the change stream is being opened.
pub(super) const FIRST_PAUSE: (Span, Span) = (5 * MS, 15 * MS);

/// After a lease has expired, the calls of all processes spread their claims over this time.
pub(super) const SPREAD: Span = 10 * MS;

/// The time for which the knowledge about a lock is kept after its last use; it is longer if the change stream reports
/// the lock.
pub(super) const LINGER: Span = 200 * MS;
pub(super) const LINGER_LISTENING: Span = 5000 * MS;

/// With more locks than this the change stream reports all locks, because a longer filter would cost the server more. With
/// less than three quarters of them it reports single locks again, so that the filter does not change too often. Without a
/// change stream calls poll with claims, which get the lock if it is free; with more locks than this they poll with looks,
/// because one query serves the calls of many locks and writes nothing.
pub(super) const SINGLE_LOCKS: usize = 64;

/// The pause before the change stream of a server without change streams is opened again.
pub(super) const STREAM_UNAVAILABLE: Span = 300_000 * MS;

/// The relations between the limits that the reasons above rely on.
#[cfg(test)]
const _: () = {
    use super::time::span;
    use crate::protocol::LATE_COMMAND;
    use crate::timing::{COMMAND_LIMIT, NO_REPLY};

    // A slow command leaves its place before it is repeated. A release of a late claim comes after all of its copies.
    assert!(LIMIT_LEAST < SLOW && SLOW < PLACE && PLACE < span(NO_REPLY));
    assert!(RELEASED_AGAIN > LATE_COMMAND * MS && RELEASED_AGAIN > span(COMMAND_LIMIT) + span(NO_REPLY));

    // A lane of lower priority pauses at least as long.
    let [renewals, ends, claims, looks] = LANE_PAUSES;
    assert!(PAUSE.0 < renewals && renewals <= ends && ends <= claims && claims <= looks);
    assert!(RENEWALS_APART < GROUP[0] && RENEWAL_TOGETHER_OVERLOADED < RENEWAL_TOGETHER);

    // A turn ends before its claim is checked, and what is known of a lock is kept for longer than a turn.
    assert!(SLOT < TURN && TURN < TURN_ALONE && TURN_ALONE < TURN_MOST && TURN_MOST < CHECK_EVERY);
    assert!(TURN_ALONE < LINGER && CHECK_EVERY < LINGER_LISTENING);

    // A process that yields leaves time for the claim of another one, and remembers it until its next turn.
    assert!(SLOT < YIELD_LEAST && YIELD_LEAST < YIELD_UNKNOWN && YIELD_UNKNOWN < SLOTS_MOST);
    assert!(SLOT < FOREIGN_SLOT && FOREIGN_SLOT < SLOTS_MOST);
    assert!(ALONE_PAUSE.1 <= SLOT && TURN + SLOTS_MOST < REMEMBER && LATE_POLL < LATE_AFTER);
};
