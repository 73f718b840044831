//! A lease that outlives its process: it is detached to a handle, resumed by another process, given back if that process
//! gives up, extended and released by the handle. Each change of hands is a change of id.
//!
//! With two names the parts of a command take effect one after the other. A process may do its next step at any time or
//! never, so a crash needs no step of its own; and a message that is not delivered is lost.

mod properties;
mod state;
mod steps;
mod tidy;

use crate::protocol::{ClaimId, DetachedLease, Document, Rules, Time, Token};
use crate::shared::Counts;

type Property = stateright::Property<Detached>;

/// The rule that differs from those of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    Nothing,
    /// A detached lease keeps the id of the hold.
    DetachKeepsId,
    /// A resumed hold keeps the id of the handle.
    ResumeKeepsId,
    /// A resumed hold keeps the token.
    ResumeKeepsToken,
    /// An extension keeps a present end by the rule of a renewal.
    ExtendsLikeRenewal,
    /// The resumption of several names goes on after a name that it does not get.
    Unordered,
    /// A detach looks for the id of the hold alone, and not for its token.
    DetachIgnoresToken,
    /// A process that resumes and gets no name releases both ids.
    LoserReleases,
    /// A process that resumes and gets no name does nothing, although a copy of its request may take effect.
    LoserForgets,
    /// A process that resumes and gets a part releases both ids, although the rest of the lease may be on its way back.
    PartReleases,
    /// A resumption that was given up is given back once only.
    GivesBackOnce,
    /// A resumption is given back also after it was delivered.
    GivesBackDelivered,
}

/// In which order a command that detaches several names takes effect. All others begin with the first name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The first name comes first.
    OfNames,
    /// The first name comes last.
    Reverse,
}

/// Which steps are possible, and by which rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Detached {
    pub(crate) rules: Rules,
    pub(crate) lease: DetachedLease,
    /// How long a lease lasts from an extension.
    pub(crate) extension: Time,
    /// The number of names: one or two.
    pub(crate) names: usize,
    /// Whether the first process holds the lock from the beginning.
    pub(crate) is_held: bool,
    pub(crate) processes: usize,
    /// How often each kind of step happens at most.
    pub(crate) most: Counts,
    /// The last step of the time.
    pub(crate) horizon: Time,
    /// Whether commands may take effect some time after the server has read its clock for them.
    pub(crate) late_effects: bool,
    pub(crate) order: Order,
    pub(crate) changed: Changed,
}

/// The number of a hold: of a claim, a handle or a resumption. It tells holds apart also if a changed rule gives one id to
/// two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hold(u8);

/// From what a hold has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Claim,
    Detached(Hold),
    Resumed(Hold),
}

/// What is known of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct About {
    origin: Origin,
    id: ClaimId,
    /// The tokens of this claim or resumption, if a process has learned them.
    tokens: [Token; 2],
    /// The end of this handle was asked for: it was released, or the process that detached it has given up.
    is_ended: bool,
    /// The number of processes that have resumed this handle, or have got this resumption.
    won: u8,
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    Idle,
    Acquiring(Hold),
    Holding {
        hold: Hold,
        /// Until when the holder relies on the lease, by its own clock.
        deadline: Time,
    },
    /// It relies on the lock no longer.
    Detaching {
        old: Hold,
        handle: Hold,
    },
    Resuming {
        handle: Hold,
        hold: Hold,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    Acquire(Hold),
    Renew(Hold),
    Release(Hold),
    Detach { old: Hold, handle: Hold },
    Resume { handle: Hold, hold: Hold },
    GiveBack { hold: Hold, handle: Hold },
    Extend(Hold),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reply {
    /// All names have the id that was asked for.
    All {
        /// The rest of the lease that ends first.
        remaining: Time,
        tokens: [Token; 2],
    },
    Some {
        /// Each other name has the id of the handle, in a lease that runs, or of another resumption.
        is_whole: bool,
    },
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stage {
    /// The number of parts that have taken effect.
    Parts(usize),
    /// All parts have taken effect, and a query reads the documents.
    Reads,
    Replied(Reply),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Command {
    request: Request,
    /// When it was sent, by the clock of its process, if its reply says how long a lease lasts.
    sent: Time,
    /// The time that the server has read for it, if it takes effect later.
    begun: Option<Time>,
    stage: Stage,
}

/// A command that its process sends again, as long as a copy of an earlier one may take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Owed {
    GiveBack { hold: Hold, handle: Hold },
    Release(Hold),
}

/// The document of one name, and what the properties have to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    document: Option<Document>,
    hold: Option<Hold>,
    /// Until when the detached lease was granted; 0 if the lock is not detached.
    granted: Time,
}

/// What must never happen, and has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools)]
pub(crate) struct Wrongs {
    /// A command for one hold has changed another.
    changed_other: bool,
    /// A detached lease has got an end before the one that was granted.
    cut: bool,
    /// A lock was acquired before the end of its detached lease.
    acquired_early: bool,
    /// A later hold has a token that is not greater.
    token_fell: bool,
    /// A process has released a lease all of whose names were still there.
    lost_lease: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The time of all clocks.
    now: Time,
    /// In an order that says nothing, so that states that differ only in it are one.
    processes: Vec<Phase>,
    names: Vec<Name>,
    commands: Vec<Command>,
    owed: Vec<Owed>,
    holds: Vec<About>,
    done: Counts,
    /// Something has happened after which a handle need not be resumed.
    is_disturbed: bool,
    wrongs: Wrongs,
}

/// A step of the model. A number is the place of a process in the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    TimePasses,
    /// A process begins to acquire the lock.
    Acquire(usize),
    /// A process begins to resume a handle.
    Resume(usize, Hold),
    Detach(usize),
    /// A process sends its request again.
    Repeat(usize),
    GiveUp(usize),
    Renew(Hold),
    Release(usize),
    ExtendHandle(Hold),
    ReleaseHandle(Hold),
    SendAgain(Owed),
    /// A process gives back what was delivered.
    GiveBack(Owed),
    Begins(Command),
    /// The next part of the command takes effect.
    TakesEffect(Command),
    Reads(Command),
    ReplyArrives(Command),
}
