//! The data of a claim: its stage, its lease, how it ends, and the transactions under it.

use std::sync::Arc;

use super::event::{Fault, Lane, LossReason, Rules};
use super::slab::Key;
use super::time::Time;
use crate::protocol::{LockId, Ms, Until};

/// An id that has a lock, or may get one.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Claim {
    /// `None` before its first command.
    pub(super) id: Option<LockId>,
    pub(super) room: Key,
    /// The permit that the claim is for.
    pub(super) permit: Option<u32>,
    pub(super) rules: Arc<Rules>,
    pub(super) stage: Stage,
    /// Its lease, while it is held or gets another id.
    pub(super) lease: Option<LeaseTimes>,
    /// Its holder, or the caller that resumes a lease with it.
    pub(super) caller: Option<Key>,
    /// The number of tokens that the claim reserves, one for each hold; 0 before its first command.
    pub(super) tokens: i64,
    /// The token of the present hold, and the last one of those that the claim has reserved.
    pub(super) token: i64,
    pub(super) last: i64,
    /// The end of the mark of its work, and the earliest time of this process at which that end can be.
    pub(super) mark_until: Option<Box<(Until, Time)>>,
    /// The claim resumes a detached lease with this id. If the resumption is given up, the lease gets this id back and
    /// lasts for this time.
    pub(super) resumes: Option<Box<(LockId, Ms)>>,
    /// When the turn of its hand-overs began, and the number of calls of that time that have not had the lock yet.
    pub(super) turn_since: Time,
    pub(super) turn_left: usize,
    /// Whether the claim waits in a lane, for each lane. If it does not, its key there is ignored.
    pub(super) in_lane: [bool; 4],
    /// The number of its claims in flight, and when the last one was sent.
    pub(super) flights: u8,
    pub(super) sent: Time,
    /// When its claim, or the command that ends it, is sent once more if it has no reply by then.
    pub(super) again_at: Time,
    /// The time until which a claim may take effect that has ended without a reply; `None` if there is none.
    pub(super) unclear_until: Option<Time>,
    pub(super) commits: Commits,
    pub(super) due: Option<Time>,
}

/// How far a claim has come.
#[derive(Debug, Clone, Default, Hash)]
pub(super) enum Stage {
    /// The claim asks for the first caller of its room, whichever caller that is when the reply arrives; or it resumes a
    /// lease for its caller.
    #[default]
    Asking,
    Held,
    /// A command ends it.
    Ending(Box<Closing>),
    /// It is released once more when its last claim can no longer take effect.
    Released,
}

/// The times of a lease, and what is known about its renewals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LeaseTimes {
    /// The end of the lease for its holder.
    pub(super) until: Time,
    pub(super) renew_at: Time,
    /// The lease is not renewed after this time.
    pub(super) renewable_until: Time,
    /// The server may keep the lease for longer: a renewal is not confirmed, or the last command has taken long.
    pub(super) may_last: bool,
    /// The server has ended its last renewal, which went alone, because another operation blocks its document.
    pub(super) is_blocked: bool,
}

/// What becomes of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum End {
    /// It is released, and the lock stays taken for so long since it was acquired; or the lease that it resumes is given back.
    Release(Ms),
    /// It gets another id: that of the mark of its work, or that of a detached lease, which lasts for this long.
    Mark(Until),
    Detach(LockId, Ms),
}

/// The command that ends a claim.
#[derive(Debug, Clone, Hash)]
pub(super) struct Closing {
    pub(super) end: End,
    /// The holder that has ended its hold so.
    pub(super) of: Option<Key>,
    /// The caller that waits for the release is notified by this time; the release is repeated after it.
    pub(super) answer_by: Time,
    /// How often the command was sent and may have been applied.
    pub(super) tries: u8,
    /// The command is not repeated after this time.
    pub(super) stop: Time,
    pub(super) fault: Option<Fault>,
    /// The number of commands that were sent before: no reply to one of them counts.
    pub(super) after: u64,
    /// A late copy of the claim has acquired the lock since the release began.
    pub(super) is_acquired_again: bool,
}

/// The transactions that commit only under this claim.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Commits {
    /// The number of transactions in progress.
    pub(super) open: u8,
    /// Whether one of them marks the work as done: then a renewal that finds another id decides nothing.
    pub(super) marks: bool,
    /// Whether one has an unknown outcome and may still be made: then the claim is not handed over, and its release
    /// waits in the server for that transaction.
    pub(super) is_unclear: bool,
    /// The end of the mark of a transaction that may be made: the holder does not rely on the lease for longer.
    pub(super) mark_ends: Option<Time>,
    /// A transaction that marks the work and has an unknown outcome.
    pub(super) unknown: Option<Box<Unknown>>,
    /// The end of the hold that was postponed while a transaction was in progress.
    pub(super) postponed: Option<Postponed>,
}

/// A transaction with an unknown outcome. A renewal shows the outcome: it is a write that waits in the server for the
/// end of the transaction, and changes nothing else. The result of a read could be rolled back.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct Unknown {
    /// The holder waits for the outcome until this time.
    pub(super) limit: Time,
    /// The number of commands that were sent before: only a later renewal shows the outcome.
    pub(super) after: u64,
}

/// The end of a hold that waits for its commits.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) enum Postponed {
    Ending,
    Loss(LossReason),
}

impl Claim {
    pub(super) fn waits_in(&self, lane: Lane) -> bool {
        self.in_lane[lane as usize]
    }

    pub(super) fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking)
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held)
    }

    pub(super) fn closing_mut(&mut self) -> Option<&mut Closing> {
        match &mut self.stage {
            Stage::Ending(closing) => Some(closing),
            _ => None,
        }
    }
}
