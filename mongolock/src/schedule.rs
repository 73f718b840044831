use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use crate::lease::Lease;

/// When which lease is renewed, and when it is over if nothing is heard of it. Plain data, driven by the keeper.
#[derive(Default)]
pub(crate) struct Schedule {
    entries: HashMap<Id, Entry>,
    by_time: BTreeSet<(Instant, Id)>,
}

/// The address of the lease: its own for as long as the schedule keeps it.
type Id = usize;

struct Entry {
    lease: Arc<Lease>,
    /// The next moment to look at the lease.
    at: Instant,
    /// A renewal is under way: not to be sent again just because others are.
    in_flight: bool,
}

/// What is to be done now.
#[derive(Default)]
pub(crate) struct Due {
    pub(crate) over: Vec<Arc<Lease>>,
    pub(crate) renew: Vec<Arc<Lease>>,
}

impl Schedule {
    /// Takes the lease in and returns when it must be looked at.
    pub(crate) fn insert(&mut self, lease: Arc<Lease>) -> Instant {
        let interval = lease.terms.renew_interval.mul_f64(1.0 - jitter());
        let at = next_look(&lease, lease.confirmed() + interval);
        self.put(lease, at, false);
        at
    }

    pub(crate) fn remove(&mut self, lease: &Arc<Lease>) {
        if let Some(entry) = self.entries.remove(&id(lease)) {
            self.by_time.remove(&(entry.at, id(lease)));
        }
    }

    /// Plans the next renewal of a lease that is still kept.
    pub(crate) fn replan(&mut self, lease: &Arc<Lease>, renewal: Instant) {
        if self.entries.contains_key(&id(lease)) {
            self.remove(lease);
            self.put(Arc::clone(lease), next_look(lease, renewal), false);
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out what is due. Leases that become due within half of their interval are renewed along with one that
    /// is, so that a process that holds many locks renews them together and keeps doing so.
    pub(crate) fn take_due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        let mut horizon = now;
        let mut looked_at = Vec::new();
        for (at, id) in &self.by_time {
            if *at > horizon {
                break;
            }
            let entry = &self.entries[id];
            if entry.lease.deadline().is_none_or(|deadline| deadline <= now) {
                due.over.push(Arc::clone(&entry.lease));
                looked_at.push(*id);
                continue;
            }
            let together = entry.lease.terms.renew_interval / 2;
            if *at <= now {
                horizon = horizon.max(now + together);
            } else if entry.in_flight || *at > now + together {
                continue;
            }
            if renewable(&entry.lease, now) {
                due.renew.push(Arc::clone(&entry.lease));
            }
            looked_at.push(*id);
        }
        self.look_again(now, looked_at);
        due
    }

    pub(crate) fn drain(&mut self) -> Vec<Arc<Lease>> {
        self.by_time.clear();
        self.entries.drain().map(|(_, entry)| entry.lease).collect()
    }

    /// A renewal may hang: one more is sent after another interval, and the lease is over at its deadline in any case.
    fn look_again(&mut self, now: Instant, looked_at: Vec<Id>) {
        for id in looked_at {
            let Some(entry) = self.entries.remove(&id) else {
                continue;
            };
            self.by_time.remove(&(entry.at, id));
            if entry.lease.deadline().is_some_and(|deadline| deadline > now) {
                let at = next_look(&entry.lease, now + entry.lease.terms.renew_interval);
                self.put(entry.lease, at, true);
            }
        }
    }

    fn put(&mut self, lease: Arc<Lease>, at: Instant, in_flight: bool) {
        let id = id(&lease);
        self.by_time.insert((at, id));
        self.entries.insert(id, Entry { lease, at, in_flight });
    }
}

/// The renewal or, if that comes first or there is none any more, the end of the lease.
fn next_look(lease: &Lease, renewal: Instant) -> Instant {
    let deadline = lease.deadline().unwrap_or(renewal);
    if renewable(lease, renewal) {
        renewal.min(deadline)
    } else {
        deadline
    }
}

fn renewable(lease: &Lease, at: Instant) -> bool {
    lease.renewable_until().is_none_or(|until| at < until)
}

/// Up to a tenth, so that processes that started together do not tick together.
pub(crate) fn jitter() -> f64 {
    fastrand::f64() / 10.0
}

fn id(lease: &Arc<Lease>) -> Id {
    Arc::as_ptr(lease).addr()
}
