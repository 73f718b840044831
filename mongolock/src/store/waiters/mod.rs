//! The documents of the processes that wait for a lock, in a collection beside that of the locks.
//!
//! A document says that a provider waits for a name, and where it stands in the line of that name. It is a hint: the
//! lock document alone decides who has the lock. So these commands need no majority, a lost document costs its process
//! its place, and one that is left behind is ignored when its time is over.

mod index;
mod mark;
mod mongo;
#[cfg(all(test, server_tests))]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::mark::ProviderMark;
use mongodb::bson::DateTime;

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
}

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
