//! What the engine asks the core.

use super::*;

#[test]
fn a_lock_has_the_holder_that_was_granted_it() {
    let mut one = One::new();
    one.acquires_with(3, "a");
    one.acquires_with(4, "b");
    one.joins_with(RULES, Wanted::Lock("c".into()), None, 5);
    let holder_of = |one: &One, name: &str| one.core.holder_of(name).copied();
    assert_eq!(
        ["a", "b", "c", "d"].map(|name| holder_of(&one, name)),
        [Some(3), Some(4), None, None]
    );
    assert_eq!(one.core.holders().copied().collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn a_shutdown_refuses_calls_but_for_those_inside_a_hold_until_it_is_closed() {
    let mut one = One::new();
    let hold = one.acquires(RULES, &["a"]);
    let refuses = |one: &One| [false, true].map(|is_inside| one.core.refuses(is_inside));
    assert_eq!(refuses(&one), [false, false]);
    one.feed(Event::Shutdown { is_closed: false });
    assert_eq!(refuses(&one), [true, false]);
    assert!(!one.core.is_idle(), "it is held");
    one.calls(RULES, "b", None);
    let cause = |one: &mut One| match one.told.pop() {
        Some(Notice::Failed(failure)) => failure.cause,
        other => panic!("{other:?}"),
    };
    assert_eq!(cause(&mut one), Cause::ShutDown);
    one.feed(Event::End(hold, Ending::Release, None));
    assert!(!one.core.is_idle(), "the release has no reply");
    one.ends(None);
    assert!(one.core.is_idle());
    one.feed(Event::Shutdown { is_closed: true });
    assert_eq!(refuses(&one), [true, true]);
}

#[test]
fn a_core_is_idle_with_a_release_that_was_refused() {
    let mut one = One::new();
    let hold = one.acquires(RULES, &["a"]);
    one.calls(RULES, "b", None);
    assert!(!one.core.is_idle(), "a call waits");
    one.ends(None);
    let second = one.hold().expect("it has the lock");
    one.feed(Event::End(second, Ending::Release, None));
    one.ends(None);
    one.feed(Event::End(hold, Ending::Release, None));
    one.ends(Some(FaultKind::Refused));
    assert!(one.core.is_idle() && !one.core.is_empty());
}

#[test]
fn a_mark_is_unconfirmed_until_its_reply() {
    let mut one = One::new();
    let marked = Rules {
        once: Some(OncePolicy::Kept(60_000)),
        ..RULES
    };
    one.calls(marked, "a", None);
    one.ends(None);
    let hold = one.hold().expect("it has the lock");
    assert!(!one.core.has_marks());
    one.feed(Event::End(hold, Ending::Done, Some(0)));
    assert!(one.core.has_marks());
    one.ends(None);
    assert!(!one.core.has_marks() && matches!(one.told[..], [Notice::Ended(Ok(Ended::Marked))]));
}

/// A lease with this id, which nobody has resumed.
fn is_detached(one: &mut One, name: &str, id: &str) {
    one.is_held_by_another(name);
    let document = one.documents.get_mut(name).expect("it is held");
    document.lock_id = Value::Text(id.into());
}

#[test]
fn a_lease_comes_back_to_its_handle_until_the_last_command_of_the_resumption_has_ended() {
    let mut one = One::new();
    is_detached(&mut one, "a", "a handle");
    let wanted = || Wanted::Leases(vec![("a".into(), "a handle".into())], 60_000);
    let call = one.joins(wanted(), None);
    assert!(!one.core.gives_back("a handle"), "it is being resumed");
    one.feed(Event::Leave(call));
    assert!(one.core.gives_back("a handle") && !one.core.gives_back("another one"));
    // The row that gives it back arrives first.
    one.sent.rotate_left(1);
    one.ends(None);
    assert!(
        one.core.gives_back("a handle"),
        "the first command may still arrive"
    );
    one.ends(None);
    while !one.sent.is_empty() {
        assert!(one.core.gives_back("a handle"));
        one.ends(None);
    }
    assert!(!one.core.gives_back("a handle"));
    assert!(one.sight("a").has("a handle"));
}

#[test]
fn a_resumption_has_the_lease_or_learns_what_became_of_it() {
    let resumes = |one: &mut One| {
        one.joins(
            Wanted::Leases(vec![("a".into(), "a handle".into())], 60_000),
            None,
        );
        one.ends(None);
        match one.told.pop() {
            Some(Notice::Held(..)) => None,
            Some(Notice::Failed(failure)) => Some(failure.cause),
            other => panic!("{other:?}"),
        }
    };
    let mut one = One::new();
    assert_eq!(resumes(&mut one), Some(Cause::Gone), "there is no document");
    is_detached(&mut one, "a", "a handle");
    one.until(1_000_000);
    assert_eq!(resumes(&mut one), Some(Cause::Expired));
    let mut one = One::new();
    is_detached(&mut one, "a", "another one");
    assert_eq!(resumes(&mut one), Some(Cause::Gone));
    let mut one = One::new();
    is_detached(&mut one, "a", "another one");
    one.until(1_000_000);
    assert_eq!(resumes(&mut one), Some(Cause::Gone), "another one has ended");
    let mut one = One::new();
    is_detached(&mut one, "a", "a handle");
    assert_eq!(resumes(&mut one), None);
}

#[test]
fn holds_are_renewed_at_once_if_the_engine_says_so() {
    let mut one = One::new();
    one.acquires(RULES, &["a", "b"]);
    one.feed(Event::Renew(Some("b".into())));
    assert_eq!(one.sent.len(), 1);
    assert_eq!(&*one.sent[0].1[0].name, "b");
    one.feed(Event::Renew(None));
    let names: Vec<&str> = one
        .sent
        .iter()
        .flat_map(|(_, rows, _)| rows)
        .map(|row| &*row.name)
        .collect();
    assert_eq!(names, ["b", "a", "b"]);
    one.feed(Event::Renew(Some("c".into())));
    assert_eq!(one.sent.len(), 2, "nobody holds it");
}
