use super::*;
use crate::error::failure::Failure;

const SECOND: Duration = Duration::from_secs(1);

fn asking() -> (Asking, Instant) {
    (of_kind(Kind::Lock), Instant::now())
}

fn of_kind(kind: Kind) -> Asking {
    Asking::new(kind, AdmissionClass::First, false)
}

fn next_after(asking: &mut Asking, outcome: Outcome<()>) -> After<()> {
    asking.next_after(
        outcome,
        Duration::ZERO,
        |id| id.ends_with("own").then_some(ClaimEnd::RELEASED),
        |_| true,
    )
}

fn held_by(lock_id: &str) -> Outcome<()> {
    Outcome::Held(Held {
        index: 0,
        holder: Holder::local(&lock_id.into(), Instant::now()),
        request: Duration::ZERO,
        dates: None,
    })
}

fn blocked() -> LockError {
    driver_error::blocked("n", mongodb::error::Error::custom("blocked"))
}

fn broken() -> LockError {
    LockError::Mongo(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())
}

/// The second table above, from its third row on: for a lock, a permit and a set.
#[test]
fn what_follows_the_end_of_a_request() {
    let kinds = [Kind::Lock, Kind::Permit, Kind::Set];
    let after = |outcome: fn() -> Outcome<()>| kinds.map(|kind| next_after(&mut of_kind(kind), outcome()));
    assert!(matches!(
        after(|| held_by("own")),
        [
            After::Clear(_, ClaimEnd::RELEASED),
            After::Clear(..),
            After::Clear(..)
        ]
    ));
    assert!(matches!(
        after(|| held_by("other")),
        [
            After::Next(Next::Held(_)),
            After::Next(Next::Held(_)),
            After::Next(Next::Held(_))
        ]
    ));
    assert!(matches!(
        after(|| Outcome::OutOfTime(blocked())),
        [
            After::Next(Next::Pause(None)),
            After::Next(Next::Leave(None)),
            After::Next(Next::Leave(None))
        ]
    ));
    assert!(matches!(
        after(|| Outcome::Failed(LockError::NoProvider)),
        [
            After::Next(Next::End(_)),
            After::Next(Next::End(_)),
            After::Next(Next::End(_))
        ]
    ));
    assert!(matches!(
        after(|| Outcome::Failed(blocked())),
        [
            After::Next(Next::Pause(Some(_))),
            After::Next(Next::Leave(Some(_))),
            After::Next(Next::Leave(Some(_)))
        ]
    ));
    assert!(matches!(
        after(|| Outcome::Failed(broken())),
        [
            After::Next(Next::Pause(Some(_))),
            After::Next(Next::Pause(Some(_))),
            After::Next(Next::Pause(Some(_)))
        ]
    ));
}

/// Without a known holder the call would end with what the server has said of the document.
#[test]
fn a_request_without_time_has_failed_if_no_reply_has_named_a_holder() {
    let (mut asking, _) = asking();
    let next = asking.next_after(
        Outcome::<()>::OutOfTime(blocked()),
        Duration::ZERO,
        |_| None,
        |_| false,
    );
    assert!(matches!(next, After::Next(Next::Pause(Some(_)))));
}

#[test]
fn a_single_try_ends_if_no_server_can_be_reached() {
    let unreachable = Failure::Unreachable {
        address: String::new(),
        reason: String::new(),
        kind: std::io::ErrorKind::ConnectionRefused,
        others: 0,
        is_unsent: true,
    };
    let unreachable = unreachable.into_error();
    let ends_call = |error: &LockError, is_try| ends_call(error, is_try, Duration::ZERO);
    assert!(!ends_call(&unreachable, false) && ends_call(&unreachable, true));
    assert!(!ends_call(&broken(), true));
}

#[test]
fn a_copy_is_sent_each_time_a_reply_is_overdue() {
    let (mut asking, mut now) = asking();
    assert_eq!(asking.next(now, None, 0), Ask::Send(AdmissionClass::First));
    for in_flight in 1..4 {
        assert_eq!(asking.admitted(now, None, false), Some(ACQUIRE_LIMIT));
        let (asked, overdue) = (Some(now), now + ACQUIRE_OVERDUE);
        assert_eq!(asking.next(now, asked, in_flight), Ask::Wait(overdue));
        now = overdue;
        assert_eq!(
            asking.next(now, asked, in_flight),
            Ask::Send(AdmissionClass::Copy)
        );
    }
}

#[test]
fn the_class_of_the_next_request_follows_from_the_last_one() {
    let (mut asking, now) = asking();
    asking.admitted(now, None, false);
    next_after(&mut asking, held_by("other"));
    assert_eq!(asking.next(now, None, 0), Ask::Send(AdmissionClass::Woken));
    assert_eq!(
        asking.next(now, None, 1),
        Ask::Send(AdmissionClass::Copy),
        "an earlier one has no reply yet"
    );
    asking.ended(LastEnd::Failed);
    assert_eq!(asking.next(now, None, 1), Ask::Send(AdmissionClass::Repeated));
    asking.ended(LastEnd::Rejected);
    assert_eq!(asking.next(now, None, 0), Ask::Send(AdmissionClass::Woken));
}

#[test]
fn copies_come_later_while_another_operation_blocks_the_document() {
    let (mut asking, now) = asking();
    asking.ended(LastEnd::Blocked);
    asking.admitted(now, None, false);
    let overdue = now + ACQUIRE_LIMIT + ACQUIRE_OVERDUE;
    assert_eq!(asking.next(now, Some(now), 1), Ask::Wait(overdue));
}

#[test]
fn a_round_sends_a_bounded_number_of_requests() {
    let (mut asking, mut now, mut asked) = (of_kind(Kind::Set), Instant::now(), None);
    for in_flight in 0..usize::from(MOST_REQUESTS) {
        assert!(matches!(asking.next(now, asked, in_flight), Ask::Send(_)));
        asking.admitted(now, None, false);
        asked = Some(now);
        now += ACQUIRE_OVERDUE;
    }
    assert!(matches!(
        next_after(&mut asking, Outcome::Failed(broken())),
        After::Next(Next::Leave(Some(_)))
    ));
    assert_eq!(asking.next(now, asked, 3), Ask::Wait(now + ACQUIRE_OVERDUE));
}

#[test]
fn the_limit_at_the_server_is_a_part_of_the_time_that_is_left() {
    let (mut asking, now) = asking();
    let mut limit = |left: Duration| asking.admitted(now, Some(now + left), false);
    assert_eq!(limit(Duration::ZERO), None, "nothing is sent at the deadline");
    assert_eq!(limit(SECOND * 60), Some(ACQUIRE_LIMIT));
    assert_eq!(limit(SECOND), Some(SECOND * 4 / 5));
    assert_eq!(limit(ACQUIRE_LIMIT_MIN), Some(ACQUIRE_LIMIT_MIN));
    assert_eq!(asking.admitted(now, None, true), Some(CROWDED_LIMIT));
    asking.limit_shortly();
    let limits = [(); 2].map(|()| asking.admitted(now, None, false));
    assert_eq!(limits, [Some(PERMIT_LIMIT), Some(ACQUIRE_LIMIT)]);
}
