//! The data of the core, its callers and rooms, and what is asked of them.

use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub(super) use super::claim::{Claim, Closing, End, LeaseTimes, Postponed, Stage, Unknown};
use super::event::{Effect, EndResult, Fault, Join, Rules, Seen};
use super::keys::Keys;
use super::lanes::{Flight, Queue};
use super::once::Period;
use super::order::{Order, part_of};
use super::permit_list::PermitList;
use super::places::Places;
use super::slab::{Key, Slab};
use super::stream::Stream;
use super::time::{Span, Time};
use crate::protocol::{LockId, Ms, Name};

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
    pub(super) callers: Slab<Caller<C>>,
    pub(super) claims: Slab<Claim>,
    /// A claim with the options of the last call, from which others are made: calls with the same options share them.
    pub(super) blank: Claim,
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
    /// The number of commands that were sent. The reply to a command says nothing of what has happened since.
    pub(super) commands: u64,
    /// The state of the random numbers of the event that is being handled.
    pub(super) luck: u64,
    /// The estimated time of one command, without slow ones, and the number of commands on which the estimate is based.
    pub(super) trip: Span,
    pub(super) trips: u8,
    pub(super) effects: Vec<Effect<C>>,
}

/// What a timer of the core concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Due {
    Caller(Key),
    Claim(Key),
    Room(Key),
    Lanes,
    Stream,
}

/// Which calls may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Open,
    /// Only calls under a hold may begin.
    Draining,
    Closed,
}

/// A caller, from the beginning of its call until its hold has ended.
///
/// It acquires its locks in the order of their names, and keeps the acquired ones while it waits for the next one.
#[derive(Debug, Clone, Hash)]
pub(super) struct Caller<C> {
    pub(super) rules: Arc<Rules>,
    pub(super) join: Join<C>,
    pub(super) begun: Time,
    /// The names of its set, or of the leases that it resumes. A caller of one lock or permit has its room from the beginning.
    pub(super) names: Box<[Name]>,
    /// The caller takes any of the first `width` permits; 0 for locks.
    pub(super) width: u32,
    /// Whether it waits: it has not got all of its locks, and has not left.
    pub(super) waits: bool,
    /// The rooms in whose queues it waits: that of its next lock, and those of later locks for which the same command asks. It waits in
    /// none for leases that it resumes.
    pub(super) rooms: Keys,
    /// Its claims, of the first names; those that resume its leases from the beginning.
    pub(super) won: Keys,
    /// The handles of the leases that it has resumed, and how long the leases last if it does not take its hold.
    pub(super) resumed: Box<[Box<(LockId, Ms)>]>,
    /// The number of commands that were sent before it began to wait in these rooms: no reply to one of them ends its call.
    pub(super) after: u64,
    pub(super) period: Option<Box<Period>>,
    /// Whether another claim had a lock, or another caller was before this one, at any time since its call began.
    pub(super) has_waited: bool,
    /// Whether it has left before it took its hold, which then has no minimum.
    pub(super) is_untaken: bool,
    pub(super) due: Option<Time>,
    /// The cell that waits for the outcome of a transaction.
    pub(super) asks_outcome: Option<C>,
    /// Once its holder is done: who waits for its end, the number of its claims that have not ended yet, and how the others have.
    pub(super) waiter: Option<C>,
    pub(super) left: usize,
    pub(super) ended: Option<EndResult>,
}

/// A lock, or all permits of a semaphore, in this process.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Room {
    pub(super) name: Name,
    pub(super) queue: Keys,
    /// Whether a call of this process has ever waited for another one in this room: then its claims reserve tokens for
    /// hand-overs.
    pub(super) is_shared: bool,
    /// All claims for the lock, also those for which no call waits.
    pub(super) claims: Keys,
    /// The claim that asks for the lock, holds it or is being released. For a semaphore: the claim that asks.
    pub(super) turn: Option<Key>,
    /// The first call does not ask before this time. Then it looks first, if no event of the change stream has arrived.
    pub(super) pause_until: Time,
    pub(super) looks: bool,
    /// Whether the room waits in the lane of looks.
    pub(super) in_looks: bool,
    /// The number of replies in a row that said that another process has the lock. Without a change stream it is reduced when
    /// the lock has changed hands.
    pub(super) misses: u32,
    /// The number of commands that were sent before the lock was last known to be free: replies to them are outdated.
    pub(super) freed_after: u64,
    /// The number of commands that were sent before an event last said that the lock is taken: replies to them change no pause.
    pub(super) taken_after: u64,
    /// The number of commands that were sent before a claim last gave its lease back: replies to them do not say that a lease is gone.
    pub(super) given_back_after: u64,
    /// The last known holder, and the failure of the last command, with their times.
    pub(super) seen: Option<Box<(Time, Seen)>>,
    pub(super) fault: Option<Box<(Time, Fault)>>,
    /// The number of the last command that asks for the lock.
    pub(super) asked_by: u64,
    /// The time of the last reply, of the last command that asks, and of the last use.
    pub(super) replied: Time,
    pub(super) asked: Time,
    pub(super) used: Time,
    pub(super) order: Order,
    pub(super) permits: PermitList,
    /// The claims that ask for other permits beside that of the turn.
    pub(super) beside: Keys,
    /// The first filter of the change stream that includes the lock, if the stream is to report the lock.
    pub(super) filter: Option<u32>,
    pub(super) due: Option<Time>,
}

impl<C: Clone> Core<C> {
    pub(crate) fn new(conf: Conf, now: Time) -> Self {
        Self {
            rooms: Slab::default(),
            names: HashMap::new(),
            callers: Slab::default(),
            claims: Slab::default(),
            blank: Claim::default(),
            flights: Slab::default(),
            lanes: Default::default(),
            stream: Stream {
                is_possible: conf.may_listen,
                retry_at: if conf.may_listen { now } else { Time::NEVER },
                ..Stream::default()
            },
            due: BTreeSet::new(),
            lanes_due: None,
            phase: Phase::Open,
            asking: 0,
            commands: 0,
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

    /// The cells of the present holds; that of a set for each of its locks.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &C> {
        self.claims.iter().filter_map(|(_, claim)| self.holder(claim))
    }

    /// The cell of this process's hold of a lock, or of a permit of a semaphore.
    pub(crate) fn holder_of(&self, name: &str) -> Option<&C> {
        let room = &self.rooms[*self.names.get(name)?];
        let mut claims = room.claims.iter();
        claims.find_map(|key| self.holder(&self.claims[*key]))
    }

    /// Whether a change stream is open.
    pub(crate) fn is_listening(&self) -> bool {
        self.stream.open.is_some()
    }

    /// Whether a call fails because the provider shuts down.
    pub(crate) fn refuses(&self, is_inside_hold: bool) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Draining => !is_inside_hold,
            Phase::Closed => true,
        }
    }

    /// Whether a resumption of the lease with this id has been given up, and the lease may not have its id back yet.
    pub(crate) fn gives_back(&self, lease_id: &str) -> bool {
        self.claims.iter().any(|(_, claim)| {
            let resumes = claim.resumes.as_deref().is_some_and(|(id, _)| &**id == lease_id);
            // It was given back before its last command has arrived.
            let may_come = matches!(claim.stage, Stage::Released) && claim.flights > 0;
            resumes && (may_come || matches!(claim.stage, Stage::Ending(_)))
        })
    }

    /// Whether the mark of a work that is done is not confirmed yet.
    pub(crate) fn has_marks(&self) -> bool {
        let is_mark = |closing: &Closing| matches!(closing.end, End::Mark(_));
        let mut claims = self.claims.iter();
        claims.any(|(_, claim)| matches!(&claim.stage, Stage::Ending(closing) if is_mark(closing)))
    }

    /// Whether nothing is held, awaited or being released. Releases that may be repeated later do not count.
    pub(crate) fn is_idle(&self) -> bool {
        // A claim in flight may arrive after its release.
        let is_gone = |claim: &Claim| matches!(claim.stage, Stage::Released) && claim.flights == 0;
        let mut claims = self.claims.iter();
        self.callers.iter().all(|(_, caller)| !caller.waits)
            && claims.all(|(_, claim)| is_gone(claim) || claim.is_refused())
    }

    /// Whether nothing is left, not even knowledge about a lock.
    #[allow(dead_code, reason = "only the explorer asks, which compiles this file")]
    pub(crate) fn is_empty(&self) -> bool {
        self.callers.is_empty() && self.claims.is_empty() && self.rooms.is_empty() && self.names.is_empty()
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

    /// The claim of this core that has this id, whatever form the id has.
    pub(super) fn own(&self, room: &Room, id: &str) -> Option<Key> {
        let mut claims = room.claims.iter().copied();
        claims.find(|key| self.claims[*key].id.as_deref() == Some(id))
    }

    /// The same if it is not held: the lock comes back to this process. What is held without a turn, as a resumed lease is, does not.
    pub(super) fn comes_back(&self, room: &Room, id: &str) -> Option<Key> {
        self.own(room, id).filter(|key| !self.claims[*key].is_held())
    }

    /// The claims of a hold. Those of a hold that has ended may wait for a commit.
    pub(super) fn claims_of(&self, hold: Key) -> Vec<Key> {
        if let Some(caller) = self.callers.get(hold) {
            return caller.won.to_vec();
        }
        let own = self.claims.iter().filter(|(_, claim)| claim.caller == Some(hold));
        own.map(|(key, _)| key).collect()
    }

    /// The first caller of a room.
    pub(super) fn first(&self, room: &Room) -> Option<&Caller<C>> {
        room.queue.first().map(|caller| &self.callers[*caller])
    }

    /// The cell of the holder of a claim.
    pub(super) fn holder(&self, claim: &Claim) -> Option<&C> {
        let caller = claim.caller.filter(|_| claim.is_held());
        Some(&self.callers.get(caller?)?.join.cell)
    }
}

/// Cores that differ only in random numbers and in the order of timers have the same hash.
impl<C: Hash> Hash for Core<C> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rooms.hash(state);
        self.callers.hash(state);
        self.claims.hash(state);
        self.flights.hash(state);
        self.lanes.hash(state);
        self.stream.hash(state);
        self.phase.hash(state);
        (self.trip, self.trips).hash(state);
    }
}
