//! Converts the events and the documents of the library for the computation of turns.

use mongolock::{FencingToken, LockEvent, LockEventKind, LockInfo, LockState};

use super::turns::{PresentDocument, TurnEnd, TurnEvent, TurnHold, TurnKey, What};
use crate::json::token;

/// The data of a present document about the last turn of its lock.
pub(super) fn of_document(info: LockInfo) -> PresentDocument {
    let end = match info.state {
        LockState::Held => Some(TurnEnd::Held),
        LockState::Expired => Some(TurnEnd::Expired),
        _ => None,
    };
    PresentDocument {
        end,
        expires_at: info.expires_at,
        hold: TurnHold {
            token: token(&info).map(FencingToken::get),
            acquired_at: Some(info.acquired_at),
            owner: info.owner,
        },
        key: TurnKey {
            name: info.name,
            permit: info.permit,
        },
    }
}

/// The data of an event about a turn; `None` if the event does not concern one.
pub(super) fn of_event(event: LockEvent) -> Option<TurnEvent> {
    let what = match event.kind {
        LockEventKind::Acquired | LockEventKind::TakenOver => What::Acquired,
        LockEventKind::Detached | LockEventKind::Resumed => What::Changed,
        LockEventKind::Released => What::Ended(TurnEnd::Released),
        LockEventKind::Done => What::Ended(TurnEnd::Done),
        LockEventKind::Expired => What::Ended(TurnEnd::Expired),
        LockEventKind::Deleted if event.name.is_empty() => What::AllDeleted,
        LockEventKind::Deleted => What::Ended(TurnEnd::ExpiredBy),
        LockEventKind::Damaged => What::Ended(TurnEnd::Unknown),
        _ => return None,
    };
    let ended_at = event.expires_at.filter(|_| event.kind == LockEventKind::Expired);
    Some(TurnEvent {
        what,
        at: ended_at.unwrap_or(event.at),
        hold: TurnHold {
            owner: event.owner,
            token: event.fencing_token.map(FencingToken::get),
            acquired_at: event.acquired_at,
        },
        key: TurnKey {
            name: event.name,
            permit: event.permit,
        },
    })
}
