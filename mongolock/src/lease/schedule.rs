use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Lease;
use crate::store::Trouble;
use crate::timing::{HANDED_OVER_CHECK, REJECTED_RENEWAL_COPY};

/// The times at which leases are renewed, or end if no renewal is confirmed. It is plain data, driven by the renewer.
#[derive(Default)]
pub(crate) struct Schedule {
    entries: HashMap<Id, Scheduled>,
    /// The entries in the order in which they are due.
    by_time: BTreeSet<DueOrder>,
    /// The number of the last entry.
    last_number: u64,
}

/// The time at which an entry is due, its number and its lease: of those that are due at one time the oldest comes first.
type DueOrder = (Instant, u64, Id);

/// The number of renewals of one lease that may be in flight: each of them occupies a connection.
const MAX_IN_FLIGHT: u32 = 3;

/// The same while the server rejects commands: the driver may be pausing in them.
const MAX_IN_FLIGHT_REJECTED: u32 = 8;

/// The address of a lease, which is unique for as long as the schedule keeps the lease.
type Id = usize;

struct Scheduled {
    lease: Arc<Lease>,
    /// The time at which the lease is due: its next renewal or its deadline.
    at: Instant,
    number: u64,
    /// The number of renewals that were sent since the last reply.
    in_flight: u32,
    /// How often its renewal was repeated in a smaller group.
    splits: u32,
    /// Whether the server has said that one document of its group was the reason.
    is_split_by_error: bool,
}

/// The leases that are due.
#[derive(Default)]
pub(crate) struct Due {
    /// Leases whose deadline has passed.
    pub(crate) expired: Vec<Arc<Lease>>,
    /// Leases that shall be renewed now. They stay due until [`Schedule::sent`] is called for them.
    pub(crate) renewals: Vec<Renewal>,
    /// Whether there are more of them.
    pub(crate) is_cut_short: bool,
    /// The first deadline of all leases that are due for a renewal.
    pub(crate) first_deadline: Option<Instant>,
}

/// A lease that is due for a renewal.
pub(crate) struct Renewal {
    pub(crate) lease: Arc<Lease>,
    /// How often its renewal was repeated in a smaller group.
    pub(crate) splits: u32,
    /// Whether the server has said that one document of its group was the reason, and not only a reply is missing.
    pub(crate) is_split_by_error: bool,
}

impl Schedule {
    /// Adds the lease and returns the time at which it is due.
    pub(crate) fn insert(&mut self, lease: Arc<Lease>) -> Instant {
        let mut renewal = next_renewal(&lease, 1.0 - jitter());
        if lease.is_handed_over() {
            renewal = renewal.min(Instant::now() + HANDED_OVER_CHECK);
        }
        let at = next_due(&lease, renewal);
        self.put(lease, at, 0, 0);
        at
    }

    pub(crate) fn remove(&mut self, lease: &Arc<Lease>) {
        if let Some(entry) = self.entries.remove(&id(lease)) {
            self.by_time.remove(&(entry.at, entry.number, id(lease)));
        }
    }

    /// Plans the next renewal of a lease that is still scheduled.
    pub(crate) fn replan(&mut self, lease: &Arc<Lease>, renewal: Instant) {
        if self.entries.contains_key(&id(lease)) {
            self.remove(lease);
            self.put(Arc::clone(lease), next_due(lease, renewal), 0, 0);
        }
    }

    /// Renews leases that are still scheduled once more, in smaller groups than before.
    pub(crate) fn split(&mut self, leases: &[Arc<Lease>], at: impl Fn(&Lease) -> Instant) {
        for lease in leases {
            if let Some(entry) = self.entries.get(&id(lease)) {
                let (in_flight, splits) = (entry.in_flight.max(1), entry.splits.max(1));
                self.remove(lease);
                self.put(Arc::clone(lease), next_due(lease, at(lease)), in_flight, splits);
                self.keep_split(id(lease), true);
            }
        }
    }

    /// Renews leases that are still scheduled once more, in groups of the size that the rejected one had. A rejection after the
    /// reply to another copy says nothing any more.
    pub(crate) fn rejected(&mut self, leases: &[Arc<Lease>], at: Instant, splits: u32) {
        for lease in leases {
            let entry = self.entries.get(&id(lease)).filter(|entry| entry.in_flight > 0);
            if let Some((in_flight, is_split)) =
                entry.map(|entry| (entry.in_flight - 1, entry.is_split_by_error))
            {
                self.remove(lease);
                self.put(Arc::clone(lease), next_due(lease, at), in_flight, splits);
                self.keep_split(id(lease), is_split);
            }
        }
    }

    pub(crate) fn leases(&self, wanted: impl Fn(&Lease) -> bool) -> Vec<Arc<Lease>> {
        let leases = self.by_time.iter().map(|(.., id)| &self.entries[id].lease);
        leases.filter(|lease| wanted(lease)).cloned().collect()
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, ..)| *at)
    }

    /// Takes the expired leases out, and returns them with those that are due for a renewal: first those with little time
    /// left, then those that were due first, and of both no more than `most`. Leases that become due within half of their
    /// interval are renewed along with one that is due, so that a process that holds many locks renews them together and
    /// keeps doing so.
    pub(crate) fn take_due(&mut self, now: Instant, most: usize) -> Due {
        let mut due = Due::default();
        let mut horizon = now;
        let (mut others, mut not_renewed) = (Vec::new(), Vec::new());
        for (at, _, id) in &self.by_time {
            if *at > horizon {
                break;
            }
            let Scheduled {
                lease,
                in_flight,
                splits,
                is_split_by_error,
                ..
            } = &self.entries[id];
            let Some(deadline) = lease.live_until(now) else {
                due.expired.push(Arc::clone(lease));
                continue;
            };
            let tolerance = lease.options.renew_interval() / 2;
            if *at > now && (*in_flight > 0 || *at > now + tolerance) {
                continue;
            }
            if !lease.is_renewable(now) {
                not_renewed.push(*id);
                continue;
            }
            due.first_deadline = Some(due.first_deadline.map_or(deadline, |first| first.min(deadline)));
            let has_little_left = deadline - now < lease.options.expiry / 2;
            let list = if has_little_left {
                &mut due.renewals
            } else {
                &mut others
            };
            if list.len() >= most {
                due.is_cut_short = true;
                // Nothing is renewed early any more, but leases with little time left are behind this one.
                horizon = now;
                continue;
            }
            if !due.is_cut_short {
                horizon = horizon.max(now + tolerance);
            }
            list.push(Renewal {
                lease: Arc::clone(lease),
                splits: *splits,
                is_split_by_error: *is_split_by_error,
            });
        }
        due.renewals.append(&mut others);
        for lease in &due.expired {
            self.remove(lease);
        }
        self.schedule_retries(now, not_renewed, Trouble::None);
        due
    }

    /// Notes that a renewal of these leases is sent now.
    pub(crate) fn sent(&mut self, now: Instant, leases: &[Arc<Lease>], trouble: Trouble) {
        self.schedule_retries(now, leases.iter().map(id).collect(), trouble);
    }

    pub(crate) fn drain(&mut self) -> Vec<Arc<Lease>> {
        let ids = std::mem::take(&mut self.by_time).into_iter().map(|(.., id)| id);
        ids.filter_map(|id| self.entries.remove(&id))
            .map(|entry| entry.lease)
            .collect()
    }

    /// Schedules the next renewal of leases whose renewal is sent now, in case it hangs: there are retries while time is
    /// left, and the lease ends at its deadline in any case. The repetition has a smaller group, because a document of this one
    /// may be blocked; but not if there is another reason why the reply may be missing.
    fn schedule_retries(&mut self, now: Instant, renewed: Vec<Id>, trouble: Trouble) {
        let rejects = trouble == Trouble::Rejections;
        let most = if rejects {
            MAX_IN_FLIGHT_REJECTED
        } else {
            MAX_IN_FLIGHT
        };
        for id in renewed {
            let Some(entry) = self.entries.remove(&id) else {
                continue;
            };
            self.by_time.remove(&(entry.at, entry.number, id));
            // A lease that has ended meanwhile is due at once.
            let left = entry
                .lease
                .deadline()
                .map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(now));
            let attempt_timeout = match entry.lease.options.renew_interval().min(left / 4) {
                _ if entry.in_flight >= most => left,
                part if rejects => part.min(REJECTED_RENEWAL_COPY),
                part => part,
            };
            let at = next_due(&entry.lease, now + attempt_timeout);
            let splits = entry.splits + u32::from(trouble == Trouble::None);
            self.put(entry.lease, at, entry.in_flight + 1, splits);
            self.keep_split(id, entry.is_split_by_error);
        }
    }

    fn keep_split(&mut self, id: Id, is_split_by_error: bool) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.is_split_by_error = is_split_by_error;
        }
    }

    fn put(&mut self, lease: Arc<Lease>, at: Instant, in_flight: u32, splits: u32) {
        let id = id(&lease);
        self.last_number += 1;
        let number = self.last_number;
        self.by_time.insert((at, number, id));
        let entry = Scheduled {
            lease,
            at,
            number,
            in_flight,
            splits,
            is_split_by_error: false,
        };
        self.entries.insert(id, entry);
    }
}

/// The time of the renewal, or the deadline of the lease if that comes first or the lease is not renewed any more.
fn next_due(lease: &Lease, renewal: Instant) -> Instant {
    let deadline = lease.deadline().unwrap_or(renewal);
    if lease.is_renewable(renewal) {
        renewal.min(deadline)
    } else {
        deadline
    }
}

/// The time at which a lease that was just confirmed is renewed: after this part of its interval, and early enough for
/// more than one attempt, even if the interval is almost as long as the expiry.
pub(crate) fn next_renewal(lease: &Lease, part: f64) -> Instant {
    let renewal = lease.confirmed() + lease.options.renew_interval().mul_f64(part);
    let latest = lease
        .deadline()
        .and_then(|deadline| deadline.checked_sub(lease.options.expiry / 10));
    latest.map_or(renewal, |latest| renewal.min(latest))
}

/// A random part of up to a tenth, so that processes that started together do not renew at the same time.
pub(crate) fn jitter() -> f64 {
    fastrand::f64() / 10.0
}

fn id(lease: &Arc<Lease>) -> Id {
    Arc::as_ptr(lease).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tests::EXPIRY;
    use crate::options::Options;

    fn lease(name: &str) -> Arc<Lease> {
        Arc::new(crate::lease::tests::lease(name, &Options::default()))
    }

    /// The names of the leases that are renewed now, and whether others are due as well.
    fn take(schedule: &mut Schedule, most: usize) -> (Vec<String>, bool) {
        let due = schedule.take_due(Instant::now(), most);
        let leases: Vec<Arc<Lease>> = due.renewals.into_iter().map(|due| due.lease).collect();
        schedule.sent(Instant::now(), &leases, Trouble::None);
        let names = leases.iter().map(|lease| lease.key().name.to_string());
        (names.collect(), due.is_cut_short)
    }

    #[tokio::test(start_paused = true)]
    async fn leases_without_room_are_renewed_later_and_in_order() {
        let mut schedule = Schedule::default();
        for name in ["a", "b", "c"] {
            schedule.insert(lease(name));
            // Longer than the times of renewals vary.
            tokio::time::sleep(Duration::from_millis(1100)).await;
        }
        tokio::time::sleep(EXPIRY / 3).await;
        assert_eq!(take(&mut schedule, 0), (vec![], true));
        assert_eq!(
            take(&mut schedule, 2),
            (vec!["a".to_owned(), "b".to_owned()], true)
        );
        assert_eq!(take(&mut schedule, 2), (vec!["c".to_owned()], false));
        assert_eq!(take(&mut schedule, 0), (vec![], false), "no other lease is due");
    }

    /// What is not sent stays due, and the task wakes up for its deadline.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_not_sent_stays_due() {
        let mut schedule = Schedule::default();
        let lease = lease("a");
        schedule.insert(Arc::clone(&lease));
        tokio::time::sleep(EXPIRY / 3).await;
        for _ in 0..2 {
            let due = schedule.take_due(Instant::now(), 1);
            assert_eq!((due.renewals.len(), due.first_deadline), (1, lease.deadline()));
        }
    }

    /// A lease with little time left does not wait behind those that were due before.
    #[tokio::test(start_paused = true)]
    async fn leases_with_little_time_left_come_first() {
        let mut schedule = Schedule::default();
        schedule.insert(lease("a"));
        let short = Options {
            expiry: EXPIRY / 2,
            renew_interval: Some(EXPIRY * 2 / 5),
            ..Options::default()
        };
        schedule.insert(Arc::new(crate::lease::tests::lease_of("b", short)));
        tokio::time::sleep(EXPIRY * 2 / 5).await;
        assert_eq!(take(&mut schedule, 1).0, ["b", "a"]);
    }

    /// How often the lease that is due was repeated in a smaller group.
    fn splits_of_due(schedule: &mut Schedule, trouble: Trouble) -> u32 {
        let now = Instant::now();
        let due = schedule.take_due(now, 1).renewals.remove(0);
        schedule.sent(now, &[due.lease], trouble);
        due.splits
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_are_split_for_a_missing_reply_unless_the_server_rejects_commands() {
        let mut schedule = Schedule::default();
        let lease = lease("a");
        schedule.insert(Arc::clone(&lease));
        let mut next = async |trouble| {
            tokio::time::sleep_until(schedule.next().unwrap()).await;
            splits_of_due(&mut schedule, trouble)
        };
        for _ in 0..MAX_IN_FLIGHT_REJECTED {
            let begun = Instant::now();
            assert_eq!(next(Trouble::Rejections).await, 0);
            assert!(begun == Instant::now() || begun.elapsed() >= REJECTED_RENEWAL_COPY);
        }
        assert!(
            schedule.next().unwrap() < lease.deadline().unwrap(),
            "one is left"
        );
        schedule.rejected(&[Arc::clone(&lease)], Instant::now(), 0);
        assert_eq!(splits_of_due(&mut schedule, Trouble::Connections), 0);
        schedule.replan(&lease, Instant::now());
        assert_eq!(splits_of_due(&mut schedule, Trouble::None), 0);
        tokio::time::sleep_until(schedule.next().unwrap()).await;
        assert_eq!(splits_of_due(&mut schedule, Trouble::None), 1);
        schedule.rejected(&[Arc::clone(&lease)], Instant::now(), 1);
        assert_eq!(splits_of_due(&mut schedule, Trouble::Rejections), 1);
    }

    /// An operator's release may go unnoticed before the hand-over.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_handed_over_is_renewed_soon() {
        let (mut schedule, first) = (Schedule::default(), lease("a"));
        let soon = Instant::now() + HANDED_OVER_CHECK;
        assert!(schedule.insert(Arc::clone(&first)) > soon);
        let next = first.successor(Instant::now() + EXPIRY).unwrap();
        assert_eq!(schedule.insert(Arc::new(next)), soon);
    }
}
