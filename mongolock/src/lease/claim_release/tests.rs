use super::*;
use crate::LossReason;
use crate::lease::Queues;
use crate::lease::tests::lease;
use crate::options::Options;

const TAKEN_FOR: Duration = Duration::from_secs(30);

fn key() -> LeaseId {
    LeaseId {
        name: Arc::from("n"),
        lock_id: Arc::from("owner#1"),
    }
}

/// Requests of a claim of a set, one of which is without a reply.
fn unanswered() -> Copies {
    let copies = Copies::of_set(1).remove(0);
    copies.sent();
    copies
}

fn of_round(copies: &Copies) -> ClaimRelease {
    ClaimRelease::of_claim(
        key(),
        ClaimEnd::RELEASED,
        TAKEN_FOR,
        QueueSlot::Nothing,
        Some(copies.clone()),
        false,
    )
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_released_again_as_long_as_a_request_may_take_effect() {
    let (begun, copies) = (Instant::now(), unanswered());
    let (mut release, mut times) = (of_round(&copies), Vec::new());
    while let Some(next) = release.next(true) {
        assert!(next.is_late && !next.is_settled());
        assert!(!next.is_noted_in_line, "no caller has had a turn");
        tokio::time::sleep_until(next.at).await;
        times.push(begun.elapsed().as_millis());
        release = next;
    }
    assert_eq!(times, [5500, 10_000, 30_000, 90_000]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_acquired_again_during_its_release_is_released_at_once() {
    let copies = unanswered();
    let release = of_round(&copies);
    copies.begin_release();
    copies.note(Instant::now(), 1, None);
    let next = release.next(true).unwrap();
    assert!(!next.is_late);
    assert_eq!(next.at, Instant::now());
}

#[test]
fn the_claim_of_a_lease_is_released_again_as_well() {
    let mut lease = lease("n", &Options::default());
    lease.parts[0].copies = Some(unanswered());
    let releases = ClaimRelease::of_lease(&lease);
    assert!(releases[0].next(true).is_some_and(|next| next.is_noted_in_line));
}

/// What is left to release is an acquire request that takes effect late.
#[test]
fn the_claim_of_a_lease_that_is_gone_is_released_as_a_precaution_if_at_all() {
    let mut lease = lease("n", &Options::default());
    assert!(lease.may_have_claim());
    lease.lose(LossReason::Gone);
    assert!(!lease.may_have_claim());
    lease.parts[0].copies = Some(unanswered());
    assert!(lease.may_have_claim());
    let releases = ClaimRelease::of_lease(&lease);
    assert!(releases[0].is_late && !releases[0].is_settled());
    lease.note_shutdown_release();
    assert!(!lease.may_have_claim());
}

#[tokio::test(start_paused = true)]
async fn an_id_is_given_up_until_the_last_release_of_it() {
    let (given_up, copies) = (Arc::default(), unanswered());
    let mut release = of_round(&copies);
    release.announce(&given_up);
    let next = release.next(true);
    drop(release);
    assert!(given_up.find(Instant::now(), &key().lock_id).is_some());
    drop(next);
    assert!(given_up.find(Instant::now(), &key().lock_id).is_none());
}

/// Neither the release nor a waiter of this process may end the claim before.
#[tokio::test(start_paused = true)]
async fn a_claim_is_not_released_while_its_holder_may_use_it() {
    let (given_up, unused_from) = (Arc::default(), Instant::now() + Duration::from_secs(1));
    let mut release = of_round(&unanswered()).unused_from(unused_from);
    assert_eq!(release.at, unused_from);
    release.announce(&given_up);
    assert!(given_up.find(Instant::now(), &key().lock_id).is_none());
    tokio::time::sleep_until(unused_from).await;
    assert!(given_up.find(Instant::now(), &key().lock_id).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_repetition_alone_gives_up_when_the_first_release_would_have() {
    let release = of_round(&unanswered());
    let (ends, later) = (release.ends_at(), release.at + Duration::from_secs(10));
    assert_eq!(release.reply_limit(), RELEASE_NO_REPLY);
    let alone = release.alone(later);
    assert_eq!(alone.reply_limit(), RELEASE_NO_REPLY * 2);
    assert_eq!((alone.at, alone.ends_at(), alone.failures), (later, ends, 1));
    let now = Instant::now();
    assert_eq!(alone.rescheduled(now).at, now);
}

#[test]
fn the_turn_passes_on_and_a_shutdown_still_waits() {
    let entry = Queues::new().join(&key().name);
    let slot = QueueSlot::Turn(entry.try_turn().unwrap());
    let release = ClaimRelease::of_claim(
        key(),
        ClaimEnd::RELEASED,
        TAKEN_FOR,
        slot,
        Some(unanswered()),
        false,
    );
    assert!(entry.try_turn().is_none());
    let release = release.without_turn();
    assert!(entry.try_turn().is_some() && release.is_awaited());
}
