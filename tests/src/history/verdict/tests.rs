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
    Step::Acquired {
        token: Some(token),
        lease: LEASE,
    }
}

/// The steps with which a hold begins.
fn begin(process: usize, begun: u64, token: i64) -> Vec<Event> {
    vec![
        event(process, begun - 1, Step::Invoke),
        event(process, begun, acquired(token)),
    ]
}

/// The steps of a hold from its call to its release, which takes effect a millisecond after the section.
fn hold(process: usize, begun: u64, ended: u64, token: i64) -> Vec<Event> {
    let ended = [
        event(process, ended, Step::Ended { is_lost: false }),
        event(process, ended + 1, Step::Released(Outcome::Ok)),
    ];
    [begin(process, begun, token), ended.into()].concat()
}

/// A hold of process 1 from 10 ms on that is stopped in this time, and finds at this time that it is lost.
fn stopped(stop: (u64, u64), lost: u64) -> Vec<Event> {
    let steps = [
        event(1, stop.0, Step::Stopped),
        event(1, stop.1, Step::Continued),
        event(1, lost, Step::Ended { is_lost: true }),
    ];
    [begin(1, 10, 1), steps.into()].concat()
}

/// A hold of process 1 that is stopped over the end of its lease at 110 ms, beside one of process 2 from 120 to 150 ms.
fn stopped_beside_another() -> Vec<Event> {
    [stopped((20, 140), 141), hold(2, 120, 150, 2)].concat()
}

fn judge(events: Vec<Event>) -> Verdict {
    let mut history = History::default();
    // The order in which they are added does not matter.
    events.into_iter().rev().for_each(|event| history.add(event));
    history.judge()
}

fn write(process: usize, token: i64, is_fenced: bool, sent: u64, confirmed: u64) -> Event {
    let sent = millis(sent);
    let step = Step::Written {
        token,
        is_fenced,
        sent,
    };
    event(process, confirmed, step)
}

#[test]
fn a_sound_history_has_no_breach() {
    let mut events = [hold(1, 10, 20, 1), hold(2, 21, 30, 2), hold(1, 40, 50, 3)].concat();
    events.push(write(1, 1, true, 11, 12));
    events.push(write(2, 2, true, 22, 23));
    events.push(write(1, 3, false, 41, 42));
    let verdict = judge(events);
    assert_eq!(verdict.breaches(), [""; 0]);
    assert_eq!((verdict.holds, verdict.lost.len()), (3, 0));
    assert!(verdict.late_sections.is_empty() && verdict.late_writes.is_empty());
    verdict.assert_sound();
}

#[test]
fn an_overlap_is_found() {
    let verdict = judge([hold(1, 10, 20, 1), hold(2, 19, 30, 2)].concat());
    assert_eq!(verdict.overlaps.len(), 1);
    assert_eq!(verdict.false_releases.len(), 1, "its release was confirmed");
    assert_eq!(verdict.breaches().len(), 2);
}

/// Sections that touch do not overlap.
#[test]
fn a_hold_may_begin_when_another_ends() {
    let verdict = judge([hold(1, 10, 20, 1), hold(2, 20, 30, 2)].concat());
    assert!(verdict.overlaps.is_empty(), "{verdict}");
}

#[test]
#[should_panic(expected = "two holders at the same time")]
fn a_breach_fails_a_test() {
    judge([hold(1, 10, 20, 1), hold(2, 19, 30, 2)].concat()).assert_sound();
}

#[test]
fn tokens_that_fall_or_stay_are_found() {
    // After a token that has fallen the next one is compared with the greatest as well.
    for (second, found) in [(1, 2), (5, 1), (6, 0)] {
        let holds = [
            hold(1, 10, 20, 5),
            hold(2, 21, 30, second),
            hold(1, 31, 40, second.max(4) + 1),
        ];
        let verdict = judge(holds.concat());
        assert_eq!(verdict.falling_tokens.len(), found, "{second}");
    }
}

/// The overlap of a stopped holder is no breach, and is measured.
#[test]
fn the_late_section_of_a_stopped_holder_is_measured() {
    let verdict = judge(stopped_beside_another());
    assert_eq!(verdict.breaches(), [""; 0]);
    assert_eq!(verdict.late_sections.len(), 1);
    let late = &verdict.late_sections[0];
    assert_eq!((late.process, late.beside, late.time), (1, 2, millis(21)));
    assert_eq!(verdict.lost.len(), 1);
    assert_eq!(verdict.lost[0].process, 1);
}

/// It must have been stopped over the end of its lease, and must have found its loss.
#[test]
fn other_overlaps_of_a_stopped_holder_are_breaches() {
    let changes: [fn(&mut Event); 2] = [
        |event| {
            if event.step == Step::Continued {
                event.at = millis(100);
            }
        },
        |event| {
            if event.step == (Step::Ended { is_lost: true }) {
                event.step = Step::Ended { is_lost: false };
            }
        },
    ];
    for change in changes {
        let mut events = stopped_beside_another();
        events.iter_mut().for_each(change);
        assert_eq!(judge(events).overlaps.len(), 1);
    }
}

/// A hold that was renewed for minutes and lost later; its lease of 100 ms at the beginning says nothing about its end.
fn renewed_with_a_stop(stop: (u64, u64), later: u64) -> Verdict {
    judge([stopped(stop, later + 40), hold(2, later, later + 50, 2)].concat())
}

/// A short stop of a renewed hold excuses no overlap before it or well after it.
#[test]
fn a_stop_at_another_time_excuses_no_overlap() {
    for later in [119_000, 119_999, 120_200, 180_000] {
        let verdict = renewed_with_a_stop((120_000, 120_010), later);
        assert_eq!(
            (verdict.overlaps.len(), verdict.late_sections.len()),
            (1, 0),
            "{later}"
        );
    }
    let verdict = renewed_with_a_stop((120_000, 121_000), 120_500);
    assert_eq!((verdict.overlaps.len(), verdict.late_sections.len()), (0, 1));
}

/// The section of a stopped holder lasts longer than those after it, of which two overlap.
#[test]
fn a_stopped_holder_hides_no_overlap() {
    let mut events = stopped_beside_another();
    events.extend(hold(3, 130, 139, 3));
    let verdict = judge(events);
    assert_eq!(verdict.overlaps.len(), 1, "processes 2 and 3");
    assert_eq!(verdict.late_sections.len(), 2);
}

#[test]
fn a_hold_that_its_release_did_not_find_is_lost() {
    let mut events = hold(1, 10, 20, 1);
    events[3].step = Step::Released(Outcome::Failed("gone".to_owned()));
    assert_eq!(judge(events.clone()).lost.len(), 1);
    events[3].step = Step::Released(Outcome::Unknown("no reply".to_owned()));
    assert_eq!(judge(events).lost.len(), 0);
}

/// A killed holder held the lock until then; if it was stopped, until that.
#[test]
fn a_killed_holder_held_the_lock_until_its_last_step() {
    let killed = |more: Vec<Event>| judge([begin(1, 10, 1), more, hold(2, 120, 130, 2)].concat());
    let kill = |at| event(1, at, Step::Killed);
    assert_eq!(killed(vec![kill(119)]).overlaps.len(), 0);
    assert_eq!(killed(vec![kill(121)]).overlaps.len(), 1);
    let stopped = killed(vec![event(1, 20, Step::Stopped), kill(121)]);
    assert_eq!(stopped.overlaps.len(), 0);
    assert_eq!(killed(Vec::new()).overlaps.len(), 1, "it was not killed");
}

/// The kill is noted before it is sent.
#[test]
fn the_last_steps_of_a_killed_process_may_follow_its_kill() {
    let mut events = vec![
        event(1, 10, Step::Killed),
        event(1, 11, Step::Invoke),
        event(1, 12, acquired(1)),
        event(1, 13, Step::Ended { is_lost: false }),
        event(1, 14, Step::Invoke),
    ];
    events.extend(hold(2, 120, 130, 2));
    let verdict = judge(events);
    assert_eq!((verdict.breaches().len(), verdict.holds), (0, 2), "{verdict}");
}

#[test]
fn a_section_without_an_end_lasts_until_the_next_call() {
    let twice = [begin(1, 10, 1), hold(1, 40, 50, 3)].concat();
    assert_eq!(
        judge([twice.clone(), hold(2, 37, 39, 2)].concat()).overlaps.len(),
        1
    );
    assert_eq!(judge(twice).holds, 2);
}

#[test]
fn a_stale_fenced_write_that_was_accepted_is_found() {
    let both = |sent| {
        let writes = vec![write(2, 2, true, 121, 122), write(1, 1, true, sent, 142)];
        judge([stopped_beside_another(), writes].concat())
    };
    assert_eq!(both(141).stale_writes.len(), 1);
    assert_eq!(both(121).stale_writes.len(), 0, "they were on their way together");
}

#[test]
fn a_late_write_without_a_fence_is_measured() {
    let verdict = judge([stopped_beside_another(), vec![write(1, 1, false, 19, 143)]].concat());
    assert_eq!(verdict.breaches(), [""; 0]);
    assert_eq!(verdict.late_writes.len(), 1);
    assert_eq!(verdict.late_writes[0].time, millis(23));
    assert!(
        verdict
            .to_string()
            .contains("1 writes after it had begun (latest 23ms)"),
        "{verdict}"
    );
}

#[test]
fn a_call_without_an_answer_is_found() {
    let call = event(2, 15, Step::Invoke);
    let verdict = judge([hold(1, 10, 20, 1), vec![call.clone()]].concat());
    assert_eq!(verdict.unanswered, std::slice::from_ref(&call));
    let error = "timeout".to_owned();
    let failed = Step::NotAcquired {
        error,
        is_unknown: true,
    };
    let verdict = judge(vec![call.clone(), event(2, 16, failed)]);
    assert_eq!((verdict.breaches().len(), verdict.failed), (0, (1, 1)));
    let verdict = judge(vec![call, event(2, 16, Step::Killed)]);
    assert_eq!(verdict.breaches(), [""; 0]);
}

/// Neither the answer to a later call of the task nor a kill answers an earlier call.
#[test]
fn a_call_without_an_answer_is_found_before_another_call() {
    let call = event(1, 2, Step::Invoke);
    let answered = judge([vec![call.clone()], hold(1, 10, 20, 1)].concat());
    assert_eq!(answered.unanswered, std::slice::from_ref(&call));
    let again = event(1, 5, Step::Invoke);
    let killed = judge(vec![call.clone(), again.clone(), event(1, 6, Step::Killed)]);
    assert_eq!(killed.unanswered, std::slice::from_ref(&call));
    let open = judge(vec![call.clone(), again.clone()]);
    assert_eq!(open.unanswered, [call, again]);
}

/// Calls that have failed are a part of the wait.
#[test]
fn a_wait_begins_with_the_first_call() {
    let error = "no primary".to_owned();
    let failed = Step::NotAcquired {
        error,
        is_unknown: false,
    };
    let mut history = History::default();
    let calls = [event(1, 2, Step::Invoke), event(1, 5, failed)];
    let all = calls.into_iter().chain(hold(1, 10, 20, 1));
    all.for_each(|event| history.add(event));
    assert_eq!(history.holds()[0].asked, millis(2));
}
