//! When renewals, repetitions and polls are sent, and with which rows and limits; how long a lock is handed over.

use super::*;
use crate::protocol::{Id, IdKind};
use crate::timing::{RELEASE_REPLY_LIMIT, REQUEST_LIMIT};

#[test]
fn renewals_go_together() {
    let mut one = One::new();
    for (name, at) in [("a", 0), ("b", 1000), ("c", 1001)] {
        one.until(at);
        one.acquires(RULES, &[name]);
    }
    assert_eq!(one.sent_at(4000), ["a b"]);
    assert_eq!(one.sent[0].2, 2000 * MS, "the limit is a sixth of the lease");
    one.ends(None);
    assert!(matches!(one.told[..], [Notice::Extended(end), _] if end == Time(15_878 * MS)));
    assert_eq!(one.sent_at(5001), ["c"]);
    one.ends(None);
    assert_eq!(one.sent_at(8000), ["a b"]);
    one.ends(Some(FaultKind::Failed));
    assert_eq!(one.sent_at(8100), ["a b c"], "the connection was cut");
}

#[test]
fn a_blocked_renewal_goes_alone() {
    let mut one = One::new();
    one.acquires(RULES, &["a", "b"]);
    assert_eq!(one.sent_at(4000), ["a b"]);
    one.ends(Some(FaultKind::Blocked));
    one.ends(None);
    one.ends(Some(FaultKind::Blocked));
    for at in (4100..8000).step_by(100) {
        assert_eq!(one.sent_at(at), ["b"]);
        one.ends(Some(FaultKind::Blocked));
    }
    let mut sent = one.sent_at(8000);
    sent.sort();
    assert_eq!(sent, ["a", "b"], "each alone");
    one.ends(None);
    one.ends(None);
    assert_eq!(one.sent_at(12_000), ["a b"]);
}

#[test]
fn a_lease_that_may_last_for_some_time() {
    // What may have been renewed later is released, when the server has ended it.
    for (late, is_released) in [(500, false), (501, true)] {
        let mut one = One::new();
        let max_hold = Some(5000);
        one.acquires(Rules { max_hold, ..RULES }, &["a"]);
        one.until(4000 + late);
        one.ends(None);
        one.until(15_877);
        assert!(matches!(one.told[..], [Notice::Extended(_)]) && one.sent.is_empty());
        one.until(15_878);
        assert!(matches!(one.told[..], [_, Notice::Lost(LossReason::Expired)]));
        assert_eq!(one.sent_at(16_000).len(), usize::from(is_released));
    }
}

#[test]
fn a_lease_without_a_renewal() {
    let mut one = One::new();
    one.acquires(RULES, &["a"]);
    for at in [4000, 6100, 8200, 10_300] {
        assert_eq!(one.sent_at(at), ["a"]);
        one.sent.clear();
    }
    assert_eq!(one.sent_at(12_000), ["a"]);
    assert!(matches!(one.sent[0].1[0].then, Then::End { .. }));
    assert!(matches!(one.told[..], [Notice::Lost(LossReason::Expired)]));
}

#[test]
fn a_call_without_a_reply() {
    let failure = |last_reply: Ms| {
        let mut one = One::new();
        one.is_held_by_another("a");
        one.calls(RULES, "a", Some(3000));
        let mut asked = 3000;
        for at in 0..3000 {
            one.until(at);
            while at <= last_reply && !one.sent.is_empty() {
                one.ends(None);
            }
            asked = if one.sent.is_empty() { 3000 } else { asked.min(at) };
        }
        let failure = one.failure_at(3000);
        let (cause, is_seen) = (failure.cause, failure.seen.is_some());
        assert_eq!((cause, is_seen), (Cause::Timeout, last_reply >= 0));
        (failure.silent_for, (3000 - asked) * MS)
    };
    assert_eq!(failure(-1).0, Span::MAX, "there was never a reply");
    assert_eq!(failure(3000).0, 0);
    let (silent_for, since) = failure(1000);
    let is_since = since > 0 && (0..MS).contains(&(silent_for - since));
    assert!(is_since, "since the first request without a reply");
    // A release has no reply, for which the call waits.
    let mut one = One::new();
    let hold = one.acquires(RULES, &["a"]);
    let min_hold = 1;
    one.calls(Rules { min_hold, ..RULES }, "a", Some(3000));
    one.until(1000);
    one.feed(Event::End(hold, Ending::Release, Some(0)));
    assert_eq!(one.failure_at(3000).silent_for, 2000 * MS);
    let limit = span(RELEASE_REPLY_LIMIT) / MS;
    one.until(1000 + limit - 1);
    assert!(one.told.is_empty());
    one.until(1000 + limit);
    assert!(
        matches!(one.told[..], [Notice::Ended(Err(None))]),
        "its holder learns that"
    );
}

#[test]
fn a_call_without_a_limit() {
    let minute = span(REQUEST_LIMIT) / MS;
    for last_reply in [-1, 70_000] {
        let (mut one, mut replied) = (One::new(), 0);
        one.is_held_by_another("a");
        one.calls(RULES, "a", None);
        while one.now.0 < last_reply * MS {
            let due = one.core.next_due().expect("it asks again");
            one.until(due.0 / MS + 1);
            while !one.sent.is_empty() {
                one.ends(None);
                replied = one.now.0 / MS;
            }
        }
        assert_eq!(one.failure_at(replied + minute).cause, Cause::Unanswered);
    }
}

#[test]
fn a_lock_is_handed_over() {
    let plain = |ends: &[Ms]| hands_over(false, [RULES; 3], ends);
    assert_eq!(plain(&[159]), [true]);
    assert_eq!(plain(&[160]), [false]);
    assert_eq!(plain(&[100, 159]), [true, true]);
    assert_eq!(plain(&[100, 160]), [true, false]);
    let min_hold = 1;
    let other = Rules { min_hold, ..RULES };
    assert_eq!(
        hands_over(false, [RULES, RULES, other], &[1]),
        [false],
        "it has other options"
    );
    assert_eq!(hands_over(false, [other; 3], &[1]), [false], "it has a minimum");
    let beside_others = |ends: &[Ms]| hands_over(true, [RULES; 3], ends);
    assert_eq!(beside_others(&[19]), [true]);
    assert_eq!(beside_others(&[20]), [false]);
    assert_eq!(
        beside_others(&[1, 4]),
        [true, true],
        "a call that came soon after the turn began"
    );
    assert_eq!(beside_others(&[1, 5]), [true, false], "one that came later");
}

/// Whether the second caller hands its lock over when it ends its hold after this time, and so on; there is one more caller then.
fn hands_over(has_rival: bool, rules: [Rules; 3], ends: &[Ms]) -> Vec<bool> {
    let mut one = One::new();
    if has_rival {
        one.is_held_by_another("a");
    }
    for own in rules {
        one.calls(own, "a", None);
    }
    if has_rival {
        one.ends(None);
        one.documents.clear();
    }
    let first = one.waits_for_hold();
    one.feed(Event::End(first, Ending::Release, None));
    let mut hold = Some(one.waits_for_hold());
    let begun = one.now;
    let hands_over = |after: &Ms| {
        one.until_time(begun + after * MS);
        let present = hold.take().expect("the lock was handed over");
        one.feed(Event::End(present, Ending::Release, None));
        hold = one.hold();
        one.calls(rules[0], "a", None);
        hold.is_some()
    };
    ends.iter().map(hands_over).collect()
}

#[test]
fn the_pauses_grow() {
    let mut one = One::new();
    one.is_held_by_another("a");
    one.calls(RULES, "a", None);
    let pauses = |one: &mut One, number: usize| -> Vec<Span> {
        let pause = |_| {
            let begun = one.now;
            one.ends(None);
            one.until_sent();
            one.now - begun
        };
        (0..number).map(pause).collect()
    };
    // Each is at the same place between the shortest and the longest one, because the random number is the same.
    let own = pauses(&mut one, 6);
    assert!(own[0] > 50 * MS && own[0] < 100 * MS);
    let expected = |longest: Span| 50 * MS + (own[0] - 50 * MS) * (longest - 50) / 50;
    for (pause, longest) in own.iter().zip([100, 200, 400, 800, 1000, 1000]) {
        assert!((pause - expected(longest)).abs() < 20, "{own:?}");
    }
    // Another process of this library has it now: the pauses grow anew.
    let id = Id::drawn([2; 6], IdKind::Single, 5, 7).text("carl");
    one.documents.get_mut("a").expect("it is held").lock_id = Value::Text(id);
    for (pause, longest) in pauses(&mut one, 3).iter().zip([200, 400, 800]) {
        assert!((pause - expected(longest)).abs() < 20, "{pause}");
    }
}

#[test]
fn a_claim_has_a_limit() {
    let mut one = One::new();
    one.calls(RULES, "a", Some(3000));
    one.calls(RULES, "b", None);
    one.until(2000);
    one.joins(Wanted::All(vec!["c".into(), "d".into()]), None);
    let limits: Vec<Span> = one.sent.iter().map(|(_, _, limit)| limit / MS).collect();
    // A part of the caller's time, the longest one, both again, and that of a command for several locks.
    assert_eq!(limits, [2400, 5000, 500, 500, 500]);
    let id = |one: &One, place: usize| match &one.sent[place].1[0].then {
        Then::Claim { id, .. } => Id::parse(id).expect("it is an id of this library"),
        other => panic!("{other:?}"),
    };
    let first = id(&one, 0);
    assert_eq!(first, id(&one, 2), "a claim is repeated as it was");
    assert_eq!((first.mark(), first.time_slot()), ([1; 6], 5));
    one.sent.drain(..4);
    one.until(2020);
    one.ends(None);
    one.calls(RULES, "e", Some(100));
    assert_eq!(id(&one, 0).time_slot(), 25, "a command takes 20 ms");
    assert_eq!(one.sent[0].2, 200 * MS, "the shortest limit");
}

#[test]
fn a_lease_that_was_granted_late_may_last_for_longer_at_the_server() {
    for (late, is_released) in [(500, false), (501, true)] {
        let mut one = One::new();
        let max_hold = Some(1);
        one.calls(Rules { max_hold, ..RULES }, "a", None);
        one.until(late);
        one.ends(None);
        one.sent.clear();
        one.until(11_878);
        assert!(matches!(one.told.last(), Some(Notice::Lost(LossReason::Expired))));
        one.until(12_000);
        assert_eq!(one.sent.len(), usize::from(is_released));
    }
}

#[test]
fn renewals_that_have_failed_together_go_in_smaller_groups() {
    for (number, parts) in [(25, [1, 1]), (30, [25, 5])] {
        let mut one = One::new();
        for place in 0..number {
            one.acquires(RULES, &[&format!("lock {place}")]);
        }
        one.until(4000);
        assert_eq!(one.sent[0].1.len(), number);
        one.ends(Some(FaultKind::Blocked));
        let sent: Vec<usize> = one.sent.iter().map(|(_, rows, _)| rows.len()).collect();
        assert_eq!(sent[..2], parts);
    }
}

#[test]
fn a_rejected_claim_goes_with_those_that_came_meanwhile() {
    let mut one = One::new();
    one.calls(RULES, "a", None);
    one.ends(Some(FaultKind::Overloaded));
    one.calls(RULES, "b", None);
    one.until_sent();
    let names: Vec<&str> = one.sent[0].1.iter().map(|row| &*row.name).collect();
    assert_eq!(names, ["a", "b"]);
}

/// Whether a call has waited for another holder.
fn has_waited(one: &mut One) -> bool {
    match one.told.pop() {
        Some(Notice::Held(_, grants, _)) => grants[0].has_waited,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_grant_says_whether_its_call_has_waited_for_another_holder() {
    let mut one = One::new();
    one.calls(RULES, "a", None);
    one.calls(RULES, "a", None);
    one.ends(None);
    let Some(Notice::Held(hold, grants, _)) = one.told.pop() else {
        panic!("it has the lock");
    };
    assert!(!grants[0].has_waited);
    one.feed(Event::End(hold, Ending::Release, None));
    while one.told.is_empty() {
        one.until_sent();
        one.ends(None);
    }
    assert!(has_waited(&mut one), "it was behind the first one");
    let mut one = One::new();
    one.acquires(RULES, &["a"]);
    one.calls(RULES, "a", None);
    one.documents.clear();
    one.is_held_by_another("b");
    one.calls(RULES, "b", None);
    one.ends(None);
    one.documents.clear();
    while one.told.is_empty() {
        one.until_sent();
        one.ends(None);
    }
    assert!(has_waited(&mut one), "another process had it");
    // Of two permits one is free.
    let mut one = One::new();
    let mut waits = Vec::new();
    for width in [2, 2, 2] {
        one.joins(Wanted::Permit(permit_id::group("a"), width), None);
        if let Some((_, rows, _)) = one.sent.front() {
            assert_eq!(rows.len(), 1);
            one.ends(None);
        }
        waits.extend(one.told.drain(..).filter_map(|notice| match notice {
            Notice::Held(_, grants, _) => Some(grants[0].has_waited),
            _ => None,
        }));
    }
    assert_eq!(waits, [false, false]);
}

/// The times in milliseconds at which the lock is released, if each release has its reply at once.
fn released_at(one: &mut One) -> Vec<Ms> {
    let mut times = Vec::new();
    loop {
        while let Some((_, rows, _)) = one.sent.front() {
            assert!(matches!(rows[0].then, Then::End { .. }));
            times.push(one.now.0 / MS);
            one.ends(None);
        }
        let Some(due) = one.core.next_due() else {
            assert!(one.core.is_empty());
            return times;
        };
        one.now = due.max(one.now);
        one.feed(Event::Tick);
    }
}

#[test]
fn a_claim_that_may_arrive_late_is_released_again_and_a_long_one_once_more() {
    for (expiry, times) in [(60_000, vec![0, 5000]), (60_001, vec![0, 5000, 90_000])] {
        let mut one = One::new();
        let call = one.joins_with(Rules { expiry, ..RULES }, Wanted::Lock("a".into()), None, 0);
        one.feed(Event::Leave(call));
        one.ends(Some(FaultKind::Failed));
        assert_eq!(released_at(&mut one), times);
    }
}

#[test]
fn a_detached_lease_whose_handle_nobody_has_is_released_at_once_and_twice_later() {
    for name in ["a".into(), permit_id::new("a", 2)] {
        let mut one = One::new();
        one.is_held_by_another(&name);
        one.feed(Event::Discard(vec![(name.clone(), "bert".into())]));
        assert_eq!(one.sent[0].1[0].name, name);
        // What may still write the lease takes five seconds, and two more until its failure is known.
        assert_eq!(released_at(&mut one), [0, 7000, 90_000]);
        assert!(one.sight(&name).has(""));
    }
}
