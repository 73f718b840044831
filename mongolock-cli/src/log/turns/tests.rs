use super::*;

/// The times of these tests are milliseconds since 1970.
fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

fn key(name: &str) -> Key {
    let name = name.to_owned();
    Key { name, permit: None }
}

/// A hold with this number, which begins at this time.
fn hold(number: i64, from: i64) -> Hold {
    Hold {
        owner: Some(format!("web-{number}")),
        token: Some(number),
        acquired_at: Some(at(from)),
    }
}

fn event(what: What, time: i64) -> Event {
    Event {
        what,
        at: at(time),
        key: key("a"),
        hold: Hold::default(),
    }
}

fn acquired(number: i64, time: i64) -> Event {
    let hold = hold(number, time);
    Event {
        hold,
        ..event(What::Acquired, time)
    }
}

fn ended(end: End, time: i64) -> Event {
    event(What::Ended(end), time)
}

/// The present document of a hold of the lock of this name.
fn document(name: &str, end: Option<End>, hold: Hold, expires_at: i64) -> Document {
    Document {
        key: key(name),
        hold,
        end,
        expires_at: at(expires_at),
    }
}

/// The document of a lock that is held, or whose lease is over.
fn present(end: End, number: i64, from: i64, expires_at: i64) -> Document {
    document("a", Some(end), hold(number, from), expires_at)
}

/// The document of a lock that was released, which keeps the time of the acquisition and the token.
fn released(number: i64, from: i64) -> Document {
    let owner = None;
    let hold = Hold {
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
fn turns(events: Vec<Event>, documents: Vec<Document>, read_at: i64) -> Vec<Turn> {
    let mut turns = Turns::default();
    for event in events {
        turns.add(event);
    }
    turns.complete(documents, at(read_at));
    turns.latest_first(at(0), at(i64::MAX))
}

/// The lines of these turns.
fn all(events: Vec<Event>, documents: Vec<Document>) -> Vec<String> {
    shown(&turns(events, documents, 0))
}

#[test]
fn a_lease_that_changes_hands_is_one_turn() {
    let resumed = Event {
        hold: Hold {
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
        ended(End::Released, 40),
    ];
    let turns = turns(events, vec![], 0);
    assert_eq!(shown(&turns), ["web-1 10-40 released"]);
    assert_eq!(turns[0].hold.token, Some(2), "it is the last one");
    // The turn has begun before the events.
    detached.hold.acquired_at = None;
    let lines = all(vec![detached], vec![present(End::Held, 1, 10, 1010)]);
    assert_eq!(lines, ["web-1 10-? held"]);
}

#[test]
fn the_present_document_completes_its_turn_only() {
    let held = || vec![present(End::Held, 1, 5, 1010)];
    assert_eq!(all(vec![], held()), ["web-1 5-? held"]);
    assert_eq!(all(vec![acquired(1, 5)], held()), ["web-1 5-? held"]);
    // Events that came after the read of the document.
    assert_eq!(
        all(vec![ended(End::Released, 20)], held()),
        ["web-1 5-20 released"]
    );
    let expired = || vec![present(End::Expired, 1, 5, 15)];
    assert_eq!(all(vec![acquired(1, 5)], expired()), ["web-1 5-15 expired"]);
    assert_eq!(all(vec![], expired()), ["web-1 5-15 expired"]);
    // A release keeps the time of the acquisition and the token, but not the owner.
    let released = || vec![released(2, 20)];
    assert_eq!(all(vec![], released()), [""; 0]);
    assert_eq!(
        all(vec![ended(End::Released, 30)], released()),
        ["? 20-30 released"]
    );
    let events = vec![
        ended(End::Released, 10),
        acquired(2, 20),
        ended(End::Released, 30),
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
        ended(End::Done, 20),
        ended(End::Released, 30),
        ended(End::ExpiredBy, 40),
    ];
    assert_eq!(all(events, vec![]), ["web-1 10-20 done"]);
    assert_eq!(all(vec![ended(End::ExpiredBy, 40)], vec![]), [""; 0]);
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
        for event in [acquired(1, 10), ended(End::Released, 20), acquired(2, 30)] {
            turns.add(event);
        }
        turns.complete(vec![present(End::Held, 2, 30, 1030)], at(0));
        let shown = shown(&turns.latest_first(at(since), at(until)));
        assert_eq!(shown, wanted, "{since} to {until}");
    }
}

/// What has happened to a lock: its events, its document at the end, and its turns, the earliest first.
struct History {
    events: Vec<Event>,
    present: Option<Document>,
    turns: Vec<String>,
}

/// A lock that holders acquire one after the other. Random numbers decide how each turn ends.
fn history(random: &mut impl FnMut(i64) -> i64) -> History {
    let mut was = History {
        events: Vec::new(),
        present: None,
        turns: Vec::new(),
    };
    let mut now = 0;
    for number in 1..=random(6) {
        now += 1 + random(20);
        let from = now;
        was.events.push(acquired(number, now));
        was.present = None;
        now += 1 + random(30);
        let (end, to) = match random(5) {
            kind @ 0..=1 => {
                let end = [End::Released, End::Done][usize::try_from(kind).unwrap()];
                was.events.push(ended(end, now));
                was.present = Some(released(number, from));
                (end, Some(now))
            }
            2 => {
                // Its holder has crashed, and its document is deleted.
                was.events.push(ended(End::ExpiredBy, now));
                (End::ExpiredBy, Some(now))
            }
            3 => {
                // Its holder has crashed, and the next one acquires the lock.
                was.events.push(acquired(number + 100, now));
                was.turns.push(format!("web-{number} {from}-{now} expired_by"));
                let next = now;
                now += 1;
                was.events.push(ended(End::Released, now));
                was.turns
                    .push(format!("web-{} {next}-{now} released", number + 100));
                was.present = Some(released(number + 100, next));
                continue;
            }
            _ => {
                // The last turn continues, or is over according to the document.
                let end = [End::Held, End::Expired][usize::try_from(random(2)).unwrap()];
                was.present = Some(present(end, number, from, now));
                (end, (end == End::Expired).then_some(now))
            }
        };
        let to = to.map_or("?".to_owned(), |to| to.to_string());
        was.turns
            .push(format!("web-{number} {from}-{to} {}", end.as_str()));
        if matches!(end, End::Held | End::Expired) {
            break;
        }
    }
    was
}

/// Wherever the events begin, the turns are correct.
#[test]
fn random_histories_give_their_turns() {
    let mut seed: u64 = 1;
    let mut random = move |below: i64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(seed >> 33).unwrap() % below.max(1)
    };
    for round in 0..20_000 {
        let mut was = history(&mut random);
        was.turns.reverse();
        let first = usize::try_from(random(3)).unwrap().min(was.events.len());
        let known = was.events.split_off(first);
        let begun = known.iter().filter(|event| event.what == What::Acquired).count();
        let lines = all(known, was.present.into_iter().collect());
        assert_eq!(lines[..begun], was.turns[..begun], "round {round}");
        // A turn that began before the events is reported only as far as it is known.
        let before = &lines[begun..];
        assert!(
            before.len() <= was.turns.len() - begun,
            "round {round}: {before:?}"
        );
        for (line, was) in before.iter().zip(&was.turns[begun..]) {
            let end = |line: &str| line.rsplit_once('-').map(|(_, end)| end.to_owned());
            assert_eq!(end(line), end(was), "round {round}");
        }
    }
}
