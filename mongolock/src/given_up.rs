use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// The ids of claims that this process has given up and that may still stand at the server.
///
/// A lock that is held by one of them is not busy: nobody uses it. Whoever meets such an id releases it and asks again.
#[derive(Default)]
pub(crate) struct GivenUp {
    ids: Mutex<HashMap<Arc<str>, Entry>>,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The pending releases of the id.
    releases: usize,
    min_hold: Duration,
    /// Not to be released before: until then its last holder may still be at work.
    from: Instant,
}

/// One pending release of an id; the id is forgotten with the last of them.
pub(crate) struct Pending {
    given_up: Arc<GivenUp>,
    lock_id: Arc<str>,
}

impl GivenUp {
    pub(crate) fn add(self: &Arc<Self>, lock_id: &Arc<str>, min_hold: Duration, from: Instant) -> Pending {
        let mut ids = lock(&self.ids);
        let entry = ids.entry(Arc::clone(lock_id)).or_insert(Entry {
            releases: 0,
            min_hold,
            from,
        });
        entry.releases += 1;
        entry.min_hold = entry.min_hold.max(min_hold);
        entry.from = entry.from.min(from);
        Pending {
            given_up: Arc::clone(self),
            lock_id: Arc::clone(lock_id),
        }
    }

    /// The minimum hold with which the id is to be released, if it may be released now.
    pub(crate) fn find(&self, lock_id: &str) -> Option<Duration> {
        let entry = lock(&self.ids).get(lock_id).copied()?;
        (entry.from <= Instant::now()).then_some(entry.min_hold)
    }
}

impl Pending {
    /// One more pending release of the same id.
    pub(crate) fn another(&self) -> Self {
        if let Some(entry) = lock(&self.given_up.ids).get_mut(&self.lock_id) {
            entry.releases += 1;
        }
        Self {
            given_up: Arc::clone(&self.given_up),
            lock_id: Arc::clone(&self.lock_id),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut ids = lock(&self.given_up.ids);
        if let Some(entry) = ids.get_mut(&self.lock_id) {
            entry.releases -= 1;
            if entry.releases == 0 {
                ids.remove(&self.lock_id);
            }
        }
    }
}
