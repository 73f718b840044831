//! Where the log comes from: the present documents, and the events of a step.

use mongodb::bson::{DateTime, Document, doc};
use mongolock::{FencingToken, LockError, LockEvent, LockEventKind, LockFilter, LockInfo, LockState};

use super::earliest::{HISTORY_LOST, code};

use super::steps::Step;
use super::turns::{End, Event, Hold, Key, What};
use crate::connection::Collections;
use crate::driver;
use crate::failure::Failure;
use crate::json::token;
use crate::show;

/// The server's code of a deployment without change streams, and of a missing privilege.
const NO_STREAMS: i32 = 40573;
const UNAUTHORIZED: i32 = 13;

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
        let is_one = !show::found(&collections.provider.admin(), name).await?.is_empty();
        let (filter, names) = if is_one {
            (LockFilter::new().name(name), doc! { "_id.name": name })
        } else {
            let range = doc! { "$gte": name, "$lt": format!("{name}\u{10ffff}") };
            (LockFilter::new().prefix(name), doc! { "_id.name": range })
        };
        Ok(Self {
            filter,
            names,
            is_one,
            ..all
        })
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
                Ok(info) if info.expires_at >= since => present.push(of_document(info)),
                // A damaged document is that of no turn.
                Ok(_) | Err(LockError::CorruptDocument { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(present)
    }

    /// The events of a step, in their order.
    pub(super) async fn events(&self, step: Step) -> Result<Vec<Event>, LockError> {
        let admin = self.collections.provider.admin();
        let mut stream = admin.events(self.filter.clone());
        stream = stream.since(step.since).until(step.until);
        if self.is_one {
            stream = stream.renewals();
        }
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            events.extend(of_event(event?));
        }
        Ok(events)
    }
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
            // The mark of finished work has the id of the hold in it.
            lock_id: event
                .lock_id
                .map(|id| id.strip_prefix("done:").map_or(id.clone(), str::to_owned)),
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
    let error = match error.into() {
        LockError::Mongo(error) => error,
        other => return other.into(),
    };
    let text = format!("cannot read the past of the locks: {}", driver::text(&error));
    match code(&error) {
        Some(NO_STREAMS) => Failure::new(text)
            .help("The past is read from a change stream, which needs a replica set or a sharded cluster."),
        Some(UNAUTHORIZED) => {
            Failure::new(text).help("Grant `find` and `changeStream` on the collection of the locks.")
        }
        _ => LockError::from(error).into(),
    }
}
