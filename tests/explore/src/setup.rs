//! The bounds of one search or of one random run.

use std::time::Duration;

/// What is explored.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Setup {
    pub(crate) processes: u8,
    pub(crate) callers: usize,
    /// Whether the change stream reports the lock, own releases included; a waiter polls otherwise.
    pub(crate) stream: bool,
    /// Whether the waiters stand in line.
    pub(crate) has_line: bool,
    pub(crate) expiry: Duration,
    /// Whether the second caller of each process has a deadline, 3 s after its call.
    pub(crate) deadlines: bool,
    /// Whether the last caller of each process makes a single try.
    pub(crate) tries: bool,
    /// Whether a call may return before its release is confirmed.
    pub(crate) unawaited: bool,
    /// Whether each caller comes again, for ever.
    pub(crate) again: bool,
    /// How many faults of each kind there may be.
    pub(crate) faults: Faults,
    /// The longest time for which the lock may be free while a caller waits.
    pub(crate) most_free: Duration,
    /// The longest time for which a claim that its process has given up may keep the lock while a caller of this process waits.
    pub(crate) most_given_up: Duration,
    /// The rule that is taken out.
    pub(crate) mutant: Option<Mutant>,
}

/// A rule that can be taken out: the explorer must notice it. The files of the library stay as they are. The glue withholds a call
/// or a result of theirs, or leaves a rule of a shell out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    NoLateReleases,
    SlowReplyCountsAsCertain,
    ReplyDuringReleaseIsIgnored,
    CancelledClaimIsNotReleased,
    NoCopy,
    TurnStaysAfterFailedRelease,
    HeldStaysValid,
    ReleaseInFlightIsForgotten,
    NoLookAfterSubscription,
    UnawaitedReleaseIsNotSent,
    HandoverReusesToken,
    LeaseThatIsOverIsDelivered,
    HeldBeforeFirstReply,
    GivenUpIdsAreNotRecognised,
}

/// The number of faults that may still occur, by their kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Faults {
    /// A message is lost.
    pub(crate) lost: u16,
    /// A command ends with an unclear error, before it was applied or after that.
    pub(crate) unclear: u16,
    /// A command ends because another operation blocks the document.
    pub(crate) blocked: u16,
    /// The driver repeats an acquire request whose reply is slow, and both copies of it may arrive.
    pub(crate) repeated: u16,
    /// Time passes while messages are on their way.
    pub(crate) slow: u16,
    pub(crate) cancelled: u16,
    pub(crate) crashes: u16,
    pub(crate) stopped_streams: u16,
    /// Not a fault: time passes while a caller holds the lock.
    pub(crate) holds: u16,
}

impl Setup {
    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
