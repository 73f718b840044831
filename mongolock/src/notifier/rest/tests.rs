use super::*;

const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_millis(800);
const TIME_SLOT: Duration = Duration::from_millis(6);

/// A waiter with so many others before it in line.
const fn behind(ahead: usize) -> Standing {
    Standing {
        ahead,
        time_slots: if ahead == 0 { Duration::ZERO } else { TIME_SLOT },
        polling_pause: Duration::from_millis(20),
        yields_until: None,
    }
}

const fn outlook(is_reported: bool, standing: Option<Standing>) -> Outlook {
    Outlook {
        is_reported,
        is_too_costly: false,
        standing,
    }
}

fn rest() -> (Rest, Moment) {
    let at = Moment::at(Instant::now());
    (Rest::new(at.now, Backoff::new(LEAST..=MOST), false), at)
}

/// A waiter that rests for a lock of which nothing more is known.
fn resting(outlook: &Outlook) -> (Rest, Moment) {
    let (mut rest, at) = rest();
    rest.held(at, outlook, None);
    (rest, at)
}

#[test]
fn a_waiter_with_a_stream_rests_longer_and_longest_outside_a_line() {
    let (mut rest, at) = rest();
    let pauses = [
        outlook(true, None),
        outlook(true, Some(behind(1))),
        outlook(false, Some(behind(1))),
        outlook(false, None),
    ]
    .map(|outlook| rest.held(at, &outlook, None));
    assert_eq!(
        pauses[..3],
        [POLL_BESIDE_STREAM, LINE_SILENCE, Duration::from_millis(20)]
    );
    assert!((LEAST..=LEAST * 3).contains(&pauses[3]), "{pauses:?}");
}

#[test]
fn while_the_stream_costs_too_much_the_pauses_are_short() {
    let (mut rest, at) = rest();
    let outlook = Outlook {
        is_too_costly: true,
        ..outlook(false, None)
    };
    for _ in 0..20 {
        assert!(rest.held(at, &outlook, None) <= STREAM_POLL_PAUSE.max(LEAST));
    }
}

#[test]
fn a_rest_ends_a_little_after_the_lease_and_after_the_time_slots_of_others() {
    let (mut rest, at) = rest();
    let second = Duration::from_secs(1);
    let pause = rest.held(at, &outlook(true, None), Some(second));
    assert!(second < pause && pause <= second + LEAST, "{pause:?}");
    let later = rest.held(at, &outlook(true, Some(behind(1))), Some(second / 2));
    assert_eq!(later + second / 2, pause + TIME_SLOT);
    assert_eq!(rest.due().unwrap().early, Duration::ZERO);
}

#[test]
fn only_a_waiter_behind_others_without_a_stream_looks() {
    for (outlook, looks) in [
        (outlook(false, Some(behind(1))), true),
        (outlook(true, Some(behind(1))), false),
        (outlook(false, Some(behind(0))), false),
        (outlook(false, None), false),
    ] {
        assert_eq!(resting(&outlook).0.looks(), looks, "{outlook:?}");
    }
}

#[test]
fn a_release_has_the_waiter_ask_after_the_time_slots_of_those_before_it() {
    let (mut rest, at) = resting(&outlook(true, Some(behind(1))));
    rest.look_sent(at.now, 7);
    assert!(rest.awaits_look(7));
    assert!(!rest.released(at.now, Some(behind(1))));
    assert!(!rest.awaits_look(7), "the query may be older than the release");
    let asks = Due {
        at: at.now + TIME_SLOT,
        asks: true,
        early: Duration::ZERO,
    };
    assert_eq!(rest.due(), Some(asks));
    assert!(rest.released(at.now, Some(behind(0))));
    assert!(
        rest.released(at.now, Some(behind(1))),
        "it sends a request already"
    );
}

#[test]
fn an_acquisition_lets_a_waiter_in_line_rest_on_unless_a_release_may_be_missed() {
    let (mut rest, _) = resting(&outlook(true, Some(behind(1))));
    assert!(rest.rests_on(true) && !rest.rests_on(false));
    rest.outdated();
    assert!(!rest.rests_on(true));
    rest.finish();
    assert!(!rest.rests_on(true));
}

#[test]
fn a_waiter_that_may_have_missed_a_release_asks_at_once() {
    let (mut rest, at) = resting(&outlook(true, None));
    rest.outdated();
    assert_eq!(rest.due().unwrap().at, rest.since());
    rest.finish();
    let pause = rest.held(at, &outlook(true, None), None);
    assert_eq!(pause, Duration::ZERO, "nothing has been heard since");
    rest.ask();
    let pause = rest.held(at, &outlook(true, None), None);
    assert_eq!(pause, POLL_BESIDE_STREAM);
}

#[test]
fn a_free_lock_is_left_once_to_those_before() {
    let (mut rest, at) = resting(&outlook(false, Some(behind(1))));
    assert!(!rest.found_free(at.now, Some(behind(1))));
    assert_eq!(rest.due().unwrap().at, at.now + LEAST.max(TIME_SLOT));
    assert!(
        rest.found_free(at.now, Some(behind(1))),
        "the second time in a row"
    );
    let (mut rest, at) = resting(&outlook(false, Some(behind(1))));
    assert!(!rest.found_free(at.now, Some(behind(1))));
    rest.found_held();
    assert!(!rest.found_free(at.now, Some(behind(1))), "another one had it");
    let (mut rest, at) = resting(&outlook(false, Some(behind(1))));
    assert!(rest.found_free(at.now, Some(behind(0))) && !rest.is_resting());
}

#[test]
fn an_overdue_look_is_sent_again() {
    let (mut rest, at) = resting(&outlook(false, Some(behind(1))));
    rest.look_sent(at.now, 1);
    assert_eq!(rest.due().unwrap().at, at.now + ACQUIRE_OVERDUE);
}

#[test]
fn a_waiter_looks_or_asks_when_its_place_comes() {
    let (mut rest, at) = rest();
    let until = at.now + TIME_SLOT;
    for is_reported in [true, false] {
        rest.yields(until, is_reported);
        let due = rest.due().unwrap();
        assert_eq!(
            (due.at, due.asks, rest.looks()),
            (until, is_reported, !is_reported)
        );
    }
}

#[test]
fn a_failed_look_is_repeated_by_a_waiter_that_rests() {
    let (mut rest, at) = resting(&outlook(false, None));
    assert!(rest.look_failed(at).is_some_and(|pause| pause <= MOST));
    rest.finish();
    assert_eq!(rest.look_failed(at), None);
}

#[test]
fn a_call_that_is_not_registered_pauses_until_the_end_of_the_lease_at_most() {
    let (mut pauses, at) = (
        Pauses::new(Backoff::new(MOST..=MOST), 0),
        Moment::at(Instant::now()),
    );
    assert_eq!(pauses.after_error(at), MOST);
    assert_eq!(pauses.after_held(at, None), MOST);
    let pause = pauses.after_held(at, Some(LEAST));
    assert!(LEAST < pause && pause <= LEAST * 2, "{pause:?}");
}

#[test]
fn a_caller_registers_when_its_wait_is_worth_it() {
    let registers = |is_in_line, has_many| {
        let mut pauses = Pauses::new(Backoff::new(MOST..=MOST), 0);
        let mut at_reply = |of: fn(Registers) -> bool| {
            pauses.held_replies = 0;
            (1..=3).find(|_| of(pauses.held(is_in_line, has_many)))
        };
        [at_reply(|held| held.stream), at_reply(|held| held.line)]
    };
    assert_eq!(registers(false, false), [Some(2), Some(2)]);
    assert_eq!(registers(true, false), [Some(1), Some(1)]);
    assert_eq!(registers(false, true), [Some(1), Some(2)]);
}

#[test]
fn a_call_keeps_time_for_its_own_requests() {
    let millis = |left| left_to_others(Duration::from_millis(left)).as_millis();
    assert_eq!([1000, 150, 50].map(millis), [500, 50, 0]);
}
