//! Which permit a call asks for, and when it looks at all of them.

use super::*;
use crate::protocol::News;

/// Other programs have these permits of the semaphore.
fn are_held(one: &mut One, numbers: &[u32]) {
    for number in numbers {
        one.is_held_by_another(&permit_id::new("a", *number));
    }
}

fn calls(one: &mut One, width: u32, is_try: bool) {
    let join = Join {
        limit: None,
        is_try,
        is_inside_hold: false,
        cell: 0,
    };
    one.feed(Event::Join(
        Wanted::Permit(permit_id::group("a"), width),
        RULES,
        join,
    ));
}

/// What is sent in this time: for each command its time in milliseconds, and the number of the permit, or none for a look.
fn sent(one: &mut One, ms: Ms) -> Vec<(Ms, Option<u32>)> {
    let (begun, mut sent) = (one.now, Vec::new());
    let end = begun + ms * MS;
    loop {
        loop {
            let at = (one.now - begun) / MS;
            let number = one
                .sent
                .front()
                .map(|(_, rows, _)| permit_id::number(&rows[0].name));
            if !one.next_replies() {
                break;
            }
            sent.push((at, number.flatten()));
        }
        match one.core.next_due().filter(|at| *at <= end) {
            Some(at) => one.now = at.max(one.now),
            None => break,
        }
        one.feed(Event::Tick);
    }
    one.now = end;
    sent
}

/// What the callers were notified of: whether each got a permit, or the cause of its failure.
fn told(one: &mut One) -> Vec<Result<Option<u32>, Cause>> {
    let told = |notice| match notice {
        Notice::Held(_, grants, _) => Ok(grants[0].permit),
        Notice::Failed(failure) => Err(failure.cause),
        other => panic!("{other:?}"),
    };
    one.told.drain(..).map(told).collect()
}

#[test]
fn a_call_asks_for_one_permit_and_then_looks_at_all() {
    let mut one = One::new();
    are_held(&mut one, &[0, 1]);
    calls(&mut one, 2, false);
    assert_eq!(sent(&mut one, 50), [(0, Some(1)), (0, None)]);
    let later = sent(&mut one, 200);
    assert!(
        matches!(later[..], [(100..200, None)]),
        "{later:?}: it looks again after a pause"
    );
    // One of them is free: the call asks for it as soon as it sees that.
    one.documents.remove(&permit_id::new("a", 0));
    assert_eq!(
        sent(&mut one, 1000).last().map(|(_, number)| *number),
        Some(Some(0))
    );
    assert_eq!(told(&mut one), [Ok(Some(0))]);
}

#[test]
fn a_single_attempt_fails_when_all_of_its_permits_are_held() {
    let mut one = One::new();
    are_held(&mut one, &[0, 1]);
    calls(&mut one, 2, true);
    assert_eq!(sent(&mut one, 0).len(), 2);
    assert_eq!(told(&mut one), [Err(Cause::Busy)]);
    let mut one = One::new();
    are_held(&mut one, &[1]);
    calls(&mut one, 2, true);
    sent(&mut one, 0);
    assert_eq!(told(&mut one), [Ok(Some(0))]);
    // With one permit a look would say no more.
    let mut one = One::new();
    are_held(&mut one, &[0, 1]);
    calls(&mut one, 1, true);
    assert_eq!(sent(&mut one, 0), [(0, Some(0))]);
    assert_eq!(told(&mut one), [Err(Cause::Busy)]);
}

#[test]
fn permits_beyond_the_number_of_this_program_are_reported() {
    for (width, is_reported) in [(3, false), (2, true)] {
        let mut one = One::new();
        are_held(&mut one, &[0, 1, 2]);
        calls(&mut one, width, false);
        sent(&mut one, 0);
        let differ = |report: &Report<u32>| matches!(report, Report::PermitsDiffer(_, 2, 2));
        assert_eq!(one.reports.iter().any(differ), is_reported, "{width}");
    }
}

#[test]
fn a_released_permit_goes_to_the_next_call_of_this_process() {
    let mut one = One::new();
    calls(&mut one, 2, false);
    calls(&mut one, 2, false);
    assert_eq!(
        sent(&mut one, 0),
        [(0, Some(1)), (0, Some(0))],
        "beside each other"
    );
    let hold = match one.told[0] {
        Notice::Held(hold, ..) => hold,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(told(&mut one), [Ok(Some(1)), Ok(Some(0))]);
    calls(&mut one, 2, false);
    calls(&mut one, 2, true);
    assert!(sent(&mut one, 400).is_empty(), "this process has all of them");
    assert_eq!(told(&mut one), [Err(Cause::Busy)]);
    one.feed(Event::End(hold, Ending::Release, None));
    assert_eq!(
        sent(&mut one, 0),
        [(0, Some(1)), (0, Some(1))],
        "the release and the next claim"
    );
    assert_eq!(told(&mut one), [Ok(Some(1))]);
}

#[test]
fn a_stream_replaces_the_looks_and_its_events_say_which_permits_are_free() {
    let mut one = One::with_streams(true);
    are_held(&mut one, &[0, 1]);
    calls(&mut one, 2, false);
    let before = sent(&mut one, 100);
    assert!(
        before.len() >= 4 && one.watched == [(1, Some(vec![permit_id::group("a")]))],
        "{before:?}"
    );
    one.feed(Event::Opened(1));
    let after = sent(&mut one, 3000);
    assert_eq!(after.len(), 3, "{after:?}: one second each");
    let name = permit_id::new("a", 0);
    one.documents.remove(&name);
    one.feed(Event::News(News { name, sight: None }));
    let asked = sent(&mut one, 2);
    assert!(matches!(asked[..], [(_, Some(0))]), "{asked:?}");
    assert_eq!(told(&mut one), [Ok(Some(0))]);
}
