//! When a change stream is opened, for which locks, and what its events change.

use super::*;
use crate::protocol::News;

/// A call for a lock that another program has.
fn waits(one: &mut One, name: &str) -> Key {
    one.is_held_by_another(name);
    one.joins(Wanted::Lock(name.into()), None)
}

/// All commands have their replies at once, for this time.
fn is_answered(one: &mut One, ms: Ms) {
    let end = one.now + ms * MS;
    while let Some(at) = one.core.next_due().filter(|at| *at <= end) {
        one.now = at.max(one.now);
        one.feed(Event::Tick);
        one.replies();
    }
    one.now = end;
}

/// The time until the next command, which has its reply at once. It is a look, or a claim.
fn asks_after(one: &mut One) -> (Ms, bool) {
    let begun = one.now;
    one.until_sent();
    let is_look = !one.looks.is_empty();
    one.replies();
    ((one.now - begun) / MS, is_look)
}

/// A call that waits, with an open stream that reports its lock.
fn listens() -> One {
    let mut one = One::with_streams(true);
    waits(&mut one, "a");
    one.replies();
    asks_after(&mut one);
    one.feed(Event::Opened(1));
    one.until_sent();
    one.replies();
    one
}

fn names(one: &One, place: usize) -> Option<usize> {
    one.watched[place].1.as_ref().map(Vec::len)
}

#[test]
fn it_is_opened_after_two_replies_and_again_for_other_locks() {
    let mut one = One::with_streams(true);
    waits(&mut one, "a");
    one.replies();
    assert!(one.watched.is_empty(), "the lock may soon be free");
    let pause = asks_after(&mut one);
    assert!((5..15).contains(&pause.0) && !pause.1);
    assert_eq!(one.watched, [(1, Some(vec!["a".into()]))]);
    let second = asks_after(&mut one);
    assert!(
        (0..2).contains(&(second.0 - 2 * pause.0)),
        "the pauses grow until it is open"
    );
    waits(&mut one, "b");
    is_answered(&mut one, 100);
    assert!(
        one.watched.len() == 1 && !one.core.is_listening(),
        "one at a time"
    );
    one.feed(Event::Opened(7));
    assert!(!one.core.is_listening(), "it is no stream of this core");
    one.feed(Event::Opened(1));
    assert!(one.core.is_listening());
    assert_eq!(one.watched[1..], [(2, Some(vec!["a".into(), "b".into()]))]);
    one.feed(Event::Opened(2));
    is_answered(&mut one, 3000);
    assert_eq!(one.watched.len(), 2);
    waits(&mut one, "c");
    is_answered(&mut one, 100);
    assert_eq!(names(&one, 2), Some(3));
}

#[test]
fn a_call_rests_while_it_is_open_until_an_event() {
    let mut one = listens();
    // Between 800 and 1200 ms, by the random number of the test.
    let rest = (992, true);
    assert_eq!(asks_after(&mut one), rest);
    assert_eq!(asks_after(&mut one), rest);
    one.until_time(one.now + 100 * MS);
    // It is released.
    let name: Name = "a".into();
    let mut sight = one.sight("a");
    sight.document.lock_id = Value::Text("".into());
    one.feed(Event::News(News {
        name: name.clone(),
        sight: Some(sight),
    }));
    let asked = asks_after(&mut one);
    assert!(asked.0 <= 1 && !asked.1, "it asks at once");
    // Another one was faster.
    assert_eq!(asks_after(&mut one), rest);
    let taken = Event::News(News {
        name,
        sight: Some(one.sight("a")),
    });
    one.until_time(one.now + 900 * MS);
    one.feed(taken);
    assert_eq!(asks_after(&mut one), (957, true), "it rests anew");
}

#[test]
fn it_is_opened_again_after_its_end() {
    let mut one = listens();
    one.feed(Event::Closed {
        number: 5,
        is_lasting: true,
    });
    assert!(one.core.is_listening(), "it is another one");
    one.feed(Event::Closed {
        number: 1,
        is_lasting: false,
    });
    assert!(!one.core.is_listening());
    let closed = one.now;
    waits(&mut one, "b");
    one.replies();
    is_answered(&mut one, 999);
    assert_eq!(one.watched.len(), 1);
    is_answered(&mut one, 1);
    assert_eq!(one.watched[1..], [(2, Some(vec!["a".into(), "b".into()]))]);
    assert_eq!(one.now - closed, 1000 * MS);
    // The server has none.
    one.feed(Event::Closed {
        number: 2,
        is_lasting: true,
    });
    let pauses: Vec<Ms> = (0..12).map(|_| asks_after(&mut one).0).collect();
    let mut of_both = pauses[8..].chunks(2).map(|two| two.iter().sum::<Ms>());
    assert!(of_both.all(|pause| (500..1000).contains(&pause)), "{pauses:?}");
    waits(&mut one, "c");
    is_answered(&mut one, 200_000);
    assert_eq!(one.watched.len(), 2);
    is_answered(&mut one, 100_000);
    assert_eq!(one.watched.len(), 3, "it may have them after five minutes");
}

#[test]
fn it_reports_all_locks_if_there_are_many_and_single_ones_if_there_are_fewer() {
    let mut one = One::with_streams(true);
    let name = |number: usize| format!("lock {number}");
    let mut calls: Vec<Key> = (0..64).map(|number| waits(&mut one, &name(number))).collect();
    one.replies();
    is_answered(&mut one, 100);
    one.feed(Event::Opened(1));
    assert_eq!((one.watched.len(), names(&one, 1)), (2, Some(64)));
    one.feed(Event::Opened(2));
    calls.push(waits(&mut one, &name(64)));
    one.replies();
    is_answered(&mut one, 100);
    assert_eq!((one.watched.len(), names(&one, 2)), (3, None));
    one.feed(Event::Opened(3));
    calls.push(waits(&mut one, &name(65)));
    one.replies();
    is_answered(&mut one, 100);
    assert_eq!(one.watched.len(), 3, "it reports this one as well");
    for call in calls.drain(48..) {
        one.feed(Event::Leave(call));
    }
    is_answered(&mut one, 6000);
    assert_eq!(one.watched.len(), 3, "three quarters of them");
    one.feed(Event::Leave(calls[0]));
    is_answered(&mut one, 6000);
    assert_eq!((one.watched.len(), names(&one, 3)), (4, Some(47)));
    one.feed(Event::Opened(4));
    for call in calls.drain(1..) {
        one.feed(Event::Leave(call));
    }
    is_answered(&mut one, 4900);
    assert!(one.core.is_listening(), "a call may come soon");
    is_answered(&mut one, 200);
    assert!(!one.core.is_listening() && one.core.is_empty());
}
