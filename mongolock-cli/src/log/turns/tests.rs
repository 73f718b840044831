use super::*;

/// Times are milliseconds, which are as good as any.
fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

fn key() -> Key {
    let name = "a".to_owned();
    Key { name, permit: None }
}

/// A hold with this number, which begins at this time.
fn hold(number: i64, from: i64) -> Hold {
    Hold {
        owner: Some(format!("web-{number}")),
        lock_id: Some(format!("web-{number}#{number}")),
        token: Some(number),
        acquired_at: Some(at(from)),
    }
}

fn event(what: What, time: i64) -> Event {
    Event {
        what,
        at: at(time),
        key: key(),
        hold: Hold::default(),
        expires_at: None,
    }
}

fn acquired(number: i64, time: i64) -> Event {
    let hold = hold(number, time);
    let expires_at = Some(at(time + 10));
    Event {
        hold,
        expires_at,
        ..event(What::Acquired, time)
    }
}

/// An event of the lock of this name.
fn of(name: &str, event: Event) -> Event {
    let name = name.to_owned();
    let key = Key { name, permit: None };
    Event { key, ..event }
}

fn ended(end: End, time: i64) -> Event {
    event(What::Ended(end), time)
}

fn renewed(time: i64) -> Event {
    let expires_at = Some(at(time + 10));
    Event {
        expires_at,
        ..event(What::Renewed, time)
    }
}

/// The present document of a hold.
fn present(end: Option<End>, number: i64, from: i64, expires_at: i64) -> Event {
    Event {
        hold: hold(number, from),
        expires_at: Some(at(expires_at)),
        ..event(What::Present(end), 1000)
    }
}

/// Owner, from, to and end, as a person reads them; `?` is unknown.
fn shown(found: &[Found]) -> Vec<String> {
    let time =
        |time: Option<DateTime>| time.map_or("?".to_owned(), |time| time.timestamp_millis().to_string());
    let line = |found: &Found| match found {
        Found::Turn(turn) => {
            let owner = turn.hold.owner.as_deref().unwrap_or("?");
            let (from, to) = (time(turn.hold.acquired_at), time(turn.to));
            format!("{owner} {from}-{to} {}", turn.end.as_str())
        }
        Found::Gap(from, to) => format!("gap {}-{}", time(Some(*from)), time(Some(*to))),
    };
    found.iter().map(line).collect()
}

/// All turns of these events, which are one step.
fn all(present: Vec<Event>, events: Vec<Event>) -> Vec<String> {
    let has_renewals = events.iter().any(|event| event.what == What::Renewed);
    let mut turns = Turns::new(present, at(0), has_renewals);
    let mut found = turns.step(events.into_iter());
    found.extend(turns.rest());
    shown(&found)
}

#[test]
fn each_end_is_told() {
    let events = vec![
        acquired(1, 10),
        ended(End::Released, 15),
        acquired(2, 20),
        ended(End::Done, 25),
        acquired(3, 30),
        ended(End::Expired, 42),
        acquired(4, 50),
        acquired(5, 70),
        ended(End::ExpiredBy, 90),
        acquired(6, 100),
        ended(End::Unknown, 105),
        acquired(7, 110),
    ];
    let wanted = [
        "web-7 110-? held",
        "web-6 100-105 unknown",
        "web-5 70-90 expired_by",
        "web-4 50-70 expired_by",
        "web-3 30-42 expired",
        "web-2 20-25 done",
        "web-1 10-15 released",
    ];
    assert_eq!(all(vec![], events), wanted);
}

/// The leases before the last renewal do not tell when such a turn has ended.
#[test]
fn a_turn_whose_document_is_deleted_during_its_lease_ends_with_the_document() {
    let events = vec![
        acquired(1, 10),
        renewed(13),
        renewed(28),
        ended(End::ExpiredBy, 30),
    ];
    assert_eq!(all(vec![], events), ["web-1 10-30 expired_by"]);
}

/// The number of the renewals of a turn, and its longest pause.
fn renewals(found: Option<&Found>) -> (usize, Option<i64>) {
    let Some(Found::Turn(turn)) = found else {
        panic!("{found:?}")
    };
    (turn.renewals.len(), turn.longest_pause())
}

#[test]
fn the_end_of_a_lease_is_exact_with_renewals() {
    let events = vec![acquired(1, 10), renewed(13), renewed(16), acquired(2, 70)];
    let wanted = ["web-2 70-? held", "web-1 10-26 expired"];
    assert_eq!(all(vec![], events), wanted);
    let mut turns = Turns::new([], at(0), true);
    let events = [acquired(1, 10), renewed(13), renewed(20), renewed(22)];
    let found = turns.step(events.into_iter());
    assert_eq!(renewals(found.first()), (3, Some(7)));
    // The time after the last renewal is a pause.
    let mut turns = Turns::new([], at(0), true);
    let events = [acquired(1, 10), renewed(13), acquired(2, 70)];
    let found = turns.step(events.into_iter());
    assert_eq!(renewals(found.last()), (1, Some(10)));
    // Renewals before the first one that was read are no pause.
    let mut turns = Turns::new([present(Some(End::Held), 1, 10, 1010)], at(0), true);
    assert!(turns.step([renewed(500), renewed(504)].into_iter()).is_empty());
    let found = turns.rest();
    assert_eq!(renewals(found.first()), (2, Some(4)));
}

#[test]
fn a_lease_that_changes_hands_is_one_turn() {
    let resumed = Event {
        hold: Hold {
            token: Some(2),
            lock_id: Some("web-1#2".to_owned()),
            ..hold(1, 10)
        },
        ..event(What::Changed, 30)
    };
    let mut detached = event(What::Changed, 15);
    detached.hold = hold(1, 10);
    let events = [acquired(1, 10), detached, resumed, ended(End::Released, 40)];
    let mut turns = Turns::new([], at(0), false);
    let found = turns.step(events.into_iter());
    assert_eq!(shown(&found), ["web-1 10-40 released"]);
    let Some(Found::Turn(turn)) = found.first() else {
        panic!("{found:?}")
    };
    assert_eq!(
        turn.hold.lock_id.as_deref(),
        Some("web-1#2"),
        "it is the last one"
    );
}

#[test]
fn the_present_document_completes_its_turn_only() {
    let held = || vec![present(Some(End::Held), 1, 5, 1010)];
    assert_eq!(all(held(), vec![]), ["web-1 5-? held"]);
    assert_eq!(all(held(), vec![acquired(1, 5)]), ["web-1 5-? held"]);
    // Events that came after the read of the document.
    assert_eq!(
        all(held(), vec![ended(End::Released, 20)]),
        ["web-1 5-20 released"]
    );
    let wanted = ["web-2 20-? held", "web-1 5-20 expired_by"];
    assert_eq!(all(held(), vec![acquired(2, 20)]), wanted);
    let expired = vec![present(Some(End::Expired), 1, 5, 15)];
    assert_eq!(all(expired, vec![acquired(1, 5)]), ["web-1 5-15 expired"]);
    // A release keeps the time of the acquisition and the token, but not the owner.
    let released = || {
        let mut released = present(None, 2, 20, 30);
        released.hold.owner = None;
        vec![released]
    };
    assert_eq!(all(released(), vec![]), [""; 0]);
    assert_eq!(
        all(released(), vec![ended(End::Released, 30)]),
        ["? 20-30 released"]
    );
    let events = vec![
        ended(End::Released, 10),
        acquired(2, 20),
        ended(End::Released, 30),
    ];
    assert_eq!(
        all(released(), events),
        ["web-2 20-30 released", "? ?-10 released"]
    );
}

#[test]
fn a_turn_without_a_document_is_over() {
    let mut turns = Turns::new([], at(100), false);
    let found = turns.step([acquired(1, 20), acquired(2, 120)].into_iter());
    assert_eq!(shown(&found), ["web-2 120-? held", "web-1 20-120 expired_by"]);
    let mut turns = Turns::new([], at(100), false);
    assert_eq!(
        shown(&turns.step([acquired(1, 20)].into_iter())),
        ["web-1 20-? unknown"]
    );
}

#[test]
fn a_cleared_mark_and_a_deleted_document_are_no_turns() {
    let events = vec![
        acquired(1, 10),
        ended(End::Done, 20),
        ended(End::Released, 30),
        ended(End::ExpiredBy, 40),
    ];
    assert_eq!(all(vec![], events), ["web-1 10-20 done"]);
    assert_eq!(all(vec![], vec![ended(End::ExpiredBy, 40)]), [""; 0]);
}

/// An acquisition begins in one second, and its event may be of the next one, up to which the history was read then.
#[test]
fn an_acquisition_that_the_history_has_as_well_is_one_turn() {
    let mut turns = Turns::new([], at(0), false);
    let mut found = turns.step([acquired(2, 20), ended(End::Released, 30)].into_iter());
    let history = [acquired(1, 10), ended(End::Released, 15), acquired(2, 20)];
    found.extend(turns.step(history.into_iter()));
    found.extend(turns.rest());
    assert_eq!(shown(&found), ["web-2 20-30 released", "web-1 10-15 released"]);
}

#[test]
fn nothing_is_known_across_a_gap() {
    let gap = event(What::Gap(at(20)), 50);
    let events = vec![acquired(1, 10), gap, ended(End::Released, 60), acquired(2, 70)];
    let wanted = [
        "web-2 70-? held",
        "? ?-60 released",
        "gap 20-50",
        "web-1 10-20 unknown",
    ];
    assert_eq!(all(vec![], events), wanted);
}

#[test]
fn only_turns_without_a_beginning_are_looked_for_farther_back() {
    let present = [of("held", present(Some(End::Held), 1, 15, 200))];
    let mut turns = Turns::new(present, at(0), false);
    let events = [ended(End::Released, 110), of("other", acquired(2, 120))];
    assert_eq!(shown(&turns.step(events.into_iter())), ["web-2 120-? held"]);
    turns.only_missing();
    assert!(turns.are_missing());
    assert_eq!(turns.missing().into_iter().collect::<Vec<_>>(), ["a"]);
    let events = [
        of("held", acquired(1, 15)),
        of("other", acquired(3, 60)),
        acquired(4, 70),
    ];
    assert_eq!(shown(&turns.step(events.into_iter())), ["web-4 70-110 released"]);
    assert!(!turns.are_missing());
    assert_eq!(shown(&turns.rest()), ["web-1 15-? held"]);
}

/// Turns that are complete wait for those that may have begun later.
#[test]
fn the_latest_turn_is_first_also_among_those_with_an_unknown_holder() {
    let released = |number, from| {
        let mut document = of(&format!("free-{number}"), present(None, number, from, from));
        document.hold.owner = None;
        document
    };
    let held = |number, from| {
        of(
            &format!("held-{number}"),
            present(Some(End::Held), number, from, 200),
        )
    };
    let turns = || {
        let documents = [
            held(1, 10),
            released(2, 20),
            held(3, 30),
            released(4, 40),
            held(5, 50),
        ];
        let mut turns = Turns::new(documents, at(0), false);
        let ends = ["free-2", "free-4"].map(|name| of(name, ended(End::Released, 110)));
        assert!(turns.step(ends.into_iter()).is_empty());
        turns.only_missing();
        turns
    };
    let wanted = [
        "web-5 50-? held",
        "? 40-110 released",
        "web-3 30-? held",
        "? 20-110 released",
        "web-1 10-? held",
    ];
    assert_eq!(shown(&turns().rest()), wanted, "nothing more was found");
    let mut turns = turns();
    assert_eq!(shown(&turns.since(at(45))), ["web-5 50-? held"]);
    let acquired = of("free-4", acquired(4, 40));
    assert_eq!(
        shown(&turns.step([acquired].into_iter())),
        ["web-4 40-110 released"]
    );
    assert_eq!(shown(&turns.since(at(25))), ["web-3 30-? held"]);
    assert_eq!(shown(&turns.rest()), wanted[3..]);
}

/// Each turn that is on when a collection is dropped ends then, wherever the event of its acquisition is read.
#[test]
fn all_turns_end_when_all_documents_are_deleted() {
    let dropped = || Event {
        key: Key::default(),
        ..event(What::AllDeleted, 50)
    };
    let wanted = [
        "web-3 60-? held",
        "web-2 20-50 expired_by",
        "web-1 10-50 expired_by",
        "web-4 5-40 released",
    ];
    let before = [
        of("b", acquired(4, 5)),
        acquired(1, 10),
        of("c", acquired(2, 20)),
        of("b", ended(End::Released, 40)),
    ];
    let after = [acquired(3, 60)];
    // The events of the locks whose acquisitions were seen in the same step come before it, or after it.
    let alone = of("c", ended(End::ExpiredBy, 50));
    for dropped in [
        vec![dropped()],
        vec![alone.clone(), dropped()],
        vec![dropped(), alone],
    ] {
        let mut turns = Turns::new([], at(55), false);
        let mut found = turns.step(dropped.into_iter().chain(after.clone()));
        found.extend(turns.step(before.clone().into_iter()));
        found.extend(turns.rest());
        assert_eq!(shown(&found), wanted);
    }
    // With the renewals the end of the lease is known.
    let mut turns = Turns::new([], at(55), true);
    let events = [acquired(1, 10), renewed(15), dropped()];
    assert_eq!(shown(&turns.step(events.into_iter())), ["web-1 10-25 expired"]);
}

#[test]
fn a_turn_is_within_the_times_that_it_touches() {
    let turn = |from, to| Turn {
        hold: hold(1, from),
        to,
        ..Open::new(&key()).turn
    };
    assert!(turn(10, Some(at(20))).is_within(at(20), at(30)));
    assert!(turn(25, None).is_within(at(20), at(30)));
    assert!(turn(30, Some(at(40))).is_within(at(20), at(30)));
    assert!(!turn(10, Some(at(19))).is_within(at(20), at(30)));
    assert!(!turn(31, None).is_within(at(20), at(30)));
    // How long it was on is not known.
    assert!(!turn(10, None).is_within(at(20), at(30)));
    let renewals = vec![at(22), at(19)];
    let renewed = Turn {
        renewals,
        ..turn(10, None)
    };
    assert!(renewed.is_within(at(20), at(30)) && !renewed.is_within(at(23), at(30)));
    let held = Turn {
        end: End::Held,
        ..turn(10, None)
    };
    assert!(held.is_within(at(20), at(30)));
}

/// What has happened to a lock: its events, its document at the end, and its turns, the earliest first.
struct History {
    events: Vec<Event>,
    present: Option<Event>,
    turns: Vec<String>,
}

/// A lock that holders acquire one after the other. Random numbers decide how each turn ends.
fn history(random: &mut impl FnMut(i64) -> i64, has_renewals: bool) -> History {
    let (mut now, mut events, mut turns, mut present) = (0, Vec::new(), Vec::new(), None);
    for number in 1..=random(6) {
        now += 1 + random(20);
        let from = now;
        let mut turn = |to: Option<i64>, end: End| {
            let to = to.map_or("?".to_owned(), |to| to.to_string());
            turns.push(format!("web-{number} {from}-{to} {}", end.as_str()));
        };
        events.push(acquired(number, now));
        for _ in 0..random(4) {
            now += 1 + random(8);
            events.extend(has_renewals.then(|| renewed(now)));
        }
        let lease_ends = now + 10;
        present = None;
        now += 1 + random(8);
        match random(5) {
            kind @ 0..=1 => {
                let end = [End::Released, End::Done][usize::try_from(kind).unwrap()];
                events.push(ended(end, now));
                turn(Some(now), end);
                let released = present_without_owner(number, from);
                present = Some(released);
            }
            2 => {
                // Its holder has died, and its document is deleted.
                now = lease_ends + random(10);
                events.push(ended(End::ExpiredBy, now));
                let expired_by = (Some(now), End::ExpiredBy);
                let (to, end) = if has_renewals {
                    (Some(lease_ends), End::Expired)
                } else {
                    expired_by
                };
                turn(to, end);
            }
            3 => {
                let next = lease_ends + 1 + random(20);
                events.push(acquired(number + 100, next));
                let expired_by = (Some(next), End::ExpiredBy);
                let (to, end) = if has_renewals {
                    (Some(lease_ends), End::Expired)
                } else {
                    expired_by
                };
                turn(to, end);
                now = next + 1;
                events.push(ended(End::Released, now));
                turns.push(format!("web-{} {next}-{now} released", number + 100));
                present = Some(present_without_owner(number + 100, next));
            }
            _ => {
                // The last turn goes on, or is over by the document.
                let end = [End::Held, End::Expired][usize::try_from(random(2)).unwrap()];
                let to = (end == End::Expired).then_some(lease_ends);
                turn(to, end);
                let document = self::present(Some(end), number, from, lease_ends);
                return History {
                    events,
                    present: Some(document),
                    turns,
                };
            }
        }
    }
    History {
        events,
        present,
        turns,
    }
}

/// The document of a lock that is free.
fn present_without_owner(number: i64, from: i64) -> Event {
    let mut document = present(None, number, from, from);
    document.hold.owner = None;
    document
}

/// However the history is cut into steps, and wherever its beginning is cut off, the turns are those that were.
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
        let has_renewals = round % 2 == 0;
        let mut was = history(&mut random, has_renewals);
        was.turns.reverse();
        let first = usize::try_from(random(3)).unwrap().min(was.events.len());
        let known = was.events.split_off(first);
        let begun = known.iter().filter(|event| event.what == What::Acquired).count();
        let mut turns = Turns::new(was.present, at(0), has_renewals);
        let (mut rest, mut found) = (known, Vec::new());
        while !rest.is_empty() {
            let cut = usize::try_from(random(i64::try_from(rest.len()).unwrap())).unwrap();
            found.extend(turns.step(rest.split_off(cut).into_iter()));
        }
        assert_eq!(shown(&found), was.turns[..begun], "round {round}");
        // What began before them is told only as far as it is known.
        let before = shown(&turns.rest());
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
