use super::*;

/// The times of these tests are milliseconds since 1970.
fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

fn key(name: &str) -> TurnKey {
    let name = name.to_owned();
    TurnKey { name, permit: None }
}

/// A hold with this number, which begins at this time.
fn hold(number: i64, from: i64) -> TurnHold {
    TurnHold {
        owner: Some(format!("web-{number}")),
        token: Some(number),
        acquired_at: Some(at(from)),
    }
}

fn event(what: What, time: i64) -> TurnEvent {
    TurnEvent {
        what,
        at: at(time),
        key: key("a"),
        hold: TurnHold::default(),
    }
}

fn acquired(number: i64, time: i64) -> TurnEvent {
    let hold = hold(number, time);
    TurnEvent {
        hold,
        ..event(What::Acquired, time)
    }
}

fn ended(end: TurnEnd, time: i64) -> TurnEvent {
    event(What::Ended(end), time)
}

/// The present document of a hold of the lock of this name.
fn document(name: &str, end: Option<TurnEnd>, hold: TurnHold, expires_at: i64) -> PresentDocument {
    PresentDocument {
        key: key(name),
        hold,
        end,
        expires_at: at(expires_at),
    }
}

/// The document of a lock that is held, or whose lease is over.
fn present(end: TurnEnd, number: i64, from: i64, expires_at: i64) -> PresentDocument {
    document("a", Some(end), hold(number, from), expires_at)
}

/// The document of a lock that was released, which keeps the time of the acquisition and the token.
fn released(number: i64, from: i64) -> PresentDocument {
    let owner = None;
    let hold = TurnHold {
        owner,
        ..hold(number, from)
    };
    document("a", None, hold, from)
}

/// Owner, from, to and end, as a person reads them; `?` is unknown.
fn shown(turns: &[Turn]) -> Vec<String> {
    let time =
        |time: Option<DateTime>| time.map_or("?".to_owned(), |time| time.timestamp_millis().to_string());
    let line = |turn: &Turn| {
        let owner = turn.hold.owner.as_deref().unwrap_or("?");
        let (from, to) = (time(turn.hold.acquired_at), time(turn.to));
        format!("{owner} {from}-{to} {}", turn.end.as_str())
    };
    turns.iter().map(line).collect()
}

/// The turns of these events, with documents that were read since this time.
fn turns(events: Vec<TurnEvent>, documents: Vec<PresentDocument>, read_at: i64) -> Vec<Turn> {
    let mut turns = Turns::default();
    for event in events {
        turns.add(event);
    }
    turns.complete(documents, at(read_at));
    turns.latest_first(at(0), at(i64::MAX))
}

/// The lines of these turns.
fn all(events: Vec<TurnEvent>, documents: Vec<PresentDocument>) -> Vec<String> {
    shown(&turns(events, documents, 0))
}

#[test]
fn a_lease_that_changes_hands_is_one_turn() {
    let resumed = TurnEvent {
        hold: TurnHold {
            token: Some(2),
            ..hold(1, 10)
        },
        ..event(What::Changed, 30)
    };
    let mut detached = event(What::Changed, 15);
    detached.hold = hold(1, 10);
    let events = vec![
        acquired(1, 10),
        detached.clone(),
        resumed,
        ended(TurnEnd::Released, 40),
    ];
    let turns = turns(events, vec![], 0);
    assert_eq!(shown(&turns), ["web-1 10-40 released"]);
    assert_eq!(turns[0].hold.token, Some(2), "it is the last one");
    // The turn has begun before the events.
    detached.hold.acquired_at = None;
    let lines = all(vec![detached], vec![present(TurnEnd::Held, 1, 10, 1010)]);
    assert_eq!(lines, ["web-1 10-? held"]);
}

#[test]
fn the_present_document_completes_its_turn_only() {
    let held = || vec![present(TurnEnd::Held, 1, 5, 1010)];
    assert_eq!(all(vec![], held()), ["web-1 5-? held"]);
    assert_eq!(all(vec![acquired(1, 5)], held()), ["web-1 5-? held"]);
    // Events that came after the read of the document.
    assert_eq!(
        all(vec![ended(TurnEnd::Released, 20)], held()),
        ["web-1 5-20 released"]
    );
    let expired = || vec![present(TurnEnd::Expired, 1, 5, 15)];
    assert_eq!(all(vec![acquired(1, 5)], expired()), ["web-1 5-15 expired"]);
    assert_eq!(all(vec![], expired()), ["web-1 5-15 expired"]);
    // A release keeps the time of the acquisition and the token, but not the owner.
    let released = || vec![released(2, 20)];
    assert_eq!(all(vec![], released()), [""; 0]);
    assert_eq!(
        all(vec![ended(TurnEnd::Released, 30)], released()),
        ["? 20-30 released"]
    );
    let events = vec![
        ended(TurnEnd::Released, 10),
        acquired(2, 20),
        ended(TurnEnd::Released, 30),
    ];
    assert_eq!(
        all(events, released()),
        ["web-2 20-30 released", "? ?-10 released"]
    );
}

#[test]
fn a_turn_without_a_document_is_over() {
    let events = vec![acquired(1, 20), acquired(2, 120)];
    let lines = shown(&turns(events, vec![], 100));
    assert_eq!(lines, ["web-2 120-? held", "web-1 20-120 expired_by"]);
    let lines = shown(&turns(vec![acquired(1, 20)], vec![], 100));
    assert_eq!(lines, ["web-1 20-? unknown"]);
}

#[test]
fn a_cleared_mark_and_a_deleted_document_are_no_turns() {
    let events = vec![
        acquired(1, 10),
        ended(TurnEnd::Done, 20),
        ended(TurnEnd::Released, 30),
        ended(TurnEnd::ExpiredBy, 40),
    ];
    assert_eq!(all(events, vec![]), ["web-1 10-20 done"]);
    assert_eq!(all(vec![ended(TurnEnd::ExpiredBy, 40)], vec![]), [""; 0]);
}

/// A turn is shown if a part of it lies in the window.
#[test]
fn a_window_has_the_turns_that_touch_it() {
    for (since, until, wanted) in [
        (0, 9, &[][..]),
        (15, 25, &["web-1 10-20 released"]),
        (21, 29, &[]),
        (20, 30, &["web-2 30-? held", "web-1 10-20 released"]),
        (90, 99, &["web-2 30-? held"]),
    ] {
        let mut turns = Turns::default();
        for event in [acquired(1, 10), ended(TurnEnd::Released, 20), acquired(2, 30)] {
            turns.add(event);
        }
        turns.complete(vec![present(TurnEnd::Held, 2, 30, 1030)], at(0));
        let shown = shown(&turns.latest_first(at(since), at(until)));
        assert_eq!(shown, wanted, "{since} to {until}");
    }
}
