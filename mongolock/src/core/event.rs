//! The events that the core takes, and the effects that it returns. `C` is the cell of a caller, and later of its hold.

use std::error::Error;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::once::OncePolicy;
use super::slab::Key;
use super::time::{Span, Time};
use crate::protocol::{LockId, Ms, Name, News, Reply, Row, RowOrder, Sight, Until};

/// The options of a call and of its hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    /// How long a lease lasts without a renewal.
    pub(crate) expiry: Ms,
    /// The time between two renewals.
    pub(crate) renew_every: Ms,
    /// The time for which the lease is renewed; `None` is no limit.
    pub(crate) max_hold: Option<Ms>,
    /// The shortest time for which the lock stays taken.
    pub(crate) min_hold: Ms,
    /// How often the work under the lock may succeed; `None` is any number of times.
    pub(crate) once: Option<OncePolicy>,
}

/// A call, and its cell.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Join<C> {
    /// The time after which the call fails; `None` is no limit.
    pub(crate) limit: Option<Span>,
    /// Whether the call is a single attempt: it fails as soon as the lock is known to be held.
    pub(crate) is_try: bool,
    /// Whether the call is made under a hold, which a shutdown lets finish its work.
    pub(crate) is_inside_hold: bool,
    pub(crate) cell: C,
}

/// What a call waits for.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    Lock(Name),
    /// One permit of a semaphore that has this number of permits.
    Permit(Name, u32),
    /// All these locks, in the order of their names and without duplicates.
    All(Vec<Name>),
    /// These detached leases: their names and present ids. If the resumption is given up, each lease gets its id back
    /// and lasts for this time.
    Leases(Vec<(Name, LockId)>, Ms),
}

/// What the core gets from the engine: calls, ends, replies, changes of documents and the time.
#[derive(Debug, Clone)]
pub(crate) enum Event<C> {
    /// A call begins.
    Join(Wanted, Rules, Join<C>),
    /// The caller no longer waits.
    Leave(Key),
    /// The holder ends its hold. The cell is notified when the hold has ended. The key of a hold is that of its call.
    End(Key, Ending, Option<C>),
    /// A transaction that commits only if the lock is still held is about to change the documents. If it `marks`, it also marks the
    /// work as done.
    CommitBegins { hold: Key, marks: bool },
    /// A commit has ended, or its caller no longer waits. The cell is notified of the result of an unknown outcome.
    CommitEnds {
        hold: Key,
        marks: bool,
        was_made: Option<bool>,
        awaited: Option<C>,
    },
    /// An operator has released locks by force in this process: the hold of this lock is renewed at once, or all holds
    /// if there is no name.
    Renew(Option<Name>),
    /// No caller has a handle with these ids of detached leases.
    Discard(Vec<(Name, LockId)>),
    /// A command has its replies, one for each row, or has failed.
    Ran(Key, Result<Vec<Reply>, Fault>),
    /// A look has its results, or has failed.
    Looked(Key, Result<Vec<Saw>, Fault>),
    /// A change stream with this number is open.
    Opened(u32),
    /// The change stream with this number has closed, or could not be opened; `is_lasting`: the server does not support one, or
    /// refuses it.
    Closed { number: u32, is_lasting: bool },
    /// The change stream reports a lock.
    News(News),
    /// The time of [`Core::next_due`](super::Core::next_due) has come.
    Tick,
    /// Only calls under a hold may begin from now on. If `is_closed`, every call fails and every lease ends.
    Shutdown { is_closed: bool },
}

/// How a holder ends its hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Ending {
    Release,
    /// The caller was dropped before it took the hold, so there is no minimum hold, and leases that it has resumed are given back.
    Untaken,
    /// The work has succeeded and is marked as done for a time.
    Done,
    /// The lease is detached: it lasts for this time with these ids, one for each name.
    Detach(Vec<LockId>, Ms),
}

/// An effect that the engine performs; effects are performed in order.
#[derive(Debug, Clone)]
pub(crate) enum Effect<C> {
    /// Send a command with this time limit at the server.
    Run(Key, Vec<Row>, RowOrder, Span),
    /// Read the documents of these names. A name with the separator of permits at its end means all permits of a semaphore.
    Look(Key, Vec<Name>, Span),
    Notify(C, Notice),
    /// Open the change stream with this number, for these locks or for all, and read it as long as
    /// [`Core::reads_stream`](super::Core::reads_stream) says so.
    Watch(u32, Option<Vec<Name>>),
    Report(Report<C>),
    /// After a shutdown: nothing is held, awaited or being released any more.
    Idle,
}

/// A report for operators.
#[derive(Debug, Clone)]
pub(crate) enum Report<C> {
    /// A command has failed.
    Failed(FailedCommand<C>),
    /// This is the first caller of a lock that another process has. With the time left of that lease, and the pause
    /// before the next command.
    Waiting(C, Name, Option<Ms>, Span),
    /// A permit with this number is held, and the callers in this process use a smaller number of permits.
    PermitsDiffer(Name, u32, u32),
}

/// A command that has failed.
#[derive(Debug, Clone)]
pub(crate) struct FailedCommand<C> {
    pub(crate) lane: Lane,
    /// The number of its locks; `name` is the first one.
    pub(crate) number: usize,
    pub(crate) name: Name,
    /// The cell of the holder of that lock, or of the caller that waits for its end or for the lock.
    pub(crate) cell: Option<C>,
    pub(crate) fault: Fault,
    /// The pause before the command is repeated; `None` if it is not repeated.
    pub(crate) pause: Option<Span>,
}

/// The purpose of the commands in a lane, by priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lane {
    Renewals,
    Ends,
    Claims,
    Looks,
}

/// What a look has found: the document of a lock, with the number 0, or those of the permits, by their numbers.
pub(crate) type Saw = Vec<(u32, Sight)>;

/// A notification for a caller or a holder.
#[derive(Debug, Clone)]
pub(crate) enum Notice {
    /// The caller has its locks, or the leases that it resumes, in the order of their names; they last until this time.
    Held(Key, Vec<Grant>, Time),
    /// The lease lasts until this time; the time is an earlier one if a transaction may have marked the work.
    Extended(Time),
    /// The hold is lost.
    Lost(LossReason),
    /// How the hold has ended, or the last failure of the command that ends it, which may have been applied.
    Ended(EndResult),
    /// Whether a transaction with an unknown outcome was made; `None` if that stays unknown.
    Committed(Option<bool>),
    /// The call has failed.
    Failed(Box<CallFailure>),
}

/// The data of a holder for one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    /// The id of the claim.
    pub(crate) id: LockId,
    pub(crate) token: i64,
    /// The number of the permit, if it is one.
    pub(crate) permit: Option<u32>,
    /// The end of the mark of its work, if the work may succeed only once.
    pub(crate) mark: Option<Until>,
    /// Whether the call has waited for another holder.
    pub(crate) has_waited: bool,
}

/// Why a lock was lost.
///
/// ```
/// use mongolock::{LockError, LossReason};
///
/// fn may_repeat(error: &LockError) -> bool {
///     !matches!(error, LockError::Lost { reason: LossReason::ShutDown, .. })
/// }
/// # assert!(may_repeat(&LockError::NoProvider));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease expired before a renewal was confirmed: MongoDB did not reply in time, this process was paused, or
    /// `max_hold` ended the renewals. A detached lease has no renewals: its time was over.
    Expired,
    /// The server no longer has the claim of this hold: an operator has ended the hold by force, another program has
    /// changed the document, or the hold itself was released. For a [handle](crate::LeaseHandle): another call has resumed
    /// or released its lease, or the lease is not detached yet.
    Gone,
    /// The provider was shut down.
    ShutDown,
}

/// How a hold has ended, or the last failure of the command that ends it.
pub(crate) type EndResult = Result<Ended, Option<Fault>>;

/// How a hold has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Ended {
    /// It was held until its release.
    Released,
    /// It was held until its release, and its claim was handed over to the next call in this process.
    HandedOver,
    /// Its work is marked as done.
    Marked,
    Detached,
    /// Its claim did not have the lock any more.
    Lost,
}

/// Why a call has failed, with the last known holder of the lock and the last failure of a command for it, and their
/// ages.
#[derive(Debug, Clone)]
pub(crate) struct CallFailure {
    pub(crate) cause: Cause,
    /// The lock that the call has waited for, if it has begun.
    pub(crate) name: Option<Name>,
    /// The time since the last reply, if a command for the lock is in flight.
    pub(crate) silent_for: Span,
    pub(crate) seen: Option<(Span, Seen)>,
    pub(crate) fault: Option<(Span, Fault)>,
}

/// The cause for which a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// A single attempt has found the lock held.
    Busy,
    /// The work is marked as done.
    Done,
    /// The period of the call is over.
    PeriodOver,
    Timeout,
    /// The server refuses the command, and would refuse it again.
    Refused,
    /// No command had a reply for too long.
    Unanswered,
    /// The lease that was to be resumed does not exist any more, or its time is over.
    Gone,
    Expired,
    ShutDown,
}

/// The holder of a lock, by a reply of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The text of the id; empty if the document has none, or one that is no text.
    pub(crate) lock_id: LockId,
    /// The time since the lock was acquired; `None` if that is not known.
    pub(crate) held_for: Option<Ms>,
    /// The time until the lock is free without a renewal or a release; `None` if that is not known.
    pub(crate) left: Option<Ms>,
    /// The end of the lease in the document, by the server's clock.
    pub(crate) ends: Option<Ms>,
}

/// The failure of a command: it has no reply, or its reply is an error.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// Whether the command may have been applied, or may be yet: also a part of a command with several parts.
    pub(crate) may_be_applied: bool,
    pub(crate) error: Arc<dyn Error + Send + Sync>,
}

/// What a fault means for the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FaultKind {
    /// Any other fault: the command is repeated.
    Failed,
    /// No server can be reached: a single attempt ends.
    Unreachable,
    /// The server has ended the command at its time limit, because another operation blocks a document.
    Blocked,
    /// The server refuses the command, and would refuse a repetition. One that may have been applied has found a damaged document, or
    /// its result may not be read, or a part of it was refused.
    Refused,
    /// The server has rejected the command because of its load.
    Overloaded,
}

/// The text of an error does not matter.
impl Hash for Fault {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind, self.may_be_applied).hash(state);
    }
}

/// Without the end in the document, which is only shown to users.
impl Hash for Seen {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.lock_id, self.held_for, self.left).hash(state);
    }
}

impl Seen {
    /// The holder of a lock by the server's reply; `None` if the lock is free.
    pub(super) fn of(sight: Option<&Sight>, margin: Ms) -> Option<Self> {
        let sight = sight?;
        let is_free = match sight.now {
            Some(_) => sight.is_free(margin),
            // The change streams of old servers do not have the server's time.
            None => sight.has(""),
        };
        if is_free {
            return None;
        }
        Some(Self {
            lock_id: sight.document.lock_id.text().cloned().unwrap_or_default(),
            held_for: sight.held_for(),
            left: sight.until_free(margin),
            ends: sight.document.expires_at.date(),
        })
    }
}
