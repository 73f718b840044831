//! What a failed command leaves: pauses, the estimated time of a command, and reports.

use super::*;
use crate::protocol::Id;

/// The times in milliseconds between commands that end so.
fn pauses(one: &mut One, ends: &[Option<FaultKind>]) -> Vec<Ms> {
    let pause = |failed: &Option<FaultKind>| {
        let begun = one.now;
        one.ends(*failed);
        one.until_sent();
        (one.now - begun) / MS
    };
    ends.iter().map(pause).collect()
}

/// The only report of a failed command.
fn report(one: &mut One) -> Option<FailedCommand<u32>> {
    let mut reports = one.reports.drain(..).filter_map(|report| match report {
        Report::Failed(failed) => Some(failed),
        _ => None,
    });
    let first = reports.next();
    assert!(reports.next().is_none(), "there is one at most");
    first
}

/// Of which command, for how many rows, which document and which cell a report is.
fn about(failed: &FailedCommand<u32>) -> (Lane, usize, &str, Option<u32>) {
    (failed.lane, failed.number, &failed.name, failed.cell)
}

#[test]
fn rejected_commands_pause_for_longer_each_time_and_for_less_after_a_reply() {
    const REJECTED: Option<FaultKind> = Some(FaultKind::Overloaded);
    let mut one = One::new();
    one.calls(RULES, "a", None);
    let own = pauses(&mut one, &[REJECTED; 7]);
    // Each is at the same place between half of the pause and the whole.
    let part = own[6];
    assert!((200..400).contains(&part));
    for (pause, whole) in own.iter().zip([20, 40, 80, 160, 320, 400, 400]) {
        assert!((pause - part * whole / 400).abs() <= 1, "{own:?}");
    }
    one.is_held_by_another("a");
    pauses(&mut one, &[None]);
    // It is a quarter now, and twice that after the next rejection.
    assert!((pauses(&mut one, &[REJECTED])[0] - part / 2).abs() <= 1);
    pauses(&mut one, &[None]);
    assert!((pauses(&mut one, &[REJECTED])[0] - part / 4).abs() <= 1);
    pauses(&mut one, &[None, None]);
    let again = pauses(&mut one, &[REJECTED])[0];
    assert!(
        (again - part * 20 / 400).abs() <= 1,
        "{again}: there was no pause left"
    );
}

#[test]
fn a_rejected_command_lets_those_of_lower_priority_wait_and_no_others() {
    let mut one = One::new();
    one.acquires(RULES, &["a"]);
    one.until(3995);
    one.calls(RULES, "b", None);
    one.ends(Some(FaultKind::Overloaded));
    assert_eq!(one.sent_at(4000), ["a"], "a renewal waits for no claim");
    let mut one = One::new();
    one.acquires(RULES, &["a"]);
    assert_eq!(one.sent_at(4000), ["a"]);
    one.ends(Some(FaultKind::Overloaded));
    one.calls(RULES, "b", None);
    one.until(4009);
    assert!(one.sent.is_empty(), "the shortest pause is not over");
    one.until(4020);
    assert_eq!(one.sent.len(), 2);
}

#[test]
fn the_time_of_a_command_is_the_shortest_of_the_first_replies_and_then_changes_slowly() {
    let mut one = One::new();
    let mut slots = Vec::new();
    for (place, took) in [20, 10, 30, 40, 90, 2, 1, 0].into_iter().enumerate() {
        one.calls(RULES, &format!("lock {place}"), None);
        let Then::Claim { id, .. } = &one.sent[0].1[0].then else {
            panic!("a claim is sent");
        };
        slots.push(Id::parse(id).expect("it is an id of this library").time_slot());
        one.until_time(one.now + took * MS);
        one.ends(None);
        one.now = one.now + 2 * MS;
    }
    // With 5 ms for a slot: 20, 10, 10, 10, then an eighth of the difference, which is no greater than the time itself.
    assert_eq!(slots, [5, 25, 15, 15, 15, 16, 15, 13]);
}

#[test]
fn a_failed_claim_is_reported_with_its_caller_and_the_time_of_the_next_one() {
    let mut one = One::new();
    one.joins_with(RULES, Wanted::Lock("a".into()), None, 3);
    let begun = one.now;
    one.ends(Some(FaultKind::Failed));
    let failed = report(&mut one).expect("it is reported");
    assert_eq!(about(&failed), (Lane::Claims, 1, "a", Some(3)));
    one.until_sent();
    assert_eq!(Some(one.now - begun), failed.pause);
    let begun = one.now;
    one.ends(Some(FaultKind::Overloaded));
    let pause = report(&mut one).and_then(|report| report.pause);
    one.until_sent();
    assert_eq!(Some(one.now - begun), pause, "that of the lane");
    one.ends(Some(FaultKind::Refused));
    let refused = report(&mut one).expect("it is reported");
    assert_eq!((refused.cell, refused.pause), (None, None), "its call has failed");
}

#[test]
fn claims_that_have_failed_together_are_reported_when_each_has_failed() {
    let mut one = One::new();
    for place in 0..8 {
        one.calls(RULES, &format!("lock {place}"), None);
    }
    assert_eq!(one.sent.len(), 4, "the others wait for a place");
    one.ends(None);
    one.sent.rotate_right(1);
    assert_eq!(one.sent[0].1.len(), 4, "they go together");
    one.ends(Some(FaultKind::Failed));
    assert!(report(&mut one).is_none());
    one.sent.rotate_right(1);
    assert_eq!(one.sent[0].1.len(), 1, "each goes alone");
    one.ends(Some(FaultKind::Failed));
    assert_eq!(report(&mut one).map(|report| report.number), Some(1));
}

#[test]
fn failed_renewals_are_reported_together_with_the_first_holder() {
    let mut one = One::new();
    one.joins_with(RULES, Wanted::Lock("a".into()), None, 3);
    one.ends(None);
    one.acquires_with(4, "b");
    one.told.clear();
    assert_eq!(one.sent_at(4000), ["a b"]);
    one.ends(Some(FaultKind::Blocked));
    let failed = report(&mut one).expect("it is reported");
    assert_eq!(about(&failed), (Lane::Renewals, 2, "a", Some(3)));
    assert_eq!(failed.pause, Some(0), "each goes alone at once");
    one.ends(Some(FaultKind::Refused));
    let failed = report(&mut one).expect("it is reported");
    assert_eq!(
        (about(&failed), failed.pause),
        ((Lane::Renewals, 1, "a", Some(3)), Some(0))
    );
}

#[test]
fn a_failed_release_is_reported_with_who_waits_for_it() {
    let mut one = One::new();
    let hold = one.acquires(RULES, &["a"]);
    one.feed(Event::End(hold, Ending::Release, Some(9)));
    let begun = one.now;
    one.ends(Some(FaultKind::Failed));
    let failed = report(&mut one).expect("it is reported");
    assert_eq!(about(&failed), (Lane::Ends, 1, "a", Some(9)));
    one.until_sent();
    assert_eq!(Some(one.now - begun), failed.pause);
    one.ends(Some(FaultKind::Refused));
    assert_eq!(
        report(&mut one).and_then(|report| report.pause),
        None,
        "it is not repeated"
    );
}

#[test]
fn a_failed_look_is_reported_with_the_caller_that_waits() {
    let mut one = One::with_streams(true);
    one.is_held_by_another("a");
    one.joins_with(RULES, Wanted::Lock("a".into()), None, 3);
    one.replies();
    one.until_sent();
    one.replies();
    one.feed(Event::Opened(1));
    one.until_sent();
    one.replies();
    one.until_sent();
    let (key, names) = one.looks.pop_front().expect("it looks while the stream is open");
    assert_eq!(names, ["a".into()]);
    one.reports.clear();
    let begun = one.now;
    one.feed(Event::Looked(key, Err(fault(FaultKind::Failed))));
    let failed = report(&mut one).expect("it is reported");
    assert_eq!(about(&failed), (Lane::Looks, 1, "a", Some(3)));
    one.until_sent();
    assert_eq!(Some(one.now - begun), failed.pause);
    assert!(one.looks.is_empty(), "a claim says more");
}
