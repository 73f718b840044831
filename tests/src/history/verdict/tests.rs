//! What is planted in a sound history is found, and nothing else.

use std::time::Duration;

use super::super::{Event, History, Outcome, Step};
use super::Verdict;

const LEASE: Duration = Duration::from_millis(100);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn event(process: usize, at: u64, step: Step) -> Event {
    Event::at(0, millis(at), step).of(process)
}

fn acquired(token: i64) -> Step {
    let token = Some(token);
    Step::Acquired { token, lease: LEASE }
}

fn ended(is_lost: bool) -> Step {
    Step::Ended { is_lost }
}

/// The steps with which a hold begins.
fn begin(process: usize, begun: u64, token: i64) -> Vec<Event> {
    vec![
        event(process, begun - 1, Step::Invoke),
        event(process, begun, acquired(token)),
    ]
}

/// The steps of a hold whose release has this outcome, which takes effect a millisecond after the section.
fn released(process: usize, times: (u64, u64), token: i64, outcome: Outcome) -> Vec<Event> {
    let end = [
        event(process, times.1, ended(false)),
        event(process, times.1 + 1, Step::Released(outcome)),
    ];
    [begin(process, times.0, token), end.into()].concat()
}

fn hold(process: usize, begun: u64, ended: u64, token: i64) -> Vec<Event> {
    released(process, (begun, ended), token, Outcome::Ok)
}

/// A hold of process 1 from 10 ms on that is stopped in this time, and then ends.
fn stopped(stop: (u64, u64), end: u64, is_lost: bool) -> Vec<Event> {
    let steps = [
        event(1, stop.0, Step::Stopped),
        event(1, stop.1, Step::Continued),
        event(1, end, ended(is_lost)),
    ];
    [begin(1, 10, 1), steps.into()].concat()
}

/// A hold of process 1 that is stopped over the end of its lease at 110 ms, beside one of process 2 from 120 to 150 ms, and
/// these steps.
fn beside_a_stopped_one(more: Vec<Event>) -> Vec<Event> {
    [stopped((20, 140), 141, true), hold(2, 120, 150, 2), more].concat()
}

/// A hold that was renewed for minutes and is lost 40 ms after another one has begun; its lease of 100 ms at the beginning says
/// nothing about its end.
fn renewed_with_a_stop(stop: (u64, u64), later: u64) -> Vec<Event> {
    [stopped(stop, later + 40, true), hold(2, later, later + 50, 2)].concat()
}

/// Process 1 acquires the lock, and these steps follow; process 2 holds it from 120 ms on.
fn killed(more: &[Event]) -> Vec<Event> {
    [begin(1, 10, 1), more.to_vec(), hold(2, 120, 130, 2)].concat()
}

fn judge(events: &[Event]) -> Verdict {
    let mut history = History::default();
    // The order in which they are added does not matter.
    let events = events.iter().rev().cloned();
    events.for_each(|event| history.add(event));
    history.judge()
}

/// The numbers of the breaches (overlaps, tokens that do not rise, false releases, unanswered calls), and of the rest (losses, late
/// sections).
#[track_caller]
fn assert_found(events: &[Event], breaches: [usize; 4], rest: [usize; 2]) {
    let it = judge(events);
    let [overlaps, tokens, releases] = [&it.overlaps, &it.falling_tokens, &it.false_releases].map(Vec::len);
    let found = [overlaps, tokens, releases, it.unanswered.len()];
    let others = [it.lost, it.late_sections.len()];
    assert_eq!((found, others), (breaches, rest), "{it}");
    assert_eq!(it.breaches().len(), breaches.iter().sum::<usize>());
}

#[test]
fn a_sound_history_has_no_breach() {
    let events = [hold(1, 10, 20, 1), hold(2, 21, 30, 2), hold(1, 40, 50, 3)].concat();
    assert_found(&events, [0; 4], [0; 2]);
    assert_eq!(judge(&events).holds, 3);
    judge(&events).assert_sound();
}

#[test]
#[should_panic(expected = "two holders at the same time")]
fn a_breach_fails_a_test() {
    judge(&[hold(1, 10, 20, 1), hold(2, 19, 30, 2)].concat()).assert_sound();
}

#[test]
fn overlaps_and_tokens_that_do_not_rise_are_found() {
    let overlap = [hold(1, 10, 20, 1), hold(2, 19, 30, 2)].concat();
    assert_found(&overlap, [1, 0, 1, 0], [0; 2]);
    let touching = [hold(1, 10, 20, 1), hold(2, 20, 30, 2)].concat();
    assert_found(&touching, [0; 4], [0; 2]);
    // After a token that has fallen the next one is compared with the greatest as well.
    for (second, found) in [(1, 2), (5, 1), (6, 0)] {
        let third = second.max(4) + 1;
        let holds = [
            hold(1, 10, 20, 5),
            hold(2, 21, 30, second),
            hold(1, 31, 40, third),
        ];
        assert_found(&holds.concat(), [0, found, 0, 0], [0; 2]);
    }
}

/// The overlap of a stopped holder is no breach, and is measured. It must have been stopped over the end of its lease, and must
/// have found its loss.
#[test]
fn the_late_section_of_a_stopped_holder_is_measured() {
    let events = beside_a_stopped_one(Vec::new());
    assert_found(&events, [0; 4], [1, 1]);
    assert_eq!(judge(&events).late_sections, [millis(21)]);
    let too_early = [stopped((20, 100), 141, true), hold(2, 120, 150, 2)].concat();
    assert_found(&too_early, [1, 0, 0, 0], [1, 0]);
    let not_lost = [stopped((20, 140), 141, false), hold(2, 120, 150, 2)].concat();
    assert_found(&not_lost, [1, 0, 0, 0], [0; 2]);
    // It hides no overlap of those after it.
    let two_later = beside_a_stopped_one(hold(3, 130, 139, 3));
    assert_found(&two_later, [1, 0, 1, 0], [1, 2]);
}

/// A short stop of a renewed hold excuses no overlap before it or well after it.
#[test]
fn a_stop_at_another_time_excuses_no_overlap() {
    for later in [119_000, 119_999, 120_200, 180_000] {
        let events = renewed_with_a_stop((120_000, 120_010), later);
        assert_found(&events, [1, 0, 0, 0], [1, 0]);
    }
    let during = renewed_with_a_stop((120_000, 121_000), 120_500);
    assert_found(&during, [0; 4], [1, 1]);
}

#[test]
fn a_hold_that_its_release_did_not_find_is_lost() {
    let failed = released(1, (10, 20), 1, Outcome::Failed);
    assert_found(&failed, [0; 4], [1, 0]);
    let unknown = released(1, (10, 20), 1, Outcome::Unknown);
    assert_found(&unknown, [0; 4], [0; 2]);
}

/// A killed holder held the lock until then; if it was stopped, until that. The kill is noted before it is sent.
#[test]
fn a_killed_holder_held_the_lock_until_its_last_step() {
    let kill = |at| event(1, at, Step::Killed);
    let overlap = [1, 0, 0, 0];
    assert_found(&killed(&[kill(119)]), [0; 4], [0; 2]);
    assert_found(&killed(&[kill(121)]), overlap, [0; 2]);
    let stop = event(1, 20, Step::Stopped);
    assert_found(&killed(&[stop, kill(121)]), [0; 4], [0; 2]);
    assert_found(&killed(&[]), overlap, [0; 2]);
    let last_steps = vec![
        kill(10),
        event(1, 11, Step::Invoke),
        event(1, 12, acquired(1)),
        event(1, 13, ended(false)),
        event(1, 14, Step::Invoke),
    ];
    let events = [last_steps, hold(2, 120, 130, 2)].concat();
    assert_found(&events, [0; 4], [0; 2]);
    assert_eq!(judge(&events).holds, 2);
}

#[test]
fn a_section_without_an_end_lasts_until_the_next_call() {
    let twice = [begin(1, 10, 1), hold(1, 40, 50, 3)].concat();
    assert_eq!(judge(&twice).holds, 2);
    assert_found(&[twice, hold(2, 37, 39, 2)].concat(), [1, 0, 0, 0], [0; 2]);
}

/// Neither the answer to a later call of the task nor a kill answers an earlier call.
#[test]
fn a_call_without_an_answer_is_found() {
    let call = |at| event(1, at, Step::Invoke);
    let kill = event(1, 6, Step::Killed);
    let answered = [vec![call(2)], hold(1, 10, 20, 1)].concat();
    let cases = [
        (answered, vec![call(2)]),
        (vec![call(2), call(5), kill.clone()], vec![call(2)]),
        (vec![call(2), call(5)], vec![call(2), call(5)]),
        (vec![call(2), kill], Vec::new()),
        (vec![call(2), event(1, 3, Step::NotAcquired)], Vec::new()),
    ];
    for (events, unanswered) in cases {
        assert_eq!(judge(&events).unanswered, unanswered, "{events:?}");
        assert_found(&events, [0, 0, 0, unanswered.len()], [0; 2]);
    }
}
