//! Converts the events and the documents of the library for the computation of turns.

use mongolock::{FencingToken, LockEvent, LockEventKind, LockInfo, LockState};

use super::turns::{Document, End, Event, Hold, Key, What};
use crate::json::token;

/// The data of a present document about the last turn of its lock.
pub(super) fn of_document(info: LockInfo) -> Document {
    let end = match info.state {
        LockState::Held => Some(End::Held),
        LockState::Expired => Some(End::Expired),
        _ => None,
    };
    Document {
        end,
        expires_at: info.expires_at,
        hold: Hold {
            token: token(&info).map(FencingToken::get),
            acquired_at: Some(info.acquired_at),
            owner: info.owner,
        },
        key: Key {
            name: info.name,
            permit: info.permit,
        },
    }
}

/// The data of an event about a turn; `None` if the event does not concern one.
pub(super) fn of_event(event: LockEvent) -> Option<Event> {
    let what = match event.kind {
        LockEventKind::Acquired | LockEventKind::TakenOver => What::Acquired,
        LockEventKind::Detached | LockEventKind::Resumed => What::Changed,
        LockEventKind::Released => What::Ended(End::Released),
        LockEventKind::Done => What::Ended(End::Done),
        LockEventKind::Expired => What::Ended(End::Expired),
        LockEventKind::Deleted if event.name.is_empty() => What::AllDeleted,
        LockEventKind::Deleted => What::Ended(End::ExpiredBy),
        LockEventKind::Damaged => What::Ended(End::Unknown),
        _ => return None,
    };
    let ended_at = event.expires_at.filter(|_| event.kind == LockEventKind::Expired);
    Some(Event {
        what,
        at: ended_at.unwrap_or(event.at),
        hold: Hold {
            owner: event.owner,
            token: event.fencing_token.map(FencingToken::get),
            acquired_at: event.acquired_at,
        },
        key: Key {
            name: event.name,
            permit: event.permit,
        },
    })
}
