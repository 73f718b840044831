//! What a call makes of single replies that come late, or that name a claim which its own process has given up.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::knobs::Knobs;
use super::link::Link;
use super::plan::Scenario;
use super::process::Process;
use super::server::Server;
use super::tests::in_virtual_time;
use crate::protocol::{Kind, Then};
use crate::provider::LockProviderBuilder;
use crate::queue::FrontStatus;
use crate::store::{ClaimEnd, ProviderMark};
use crate::timing::LINE_MARGIN;
use crate::{LockError, LockProvider, permit_id};

const HOUR: Duration = Duration::from_secs(3600);

/// The time after which a request is without a reply for longer than a healthy server needs.
const SLOW: Duration = Duration::from_millis(600);

const RELEASED: Then = Then::End {
    min_hold: 0,
    unused: 0,
};

/// The places of requests in [`Server::counts`].
const CLAIMS: usize = 0;
const RELEASES: usize = 2;
const LOOKS: usize = 4;

/// A server without faults, and the link of one process to it.
fn world(seed: u64) -> (Arc<Server>, Link) {
    let server = Arc::new(Server::new(Scenario::Calm, Default::default()));
    let (knobs, rng) = (Knobs::default(), fastrand::Rng::with_seed(seed));
    let link = Link::new(&server, &Process::new(0, 0, 0), &knobs, rng);
    (server, link)
}

/// A provider whose server never replies.
pub(crate) fn silent_provider() -> LockProvider {
    let (server, link) = world(0);
    server.silent.store(true, Relaxed);
    LockProviderBuilder::simulated(link).with_defaults()
}

/// Waits until another request of this kind has reached the server.
async fn arrival(server: &Server, kind: usize) {
    let before = server.counts()[kind];
    while server.counts()[kind] == before {
        tokio::task::yield_now().await;
        sleep(Duration::from_micros(100)).await;
    }
}

/// A call that ends in this time after a reply has named a claim that its process has given up. An earlier reply has named
/// another holder, and the release of the claim has no reply; `None` if it was sent too early for that.
async fn ends_during_a_release(seed: u64, after: Duration) -> Option<LockError> {
    let (server, link) = world(seed);
    let pause = Duration::from_millis(100);
    let provider = LockProviderBuilder::simulated(link)
        .wake_up(false)
        .retry_interval(pause..=pause);
    let provider = provider.with_defaults();
    let engine = provider.engine();
    server.memory.acquire("n", "rival#1");
    let own: Arc<str> = Arc::from("own#1");
    let _given_up = engine
        .renewer
        .given_up
        .add(&own, &ClaimEnd::RELEASED, Instant::now());
    let lock = provider.lock("n").acquire_timeout(pause + after);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let entry = engine.queues.join(&Arc::from("n"));
    while !matches!(entry.front().status(), FrontStatus::Held(_)) {
        sleep(Duration::from_micros(100)).await;
    }
    server.memory.change("n", "rival#1", RELEASED);
    server.memory.acquire("n", &own);
    arrival(&server, CLAIMS).await;
    server.silent.store(true, Relaxed);
    let error = waiting.await.unwrap().unwrap_err();
    (server.counts()[RELEASES] == 0).then_some(error)
}

async fn ends_during_the_release_of_an_own_claim(after: Duration) -> LockError {
    for seed in 0..100 {
        if let Some(error) = ends_during_a_release(seed, after).await {
            return error;
        }
    }
    panic!("the release is never late enough");
}

#[test]
fn a_holder_that_a_reply_has_refuted_is_not_named() {
    in_virtual_time(async {
        let soon = ends_during_the_release_of_an_own_claim(SLOW / 2).await;
        assert!(
            matches!(&soon, LockError::Timeout { holder: None, .. }),
            "{soon:?}"
        );
        let later = ends_during_the_release_of_an_own_claim(SLOW * 2).await;
        assert!(
            later.to_string().contains("did not answer the release"),
            "{later}"
        );
    });
}

/// The first request of a call waits behind a foreign transaction, and its copy is lost on the way.
#[test]
fn the_reply_to_the_first_request_answers_its_copy() {
    in_virtual_time(async {
        let (server, link) = world(0);
        let provider = LockProviderBuilder::simulated(link)
            .wake_up(false)
            .retry_interval(HOUR..=HOUR)
            .with_defaults();
        server.memory.acquire("n", "rival#1");
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        server.blocks.block("n", at(2300));
        let lock = provider.lock("n").acquire_timeout(Duration::from_secs(4));
        let waiting = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep_until(at(1950)).await;
        server.silent.store(true, Relaxed);
        tokio::time::sleep_until(at(2250)).await;
        server.silent.store(false, Relaxed);
        assert_eq!(server.counts()[CLAIMS], 1, "the copy is lost");
        let error = waiting.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, LockError::Timeout { holder: Some(holder), .. } if holder == "rival"),
            "{error:?}"
        );
    });
}

/// A try of a lock that a round of a set has acquired and gives back while the server takes its time; `None` if it had no
/// time for that. The last known status of the lock is that of an earlier hold of this process.
async fn tries_during_a_give_back(seed: u64) -> Option<bool> {
    let (server, link) = world(seed);
    let provider = LockProviderBuilder::simulated(link).with_defaults();
    server.memory.acquire("b", "rival#1");
    let queues = &provider.engine().queues;
    let _used = queues.join(&Arc::from("a"));
    let lock = provider.lock("a");
    lock.acquire().await.unwrap().release().await.unwrap();
    let set = provider.lock_all(["a", "b"]).acquire_timeout(None);
    tokio::spawn(async move { drop(set.acquire().await) });
    arrival(&server, LOOKS).await;
    let blocked = Instant::now() + SLOW / 2;
    server.blocks.block("a", blocked);
    sleep(SLOW / 4).await;
    if !queues.is_turn_taken("a") {
        return None;
    }
    Some(lock.try_acquire().await.unwrap().is_some())
}

#[test]
fn a_try_waits_for_the_lock_that_a_set_gives_back() {
    in_virtual_time(async {
        let mut tries = 0;
        for seed in 0..100 {
            if let Some(is_acquired) = tries_during_a_give_back(seed).await {
                assert!(is_acquired, "no caller holds the lock");
                tries += 1;
            }
        }
        assert!(tries > 10, "{tries}");
    });
}

/// The first request waits behind a foreign transaction. Its copy fails, and the call pauses before the next one: the reply
/// to the first request comes during this pause.
async fn acquires_during_a_pause<T>(acquire: impl AsyncFnOnce(LockProvider) -> T) {
    let (server, link) = world(0);
    let pause = Duration::from_secs(30);
    let provider = LockProviderBuilder::simulated(link)
        .retry_interval(pause..=pause)
        .with_defaults();
    let begun = Instant::now();
    let at = |millis| begun + Duration::from_millis(millis);
    for document in ["a", &permit_id::new("s", 0)] {
        server.blocks.block(document, at(2300));
    }
    let silence = async {
        tokio::time::sleep_until(at(1950)).await;
        server.refuses.store(true, Relaxed);
        server.silent.store(true, Relaxed);
        tokio::time::sleep_until(at(2200)).await;
        server.silent.store(false, Relaxed);
    };
    let (_hold, ()) = tokio::join!(acquire(provider), silence);
    assert!(begun.elapsed() < SLOW * 5, "{:?}", begun.elapsed());
}

#[test]
fn a_late_acquisition_ends_a_pause() {
    in_virtual_time(acquires_during_a_pause(async |provider| {
        provider.lock("a").acquire_timeout(None).acquire().await.unwrap()
    }));
    in_virtual_time(acquires_during_a_pause(async |provider| {
        let set = provider.lock_all(["a", "b"]).acquire_timeout(None);
        set.acquire().await.unwrap()
    }));
    in_virtual_time(acquires_during_a_pause(async |provider| {
        let semaphore = provider.semaphore("s", 1).acquire_timeout(None);
        semaphore.acquire().await.unwrap()
    }));
}

/// The rounds of a set tell how far away the server is, before one of them has acquired its locks.
#[test]
fn a_set_that_waits_asks_for_a_time_slot_with_its_round_trip() {
    in_virtual_time(async {
        let (server, link) = world(0);
        let provider = LockProviderBuilder::simulated(link).with_defaults();
        server.memory.acquire("b", "rival#1");
        let set = provider.lock_all(["a", "b"]).acquire_timeout(Some(SLOW));
        assert!(set.acquire().await.is_err());
        let lines = server.memory.lines(&[Arc::from("b")]);
        let time_slots: Vec<Duration> = lines.values().flatten().map(|waiter| waiter.time_slot).collect();
        assert!(
            matches!(time_slots[..], [time_slot] if time_slot > LINE_MARGIN),
            "{time_slots:?}"
        );
    });
}

/// Two claims hold the permits in turn with other waiters. That a call meets one and then the other is no acquisition.
#[test]
fn a_permit_that_is_found_held_says_nothing_of_the_line() {
    in_virtual_time(async {
        let (server, link) = world(0);
        let provider = LockProviderBuilder::simulated(link).with_defaults();
        for number in 0..2 {
            let other = ProviderMark::random().new_lock_id("rival", Kind::Permit);
            server.memory.acquire(&permit_id::new("s", number), &other);
        }
        let group = permit_id::group("s");
        let engine = provider.engine();
        let _used = engine.queues.join(&group);
        server.add_expired_waiters(&group, 3);
        let semaphore = provider.semaphore("s", 2);
        let before = semaphore.clone().acquire_timeout(Some(SLOW)).acquire().await;
        assert!(before.is_err());
        let place = || engine.lines.standing(&group).map(|standing| standing.ahead);
        let ahead = place();
        assert_eq!(ahead, Some(2), "one of three may ask at the same time");
        for _ in 0..20 {
            let call = semaphore.clone().acquire_timeout(Some(SLOW / 6));
            assert!(call.acquire().await.is_err());
        }
        assert_eq!(place(), ahead);
    });
}

/// A round meets a claim that its process has given up, and the release of that claim fails. The ids of the round and of the
/// hold that the call acquires later; `None` if the release was too early to fail.
async fn acquires_after_a_failed_release(seed: u64) -> Option<[Arc<str>; 2]> {
    let (server, link) = world(seed);
    let provider = LockProviderBuilder::simulated(link).with_defaults();
    let engine = provider.engine();
    let own: Arc<str> = Arc::from("own#1");
    let _given_up = engine
        .renewer
        .given_up
        .add(&own, &ClaimEnd::RELEASED, Instant::now());
    server.memory.acquire("b", &own);
    let entry = engine.queues.join(&Arc::from("b"));
    let set = provider.lock_all(["a", "b"]).acquire_timeout(None);
    let waiting = tokio::spawn(async move { set.acquire().await });
    arrival(&server, LOOKS).await;
    server.refuses.store(true, Relaxed);
    server.silent.store(true, Relaxed);
    let holder = || server.memory.claimed_by("a");
    let round = holder();
    if entry.front().is_releasing() {
        return None;
    }
    while !matches!(entry.front().status(), FrontStatus::Failed(_)) {
        sleep(Duration::from_micros(100)).await;
    }
    server.memory.change("b", &own, RELEASED);
    server.silent.store(false, Relaxed);
    let _guard = waiting.await.unwrap().unwrap();
    Some([round?, holder()?])
}

/// It was given back when it met that claim, so that a late release of it would end the hold.
#[test]
fn a_round_that_was_given_back_is_not_sent_again() {
    in_virtual_time(async {
        let mut rounds = 0;
        for seed in 0..20 {
            if let Some([round, hold]) = acquires_after_a_failed_release(seed).await {
                assert_ne!(round, hold, "it is another round");
                rounds += 1;
            }
        }
        assert!(rounds > 0, "a release has failed");
    });
}
