//! One lock and the processes that want it: requests that are late, lost or overtaken, pauses, the TTL index, a peer that
//! deletes documents, and elections between two members.
//!
//! A process may do its next step at any time or never, so a crash and a pause need no step of their own. The same is true
//! of messages: one that is never delivered is lost, and one that is delivered after others is late.

mod state;
mod steps;

use crate::protocol::{ClaimId, Document, Reply, Rules, Time, Token};

// The properties that cases must break.
pub(crate) const ONE_HOLDER: &str = "no two processes rely on the lock";
pub(crate) const RISES: &str = "a later holder has a greater token";
pub(crate) const IN_ORDER: &str = "fenced writes take effect in the order of the holders";

/// How often something happens in all processes together: so far in a state, and at most in a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Counts {
    /// A process begins to acquire the lock, with a claim of its own.
    pub(crate) claims: u8,
    /// The primary changes.
    pub(crate) elections: u8,
}

/// Which steps are possible, and by which rules.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools)]
pub(crate) struct Lease {
    /// The rules of the processes that use the library.
    pub(crate) rules: Rules,
    /// The number of processes that use the library.
    pub(crate) processes: usize,
    /// Whether there is one more, which uses DistributedLock.MongoDB.
    pub(crate) has_peer: bool,
    /// How often each kind of step happens at most, in all processes together.
    pub(crate) most: Counts,
    /// The last step of the time.
    pub(crate) horizon: Time,
    /// Whether commands may take effect some time after the server has read its clock for them.
    pub(crate) late_effects: bool,
    /// After which time from its end the TTL index removes a document.
    pub(crate) retention: Option<Time>,
    /// Whether a document can be deleted within the step of the clock in which its lease began.
    pub(crate) deletes_at_once: bool,
    /// Whether the data refuses a write with a smaller token than it has seen.
    pub(crate) is_fenced: bool,
    /// How far the clocks of the two members are ahead.
    pub(crate) clocks: [Time; 2],
    /// Whether a reply waits until a majority has the write.
    pub(crate) majority: bool,
}

impl Lease {
    fn rules_of(&self, command: &Command) -> Rules {
        if !command.by_peer {
            return self.rules;
        }
        Rules {
            takeover_margin: 0,
            is_peer: true,
            ..self.rules
        }
    }

    /// Whether the command would delete the document within the step in which its lease began: tokens that follow the time
    /// need a later one.
    fn is_too_early(&self, state: &State, command: &Command) -> bool {
        let deletes = command.request == Request::Release && self.rules_of(command).is_peer;
        let begun = state.stored.document.map(|document| document.acquired_at);
        deletes && !self.deletes_at_once && begun == Some(state.server_time(self))
    }
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    Idle,
    Acquiring(ClaimId),
    Holding {
        claim: ClaimId,
        /// Until when the holder relies on the lease, by its own clock.
        deadline: Time,
    },
}

/// A write to the guarded data, which may arrive at any time after the holder has looked whether it has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Write {
    token: Token,
    grant: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Process {
    pub(crate) phase: Phase,
    /// Whether it uses DistributedLock.MongoDB.
    is_peer: bool,
    /// A write of the holder that is on its way. Each holder sends one.
    write: Option<Write>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    Acquire,
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stage {
    /// On its way to the server.
    Sent,
    /// In the server, which has read its clock for it.
    Begun { now: Time },
    /// The reply is on its way.
    Replied {
        reply: Reply,
        /// The number of the grant that the document had then.
        grant: u8,
        /// The number of the write that a majority must have before the reply is sent.
        after: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Command {
    pub(crate) request: Request,
    pub(crate) claim: ClaimId,
    by_peer: bool,
    /// When it was sent, by the clock of its process.
    pub(crate) sent: Time,
    pub(crate) stage: Stage,
}

/// What a member of the replica set has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Stored {
    pub(crate) document: Option<Document>,
    /// The number of the grant by which the present claim has the lock.
    grant: u8,
    /// The number of writes.
    version: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The time of the processes' clocks.
    pub(crate) now: Time,
    /// In an order that says nothing, so that states that differ only in it are one.
    pub(crate) processes: Vec<Process>,
    pub(crate) commands: Vec<Command>,
    /// What the primary has.
    pub(crate) stored: Stored,
    /// What a majority has.
    committed: Stored,
    primary: u8,
    done: Counts,
    /// The number of grants so far.
    grants: u8,
    /// The grant with the greatest number of which a process has learned, and its token.
    last_known: (u8, Token),
    /// The greatest token that the data has accepted, and the last grant.
    data: (Token, u8),
    /// A later grant has had a token that is not greater.
    has_token_fallen: bool,
    /// The data has accepted a write after one of a later holder.
    has_taken_stale_write: bool,
    /// The data has refused a write of the last holder.
    has_refused_last_holder: bool,
}

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    TimePasses,
    /// The process with this place in the state sends a first request.
    Acquire(usize),
    GiveUp(ClaimId),
    Release(ClaimId),
    WriteArrives(Write),
    Begins(Command),
    TakesEffect(Command),
    ReplyArrives(Command),
    TtlIndexDeletes,
    MajorityHasIt,
    Election,
}

impl Process {
    fn claim(&self) -> Option<ClaimId> {
        match self.phase {
            Phase::Idle => None,
            Phase::Acquiring(claim) | Phase::Holding { claim, .. } => Some(claim),
        }
    }
}
