//! How many commands of a provider are in flight on one client, and which of those that wait is next.
//!
//! The driver has a pool of connections. A command that finds none of them free waits inside the driver, where it can
//! neither be overtaken by a more urgent one nor be taken back: the driver keeps the entry of a command that was dropped
//! while it waited, and each such entry uses up one of the events with which the pool serves the others. After enough of
//! them an idle pool serves two entries a second. So a command waits here, before it is given to the driver.

mod budget;
mod restraint;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use self::budget::{Budget, InLane};
use self::restraint::Restraint;
use super::gather::{Group, Member};
use super::overload::Overload;
use crate::LockError;
use crate::sync::lock;
use crate::timing::LANE_LIMIT;

/// The number of connections of a client's pool if its options set none.
pub(crate) const DEFAULT_POOL: u32 = 10;

/// The number of connections of the pool that a provider leaves free: its change stream keeps one, and the other one is
/// for what is not counted, namely health checks, operators' commands and the checks of indexes.
const LEFT_FREE: u32 = 2;

/// The largest number of commands in flight, however large the pool is. Each takes some 36 KB in the driver.
const MOST: u32 = 128;

/// What a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AdmissionClass {
    /// Renewals.
    Renewal,
    /// Renewals of leases of which an earlier renewal has failed or is without a reply.
    RepeatedRenewal,
    /// Releases.
    Release,
    /// Releases of single claims of which an earlier one has failed.
    RepeatedRelease,
    /// Copies of acquire requests that are without a reply.
    Copy,
    /// The commands on the documents of waiters. They are hints, so no place is reserved for them: a release must not wait
    /// for one whose connection is dead.
    Line,
    /// The acquire requests of calls that have found their locks held before, single tries, and queries about locks: a
    /// call that was woken after minutes does not wait behind thousands that have just begun.
    Woken,
    /// The first requests of calls.
    First,
    /// The acquire requests of calls whose last request has failed.
    Repeated,
}

/// The classes that are admitted before all acquire requests, in this order.
const BEFORE_CLAIMS: [AdmissionClass; 6] = [
    AdmissionClass::Renewal,
    AdmissionClass::RepeatedRenewal,
    AdmissionClass::Release,
    AdmissionClass::RepeatedRelease,
    AdmissionClass::Copy,
    AdmissionClass::Line,
];

/// The classes of acquire requests, which are admitted in turns.
const IN_TURNS: [AdmissionClass; 3] = [
    AdmissionClass::First,
    AdmissionClass::Woken,
    AdmissionClass::Repeated,
];

/// The classes that give way while the server rejects commands for overload.
const GIVING_WAY: [AdmissionClass; 5] = [
    AdmissionClass::First,
    AdmissionClass::Woken,
    AdmissionClass::Repeated,
    AdmissionClass::Copy,
    AdmissionClass::RepeatedRelease,
];

/// The classes that share one reserved place, by their groups.
const GROUPS: [&[AdmissionClass]; 4] = [
    &[AdmissionClass::Renewal, AdmissionClass::RepeatedRenewal],
    &[AdmissionClass::Release, AdmissionClass::RepeatedRelease],
    &[AdmissionClass::Copy],
    &IN_TURNS,
];

const CLASSES: usize = 9;

/// The largest number of requests in one command: more of them do not make a command cheaper for each.
const MOST_IN_GROUP: usize = 128;

/// The collection of a store. Requests for the same one, of the same class, can become one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane(pub(crate) usize);

/// Admits the commands of a provider on one client, those of one class first come, first served.
///
/// Each group of classes has one place that no other group uses, so that none of them ever waits for another. The other
/// places are for all. What may wait for a blocked document or a dead connection cannot use up the places of its group.
///
/// Requests of lanes may use two places more while nothing else waits: that of copies, and one of those that are left free.
/// They are sent as those that were admitted together, and so keep such a place for [`LANE_LIMIT`] at most: copies can wait for
/// so long.
pub(crate) struct Admissions {
    /// The number of commands that may be in flight.
    size: usize,
    state: Mutex<State>,
    /// What the outcomes of the commands say about the server.
    overload: Overload,
}

#[derive(Default)]
struct State {
    /// The number of commands in flight, by their classes.
    in_flight: [usize; CLASSES],
    /// The commands that wait, by their classes.
    waiting: [VecDeque<Waiting>; CLASSES],
    /// The place in [`IN_TURNS`] of the class whose turn is next.
    next_claim: usize,
    /// How many commands with requests of a lane may be in flight: claims, and releases.
    budgets: [Budget; 2],
    /// How many commands give way while the server rejects commands.
    restraint: Restraint,
}

/// A command that waits for its permission.
struct Waiting {
    sender: oneshot::Sender<Admission>,
    /// The lane of a request that can become one command with others.
    lane: Option<Lane>,
}

/// The permission for one command or for a request in it, kept until the end of the command.
pub(crate) struct Admission {
    permission: Permission,
    /// Whether an acquire request has a short limit at the server, because few places are left.
    pub(crate) is_crowded: bool,
}

enum Permission {
    /// For a command with this request alone. It is not read: it ends when it is dropped.
    Alone { _in_flight: InFlight },
    /// For a request that was admitted together with others.
    Together(Member),
}

/// A command in flight, counted until it is dropped.
pub(super) struct InFlight {
    admissions: Arc<Admissions>,
    class: AdmissionClass,
    /// Its entry in the budget of its lane; `None` for a command without a lane.
    in_lane: Option<InLane>,
}

impl AdmissionClass {
    /// The classes that are counted together with this one.
    fn group(self) -> &'static [Self] {
        let reserved = GROUPS.into_iter().find(|group| group.contains(&self));
        // No place is reserved for it.
        reserved.unwrap_or(&[Self::Line])
    }

    /// The number of commands of this class in flight from which on no other one begins.
    fn most(self) -> usize {
        match self {
            Self::Release | Self::Woken | Self::First => usize::MAX,
            Self::Renewal => 4,
            Self::RepeatedRenewal | Self::RepeatedRelease | Self::Repeated => 3,
            Self::Copy | Self::Line => 2,
        }
    }

    /// The place of the budget that counts the requests of this class in lanes.
    fn budget(self) -> usize {
        usize::from(matches!(self, Self::Release | Self::RepeatedRelease))
    }

    /// The number of replies for which a command with this number of requests of a lane waits, one after the other: a query
    /// follows an update with many claims.
    fn replies(self, requests: usize) -> u32 {
        if requests > 1 && self.budget() == 0 { 2 } else { 1 }
    }

    /// The number of requests that wait from which on they become one command: with fewer, one command for each is faster.
    fn least_in_group(self) -> usize {
        if self.budget() == 0 { 4 } else { 2 }
    }
}

impl State {
    /// Takes out the first command of a class that waits; only one without a lane if the budget of the lane is used up.
    fn take_first(&mut self, class: AdmissionClass) -> Option<Waiting> {
        let waiting = &mut self.waiting[class as usize];
        if self.budgets[class.budget()].has_room() {
            return waiting.pop_front();
        }
        let index = waiting.iter().position(|waiting| waiting.lane.is_none())?;
        waiting.remove(index)
    }

    /// The lane of the command that [`State::take_first`] takes out, if it has one.
    fn first_lane(&self, class: AdmissionClass) -> Option<Lane> {
        let first = self.waiting[class as usize].front()?;
        first.lane.filter(|_| self.budgets[class.budget()].has_room())
    }

    /// Whether a command without a lane waits for room.
    fn others_wait(&self) -> bool {
        let classes = BEFORE_CLAIMS.iter().chain(&IN_TURNS).copied();
        classes.into_iter().any(|class| {
            let first = self.waiting[class as usize].front();
            let needs_room = self.in_flight[class as usize] < class.most();
            needs_room && first.is_some_and(|first| first.lane.is_none())
        })
    }

    /// The number of commands of a group in flight.
    fn in_group(&self, group: &[AdmissionClass]) -> usize {
        group.iter().map(|class| self.in_flight[*class as usize]).sum()
    }
}

impl Admissions {
    /// For a client whose pool has this number of connections.
    pub(crate) fn new(pool: u32) -> Arc<Self> {
        Self::of_size(pool.saturating_sub(LEFT_FREE).clamp(1, MOST) as usize)
    }

    /// For a store whose commands never wait.
    pub(crate) fn unlimited() -> Arc<Self> {
        Self::of_size(usize::MAX)
    }

    fn of_size(size: usize) -> Arc<Self> {
        Arc::new(Self {
            size,
            state: Mutex::default(),
            overload: Overload::default(),
        })
    }

    pub(crate) fn overload(&self) -> &Overload {
        &self.overload
    }

    /// Notes what the outcome of a command says about the server. It was sent at this time.
    pub(crate) fn note<T>(&self, sent: Instant, outcome: &Result<T, LockError>) {
        self.overload.note(outcome);
        match outcome {
            Ok(_) => lock(&self.state).restraint.succeeded(self.size),
            Err(error) if error.is_rejection() => {
                let state = &mut *lock(&self.state);
                let in_flight = state.in_group(&GIVING_WAY);
                state.restraint.rejected(sent.elapsed(), in_flight);
            }
            Err(_) => {}
        }
    }

    /// The pause before a request is repeated that the server has rejected for overload.
    pub(crate) fn pause_after_rejection(&self) -> Duration {
        lock(&self.state).restraint.pause()
    }

    /// Begins this pause for an acquire request or a query: it keeps its place meanwhile.
    pub(crate) fn begin_pause(&self) {
        lock(&self.state).restraint.begin_pause(Instant::now());
    }

    /// The permission for a command if it can be sent at once; `None` while there is no room, or others of its class wait.
    pub(crate) fn try_admit(
        self: &Arc<Self>,
        class: AdmissionClass,
        lane: Option<Lane>,
    ) -> Option<Admission> {
        let mut state = lock(&self.state);
        let has_room = self.has_room(&state, class, lane)
            && (lane.is_none() || state.budgets[class.budget()].has_room());
        if !state.waiting[class as usize].is_empty() || !has_room {
            return None;
        }
        self.begin(&mut state, class, lane, 1).next()
    }

    /// Waits for the permission for one command; that for a request of a lane may be together with others. Cancel safe: a
    /// dropped wait gives up its position in the order.
    pub(crate) async fn admit(self: &Arc<Self>, class: AdmissionClass, lane: Option<Lane>) -> Admission {
        match self.try_admit(class, lane) {
            Some(admission) => admission,
            // It is on the heap because it is rare.
            None => Box::pin(self.wait(class, lane)).await,
        }
    }

    async fn wait(self: &Arc<Self>, class: AdmissionClass, lane: Option<Lane>) -> Admission {
        loop {
            let (sender, mut admitted) = oneshot::channel();
            lock(&self.state).waiting[class as usize].push_back(Waiting { sender, lane });
            // There may be room since the caller has found none.
            self.admit_waiting();
            let ended = loop {
                match timeout(self.until_check(), &mut admitted).await {
                    Ok(ended) => break ended,
                    // The budget of a lane no longer counts commands that were in flight then, or a pause has ended.
                    Err(_) => self.admit_waiting(),
                }
            };
            // The queue drops no entry of a command that waits.
            if let Ok(admission) = ended {
                return admission;
            }
        }
    }

    /// The time after which a command that waits looks for room itself. Of many that wait, each looks less often.
    fn until_check(&self) -> Duration {
        let state = lock(&self.state);
        let Some(until_room) = state.restraint.until_room() else {
            return LANE_LIMIT;
        };
        let waiting: usize = state.waiting.iter().map(VecDeque::len).sum();
        let least = Duration::from_millis(u64::try_from(waiting).unwrap_or(u64::MAX));
        until_room.max(least).min(LANE_LIMIT)
    }

    /// The number of commands in flight.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.state).in_flight.iter().sum()
    }

    /// Whether the acquire request of a call has to wait.
    #[cfg(test)]
    pub(crate) fn is_full(&self) -> bool {
        let state = lock(&self.state);
        let one_waits = IN_TURNS
            .iter()
            .any(|class| !state.waiting[*class as usize].is_empty());
        one_waits
            || !self.has_room(&state, AdmissionClass::Woken, None)
            || !state.budgets[AdmissionClass::Woken.budget()].has_room()
    }

    /// Begins a command with this number of requests, and returns the permission of each.
    fn begin(
        self: &Arc<Self>,
        state: &mut State,
        class: AdmissionClass,
        lane: Option<Lane>,
        requests: usize,
    ) -> impl Iterator<Item = Admission> + use<> {
        let is_brief = lane.is_some() && (requests > 1 || !self.has_room(state, class, None));
        let is_crowded = match class {
            AdmissionClass::Repeated => false,
            AdmissionClass::Copy => true,
            // The others may wait for blocked documents, and the last places must not be kept for as long.
            _ => state.in_group(class.group()) >= self.size.saturating_sub(GROUPS.len()) / 2,
        };
        state.in_flight[class as usize] += 1;
        let in_flight = InFlight {
            admissions: Arc::clone(self),
            class,
            in_lane: lane.map(|_| state.budgets[class.budget()].begin(requests, class.replies(requests))),
        };
        let (alone, members) = if is_brief {
            (None, Some(Group::members(in_flight, requests)))
        } else {
            let alone = Permission::Alone {
                _in_flight: in_flight,
            };
            (Some(alone), None)
        };
        let together = members.into_iter().flatten().map(Permission::Together);
        let permissions = alone.into_iter().chain(together);
        permissions.map(move |permission| Admission {
            permission,
            is_crowded,
        })
    }

    /// Whether a command may begin. The first renewal, and requests of lanes while nothing else waits, may also use the two
    /// places that requests of lanes keep for a short time only.
    fn has_room(&self, state: &State, class: AdmissionClass, lane: Option<Lane>) -> bool {
        let is_copied = class == AdmissionClass::Renewal && state.restraint.driver_pauses();
        let most = if is_copied { class.most() * 2 } else { class.most() };
        if state.in_flight[class as usize] >= most {
            return false;
        }
        if GIVING_WAY.contains(&class) && !state.restraint.has_room(state.in_group(&GIVING_WAY)) {
            return false;
        }
        let size = if state.restraint.driver_pauses() {
            self.size.saturating_mul(2)
        } else {
            self.size
        };
        let in_flight: usize = state.in_flight.iter().sum();
        if in_flight + GROUPS.len() < size {
            return true;
        }
        // A pool that has too few connections has no reserved places.
        if size < GROUPS.len() {
            return in_flight < size;
        }
        let may_use_more = match class {
            AdmissionClass::Renewal | AdmissionClass::RepeatedRenewal => state.in_group(class.group()) == 0,
            _ => lane.is_some() && !state.others_wait(),
        };
        let reserved = GROUPS.into_iter().filter(|group| {
            let is_unused = !group.contains(&class) && state.in_group(group) == 0;
            is_unused && !(may_use_more && group.contains(&AdmissionClass::Copy))
        });
        in_flight + reserved.count() < size + usize::from(may_use_more)
    }

    /// Admits those that wait, as long as there is room.
    fn admit_waiting(self: &Arc<Self>) {
        loop {
            let (next, admissions) = {
                let state = &mut *lock(&self.state);
                let Some((class, next)) = self.take_next(state) else {
                    return;
                };
                let admissions = self.begin(state, class, next[0].lane, next.len());
                (next, admissions)
            };
            for (waiting, admission) in next.into_iter().zip(admissions) {
                // A command that was dropped in this moment gives its place back.
                drop(waiting.sender.send(admission));
            }
        }
    }

    /// Takes out the next command that waits and for which there is room, or several requests that become one command.
    fn take_next(&self, state: &mut State) -> Option<(AdmissionClass, Vec<Waiting>)> {
        let claims = IN_TURNS
            .iter()
            .cycle()
            .skip(state.next_claim)
            .take(IN_TURNS.len());
        for class in BEFORE_CLAIMS.iter().chain(claims).copied() {
            // Most of the time nothing waits, and then the room need not be counted.
            while !state.waiting[class as usize].is_empty()
                && self.has_room(state, class, state.first_lane(class))
                && let Some(first) = state.take_first(class)
            {
                if first.sender.is_closed() {
                    continue;
                }
                if let Some(place) = IN_TURNS.iter().position(|claim| *claim == class) {
                    state.next_claim = (place + 1) % IN_TURNS.len();
                }
                return Some((
                    class,
                    with_others(first, &mut state.waiting[class as usize], class.least_in_group()),
                ));
            }
        }
        None
    }
}

impl Admission {
    /// The place of a request among those that were admitted together; otherwise the permission for a command alone.
    pub(super) fn into_member(self) -> Result<Member, Self> {
        match self.permission {
            Permission::Together(member) => Ok(member),
            Permission::Alone { .. } => Err(self),
        }
    }
}

/// The first command that waits, with the requests behind it that become one command with it, if they are enough.
fn with_others(first: Waiting, waiting: &mut VecDeque<Waiting>, least: usize) -> Vec<Waiting> {
    let mut group = vec![first];
    let lane = group[0].lane;
    let joins = |other: &Waiting| lane.is_some() && other.lane == lane && !other.sender.is_closed();
    if waiting.iter().filter(|other| joins(other)).take(least).count() + 1 < least {
        return group;
    }
    let mut left = VecDeque::new();
    for other in waiting.drain(..) {
        if group.len() < MOST_IN_GROUP && joins(&other) {
            group.push(other);
        } else {
            left.push_back(other);
        }
    }
    *waiting = left;
    group
}

impl Drop for InFlight {
    fn drop(&mut self) {
        {
            let mut state = lock(&self.admissions.state);
            state.in_flight[self.class as usize] -= 1;
            if let Some(in_lane) = self.in_lane {
                state.budgets[self.class.budget()].end(in_lane);
            }
        }
        self.admissions.admit_waiting();
    }
}
