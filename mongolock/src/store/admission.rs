//! How many commands of a provider are in flight on one client, and which of those that wait is next.
//!
//! The driver has a pool of connections. A command that finds none of them free waits inside the driver, where it can
//! neither be overtaken by a more urgent one nor be taken back: the driver keeps the entry of a command that was dropped
//! while it waited, and each such entry uses up one of the events with which the pool serves the others. After enough of
//! them an idle pool serves two entries a second. So a command waits here, before it is given to the driver.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::sync::lock;

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

/// The classes that share one reserved place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Renewal,
    Release,
    Copy,
    Claim,
}

impl Group {
    const ALL: [Self; GROUPS] = [Self::Renewal, Self::Release, Self::Copy, Self::Claim];
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

const GROUPS: usize = 4;
const CLASSES: usize = 9;

/// Admits the commands of a provider on one client, those of one class first come, first served.
///
/// Each group of classes has one place that no other group uses, so that none of them ever waits for another. The other
/// places are for all. What may wait for a blocked document or a dead connection cannot use up the places of its group.
pub(crate) struct Admissions {
    /// The number of commands that may be in flight.
    size: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of commands in flight, by their classes.
    in_flight: [usize; CLASSES],
    /// The commands that wait, by their classes.
    waiting: [VecDeque<oneshot::Sender<Admission>>; CLASSES],
    /// The place in [`IN_TURNS`] of the class whose turn is next.
    next_claim: usize,
}

/// The permission for one command, kept until its end.
pub(crate) struct Admission {
    admissions: Arc<Admissions>,
    class: AdmissionClass,
    /// Whether an acquire request has a short limit at the server, because few places are left.
    pub(crate) is_crowded: bool,
}

impl AdmissionClass {
    fn group(self) -> Option<Group> {
        match self {
            Self::Renewal | Self::RepeatedRenewal => Some(Group::Renewal),
            Self::Release | Self::RepeatedRelease => Some(Group::Release),
            Self::Copy => Some(Group::Copy),
            Self::Line => None,
            Self::Woken | Self::First | Self::Repeated => Some(Group::Claim),
        }
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
}

impl State {
    /// The number of commands of a group in flight.
    fn in_group(&self, group: Option<Group>) -> usize {
        let of_group = |class: &&AdmissionClass| class.group() == group;
        let classes = BEFORE_CLAIMS.iter().chain(&IN_TURNS).filter(of_group);
        classes.map(|class| self.in_flight[*class as usize]).sum()
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
        })
    }

    /// The permission for a command if it can be sent at once; `None` while there is no room, or others of its class wait.
    pub(crate) fn try_admit(self: &Arc<Self>, class: AdmissionClass) -> Option<Admission> {
        let mut state = lock(&self.state);
        if !state.waiting[class as usize].is_empty() || !self.has_room(&state, class) {
            return None;
        }
        Some(self.begin(&mut state, class))
    }

    /// Waits for the permission for one command. Cancel safe: a dropped wait gives up its position in the order.
    pub(crate) async fn admit(self: &Arc<Self>, class: AdmissionClass) -> Admission {
        match self.try_admit(class) {
            Some(admission) => admission,
            // It is on the heap because it is rare.
            None => Box::pin(self.wait(class)).await,
        }
    }

    async fn wait(self: &Arc<Self>, class: AdmissionClass) -> Admission {
        loop {
            let (sender, admitted) = oneshot::channel();
            lock(&self.state).waiting[class as usize].push_back(sender);
            // There may be room since the caller has found none.
            self.admit_waiting();
            // The queue drops no entry of a command that waits.
            if let Ok(admission) = admitted.await {
                return admission;
            }
        }
    }

    /// The number of commands in flight.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.state).in_flight.iter().sum()
    }

    /// Whether the acquire request of a call has to wait.
    #[cfg(test)]
    pub(crate) fn is_full(&self) -> bool {
        !self.has_room(&lock(&self.state), AdmissionClass::Woken)
    }

    fn begin(self: &Arc<Self>, state: &mut State, class: AdmissionClass) -> Admission {
        let is_crowded = match class {
            AdmissionClass::Repeated => false,
            AdmissionClass::Copy => true,
            // The others may wait for blocked documents, and the last places must not be kept for as long.
            _ => state.in_group(class.group()) >= self.size.saturating_sub(GROUPS) / 2,
        };
        state.in_flight[class as usize] += 1;
        Admission {
            admissions: Arc::clone(self),
            class,
            is_crowded,
        }
    }

    fn has_room(&self, state: &State, class: AdmissionClass) -> bool {
        if state.in_flight[class as usize] >= class.most() {
            return false;
        }
        let in_flight: usize = state.in_flight.iter().sum();
        if in_flight + GROUPS < self.size {
            return true;
        }
        // A pool that has too few connections has no reserved places.
        let has_reserve = self.size >= GROUPS;
        let is_unused = |group: &Option<Group>| *group != class.group() && state.in_group(*group) == 0;
        let reserved = Group::ALL
            .map(Some)
            .iter()
            .filter(|group| has_reserve && is_unused(group))
            .count();
        in_flight + reserved < self.size
    }

    /// Admits those that wait, as long as there is room.
    fn admit_waiting(self: &Arc<Self>) {
        loop {
            let next = {
                let state = &mut *lock(&self.state);
                self.take_next(state)
                    .map(|(class, waiting)| (self.begin(state, class), waiting))
            };
            match next {
                // A command that was dropped in this moment gives its place back.
                Some((admission, waiting)) => drop(waiting.send(admission)),
                None => return,
            }
        }
    }

    /// Takes out the next command that waits and for which there is room.
    fn take_next(&self, state: &mut State) -> Option<(AdmissionClass, oneshot::Sender<Admission>)> {
        let claims = IN_TURNS
            .iter()
            .cycle()
            .skip(state.next_claim)
            .take(IN_TURNS.len());
        for class in BEFORE_CLAIMS.iter().chain(claims).copied() {
            // Most of the time nothing waits, and then the room need not be counted.
            while !state.waiting[class as usize].is_empty()
                && self.has_room(state, class)
                && let Some(waiting) = state.waiting[class as usize].pop_front()
            {
                if !waiting.is_closed() {
                    if let Some(place) = IN_TURNS.iter().position(|claim| *claim == class) {
                        state.next_claim = (place + 1) % IN_TURNS.len();
                    }
                    return Some((class, waiting));
                }
            }
        }
        None
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        lock(&self.admissions.state).in_flight[self.class as usize] -= 1;
        self.admissions.admit_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::AdmissionClass::{Copy, First, Line, Release, Renewal, Repeated, RepeatedRenewal, Woken};
    use super::*;
    use crate::task::is_pending;

    fn all_of(admissions: &Arc<Admissions>, class: AdmissionClass) -> Vec<Admission> {
        std::iter::from_fn(|| admissions.try_admit(class)).collect()
    }

    #[tokio::test]
    async fn two_connections_of_the_pool_stay_free() {
        for (pool, size) in [(1, 1), (2, 1), (3, 1), (10, 8), (1000, 128)] {
            let admissions = Admissions::new(pool);
            let mut admitted = Vec::new();
            for class in BEFORE_CLAIMS.into_iter().chain(IN_TURNS) {
                admitted.extend(all_of(&admissions, class));
            }
            assert_eq!((admitted.len(), admissions.in_flight()), (size, size), "{pool}");
            drop(admitted);
            assert_eq!(admissions.in_flight(), 0);
        }
    }

    /// However many commands of the others are in flight and wait.
    #[tokio::test]
    async fn every_group_has_a_place_of_its_own() {
        for crowd in [First, Release] {
            let admissions = Admissions::new(DEFAULT_POOL);
            let crowd_in_flight = all_of(&admissions, crowd);
            assert_eq!(crowd_in_flight.len(), 5);
            let mut waiting = Box::pin(admissions.admit(crowd));
            assert!(is_pending(waiting.as_mut()).await);
            let others = [Renewal, Release, Copy, First]
                .into_iter()
                .filter(|class| *class != crowd);
            let admitted: Vec<_> = others.map(|class| admissions.try_admit(class)).collect();
            assert!(admitted.iter().all(Option::is_some), "{crowd:?}");
            assert!(admissions.try_admit(Renewal).is_none(), "the pool is used up");
        }
    }

    /// The commands on the documents of waiters are hints, and may be slow.
    #[tokio::test]
    async fn releases_do_not_wait_for_the_documents_of_waiters() {
        let admissions = Admissions::new(DEFAULT_POOL);
        let of_lines = all_of(&admissions, Line);
        let mut waiting = Box::pin(admissions.admit(Line));
        assert!(is_pending(waiting.as_mut()).await);
        assert_eq!((of_lines.len(), all_of(&admissions, Release).len()), (2, 3));
    }

    /// What may wait for a blocked document leaves places of its group to others.
    #[tokio::test]
    async fn repeated_commands_do_not_use_up_their_group() {
        for (repeated, first) in [(Repeated, First), (RepeatedRenewal, Renewal)] {
            let admissions = Admissions::new(DEFAULT_POOL);
            let admitted = all_of(&admissions, repeated);
            assert_eq!(admitted.len(), 3);
            assert!(admissions.try_admit(first).is_some());
        }
    }

    /// Other calls go on, and a call whose last request has failed goes on beside them.
    #[tokio::test]
    async fn repeated_commands_have_their_turns() {
        let admissions = Admissions::new(DEFAULT_POOL);
        let mut in_use = all_of(&admissions, First);
        let mut repeated = Box::pin(admissions.admit(Repeated));
        let mut others: Vec<_> = (0..2).map(|_| Box::pin(admissions.admit(First))).collect();
        assert!(is_pending(repeated.as_mut()).await);
        for other in &mut others {
            assert!(is_pending(other.as_mut()).await);
        }
        in_use.truncate(4);
        // There is one place, and each gives it back at once.
        assert!(!is_pending(others[0].as_mut()).await);
        assert!(!is_pending(repeated.as_mut()).await);
        assert!(!is_pending(others[1].as_mut()).await);
    }

    #[tokio::test]
    async fn renewals_come_first_then_releases_and_calls_in_turns() {
        let admissions = Admissions::new(3);
        let in_use = admissions.try_admit(First);
        let classes = [First, First, Woken, Release, Renewal];
        let mut waiting: Vec<_> = classes.map(|class| Box::pin(admissions.admit(class))).into();
        for wait in &mut waiting {
            assert!(is_pending(wait.as_mut()).await);
        }
        drop(in_use);
        // There is one place, and each gives it back at once.
        for next in [4, 3, 0, 2, 1] {
            assert!(!is_pending(waiting[next].as_mut()).await, "{next}");
        }
    }

    #[tokio::test]
    async fn a_dropped_wait_gives_its_position_and_its_place_up() {
        let admissions = Admissions::new(3);
        let in_use = admissions.try_admit(First);
        let (mut first, mut second) = (
            Box::pin(admissions.admit(First)),
            Box::pin(admissions.admit(First)),
        );
        assert!(is_pending(first.as_mut()).await && is_pending(second.as_mut()).await);
        assert!(admissions.try_admit(First).is_none(), "others wait");
        drop(in_use);
        // The first one was admitted, and did not notice it.
        drop(first);
        drop(second.await);
        assert_eq!(admissions.in_flight(), 0);
    }

    #[tokio::test]
    async fn the_last_places_have_a_short_limit() {
        let admissions = Admissions::new(DEFAULT_POOL);
        let crowded: Vec<bool> = all_of(&admissions, First)
            .iter()
            .map(|one| one.is_crowded)
            .collect();
        assert_eq!(crowded, [false, false, true, true, true]);
        let admissions = Admissions::new(DEFAULT_POOL);
        assert!(all_of(&admissions, Repeated).iter().all(|one| !one.is_crowded));
        assert!(all_of(&admissions, Copy).iter().all(|one| one.is_crowded));
    }
}
