use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Lease;
use crate::timing::HANDED_OVER_CHECK;

/// When which lease is renewed, and when it is over if nothing is heard of it. Plain data, driven by the renewer.
#[derive(Default)]
pub(crate) struct Schedule {
    entries: HashMap<Id, Entry>,
    by_time: BTreeSet<(Instant, Id)>,
}

/// Renewals of one lease that may be under way: each without an answer occupies a connection.
const MOST_UNANSWERED: u32 = 3;

/// The address of the lease: its own for as long as the schedule keeps it.
type Id = usize;

struct Entry {
    lease: Arc<Lease>,
    /// The next moment to look at the lease.
    at: Instant,
    /// Renewals that were sent since the last answer.
    unanswered: u32,
}

/// What is to be done now.
#[derive(Default)]
pub(crate) struct Due {
    pub(crate) over: Vec<Arc<Lease>>,
    pub(crate) renew: Vec<Renewal>,
}

/// A lease that is to be renewed.
pub(crate) struct Renewal {
    pub(crate) lease: Arc<Lease>,
    /// Earlier attempts that are still without an answer.
    pub(crate) unanswered: u32,
}

impl Schedule {
    /// Takes the lease in and returns when it must be looked at.
    pub(crate) fn insert(&mut self, lease: Arc<Lease>) -> Instant {
        let mut renewal = next_renewal(&lease, 1.0 - jitter());
        if lease.is_handed_over() {
            renewal = renewal.min(Instant::now() + HANDED_OVER_CHECK);
        }
        let at = next_look(&lease, renewal);
        self.put(lease, at, 0);
        at
    }

    pub(crate) fn remove(&mut self, lease: &Arc<Lease>) {
        if let Some(entry) = self.entries.remove(&id(lease)) {
            self.by_time.remove(&(entry.at, id(lease)));
        }
    }

    /// Plans the next renewal of a lease that is still scheduled.
    pub(crate) fn replan(&mut self, lease: &Arc<Lease>, renewal: Instant) {
        if self.entries.contains_key(&id(lease)) {
            self.remove(lease);
            self.put(Arc::clone(lease), next_look(lease, renewal), 0);
        }
    }

    /// Renews leases that are still scheduled once more, in smaller groups than before.
    pub(crate) fn split(&mut self, leases: &[Arc<Lease>], at: impl Fn(&Lease) -> Instant) {
        for lease in leases {
            if let Some(unanswered) = self.entries.get(&id(lease)).map(|entry| entry.unanswered) {
                self.remove(lease);
                self.put(Arc::clone(lease), next_look(lease, at(lease)), unanswered.max(1));
            }
        }
    }

    pub(crate) fn leases(&self, wanted: impl Fn(&Lease) -> bool) -> Vec<Arc<Lease>> {
        let leases = self.entries.values().map(|entry| &entry.lease);
        leases.filter(|lease| wanted(lease)).cloned().collect()
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out what is due. Leases that become due within half of their interval are renewed along with one that
    /// is, so that a process that holds many locks renews them together and keeps doing so.
    pub(crate) fn take_due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        let mut horizon = now;
        let (mut over, mut looked_at) = (Vec::new(), Vec::new());
        for (at, id) in &self.by_time {
            if *at > horizon {
                break;
            }
            let entry = &self.entries[id];
            if entry.lease.deadline().is_none_or(|deadline| deadline <= now) {
                over.push(Arc::clone(&entry.lease));
                continue;
            }
            let together = entry.lease.options.renew_interval / 2;
            if *at <= now {
                horizon = horizon.max(now + together);
            } else if entry.unanswered > 0 || *at > now + together {
                continue;
            }
            if entry.lease.is_renewable(now) {
                due.renew.push(Renewal {
                    lease: Arc::clone(&entry.lease),
                    unanswered: entry.unanswered,
                });
            }
            looked_at.push(*id);
        }
        for lease in &over {
            self.remove(lease);
        }
        due.over = over;
        self.look_again(now, looked_at);
        due
    }

    pub(crate) fn drain(&mut self) -> Vec<Arc<Lease>> {
        let ids = std::mem::take(&mut self.by_time).into_iter().map(|(_, id)| id);
        ids.filter_map(|id| self.entries.remove(&id))
            .map(|entry| entry.lease)
            .collect()
    }

    /// A renewal may hang: another is sent while there is time for more, and the lease is over at its deadline in any
    /// case.
    fn look_again(&mut self, now: Instant, looked_at: Vec<Id>) {
        for id in looked_at {
            let Some(entry) = self.entries.remove(&id) else {
                continue;
            };
            self.by_time.remove(&(entry.at, id));
            // One that has ended meanwhile is due at once.
            let left = entry
                .lease
                .deadline()
                .map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(now));
            let patience = if entry.unanswered < MOST_UNANSWERED {
                entry.lease.options.renew_interval.min(left / 4)
            } else {
                left
            };
            let at = next_look(&entry.lease, now + patience);
            self.put(entry.lease, at, entry.unanswered + 1);
        }
    }

    fn put(&mut self, lease: Arc<Lease>, at: Instant, unanswered: u32) {
        let id = id(&lease);
        self.by_time.insert((at, id));
        self.entries.insert(
            id,
            Entry {
                lease,
                at,
                unanswered,
            },
        );
    }
}

/// The renewal or, if that comes first or there is none any more, the end of the lease.
fn next_look(lease: &Lease, renewal: Instant) -> Instant {
    let deadline = lease.deadline().unwrap_or(renewal);
    if lease.is_renewable(renewal) {
        renewal.min(deadline)
    } else {
        deadline
    }
}

/// When a lease that has just been confirmed is renewed: after a part of its interval, and in time for more than one
/// attempt however long that is.
pub(crate) fn next_renewal(lease: &Lease, part: f64) -> Instant {
    let renewal = lease.confirmed() + lease.options.renew_interval.mul_f64(part);
    let latest = lease
        .deadline()
        .and_then(|deadline| deadline.checked_sub(lease.options.expiry / 10));
    latest.map_or(renewal, |latest| renewal.min(latest))
}

/// Up to a tenth, so that processes that started together do not tick together.
pub(crate) fn jitter() -> f64 {
    fastrand::f64() / 10.0
}

fn id(lease: &Arc<Lease>) -> Id {
    Arc::as_ptr(lease).addr()
}
