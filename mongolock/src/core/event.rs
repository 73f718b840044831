//! What the core is told, and what it wants to have done. `C` stands for a caller, and later for its hold.

use std::error::Error;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::once::Once;
use super::slab::Key;
use super::time::{Span, Time};
use crate::protocol::text::is_mark;
use crate::protocol::{LockId, Ms, Name, News, Order, Reply, Row, Sight, Until};

/// The options of a call and of its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    /// How long a lease lasts without a renewal.
    pub(crate) expiry: Ms,
    /// How often it is renewed.
    pub(crate) renew_every: Ms,
    /// For how long it is renewed; `None` is no limit.
    pub(crate) max_hold: Option<Ms>,
    /// For how long the lock stays taken at least.
    pub(crate) min_hold: Ms,
    /// How often the work under the lock may succeed; `None` is any number of times.
    pub(crate) once: Option<Once>,
}

/// A call.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Join<C> {
    pub(crate) rules: Rules,
    /// The time after which the call fails; `None` is no limit.
    pub(crate) limit: Option<Span>,
    /// Whether it fails as soon as the lock is known to be held.
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
    /// All these locks, in the order of their names and without any twice.
    All(Vec<Name>),
    /// These detached leases: their names with the ids that they have. One that is given up gets its id back, for this long.
    Leases(Vec<(Name, LockId)>, Ms),
}

/// What happens.
#[derive(Debug, Clone)]
pub(crate) enum Event<C> {
    /// A call begins.
    Join(Wanted, Join<C>),
    /// The caller waits no longer.
    Leave(Waiter),
    /// The holder is done. The cell is notified when its hold has ended.
    End(Hold, Ending, Option<C>),
    /// A transaction that commits only if the lock is still held is about to change the documents. If it `marks`, it also marks the
    /// work as done.
    CommitBegins { hold: Hold, marks: bool },
    /// It has ended, or nobody waits for it any longer. The cell is notified of what is found out about an unknown outcome.
    CommitEnds {
        hold: Hold,
        marks: bool,
        was_made: Option<bool>,
        awaited: Option<C>,
    },
    /// An operator of this process has released locks by force: the hold of this lock is renewed at once, or all are.
    Renew(Option<Name>),
    /// These ids of detached leases have no handle that anybody has.
    Discard(Vec<(Name, LockId)>),
    /// A command has its replies, one for each row, or has failed.
    Ran(Key, Result<Vec<Reply>, Fault>),
    /// The same of a look.
    Looked(Key, Result<Vec<Saw>, Fault>),
    /// A change stream with this number is open.
    Opened(u32),
    /// There is no change stream now; with `is_lasting` there will be none for long.
    Closed { is_lasting: bool },
    /// The change stream reports a lock.
    News(News),
    /// The time of [`Core::next_due`](super::Core::next_due) has come.
    Tick,
    /// No call begins any more, except under holds; once it `is_closed`, every call fails and every lease ends.
    Shutdown { is_closed: bool },
}

/// A call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Waiter {
    One(Key),
    Set(Key),
}

/// A hold: a claim with a token, because its claim may be handed over to the next hold, or a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Hold {
    One(Key, i64),
    Set(Key),
}

/// How a holder ends its hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Ending {
    Release,
    /// The caller has gone before it had the hold, so there is no minimum hold.
    Untaken,
    /// The work has succeeded, and need not be done again for a time.
    Done,
    /// The lease lasts on with these ids, one for each name, for this long.
    Detach(Vec<LockId>, Ms),
}

/// What is to be done, in this order.
#[derive(Debug, Clone)]
pub(crate) enum Effect<C> {
    /// Send a command with this limit at the server.
    Run(Key, Vec<Row>, Order, Span),
    Look(Key, Vec<Look>, Span),
    Notify(C, Notice),
    /// Open the change stream with this number, for these locks or for all, and then close the one before.
    Watch(u32, Option<Vec<Name>>),
    Unwatch,
    Report(Report<C>),
    /// After a shutdown nothing is held, awaited or being released.
    Idle,
}

/// What has happened that an operator may want to know.
#[derive(Debug, Clone)]
pub(crate) enum Report<C> {
    /// A command has failed.
    Failed(Failed<C>),
    /// Another process has the lock for which this is the first caller, for this long if its lease is not renewed, and the next
    /// command is sent after this pause.
    Waiting(C, Name, Option<Ms>, Span),
    /// A permit with this number is held, and the callers here give a smaller number of permits.
    PermitsDiffer(Name, u32, u32),
}

/// A command that has failed.
#[derive(Debug, Clone)]
pub(crate) struct Failed<C> {
    pub(crate) lane: Lane,
    /// For so many locks, of which this is the first.
    pub(crate) number: usize,
    pub(crate) name: Name,
    /// The holder of that one, or who waits for its end or for the lock.
    pub(crate) cell: Option<C>,
    pub(crate) fault: Fault,
    /// It is repeated after this pause, if it is.
    pub(crate) pause: Option<Span>,
}

/// What the commands of a lane do. Those that matter most come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lane {
    Renewals,
    Ends,
    Claims,
    Looks,
}

/// What a look reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Look {
    Lock(Name),
    /// All permits of the semaphore of this name, with the separator at its end.
    Permits(Name),
}

/// What a look has found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Saw {
    /// The document of the lock.
    Lock(Option<Sight>),
    /// The documents of the permits, by their numbers.
    Permits(Vec<(u32, Sight)>),
}

/// What a caller or a holder is notified of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Notice {
    /// It has the lock; the lease lasts until this time.
    Held(Hold, Grant, Time),
    /// It has all locks of its set, or the lease that it resumes, in the order of the names.
    HeldAll(Hold, Vec<Grant>, Time),
    /// The lease lasts until this time; it is an earlier one if a transaction may have marked the work.
    Extended(Time),
    /// The hold is lost.
    Lost(Loss),
    /// The hold has ended, and how; or the last failure of the command that ends it, which may have been applied.
    Ended(Outcome),
    /// Whether the transaction was made whose outcome was unknown, or why that is not known.
    Committed(Result<bool, Option<Fault>>),
    /// The call has no lock.
    Failed(Box<Failure>),
}

/// What a holder has for one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    /// The id of the claim.
    pub(crate) id: LockId,
    pub(crate) token: i64,
    /// The number of the permit, if it is one.
    pub(crate) permit: Option<u32>,
    /// Until when the mark of its work stands, if it may succeed only once.
    pub(crate) mark: Option<Until>,
    /// Whether the call has waited for another holder.
    pub(crate) has_waited: bool,
}

/// Why a hold is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Loss {
    /// Its lease has ended without a renewal.
    Expired,
    /// Its claim has the lock no longer.
    Gone,
    ShutDown,
}

/// How a hold has ended, or the last failure of the command that ends it.
pub(crate) type Outcome = Result<Ended, Option<Fault>>;

/// How a hold has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Ended {
    /// It was held until its release.
    Released,
    /// The same, and its claim has gone to the next call in this process.
    HandedOver,
    /// Its work is marked as done.
    Marked,
    Detached,
    /// Its claim did not have the lock any more.
    Lost,
}

/// Why a call has no lock, with what was seen last of the lock, and the last failure of a command for it, and how old they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    /// The lock that the call has waited for, if it has begun.
    pub(crate) name: Option<Name>,
    /// The time since the last reply, if a command for the lock is under way.
    pub(crate) silent_for: Span,
    pub(crate) seen: Option<(Span, Seen)>,
    pub(crate) fault: Option<(Span, Fault)>,
}

/// Why a call has no lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// A single try has found it held.
    Busy,
    /// The work is marked as done.
    Done,
    /// The period of the call is over.
    PeriodOver,
    Timeout,
    /// The server refuses the command, and would refuse it again.
    Refused,
    /// For long no command had a reply.
    Unanswered,
    /// The lease that was to be resumed does not exist any more, or its time is over.
    Gone,
    Expired,
    ShutDown,
}

/// Who has a lock, as the server has said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The text of the id; empty if the document has none, or one that is no text.
    pub(crate) lock_id: LockId,
    /// The time since the lock was acquired; `None` if that is not known.
    pub(crate) held_for: Option<Ms>,
    /// The time until the lock is free without a renewal or a release; `None` if that is not known.
    pub(crate) left: Option<Ms>,
    /// The end in the document, by the server's clock.
    pub(crate) ends: Option<Ms>,
}

/// Why a command has no reply, or an error as its reply.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) error: Arc<dyn Error + Send + Sync>,
}

/// What a fault says about the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FaultKind {
    /// It may have been applied, or may be yet.
    Unclear,
    /// It was not applied and will not be.
    NotApplied,
    /// No server can be reached: a single try ends.
    Unreachable { may_be_applied: bool },
    /// The server has ended it at its limit, because another operation blocks a document.
    Blocked,
    /// The server refuses it, and would refuse it again.
    Lasting,
    /// The same of one that may have been applied: its document is damaged, or its outcome may not be read.
    Damaged,
    /// The server has rejected it because of its load. Of a command with several parts those before may have been applied.
    Overloaded { may_be_applied: bool },
}

impl FaultKind {
    /// Whether it is refused, and would be again.
    pub(crate) fn is_lasting(self) -> bool {
        matches!(self, Self::Lasting | Self::Damaged)
    }

    /// Whether the command may have been applied, or may be yet.
    pub(super) fn is_unclear(self) -> bool {
        matches!(
            self,
            Self::Unclear
                | Self::Damaged
                | Self::Overloaded { may_be_applied: true }
                | Self::Unreachable { may_be_applied: true }
        )
    }
}

/// By their kinds: what an error says changes nothing.
impl PartialEq for Fault {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for Fault {}

impl Hash for Fault {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
    }
}

/// Without the end in the document, which is only told.
impl Hash for Seen {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.lock_id, self.held_for, self.left).hash(state);
    }
}

impl Seen {
    /// What the server said of a lock that is taken; `None` if it is free.
    pub(super) fn of(sight: Option<&Sight>, margin: Ms) -> Option<Self> {
        let sight = sight?;
        let is_free = match sight.now {
            Some(_) => sight.is_free(margin),
            // The change streams of old servers have no time.
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

    /// Whether the lock is taken by the mark of work that is done.
    pub(super) fn is_mark(&self) -> bool {
        is_mark(&self.lock_id)
    }
}
