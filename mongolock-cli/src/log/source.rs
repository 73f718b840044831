//! Where the log comes from: the present documents, and the events of a step.

use std::collections::BTreeSet;

use mongodb::bson::{DateTime, Document, doc};
use mongolock::{FencingToken, LockError, LockEvent, LockEventKind, LockFilter, LockInfo, LockState};

use super::steps::Step;
use super::turns::{End, Event, Hold, Key, What};
use crate::codes::{HISTORY_LOST, code};
use crate::connection::Collections;
use crate::failure::Failure;
use crate::ids::{self, RECORDER};
use crate::json::token;
use crate::show;

/// The locks that are asked for.
pub(super) struct Source<'a> {
    collections: &'a Collections,
    filter: LockFilter,
    /// The condition for their names in the history.
    names: Document,
    /// Whether it is one lock or semaphore. Only then the renewals are read, which are most of the events.
    is_one: bool,
}

impl<'a> Source<'a> {
    /// All locks.
    fn of_all(collections: &'a Collections) -> Self {
        Self {
            collections,
            filter: LockFilter::new(),
            names: doc! {},
            is_one: false,
        }
    }

    /// The lock or the semaphore of this name if there is one, else all whose names begin with it.
    pub(super) async fn new(collections: &'a Collections, name: Option<&str>) -> Result<Self, Failure> {
        let all = Self::of_all(collections);
        let Some(name) = name else { return Ok(all) };
        let admin = collections.provider.admin();
        let is_one = match admin.get(name).await {
            // A damaged document does not hide the past of its lock.
            Ok(Some(_)) | Err(LockError::CorruptDocument { .. }) => true,
            Ok(None) => !show::permits(&admin, name).await?.is_empty(),
            Err(error) => return Err(error.into()),
        };
        let source = if is_one {
            all.of_name(name)
        } else {
            all.of_prefix(name)
        };
        Ok(Self { is_one, ..source })
    }

    /// Those of its locks that have these names, and hardly others.
    pub(super) fn narrowed(&self, names: &BTreeSet<&str>) -> Self {
        match (names.first(), names.last()) {
            (Some(name), Some(last)) if name == last => self.of_name(name),
            (Some(first), Some(last)) => self.of_prefix(common(first, last)),
            _ => self.of_prefix(""),
        }
    }

    fn of_name(&self, name: &str) -> Self {
        Self {
            filter: LockFilter::new().name(name),
            names: doc! { "_id.name": name },
            ..*self
        }
    }

    fn of_prefix(&self, prefix: &str) -> Self {
        let range = doc! { "$gte": prefix, "$lt": format!("{prefix}\u{10ffff}") };
        Self {
            filter: LockFilter::new().prefix(prefix),
            names: doc! { "_id.name": range },
            ..*self
        }
    }

    /// Whether the turns of this lock are asked for. That of `record` is only if it is named.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.is_one || key.name != RECORDER
    }

    /// The condition for the names in the history.
    pub(super) fn names(&self) -> Document {
        self.names.clone()
    }

    pub(super) fn has_renewals(&self) -> bool {
        self.is_one
    }

    /// The documents of turns that may have been on after this time.
    pub(super) async fn present(&self, since: DateTime) -> Result<Vec<Event>, Failure> {
        let mut locks = self.collections.provider.admin().stream(self.filter.clone());
        let mut present = Vec::new();
        while let Some(found) = locks.next().await {
            match found {
                Ok(info) if info.expires_at >= since => {
                    present.extend(Some(of_document(info)).filter(|event| self.has(&event.key)));
                }
                // A damaged document is that of no turn.
                Ok(_) | Err(LockError::CorruptDocument { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(present)
    }

    /// The events of a step, in their order; `None` if the server has forgotten some of them, also while it sent them.
    pub(super) async fn events(&self, step: Step) -> Result<Option<Vec<Event>>, LockError> {
        let admin = self.collections.provider.admin();
        let mut stream = admin.events(self.filter.clone());
        stream = stream.since(step.since).until(step.until);
        if self.is_one {
            stream = stream.renewals();
        }
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) if event.kind == LockEventKind::Gap => return Ok(None),
                Err(error) if is_history_lost(&error) => return Ok(None),
                event => events.extend(of_event(event?).filter(|event| self.has(&event.key))),
            }
        }
        Ok(Some(events))
    }
}

/// The text with which both begin, and so each text between them.
fn common<'a>(first: &'a str, last: &str) -> &'a str {
    let mut others = last.chars();
    let end = first.find(|char| others.next() != Some(char));
    &first[..end.unwrap_or(first.len())]
}

fn of_document(info: LockInfo) -> Event {
    let end = match info.state {
        LockState::Held => Some(End::Held),
        LockState::Expired => Some(End::Expired),
        _ => None,
    };
    Event {
        what: What::Present(end),
        at: info.expires_at,
        hold: Hold {
            token: token(&info).map(FencingToken::get),
            acquired_at: Some(info.acquired_at),
            owner: info.owner,
            lock_id: None,
        },
        expires_at: Some(info.expires_at),
        key: Key {
            name: info.name,
            permit: info.permit,
        },
    }
}

/// What an event says of a turn; `None` if nothing.
pub(crate) fn of_event(event: LockEvent) -> Option<Event> {
    let what = match event.kind {
        LockEventKind::Held => What::Present(Some(End::Held)),
        LockEventKind::Acquired | LockEventKind::TakenOver => What::Acquired,
        LockEventKind::Renewed => What::Renewed,
        LockEventKind::Detached | LockEventKind::Resumed => What::Changed,
        LockEventKind::Released => What::Ended(End::Released),
        LockEventKind::Done => What::Ended(End::Done),
        LockEventKind::Expired => What::Ended(End::Expired),
        LockEventKind::Deleted if event.name.is_empty() => What::AllDeleted,
        LockEventKind::Deleted => What::Ended(End::ExpiredBy),
        LockEventKind::Damaged => What::Ended(End::Unknown),
        LockEventKind::Gap => What::Gap(event.since.unwrap_or(event.at)),
        _ => return None,
    };
    Some(Event {
        what,
        at: event.at,
        hold: Hold {
            owner: event.owner,
            lock_id: event.lock_id.map(|id| ids::hold(&id).to_owned()),
            token: event.fencing_token.map(FencingToken::get),
            acquired_at: event.acquired_at,
        },
        expires_at: event.expires_at,
        key: Key {
            name: event.name,
            permit: event.permit,
        },
    })
}

/// Whether a step has begun before what the server remembers.
pub(crate) fn is_history_lost(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(error) if code(error) == Some(HISTORY_LOST))
}

/// Why the past cannot be read.
pub(crate) fn refused(error: impl Into<LockError>) -> Failure {
    Failure::of_stream(
        error.into(),
        "read the past of the locks",
        "the collection of the locks",
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    /// It sends nothing to a server.
    #[tokio::test]
    async fn beginnings_are_looked_for_by_the_names_that_miss_one() {
        let cli = Cli::try_parse_from(["mongolock", "--uri", "mongodb://localhost", "log"]).unwrap();
        let collections = cli.connection.collections().await.unwrap();
        let source = Source::of_all(&collections);
        let names = |names: &[&str]| {
            let narrowed = source.narrowed(&names.iter().copied().collect());
            (narrowed.names, format!("{:?}", narrowed.filter))
        };
        let filter = |filter: LockFilter| format!("{filter:?}");
        let one = (doc! { "_id.name": "a:1" }, filter(LockFilter::new().name("a:1")));
        assert_eq!(names(&["a:1"]), one);
        let range = doc! { "_id.name": { "$gte": "a:", "$lt": "a:\u{10ffff}" } };
        let some = (range, filter(LockFilter::new().prefix("a:")));
        assert_eq!(names(&["a:1", "a:b", "a:2"]), some);
        assert!(!source.has(&Key {
            name: RECORDER.to_owned(),
            permit: None
        }));
    }

    #[test]
    fn two_names_may_begin_alike() {
        assert_eq!(common("report:1", "report:20"), "report:");
        assert_eq!(common("a", "ab"), "a");
        assert_eq!(common("x\u{e4}", "x\u{e5}"), "x");
        assert_eq!(common("a", "b"), "");
    }
}
