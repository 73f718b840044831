//! The data of the core.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::event::{Effect, Fault, Hold, Join, Lane, Loss, Notice, Outcome, Report, Rules, Seen};
use super::lanes::{Flight, Queue};
use super::once::Period;
use super::order::{Order, part_of};
use super::permit_list::PermitList;
use super::places::Places;
use super::slab::{Key, Slab};
use super::stream::Stream;
use super::time::{Span, Time};
use crate::protocol::{LockId, Ms, Name, Until};

/// The configuration that a provider gives to its core.
#[derive(Debug, Clone)]
pub(crate) struct Conf {
    /// The mark of the provider, in its ids.
    pub(crate) mark: [u8; 6],
    pub(crate) owner: Arc<str>,
    /// Whether a change stream may wake calls.
    pub(crate) may_listen: bool,
    /// The takeover margin: for this time a lock stays taken after its lease has expired.
    pub(crate) margin: Ms,
    /// The shortest and the longest pause between two claims of a call without a change stream.
    pub(crate) retry: (Span, Span),
    pub(crate) places: Places,
}

/// The source of random numbers.
pub(crate) trait Luck {
    /// The random part of an id. It is made with the first row of a claim, so that two copies of one core (a process
    /// that was copied) never use the same id.
    fn id(&mut self) -> u64;

    /// Bits for pauses, once for each event.
    fn chance(&mut self) -> u64;
}

/// The state machine: see [`handle`](Self::handle).
#[derive(Debug, Clone)]
pub(crate) struct Core<C> {
    pub(super) conf: Conf,
    pub(super) rooms: Slab<Room>,
    pub(super) names: HashMap<Name, Key>,
    pub(super) calls: Slab<Call<C>>,
    pub(super) claims: Slab<Claim<C>>,
    pub(super) sets: Slab<Set<C>>,
    pub(super) flights: Slab<Flight>,
    /// The requests that wait in each lane.
    pub(super) lanes: [Queue; 4],
    pub(super) stream: Stream,
    /// The timers, by their times. Each object stores the time of its own timer.
    pub(super) due: BTreeSet<(Time, Due)>,
    pub(super) lanes_due: Option<Time>,
    pub(super) phase: Phase,
    /// The number of calls that a reply can end: single attempts, and calls for work that may succeed once.
    pub(super) asking: usize,
    /// The state of the random numbers of the event that is being handled.
    pub(super) luck: u64,
    /// The estimated time of one command, without slow ones, and the number of commands on which the estimate is based.
    pub(super) trip: Span,
    pub(super) trips: u8,
    pub(super) effects: Vec<Effect<C>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Due {
    Call(Key),
    Claim(Key),
    Room(Key),
    Lanes,
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Open,
    /// Only calls under a hold may begin.
    Draining,
    Closed,
}

/// A caller that waits.
#[derive(Debug, Clone, Hash)]
pub(super) struct Caller<C> {
    pub(super) join: Join<C>,
    pub(super) begun: Time,
}

/// A caller that waits for a lock or for a permit.
#[derive(Debug, Clone, Hash)]
pub(super) struct Call<C> {
    pub(super) caller: Caller<C>,
    pub(super) room: Key,
    /// The call takes any of the first `width` permits; 0 for a lock.
    pub(super) width: u32,
    pub(super) period: Option<Period>,
    /// The first command for the lock that was sent since the call began, if a reply can end the call.
    pub(super) asked: Option<Key>,
    /// The set that waits with it for one of its locks.
    pub(super) set: Option<Key>,
    /// Whether another claim had the lock, or another call was before this one, at any time since it began.
    pub(super) has_waited: bool,
    pub(super) due: Option<Time>,
}

/// A lock, or all permits of a semaphore, in this process.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Room {
    pub(super) name: Name,
    pub(super) queue: VecDeque<Key>,
    /// Whether a call of this process has ever waited for another one in this room: then its claims reserve tokens for
    /// hand-overs.
    pub(super) is_shared: bool,
    /// All claims for the lock, also those for which no call waits.
    pub(super) claims: Vec<Key>,
    /// The claim that asks for the lock, holds it or is being released. For a semaphore: the claim that asks.
    pub(super) turn: Option<Key>,
    /// The first call does not ask before this time. Then it looks first, if no event of the change stream has arrived.
    pub(super) pause_until: Time,
    pub(super) looks: bool,
    /// The number of replies in a row that said that another process has the lock.
    pub(super) misses: u32,
    /// Whether the lock was released while a command was in flight: the reply to that command is outdated.
    pub(super) is_outdated: bool,
    /// The last known holder, and the failure of the last command, with their times.
    pub(super) seen: Option<(Time, Seen)>,
    pub(super) fault: Option<(Time, Fault)>,
    /// The last command that was sent to ask for the lock.
    pub(super) asked_by: Option<Key>,
    /// The time of the last reply, of the last command that asks, and of the last use.
    pub(super) replied: Time,
    pub(super) asked: Time,
    pub(super) used: Time,
    pub(super) order: Order,
    pub(super) permits: PermitList,
    /// The claims that ask for other permits beside that of the turn.
    pub(super) beside: Vec<Key>,
    /// The first filter of the change stream that includes the lock, if the stream is to report the lock.
    pub(super) filter: Option<u32>,
    pub(super) due: Option<Time>,
}

/// An id that has a lock, or may get one.
#[derive(Debug, Clone, Hash)]
pub(super) struct Claim<C> {
    /// `None` before its first command.
    pub(super) id: Option<LockId>,
    pub(super) room: Key,
    /// The permit that the claim is for.
    pub(super) permit: Option<u32>,
    pub(super) rules: Rules,
    pub(super) stage: Stage<C>,
    /// The number of tokens that the claim reserves, one for each hold; 0 before its first command.
    pub(super) tokens: i64,
    /// The token of the present hold, and the last one of those that the claim has reserved.
    pub(super) token: i64,
    pub(super) last: i64,
    /// The end of the mark of its work, and the earliest time of this process at which that end can be.
    pub(super) mark_until: Option<(Until, Time)>,
    /// The claim resumes a detached lease with this id. If the resumption is given up, the lease gets this id back and
    /// lasts for this time.
    pub(super) resumes: Option<(LockId, Ms)>,
    /// When the turn of its hand-overs began, and the number of calls of that time that have not had the lock yet.
    pub(super) turn_since: Time,
    pub(super) turn_left: usize,
    /// The lane in which the claim waits. Its key in any other lane is ignored.
    pub(super) in_lane: Option<Lane>,
    /// Whether the claim also waits in the lane of renewals.
    pub(super) renews: bool,
    /// The number of its claims in flight, and when the last one was sent.
    pub(super) flights: u8,
    pub(super) sent: Time,
    /// The number of commands in flight that end it.
    pub(super) ends: u8,
    /// Whether a claim may take effect that has ended without a reply. After `dead_at` none can.
    pub(super) is_unclear: bool,
    pub(super) dead_at: Time,
    pub(super) commits: Commits<C>,
    /// The set of the claim, and whether the set may acquire its lock only after other locks of the set.
    pub(super) set: Option<Key>,
    pub(super) is_later: bool,
    pub(super) due: Option<Time>,
}

#[derive(Debug, Clone, Hash)]
pub(super) enum Stage<C> {
    /// The claim asks for the first call of its room, whichever call that is when the reply arrives; or it resumes a
    /// lease for its set.
    Asking,
    Held(C, Lease),
    /// A command ends it.
    Ending(Closing<C>),
    /// It is released once more when its last claim can no longer take effect.
    Released,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Lease {
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

/// The waiter for the end of a claim: a caller, or a set, which ends with the last one of its claims.
#[derive(Debug, Clone, Hash)]
pub(super) enum Awaits<C> {
    Caller(C),
    Set(Key),
}

/// The command that ends a claim.
#[derive(Debug, Clone, Hash)]
pub(super) struct Closing<C> {
    pub(super) end: End,
    /// It is renewed until it has its other id.
    pub(super) lease: Option<Lease>,
    pub(super) waiter: Option<Awaits<C>>,
    /// The caller that waits for the release is notified by this time; the release is repeated after it.
    pub(super) answer_by: Time,
    /// How often the command was sent and may have been applied.
    pub(super) tries: u8,
    /// When the command is sent next, and after which time it is not repeated.
    pub(super) due: Time,
    pub(super) stop: Time,
    pub(super) fault: Option<Fault>,
    /// The number of commands in flight that were sent before: as many replies do not count.
    pub(super) earlier: u8,
    /// The next call waits for the reply to the release.
    pub(super) in_turn: bool,
    /// A late copy of the claim has acquired the lock since the release began.
    pub(super) is_acquired_again: bool,
}

/// The transactions that commit only under this claim.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Commits<C> {
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
    pub(super) unknown: Option<Unknown<C>>,
    /// The end of the hold that was postponed while a transaction was in progress.
    pub(super) postponed: Option<Postponed<C>>,
}

/// A transaction with an unknown outcome. A renewal shows the outcome: it is a write that waits in the server for the
/// end of the transaction, and changes nothing else. The result of a read could be rolled back.
#[derive(Debug, Clone, Hash)]
pub(super) struct Unknown<C> {
    /// The caller that waits for the outcome, until the limit.
    pub(super) waiter: Option<C>,
    pub(super) limit: Time,
    /// Only a renewal that was sent after this time shows the outcome: the first one since then, or a later one.
    pub(super) since: Time,
    pub(super) asked: Option<Key>,
}

/// The end of a hold that waits for its commits.
#[derive(Debug, Clone, Hash)]
pub(super) enum Postponed<C> {
    Ending(Option<Awaits<C>>),
    Loss(Loss),
}

/// Several locks of one caller. The set acquires them in the order of their names, and keeps the acquired ones while it
/// waits for the next one.
#[derive(Debug, Clone, Hash)]
pub(super) struct Set<C> {
    pub(super) caller: Caller<C>,
    pub(super) names: Vec<Name>,
    /// The claims that it has, of the first names; those that resume its leases from the beginning.
    pub(super) won: Vec<Key>,
    /// The calls that wait for the next locks.
    pub(super) calls: Vec<Key>,
    /// Whether one of its calls has waited for another holder.
    pub(super) has_waited: bool,
    /// Once its holder is done: who waits for its end, the number of its claims that have not ended yet, and how the others have.
    pub(super) waiter: Option<Awaits<C>>,
    pub(super) left: usize,
    pub(super) ended: Option<Outcome>,
}

impl<C: Clone> Core<C> {
    pub(crate) fn new(conf: Conf, now: Time) -> Self {
        Self {
            rooms: Slab::default(),
            names: HashMap::new(),
            calls: Slab::default(),
            claims: Slab::default(),
            sets: Slab::default(),
            flights: Slab::default(),
            lanes: Default::default(),
            stream: Stream::new(conf.may_listen, now),
            due: BTreeSet::new(),
            lanes_due: None,
            phase: Phase::Open,
            asking: 0,
            luck: 0,
            trip: 0,
            trips: 0,
            effects: Vec::new(),
            conf,
        }
    }

    /// The time of the next timer.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The effects since the last call.
    pub(crate) fn take_effects(&mut self) -> std::vec::Drain<'_, Effect<C>> {
        self.effects.drain(..)
    }

    /// Whether nothing is held, awaited or being released. Releases that may be repeated later do not count.
    pub(crate) fn is_idle(&self) -> bool {
        // A claim in flight may arrive after its release.
        let is_gone = |claim: &Claim<C>| matches!(claim.stage, Stage::Released) && claim.flights == 0;
        let mut claims = self.claims.iter();
        self.calls.is_empty() && claims.all(|(_, claim)| is_gone(claim) || claim.is_refused())
    }

    /// Whether nothing is left except knowledge about locks.
    #[allow(dead_code, reason = "only the explorer asks, which compiles this file")]
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.claims.is_empty() && self.sets.is_empty()
    }

    pub(super) fn due_of(&mut self, due: Due) -> Option<&mut Option<Time>> {
        match due {
            Due::Call(key) => self.calls.get_mut(key).map(|call| &mut call.due),
            Due::Claim(key) => self.claims.get_mut(key).map(|claim| &mut claim.due),
            Due::Room(key) => self.rooms.get_mut(key).map(|room| &mut room.due),
            Due::Lanes => Some(&mut self.lanes_due),
            Due::Stream => Some(&mut self.stream.due),
        }
    }

    /// Sets a timer. If an earlier timer is set, it is kept: a timer that fires too early sets itself again.
    pub(super) fn arm(&mut self, due: Due, at: Time) {
        let Some(armed) = self.due_of(due) else { return };
        let before = *armed;
        if before.is_none_or(|before| before > at) {
            *armed = Some(at);
            if let Some(before) = before {
                self.due.remove(&(before, due));
            }
            self.due.insert((at, due));
        }
    }

    pub(super) fn disarm(&mut self, due: Due) {
        if let Some(at) = self.due_of(due).and_then(Option::take) {
            self.due.remove(&(at, due));
        }
    }

    /// A random number from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub(super) fn draw(&mut self) -> f64 {
        self.luck ^= self.luck << 13;
        self.luck ^= self.luck >> 7;
        self.luck ^= self.luck << 17;
        (self.luck >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn draw_between(&mut self, bounds: (Span, Span)) -> Span {
        part_of(bounds, self.draw())
    }

    /// Whether a claim of this core has this id, whatever form the id has.
    pub(super) fn is_own(&self, room: &Room, id: &str) -> bool {
        room.claims.iter().any(|key| self.claims[*key].has_id(id))
    }

    /// Whether a claim of this core that is not held has this id: the lock comes back to this process. What is held without a turn,
    /// as a resumed lease is, does not.
    pub(super) fn comes_back(&self, room: &Room, id: &str) -> bool {
        let mut claims = room.claims.iter().map(|key| &self.claims[*key]);
        claims.any(|claim| claim.has_id(id) && !claim.is_held())
    }

    /// The claims of a hold.
    pub(super) fn claims_of(&self, hold: Hold) -> Vec<Key> {
        match hold {
            Hold::One(claim, token) => {
                let is_present = self.claims.get(claim).is_some_and(|own| own.token == token);
                is_present.then_some(claim).into_iter().collect()
            }
            Hold::Set(set) => self.sets.get(set).map_or_else(Vec::new, |set| set.won.clone()),
        }
    }

    /// The first call of a room.
    pub(super) fn first(&self, room: &Room) -> Option<&Call<C>> {
        room.queue.front().map(|call| &self.calls[*call])
    }

    pub(super) fn tell(&mut self, report: Report<C>) {
        self.effects.push(Effect::Report(report));
    }

    /// Notifies a caller, if there is one.
    pub(super) fn notify(&mut self, cell: impl Into<Option<C>>, notice: Notice) {
        self.effects
            .extend(cell.into().map(|cell| Effect::Notify(cell, notice)));
    }
}

impl<C> Claim<C> {
    pub(super) fn has_id(&self, id: &str) -> bool {
        self.id.as_deref() == Some(id)
    }

    pub(super) fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking)
    }

    pub(super) fn is_held(&self) -> bool {
        self.held().is_some()
    }

    pub(super) fn lease_mut(&mut self) -> Option<&mut Lease> {
        match &mut self.stage {
            Stage::Held(_, lease) => Some(lease),
            Stage::Ending(closing) => closing.lease.as_mut(),
            _ => None,
        }
    }

    pub(super) fn held(&self) -> Option<(&C, &Lease)> {
        match &self.stage {
            Stage::Held(cell, lease) => Some((cell, lease)),
            _ => None,
        }
    }

    /// The cell that holds the claim, or waits for the end of its hold.
    pub(super) fn holder(&self) -> Option<&C> {
        match &self.stage {
            Stage::Held(cell, _)
            | Stage::Ending(Closing {
                waiter: Some(Awaits::Caller(cell)),
                ..
            }) => Some(cell),
            _ => None,
        }
    }

    pub(super) fn closing_mut(&mut self) -> Option<&mut Closing<C>> {
        match &mut self.stage {
            Stage::Ending(closing) => Some(closing),
            _ => None,
        }
    }
}

impl<C> Call<C> {
    /// Whether a reply can end the call.
    pub(super) fn can_end_by_reply(&self) -> bool {
        self.caller.join.is_try || self.caller.join.rules.once.is_some()
    }
}

/// Cores that differ only in random numbers and in the order of timers have the same hash.
impl<C: Hash> Hash for Core<C> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rooms.hash(state);
        self.calls.hash(state);
        self.claims.hash(state);
        self.sets.hash(state);
        self.flights.hash(state);
        self.lanes.hash(state);
        self.stream.hash(state);
        self.phase.hash(state);
        (self.trip, self.trips).hash(state);
    }
}
