//! Detached leases: what becomes of a lock whose holder gives it a handle, in memory and on MongoDB, and what others see of it there.

use std::time::Duration;

use mongodb::bson::{Bson, Document};
use mongolock::{LeaseHandle, LockError, LockInfo, LockProvider, LockState, LossReason};
use mongolock_tests::{rounds, until};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::subject::Subject;
use super::{conformance, conformance_of_kinds};
use crate::fixture::{Fixture, acquire_and_release, assert_lost, in_time, refused_option};

conformance!(
    the_handle_exists_before_the_lease,
    what_cannot_be_used_is_refused,
    a_resumption_that_is_given_up_gives_the_lease_back,
    a_minimum_hold_goes_on,
    a_set_that_has_lost_a_lock_is_lost_as_a_whole,
    a_shutdown_leaves_detached_leases_alone,
);

conformance_of_kinds!(
    another_process_resumes_a_lease_with_a_greater_token: CALLS with threads,
    two_that_resume_one_handle_at_once: CALLS,
    a_handle_is_used_up_by_its_resumption: CALLS with threads,
    an_extension_never_shortens: CALLS with threads,
    a_lease_ends_with_its_time: CALLS,
);

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) async fn detached(provider: &LockProvider, name: &str) -> LeaseHandle {
    let guard = provider.lock(name).await.unwrap();
    guard.detach(HOUR).await.unwrap()
}

async fn another_process_resumes_a_lease_with_a_greater_token(subject: Subject) {
    let expected = subject.kind.expects();
    let hold = subject.ours().acquire().await.unwrap();
    let first = hold.context();
    let handle = hold.detach(HOUR).await.unwrap();
    assert!(handle.names().eq(expected.names.iter().copied()));
    assert_eq!(handle.permit(), (!expected.has_token).then_some(0));
    assert!(!expected.has_token || handle.fencing_token() == first.fencing_token());
    subject.assert_held().await;
    let stored: LeaseHandle = handle.text().parse().unwrap();
    let resumed = subject.theirs().resume(&stored).await.unwrap();
    let second = resumed.context();
    assert_eq!(second.name(), first.name(), "the name that was written first");
    subject.assert_newer(&second, &first);
    resumed.ensure_held().unwrap();
    let expiry = Duration::from_secs(30);
    assert!(resumed.remaining() <= expiry, "it has the expiry of its provider");
    let handle = resumed.detach(HOUR).await.unwrap();
    let again = subject.ours().resume(&handle).await.unwrap();
    subject.assert_newer(&again.context(), &second);
    subject.assert_held().await;
    again.release().await.unwrap();
    subject.assert_released().await;
}

/// A third process tries beside these changes of hands: a store in memory never waits, so the tasks yield to each other.
async fn two_that_resume_one_handle_at_once(subject: Subject) {
    let (ours, theirs) = (subject.ours(), subject.theirs());
    let third = subject.of(&subject.fixture.process("third"));
    let mut hold = ours.acquire().await.unwrap();
    let trying = tokio::spawn(async move {
        let mut tries = 0;
        while third.try_acquire().await.unwrap().is_none() {
            tries += 1;
            yield_now().await;
        }
        tries
    });
    for _ in 0..rounds(25) {
        let handle = hold.detach(HOUR).await.unwrap();
        yield_now().await;
        hold = match tokio::join!(ours.resume(&handle), theirs.resume(&handle)) {
            (Ok(won), lost) | (lost, Ok(won)) => {
                assert_lost(lost, LossReason::Gone);
                won
            }
            (Err(one), Err(other)) => panic!("{one:?} {other:?}"),
        };
        yield_now().await;
    }
    assert!(!trying.is_finished(), "the third process has acquired it");
    hold.release().await.unwrap();
    let tries = in_time(trying).await.unwrap();
    assert!(tries > 5, "{tries}");
}

async fn a_handle_is_used_up_by_its_resumption(subject: Subject) {
    let (ours, theirs) = (subject.ours(), subject.theirs());
    let assert_used_up = async |handle: &LeaseHandle| {
        for target in [&ours, &theirs] {
            assert_lost(target.resume(handle).await, LossReason::Gone);
            assert_lost(target.extend(handle, HOUR).await, LossReason::Gone);
            assert!(!target.release(handle).await.unwrap());
        }
    };
    let handle = ours.acquire().await.unwrap().detach(HOUR).await.unwrap();
    let hold = theirs.resume(&handle).await.unwrap();
    assert_used_up(&handle).await;
    hold.ensure_held().unwrap();
    let next = hold.detach(HOUR).await.unwrap();
    assert_used_up(&handle).await;
    assert!(ours.release(&next).await.unwrap());
    assert_used_up(&next).await;
    subject.assert_released().await;
    let hold = theirs.acquire().await.unwrap();
    assert_used_up(&next).await;
    hold.release().await.expect("it is another hold");
}

async fn an_extension_never_shortens(subject: Subject) {
    let (ours, theirs) = (subject.ours(), subject.theirs());
    let handle = ours.acquire().await.unwrap().detach(HOUR).await.unwrap();
    let end = async || subject.infos().await[0].expires_at;
    let begun = end().await;
    let extended = ours.extend(&handle, 2 * HOUR).await.unwrap();
    assert!(extended > begun);
    assert_eq!(end().await, extended);
    assert_eq!(theirs.extend(&handle, HOUR).await.unwrap(), extended);
    assert_eq!(end().await, extended);
    ours.resume(&handle).await.unwrap().release().await.unwrap();
}

async fn the_handle_exists_before_the_lease(fixture: Fixture) {
    let (provider, rival) = (&fixture.provider, fixture.rival());
    let detaching = provider.lock("n").await.unwrap().detach(HOUR);
    let handle = detaching.handle();
    assert_lost(rival.resume(&handle).await, LossReason::Gone);
    assert_eq!(detaching.await.unwrap(), handle);
    rival.resume(&handle).await.unwrap().release().await.unwrap();

    let detaching = provider.lock("n").await.unwrap().detach(HOUR);
    let (plain, named) = (detaching.handle(), detaching.owner("session:1").handle());
    assert_ne!(plain, named, "another owner makes another handle");
}

async fn what_cannot_be_used_is_refused(fixture: Fixture) {
    let (provider, other) = (&fixture.provider, LockProvider::in_memory());
    let handle = detached(&other, "n").await;
    let refused = |error: LockError| assert!(matches!(error, LockError::InvalidHandle { .. }), "{error:?}");
    refused(provider.resume(&handle).await.unwrap_err());
    refused(provider.extend(&handle, HOUR).await.unwrap_err());
    refused(provider.release(&handle).await.unwrap_err());
    refused(other.resume_permit(&handle).await.unwrap_err());
    let permit = provider.semaphore("s", 1).await.unwrap();
    let permit = permit.detach(HOUR).await.unwrap();
    refused(provider.resume(&permit).await.unwrap_err());
    assert!(provider.release(&permit).await.unwrap());
    other.resume(&handle).await.unwrap().release().await.unwrap();

    for ttl in [
        Duration::from_millis(99),
        HOUR * 24 * 7 + Duration::from_millis(1),
        Duration::from_micros(500_500),
    ] {
        let guard = provider.lock("n").await.unwrap();
        assert_eq!(refused_option(guard.detach(ttl).await), "ttl");
        let handle = detached(provider, "other").await;
        assert_eq!(refused_option(provider.extend(&handle, ttl).await), "ttl");
        assert!(provider.release(&handle).await.unwrap());
    }
    for owner in ["", "done:me", "a\nb"] {
        let guard = provider.lock("n").await.unwrap();
        assert_eq!(refused_option(guard.detach(HOUR).owner(owner).await), "owner");
    }
    acquire_and_release(&fixture.rival().lock("n")).await;
}

/// The first poll of the resumption sends the request, and then it is given up. In memory it takes one poll.
async fn a_resumption_that_is_given_up_gives_the_lease_back(fixture: Fixture) {
    let (provider, rival) = (&fixture.provider, fixture.rival());
    for round in 0..10 {
        let mut handle = detached(provider, "n").await;
        if let Ok(guard) = timeout(Duration::ZERO, rival.resume(&handle)).await {
            handle = guard.unwrap().detach(HOUR).await.unwrap();
        }
        match round % 3 {
            0 => assert!(rival.extend(&handle, HOUR).await.is_ok()),
            1 => handle = rival.resume(&handle).await.unwrap().detach(HOUR).await.unwrap(),
            _ => {}
        }
        assert!(rival.release(&handle).await.unwrap());
        assert!(fixture.is_free("n").await);
    }
}

async fn a_minimum_hold_goes_on(fixture: Fixture) {
    let (provider, rival) = (&fixture.provider, fixture.rival());
    let lock = provider.lock("n").min_hold(HOUR);
    let hold = lock.acquire().await.unwrap();
    let handle = hold.detach(Duration::from_secs(1)).await.unwrap();
    let begun = fixture.info("n").await;
    assert!(begun.remaining > HOUR / 2, "it lasts for the minimum hold");
    rival.resume(&handle).await.unwrap().release().await.unwrap();
    let info = fixture.info("n").await;
    assert_eq!(info.acquired_at, begun.acquired_at);
    assert!(info.state == LockState::Released && info.remaining > HOUR / 2);

    let lock = provider.lock("other").min_hold(HOUR);
    let handle = lock.acquire().await.unwrap().detach(HOUR).await.unwrap();
    assert!(rival.release(&handle).await.unwrap());
    let is_free = fixture.is_free("other").await;
    assert!(!is_free, "so is that of a release by the handle");

    // So does the period of work that may succeed once.
    let lock = provider.lock("tick").once();
    let handle = lock.acquire().await.unwrap().detach(HOUR).await.unwrap();
    rival.resume(&handle).await.unwrap().done().await.unwrap();
    assert!(matches!(lock.acquire().await, Err(LockError::Done { .. })));
}

async fn a_set_that_has_lost_a_lock_is_lost_as_a_whole(fixture: Fixture) {
    let (provider, rival, admin) = (&fixture.provider, fixture.rival(), fixture.provider.admin());
    for lost in ["a", "b", "c"] {
        // A resumption that misses a lock gives those before it back to the handle.
        let names = ["a", "b", "c"];
        let set = provider.lock_all(names).await.unwrap();
        let handle = set.detach(HOUR).await.unwrap();
        assert!(admin.force_release(lost).await.unwrap());
        assert_lost(rival.resume(&handle).await, LossReason::Gone);
        assert_lost(rival.extend(&handle, HOUR).await, LossReason::Gone);
        for name in names.into_iter().filter(|name| *name != lost) {
            assert!(!fixture.is_free(name).await, "they have their handle");
        }
        assert!(rival.release(&handle).await.unwrap());
    }
}

/// It waits for the release of a detachment that is given up.
async fn a_shutdown_leaves_detached_leases_alone(fixture: Fixture) {
    let (rival, ended) = (fixture.rival(), fixture.process("ended"));
    let handle = detached(&ended, "n").await;
    let detaching = ended.lock("given up").await.unwrap().detach(HOUR);
    let given_up = detaching.handle();
    // In memory it takes one poll.
    let is_detached = timeout(Duration::ZERO, detaching).await.is_ok();
    ended.shutdown().await;
    assert_eq!(rival.release(&given_up).await.unwrap(), is_detached);
    assert!(fixture.is_free("given up").await);
    let refused = ended.resume(&handle).await;
    assert!(matches!(refused, Err(LockError::ShutDown { .. })), "{refused:?}");
    rival.resume(&handle).await.unwrap().release().await.unwrap();
}

/// A takeover margin keeps others out for longer, and the lease alive for nobody.
async fn a_lease_ends_with_its_time(subject: Subject) {
    for margin in [Duration::ZERO, HOUR] {
        let provider = subject.fixture.with(|options| options.takeover_margin(margin));
        let target = subject.of(&provider);
        let hold = target.acquire().await.unwrap();
        let handle = hold.detach(Duration::from_millis(100)).await.unwrap();
        let is_expired = |info: &LockInfo| info.state == LockState::Expired;
        until("the lease expires", async || {
            subject.infos().await.iter().all(is_expired)
        })
        .await;
        assert_lost(target.resume(&handle).await, LossReason::Expired);
        assert_lost(target.extend(&handle, HOUR).await, LossReason::Expired);
        let is_kept = !margin.is_zero();
        assert!(!(is_kept && target.is_free().await), "the margin keeps it");
        let had_something_to_release = target.release(&handle).await.unwrap();
        assert_eq!(had_something_to_release, is_kept, "it ends the margin");
        assert!(target.is_free().await);
        assert_lost(target.resume(&handle).await, LossReason::Gone);
    }
}

/// S0.7: the document keeps its five fields with their types, so that DistributedLock.MongoDB finds the lock taken throughout.
#[tokio::test]
async fn a_detached_lock_keeps_its_five_fields() {
    let fixture = Fixture::mongodb().await;
    let guard = fixture.provider.lock("n").await.unwrap();
    let held = fixture.document("n").await.unwrap();
    let handle = guard.detach(HOUR).owner("session:1").await.unwrap();
    let detached = fixture.document("n").await.unwrap();
    let resumed = fixture.rival().resume(&handle).await.unwrap();
    let again = fixture.document("n").await.unwrap();
    for document in [&detached, &again] {
        assert!(held.keys().eq(document.keys()));
        let types = |document: &Document| document.values().map(Bson::element_type).collect::<Vec<_>>();
        assert_eq!(types(&held), types(document));
        assert_eq!(held.get("acquiredAt"), document.get("acquiredAt"));
    }
    let id = detached.get_str("lockId").unwrap();
    let (owner, uuid) = id.rsplit_once('#').unwrap();
    assert_eq!(owner, "session:1");
    assert_eq!(uuid.as_bytes()[14], b'8', "the version says that it is detached");
    assert!(again.get_str("lockId").unwrap().starts_with("session:1#"));
    assert_eq!(held.get("fencingToken"), detached.get("fencingToken"));
    assert_eq!(again.get_i64("fencingToken"), Ok(resumed.fencing_token().get()));
}

/// Whoever reads the collection or a stream of it, or the commands, finds no handle and nothing to make one from.
#[tokio::test]
async fn the_text_of_a_handle_is_not_on_the_server() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let mut stream = fixture.locks().watch().await.unwrap();
    let mut texts = Vec::new();
    for names in [vec!["n"], vec!["a", "b"]] {
        let set = provider.lock_all(names).await.unwrap();
        let handle = set.detach(HOUR).await.unwrap();
        texts.push(handle.text().trim_start_matches("mlh1.").to_owned());
        provider.extend(&handle, HOUR).await.unwrap();
        let set = provider.resume(&handle).await.unwrap();
        let handle = set.detach(HOUR).await.unwrap();
        texts.push(handle.text().trim_start_matches("mlh1.").to_owned());
        provider.release(&handle).await.unwrap();
    }
    let mut seen: Vec<String> = commands.take().iter().map(ToString::to_string).collect();
    while let Some(event) = stream.next_if_any().await.unwrap() {
        seen.push(format!("{event:?}"));
    }
    assert!(seen.len() > 10, "{seen:?}");
    for text in texts {
        // Not even a part of it.
        let shows = |seen: &String| seen.contains(&text[..40]) || seen.contains("mlh1");
        assert!(!seen.iter().any(shows));
    }
}
