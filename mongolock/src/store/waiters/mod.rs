//! The documents of the processes that wait for a lock, in a collection beside that of the locks.
//!
//! A document says that a provider waits for a name, and where it stands in the line of that name. It is a hint: the
//! lock document alone decides who has the lock. So these commands need no majority, a lost document costs its process
//! its place, and one that is left behind is ignored when its time is over.

mod check;
mod index;
mod mark;
mod mongo;
#[cfg(all(test, server_tests))]
mod tests;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;

pub(crate) use self::mark::ProviderMark;
use super::{AdmissionClass, IndexState, Store, WaiterInfo, WaitersState};
use crate::LockError;
use crate::meter::CommandKind;

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

impl Store {
    /// Enters the lines of these names, or moves to their ends, with one command. A new place is later than the last known one
    /// of its line, and never earlier than the one that the provider has.
    pub(crate) async fn move_to_end(
        &self,
        entries: &[WaiterEntry],
        limit: Duration,
    ) -> Result<(), LockError> {
        let _admission = self.background_admissions().admit(AdmissionClass::Line).await;
        match self {
            Self::Mongo(store) => {
                let moving = pin!(store.move_to_end(entries, limit));
                store.gate.run_within(limit, CommandKind::Line, moving).await
            }
            Self::Memory(store) => {
                store.move_to_end(entries);
                Ok(())
            }
            #[cfg(test)]
            Self::Simulated(link) => link.move_to_end(entries).await,
        }
    }

    /// Keeps the documents of a provider for another while; it writes no document that was removed.
    pub(crate) async fn prolong_waits(
        &self,
        provider: &ProviderMark,
        names: &[Arc<str>],
        limit: Duration,
    ) -> Result<(), LockError> {
        let _admission = self.background_admissions().admit(AdmissionClass::Line).await;
        match self {
            Self::Mongo(store) => {
                store
                    .gate
                    .run_within(
                        limit,
                        CommandKind::Line,
                        pin!(store.prolong_waits(provider, names, limit)),
                    )
                    .await
            }
            Self::Memory(store) => {
                store.prolong_waits(provider, names);
                Ok(())
            }
            #[cfg(test)]
            Self::Simulated(link) => link.prolong_waits(provider, names).await,
        }
    }

    /// Removes the documents of a provider for these names. It must follow all earlier writes of these documents.
    pub(crate) async fn leave_lines(
        &self,
        provider: &ProviderMark,
        names: &[Arc<str>],
        limit: Duration,
    ) -> Result<(), LockError> {
        let _admission = self.background_admissions().admit(AdmissionClass::Line).await;
        match self {
            Self::Mongo(store) => {
                store
                    .gate
                    .run_within(
                        limit,
                        CommandKind::Line,
                        pin!(store.leave_lines(provider, names, limit)),
                    )
                    .await
            }
            Self::Memory(store) => {
                store.leave_lines(provider, names);
                Ok(())
            }
            #[cfg(test)]
            Self::Simulated(link) => link.leave_lines(provider, names).await,
        }
    }

    /// The lines of these names, with one query.
    pub(crate) async fn lines(
        &self,
        names: &[Arc<str>],
        limit: Duration,
    ) -> Result<WaitersByName, LockError> {
        let _admission = self.background_admissions().admit(AdmissionClass::Line).await;
        match self {
            Self::Mongo(store) => {
                store
                    .gate
                    .run_within(limit, CommandKind::Line, pin!(store.lines(names, limit)))
                    .await
            }
            Self::Memory(store) => Ok(store.lines(names)),
            #[cfg(test)]
            Self::Simulated(link) => link.lines(names).await,
        }
    }

    /// Checks the indexes of the documents, and has those built that are missing.
    pub(crate) async fn ensure_waiters_indexes(&self) -> IndexState {
        match self {
            Self::Mongo(store) => {
                let checking = async { Ok(store.ensure_waiters_indexes().await) };
                let checked = store.gate.run(CommandKind::Index, pin!(checking)).await;
                checked.unwrap_or_else(|error| IndexState::unknown(&error))
            }
            Self::Memory(_) => IndexState::Ready,
            #[cfg(test)]
            Self::Simulated(_) => IndexState::Ready,
        }
    }

    /// Checks what a provider needs to wait in order, with a document of its own that it removes again: the rights on the
    /// collection of the waiters, and its indexes, which are created if one is missing.
    pub(crate) async fn check_waiters(&self) -> WaitersState {
        match self {
            Self::Mongo(store) => {
                let checking = async { Ok(store.check_waiters().await) };
                let checked = store.gate.run_always(CommandKind::Admin, pin!(checking)).await;
                checked.unwrap_or_else(|error| WaitersState::after(&error))
            }
            Self::Memory(_) => WaitersState::Ready,
            #[cfg(test)]
            Self::Simulated(_) => WaitersState::Ready,
        }
    }
}
