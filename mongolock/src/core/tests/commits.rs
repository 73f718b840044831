//! Transactions under a hold, of which some mark its work.

use super::*;
use crate::timing::{COMMAND_LIMIT, NO_REPLY};

/// The options of work that may succeed once; its mark is kept for so long.
fn rules_of(kept: Ms) -> Rules {
    Rules {
        once: Some(OncePolicy::Kept(kept)),
        ..RULES
    }
}

/// A hold whose work may succeed once; its mark is kept for so long.
fn holds(kept: Ms) -> (One, Key) {
    let mut one = One::new();
    one.calls(rules_of(kept), "a", None);
    one.ends(None);
    let hold = one.hold().expect("it has the lock");
    (one, hold)
}

fn ends(hold: Key, marks: bool, was_made: Option<bool>, awaited: Option<u32>) -> Event<u32> {
    Event::CommitEnds {
        hold,
        marks,
        was_made,
        awaited,
    }
}

/// The document has this id in place of the one of the claim.
fn has_id(one: &mut One, id: impl FnOnce(&str) -> String) {
    let document = one.documents.get_mut("a").expect("it is held");
    let own = document.lock_id.text().expect("it has an id").to_string();
    document.lock_id = Value::Text(id(&own).into());
}

/// The ends of the lease of which the holder was notified.
fn extended(one: &mut One) -> Vec<Ms> {
    let end = |notice| match notice {
        Notice::Extended(end) => end.0 / MS,
        other => panic!("{other:?}"),
    };
    one.told.drain(..).map(end).collect()
}

#[test]
fn a_lease_lasts_no_longer_than_the_mark_that_a_commit_may_make() {
    let (mut one, hold) = holds(5000);
    one.until(1000);
    one.feed(Event::CommitBegins { hold, marks: false });
    one.feed(ends(hold, false, Some(true), None));
    assert!(
        matches!(one.told[..], [Notice::Committed(None)] | []),
        "it makes no mark"
    );
    one.told.clear();
    one.feed(Event::CommitBegins { hold, marks: true });
    assert_eq!(extended(&mut one), [6000]);
    assert_eq!(one.sent_at(4000), ["a"]);
    one.ends(None);
    assert_eq!(extended(&mut one).last(), Some(&6000), "also after a renewal");
    one.feed(ends(hold, true, Some(false), None));
    one.told.clear();
    one.feed(Event::Renew(None));
    one.ends(None);
    assert_eq!(extended(&mut one), [15_878], "there is no mark");
    let (mut one, hold) = holds(60_000);
    one.feed(Event::CommitBegins { hold, marks: true });
    assert!(one.told.is_empty(), "the mark lasts for longer");
}

#[test]
fn a_renewal_that_misses_is_a_loss_unless_a_commit_may_have_marked_the_work() {
    for marks in [false, true] {
        let (mut one, hold) = holds(60_000);
        one.feed(Event::CommitBegins { hold, marks });
        has_id(&mut one, |_| "bert".to_owned());
        one.until(4000);
        one.ends(None);
        let is_lost = matches!(one.told[..], [Notice::Lost(LossReason::Gone)]);
        assert_eq!(is_lost, !marks);
        if marks {
            one.until(5000);
            assert!(one.sent.is_empty(), "it waits for the end of the commit");
            one.feed(ends(hold, true, Some(false), None));
            one.told.clear();
            one.ends(None);
            assert!(
                matches!(one.told[..], [Notice::Lost(LossReason::Gone)]),
                "it is renewed at once"
            );
        }
    }
    let (mut one, hold) = holds(60_000);
    one.feed(Event::CommitBegins { hold, marks: true });
    one.feed(ends(hold, true, Some(false), None));
    assert!(one.sent.is_empty(), "no renewal has missed");
    one.told.clear();
    has_id(&mut one, |_| "bert".to_owned());
    one.until(4000);
    one.ends(None);
    assert!(
        matches!(one.told[..], [Notice::Lost(LossReason::Gone)]),
        "the commit has ended"
    );
}

#[test]
fn the_last_of_several_commits_ends_the_wait() {
    let (mut one, hold) = holds(60_000);
    one.feed(Event::CommitBegins { hold, marks: true });
    one.feed(Event::CommitBegins { hold, marks: false });
    one.feed(ends(hold, true, Some(false), None));
    one.told.clear();
    one.feed(Event::End(hold, Ending::Release, Some(0)));
    assert!(
        one.sent.is_empty() && one.told.is_empty(),
        "it waits for the other one"
    );
    one.feed(ends(hold, false, Some(true), None));
    assert_eq!(one.sent.len(), 1);
    one.ends(None);
    assert!(
        one.told
            .iter()
            .any(|notice| matches!(notice, Notice::Ended(Ok(Ended::Released))))
    );
}

#[test]
fn a_commit_that_has_marked_the_work_ends_the_hold_and_the_next_call_asks() {
    let (mut one, hold) = holds(60_000);
    one.calls(RULES, "a", None);
    one.feed(Event::CommitBegins { hold, marks: true });
    has_id(&mut one, |own| format!("done:{own}"));
    one.feed(ends(hold, true, Some(true), None));
    assert!(
        one.told
            .iter()
            .any(|notice| matches!(notice, Notice::Ended(Ok(Ended::Marked))))
    );
    assert_eq!(one.sent.len(), 1, "the next call");
    one.feed(Event::End(hold, Ending::Release, Some(0)));
    assert!(
        matches!(one.told.last(), Some(Notice::Ended(Ok(Ended::Lost)))),
        "nothing is left to end"
    );
}

#[test]
fn a_renewal_says_whether_an_unknown_commit_was_made() {
    let unknown = |was_made: bool| {
        let (mut one, hold) = holds(60_000);
        one.feed(Event::CommitBegins { hold, marks: true });
        one.feed(ends(hold, true, None, Some(0)));
        one.told.clear();
        assert_eq!(one.sent.len(), 1, "a renewal goes at once");
        if was_made {
            has_id(&mut one, |own| format!("done:{own}"));
        }
        one
    };
    let mut one = unknown(true);
    one.ends(None);
    assert!(matches!(
        one.told[..],
        [Notice::Committed(Some(true)), Notice::Ended(Ok(Ended::Marked))]
    ));
    let mut one = unknown(false);
    one.ends(None);
    assert!(matches!(one.told[..], [Notice::Committed(Some(false)), ..]));
    let mut one = unknown(false);
    let limit = (span(COMMAND_LIMIT) + span(NO_REPLY)) / MS;
    one.until(limit - 1);
    assert!(one.told.is_empty());
    one.until(limit);
    assert!(
        matches!(one.told[..], [Notice::Committed(None)]),
        "no reply has come"
    );
}

#[test]
fn only_a_commit_that_may_mark_the_work_puts_off_a_loss() {
    let lost = |one: &mut One| {
        one.told.clear();
        has_id(one, |_| "bert".to_owned());
        one.until(4000);
        one.ends(None);
        matches!(one.told[..], [Notice::Lost(LossReason::Gone)])
    };
    let (mut one, hold) = holds(60_000);
    one.feed(Event::CommitBegins { hold, marks: true });
    one.feed(Event::CommitBegins { hold, marks: false });
    one.feed(ends(hold, false, Some(true), None));
    assert!(!lost(&mut one), "the first one is under way");
    let (mut one, hold) = holds(60_000);
    one.feed(Event::CommitBegins { hold, marks: true });
    one.feed(ends(hold, true, Some(false), None));
    one.feed(Event::CommitBegins { hold, marks: false });
    assert!(lost(&mut one), "the one that could mark it has ended");
}
