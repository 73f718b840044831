//! Tables of events and present documents, with the turns that follow from them.

use super::TurnEnd::{Done, Expired, ExpiredBy, Held, Released, Unknown};
use super::*;

/// The time at which the documents were read. Times are milliseconds since 1970.
const READ_AT: i64 = 100;

fn at(written: &str) -> DateTime {
    DateTime::from_millis(written.parse().expect("it is a time"))
}

fn key(name: &str) -> TurnKey {
    let name = name.to_owned();
    TurnKey { name, permit: None }
}

/// The end with this word; `None` for the word `free`.
fn end(word: &str) -> Option<TurnEnd> {
    let all = [Held, Released, Done, Expired, ExpiredBy, Unknown];
    all.into_iter().find(|end| end.as_str() == word)
}

/// A hold that is written as `owner/token`, of which either may be missing.
fn hold(written: &str, from: Option<&str>) -> TurnHold {
    let (owner, token) = written.split_once('/').expect("it is a hold");
    TurnHold {
        owner: (!owner.is_empty()).then(|| owner.to_owned()),
        token: token.parse().ok(),
        acquired_at: from.map(at),
    }
}

/// An event that is written as lock, time and what has happened, with the hold and its beginning if the event has them.
fn event(written: &str) -> TurnEvent {
    let words: Vec<&str> = written.split(' ').collect();
    let what = match words[2] {
        "acquired" => What::Acquired,
        "changed" => What::Changed,
        "dropped" => What::AllDeleted,
        word => What::Ended(end(word).expect("it is an end")),
    };
    TurnEvent {
        what,
        at: at(words[1]),
        key: key(words[0]),
        hold: hold(words.get(3).unwrap_or(&"/"), words.get(4).copied()),
    }
}

/// A document that is written as lock, hold, its beginning, the end of the lease and the state.
fn document(written: &str) -> PresentDocument {
    let words: Vec<&str> = written.split(' ').collect();
    PresentDocument {
        key: key(words[0]),
        hold: hold(words[1], Some(words[2])),
        end: end(words[4]),
        expires_at: at(words[3]),
    }
}

fn list(written: &str) -> impl Iterator<Item = &str> {
    written.split("; ").filter(|part| !part.is_empty())
}

/// The turns between these times, each written as lock, hold, beginning and end; what is not known is `?`.
fn turns(events: &str, documents: &str, [since, until]: [i64; 2]) -> String {
    let mut turns = Turns::default();
    for written in list(events) {
        turns.add(event(written));
    }
    let documents = list(documents).map(document).collect();
    turns.complete(documents, DateTime::from_millis(READ_AT));
    let [since, until] = [since, until].map(DateTime::from_millis);
    let millis = |time: DateTime| time.timestamp_millis().to_string();
    let time = |time: Option<DateTime>| time.map_or("?".to_owned(), millis);
    let line = |turn: &Turn| {
        let (lock, owner) = (&turn.key.name, turn.hold.owner.as_deref().unwrap_or_default());
        let token = turn.hold.token.map_or(String::new(), |token| token.to_string());
        let (from, to) = (time(turn.hold.acquired_at), time(turn.to));
        format!("{lock} {owner}/{token} {from}-{to} {}", turn.end.as_str())
    };
    let lines: Vec<String> = turns.latest_first(since, until).iter().map(line).collect();
    lines.join("; ")
}

/// Asserts what follows from the events and the documents of each row.
fn assert_turns(table: &str) {
    for row in table.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let shown = turns(columns[0], columns[1], [0, i64::MAX]);
        assert_eq!(shown, columns[2], "{row}");
    }
}

#[test]
fn a_turn_is_what_one_holder_had() {
    assert_turns(
        "
        a 10 acquired anna/1; a 15 changed anna/1 10; a 30 changed bert/2 10; a 40 released | | a bert/2 10-40 released
        a 12 acquired anna/1 10; a 40 done | | a anna/1 10-40 done
        a 20 acquired anna/1; a 100 acquired bert/2 | | a bert/2 100-? held; a anna/1 20-100 expired_by
        a 10 acquired anna/1; a 10 acquired bert/2; a 20 released | | a bert/2 10-20 released; a anna/1 10-10 expired_by
        a 10 acquired anna/1; b 15 acquired bert/2; a 20 released; c 30 dropped | | b bert/2 15-30 expired_by; a anna/1 10-20 released
        ",
    );
}

/// A mark is cleared, the document of a free lock is deleted, and a released lock keeps its document.
#[test]
fn what_happens_to_a_free_lock_is_no_turn() {
    assert_turns(
        "
        a 10 acquired anna/1; a 20 done; a 30 released; a 40 expired_by | | a anna/1 10-20 done
        a 40 expired_by | |
        | a /2 20 20 free |
        ",
    );
}

/// Without its document a turn that was in progress is over. One that has begun after the read is in progress.
#[test]
fn the_present_document_completes_its_turn_only() {
    assert_turns(
        "
        | a anna/1 5 1010 held | a anna/1 5-? held
        | a anna/1 5 15 expired | a anna/1 5-15 expired
        a 5 acquired anna/1 | a anna/1 5 1010 held | a anna/1 5-? held
        a 5 acquired anna/1 | a anna/1 5 15 expired | a anna/1 5-15 expired
        a 5 acquired anna/1; a 12 released | a anna/1 5 15 expired | a anna/1 5-12 released
        a 15 changed anna/1 | a anna/1 10 1010 held | a anna/1 10-? held
        a 15 changed anna/1 | | a anna/1 ?-? unknown
        a 20 released | a anna/1 5 1010 held | a anna/1 5-20 released
        a 30 released | a /2 20 20 free | a /2 20-30 released
        a 10 released; a 20 acquired anna/2; a 30 released | a /2 20 20 free | a anna/2 20-30 released; a / ?-10 released
        a 20 acquired anna/1 | a /1 20 20 free | a anna/1 20-? unknown
        a 20 acquired anna/1 | a bert/2 120 1010 held | a anna/1 20-? unknown
        a 20 acquired anna/1 | | a anna/1 20-? unknown
        a 20 acquired anna/1; a 30 released | b bert/2 5 1010 held | a anna/1 20-30 released; b bert/2 5-? held
        ",
    );
}

/// A turn is shown if a part of it lies in the window. One with an unknown end counts at its beginning.
#[test]
fn a_window_has_the_turns_that_touch_it() {
    let events = "a 10 acquired anna/1; b 12 acquired dora/3; a 20 released; a 30 acquired bert/2";
    for (window, wanted) in [
        ([0, 9], ""),
        ([0, 10], "a anna/1 10-20 released"),
        ([12, 12], "b dora/3 12-? unknown; a anna/1 10-20 released"),
        ([13, 25], "a anna/1 10-20 released"),
        ([21, 29], ""),
        ([20, 30], "a bert/2 30-? held; a anna/1 10-20 released"),
        ([90, 99], "a bert/2 30-? held"),
    ] {
        assert_eq!(
            turns(events, "a bert/2 30 1030 held", window),
            wanted,
            "{window:?}"
        );
    }
}
