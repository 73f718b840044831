//! Detached leases: what becomes of a lock whose holder gives it a handle, in memory and on MongoDB.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongolock::{LeaseHandle, LockError, LockGuard, LockInfo, LockProvider, LockState, LossReason};
use mongolock_tests::{AMPLE, eventually, must, rounds};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use super::subject::Subject;
use super::{conformance, conformance_of_kinds};
use crate::fixture::{Fixture, acquire_and_release, assert_lost, in_time, refused_option};

conformance!(
    a_detached_lock_is_held_and_shows_its_owner,
    the_handle_exists_before_the_lease,
    what_cannot_be_used_is_refused,
    dropping_the_future_releases_the_lock,
    a_resumption_that_is_given_up_gives_the_lease_back,
    a_minimum_hold_goes_on,
    work_that_may_succeed_once_can_span_processes,
    a_set_that_has_lost_a_lock_is_lost_as_a_whole,
    a_shutdown_leaves_detached_leases_alone,
    a_shutdown_waits_for_the_release_of_a_detachment_that_is_given_up,
);

conformance_of_kinds!(
    another_process_resumes_a_lease_with_a_greater_token: CALLS with threads,
    others_acquire_nothing_beside_changes_of_hands: CALLS,
    two_that_resume_one_handle_at_once: CALLS,
    a_handle_is_used_up_by_its_resumption: CALLS with threads,
    an_extension_never_shortens: CALLS with threads,
    a_waiter_gets_it_when_the_handle_is_released: CALLS with threads,
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

async fn a_detached_lock_is_held_and_shows_its_owner(fixture: Fixture) {
    let guard = fixture.provider.lock("n").await.unwrap();
    let begun = fixture.info("n").await;
    assert!(!begun.detached);
    let handle = guard.detach(HOUR).owner("session:1").await.unwrap();
    assert_eq!(handle.owner(), "session:1");
    let (rival, admin) = (fixture.rival(), fixture.provider.admin());
    let busy = rival.lock("n").acquire_timeout(Duration::ZERO).acquire().await;
    let Err(LockError::Timeout {
        holder,
        in_this_process,
        ..
    }) = busy
    else {
        panic!("{busy:?}");
    };
    assert_eq!((holder.as_deref(), in_this_process), (Some("session:1"), false));
    let info = fixture.info("n").await;
    assert!(info.detached && info.state == LockState::Held);
    assert_eq!(info.owner.as_deref(), Some("session:1"));
    assert_eq!(info.acquired_at, begun.acquired_at);
    assert!(info.remaining > HOUR / 2 && info.remaining <= HOUR);
    assert!(fixture.provider.held().is_empty());
    let resumed = rival.resume(&handle).await.unwrap();
    assert_eq!(resumed.context().owner(), "session:1");
    let info = fixture.info("n").await;
    assert!(!info.detached, "a process renews it");
    assert_eq!(info.owner.as_deref(), Some("session:1"), "the owner stays");
    assert_eq!(admin.release_owner("session:1").await.unwrap(), 1);
    assert_lost(resumed.release().await, LossReason::Gone);
}

/// Tries go on beside the changes of hands: a store in memory never waits, so the tasks yield to each other.
async fn others_acquire_nothing_beside_changes_of_hands(subject: Subject) {
    let third = subject.of(&subject.fixture.process("third"));
    let mut hold = subject.ours().acquire().await.unwrap();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let trying = tokio::spawn(async move {
        while third.try_acquire().await.unwrap().is_none() {
            counted.fetch_add(1, Ordering::Relaxed);
            yield_now().await;
        }
    });
    for round in 0..rounds(50) {
        let next = if round % 2 == 0 {
            subject.theirs()
        } else {
            subject.ours()
        };
        let handle = hold.detach(HOUR).await.unwrap();
        yield_now().await;
        hold = next.resume(&handle).await.unwrap();
        yield_now().await;
    }
    assert!(!trying.is_finished(), "the third process has acquired it");
    trying.abort();
    assert!(tries.load(Ordering::Relaxed) > 10, "{tries:?}");
    hold.release().await.unwrap();
}

async fn two_that_resume_one_handle_at_once(subject: Subject) {
    let (ours, theirs) = (subject.ours(), subject.theirs());
    for _ in 0..rounds(50) {
        let handle = ours.acquire().await.unwrap().detach(HOUR).await.unwrap();
        match tokio::join!(ours.resume(&handle), theirs.resume(&handle)) {
            (Ok(_won), lost) | (lost, Ok(_won)) => assert_lost(lost, LossReason::Gone),
            (Err(one), Err(other)) => panic!("{one:?} {other:?}"),
        }
    }
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

async fn a_waiter_gets_it_when_the_handle_is_released(subject: Subject) {
    let hold = subject.ours().acquire().await.unwrap();
    let waiters = [subject.ours().spawn_turn(), subject.theirs().spawn_turn()];
    let context = hold.context();
    let handle = hold.detach(HOUR).await.unwrap();
    assert!(context.is_lost(), "the hold has ended for its process");
    let resumed = subject.ours().resume(&handle).await.unwrap();
    let handle = resumed.detach(HOUR).await.unwrap();
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    assert!(subject.ours().release(&handle).await.unwrap());
    for waiter in waiters {
        in_time(waiter).await.unwrap();
    }
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
    let provider = &fixture.provider;
    let other = LockProvider::in_memory();
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

async fn dropping_the_future_releases_the_lock(fixture: Fixture) {
    let (provider, rival) = (&fixture.provider, fixture.rival());
    drop(provider.lock("n").await.unwrap().detach(HOUR));
    acquire_and_release(&rival.lock("n")).await;

    let detaching = provider.lock("n").await.unwrap().detach(HOUR);
    let handle = detaching.handle();
    // The first poll sends the request. In memory it takes one poll.
    if timeout(Duration::ZERO, detaching).await.is_ok() {
        assert!(provider.release(&handle).await.unwrap());
    }
    acquire_and_release(&rival.lock("n")).await;
    assert_lost(rival.resume(&handle).await, LossReason::Gone);
}

/// Polls a resumption once, which sends the request, and gives it up. Returns the handle of the lease after that.
async fn give_up_resuming(provider: &LockProvider, handle: LeaseHandle) -> LeaseHandle {
    match timeout(Duration::ZERO, provider.resume(&handle)).await {
        // In memory it takes one poll.
        Ok(guard) => guard.unwrap().detach(HOUR).await.unwrap(),
        Err(_) => handle,
    }
}

/// The provider that has given up gives the lease back before its next request, and to other processes.
async fn a_resumption_that_is_given_up_gives_the_lease_back(fixture: Fixture) {
    let (provider, rival) = (&fixture.provider, fixture.rival());
    for round in 0..10 {
        let mut handle = give_up_resuming(&rival, detached(provider, "n").await).await;
        match round % 3 {
            0 => assert!(rival.extend(&handle, HOUR).await.is_ok()),
            1 => handle = rival.resume(&handle).await.unwrap().detach(HOUR).await.unwrap(),
            _ => {}
        }
        assert!(rival.release(&handle).await.unwrap());
        assert!(fixture.is_free("n").await);
    }
    let handle = give_up_resuming(&rival, detached(provider, "n").await).await;
    let other = provider.to_builder().build().unwrap();
    let resuming = async || match other.resume(&handle).await {
        Ok(guard) => Some(guard),
        Err(error) => {
            assert_lost(Err::<(), _>(error), LossReason::Gone);
            None
        }
    };
    let guard = must(eventually(AMPLE, "another process resumes the lease", resuming).await);
    guard.release().await.unwrap();
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
}

async fn work_that_may_succeed_once_can_span_processes(fixture: Fixture) {
    let (provider, rival) = (&fixture.provider, fixture.rival());
    let lock = provider.lock("n").once();
    let handle = lock.acquire().await.unwrap().detach(HOUR).await.unwrap();
    let guard: LockGuard = rival.resume(&handle).await.unwrap();
    guard.done().await.unwrap();
    assert!(matches!(lock.acquire().await, Err(LockError::Done { .. })));
    assert_lost(provider.resume(&handle).await, LossReason::Gone);

    let plain = detached(provider, "other").await;
    let guard = rival.resume(&plain).await.unwrap();
    assert_eq!(refused_option(guard.done().await), "once");
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

async fn a_shutdown_leaves_detached_leases_alone(fixture: Fixture) {
    let (rival, ended) = (fixture.rival(), fixture.process("ended"));
    let handle = detached(&ended, "n").await;
    ended.shutdown().await;
    assert!(matches!(
        ended.resume(&handle).await,
        Err(LockError::ShutDown { .. })
    ));
    rival.resume(&handle).await.unwrap().release().await.unwrap();
}

async fn a_shutdown_waits_for_the_release_of_a_detachment_that_is_given_up(fixture: Fixture) {
    let rival = fixture.rival();
    for number in 0..5 {
        let ended = fixture.process("ended");
        let name = format!("n{number}");
        let detaching = ended.lock(&name).await.unwrap().detach(HOUR);
        let handle = detaching.handle();
        let is_detached = timeout(Duration::ZERO, detaching).await.is_ok();
        ended.shutdown().await;
        if is_detached {
            // In memory it takes one poll.
            assert!(rival.release(&handle).await.unwrap());
        }
        assert!(fixture.is_free(&name).await, "{name}");
    }
}

/// A takeover margin keeps others out for longer, and the lease alive for nobody.
async fn a_lease_ends_with_its_time(subject: Subject) {
    for margin in [Duration::ZERO, HOUR] {
        let provider = subject.fixture.with(|options| options.takeover_margin(margin));
        let target = subject.of(&provider);
        let hold = target.acquire().await.unwrap();
        let handle = hold.detach(Duration::from_millis(100)).await.unwrap();
        let expired = async || {
            let is_expired = |info: &LockInfo| info.state == LockState::Expired;
            subject.infos().await.iter().all(is_expired).then_some(())
        };
        must(eventually(AMPLE, "the lease expires", expired).await);
        let begun = Instant::now();
        assert_lost(target.resume(&handle).await, LossReason::Expired);
        assert_lost(target.extend(&handle, HOUR).await, LossReason::Expired);
        assert!(begun.elapsed() < AMPLE / 2, "it is no question of time");
        let is_kept = !margin.is_zero();
        assert!(!(is_kept && target.is_free().await), "the margin keeps it");
        let had_something_to_release = target.release(&handle).await.unwrap();
        assert_eq!(had_something_to_release, is_kept, "it ends the margin");
        assert!(target.is_free().await);
        assert_lost(target.resume(&handle).await, LossReason::Gone);
    }
}
