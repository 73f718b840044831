//! The documents of the processes that wait for a lock, in a collection beside that of the locks.
//!
//! A document says that a provider waits for a name, and where it stands in the line of that name. It is a hint: the
//! lock document alone decides who has the lock. So these commands need no majority, a lost document costs its process
//! its place, and one that is left behind is ignored when its time is over.

mod check;
mod index;
mod mark;
mod mongo;
mod nested;
mod notes;
#[cfg(all(test, server_tests))]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::Instant;

pub(crate) use self::mark::ProviderMark;
pub(crate) use self::notes::{EndedHold, Force, ForcesById, Note, NotesById};
use super::{RunningLeases, WaiterInfo};
use crate::permit_id;

/// What a provider writes about itself for one name.
#[derive(Debug, Clone)]
pub(crate) struct WaiterEntry {
    pub(crate) name: Arc<str>,
    pub(crate) provider: ProviderMark,
    pub(crate) owner: Arc<str>,
    /// For how long the oldest of its present waiters has waited; `None` if nobody waits now.
    pub(crate) waited: Option<Duration>,
    /// The time that this process needs from a release to its claim, in whole milliseconds: the others leave it that.
    pub(crate) time_slot: Duration,
    /// The last place that is known in the line: the new one is behind it.
    pub(crate) last: Option<DateTime>,
    /// Whether the provider keeps the place that it has, and goes to the end only if it has none.
    pub(crate) keeps_place: bool,
    /// What its callers that wait there hold.
    pub(crate) holds: Holds,
}

/// The `lockId`s of what the callers of a provider hold that wait for one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Holds {
    /// The holds that cannot end before the wait does, as far as is known.
    pub(crate) known: Vec<Arc<str>>,
    /// The guards that the waiting tasks have acquired: they may be in other tasks by now.
    pub(crate) perhaps: Vec<Arc<str>>,
    /// The time at which the oldest of these callers began to wait. Callers that hold nothing come and go beside them.
    pub(crate) since: Option<Instant>,
}

/// A wait of callers that hold something, as the document of their provider says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NestedWait {
    /// The mark of the provider.
    pub(crate) provider: Arc<str>,
    pub(crate) name: Arc<str>,
    /// The time at which the oldest of the callers began that hold something.
    pub(crate) since: DateTime,
    /// What the callers hold.
    pub(crate) holds: Vec<Arc<str>>,
}

/// The `lockId`s of the holders of names, by running leases. A name for all permits of a semaphore has several.
pub(crate) type Holders = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// A place in the line of one name, as a query returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiter {
    /// The mark of its provider.
    pub(crate) provider: Arc<str>,
    pub(crate) owner: String,
    /// The time at which it took this place, by the server's clock: a provider that moves to the end has another one.
    pub(crate) at: DateTime,
    /// The time at which the oldest of its present waiters began; `None` if nobody waits there now.
    pub(crate) since: Option<DateTime>,
    /// The time that it is left after a release.
    pub(crate) time_slot: Duration,
}

/// The waiters for each name in the order of their places. A name without waiters is left out.
pub(crate) type WaitersByName = HashMap<Arc<str>, Vec<Waiter>>;

/// The holders of what a look has found. During a minimum hold the id is empty, and no wait lists it.
pub(super) fn holders(running: RunningLeases) -> Holders {
    let mut holders = Holders::new();
    for (name, lease) in running {
        let awaited = holders.entry(Arc::from(permit_id::awaited(&name))).or_default();
        awaited.insert(lease.holder.unwrap_or_default());
    }
    holders
}

/// What an operator sees of a line: those who wait now, without the provider that has the lock.
pub(super) fn infos(line: Option<&Vec<Waiter>>, lock_id: &str) -> Vec<WaiterInfo> {
    let holder = ProviderMark::in_lock_id(lock_id);
    let line = line.into_iter().flatten();
    let others = line.filter(|waiter| holder != Some(&*waiter.provider));
    let info = |waiter: &Waiter| {
        Some(WaiterInfo {
            owner: waiter.owner.clone(),
            since: waiter.since?,
        })
    };
    others.filter_map(info).collect()
}
