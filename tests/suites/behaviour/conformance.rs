//! One suite, two providers: in memory and on MongoDB a lock behaves alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongolock::{DistributedLock, FencingToken, LockError, LockProvider};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{AMPLE, Fixture};

/// Each of these functions as a test in memory and as a test on MongoDB.
macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test] async fn $name() { super::$name($crate::fixture::Fixture::memory()).await; })*
        }
        mod on_mongodb {
            $(#[tokio::test] async fn $name() { super::$name($crate::fixture::Fixture::mongodb().await).await; })*
        }
    };
}

pub(crate) use conformance;

conformance!(
    one_at_a_time_in_one_process,
    one_at_a_time_between_processes,
    different_names_do_not_wait,
    leaving_the_scope_releases,
    a_release_lets_the_next_waiter_in,
    a_wait_ends_with_an_error_that_names_the_lock,
    a_free_lock_is_taken_without_waiting,
    the_lock_itself_is_awaitable,
    trying_never_waits,
    one_of_many_wins_a_new_name,
    one_of_many_wins_an_expired_lock,
    a_held_lock_outlives_its_expiry,
    a_lock_that_is_not_renewed_can_be_taken_after_its_expiry,
    a_lease_that_ran_out_is_lost_and_its_release_harms_nobody,
    many_locks_are_held_at_once,
    tokens_rise_from_hold_to_hold,
    a_name_is_any_displayable_value,
    bad_names_and_options_are_refused_before_anything_is_sent,
    a_cancelled_wait_leaves_nothing,
    shutdown_ends_everything,
    min_hold_keeps_others_out,
    waiting_without_a_limit_ends_with_the_release,
    a_thousand_waiters_on_one_thread_make_progress,
    a_crowd_hears_busy_and_never_broken,
    a_wait_that_was_given_up_owes_no_minimum_hold,
    a_lost_hold_is_not_in_its_own_way,
);

/// Adds up how many are inside at once.
#[derive(Clone, Default)]
struct Section {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Section {
    async fn pass(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        sleep(Duration::from_millis(2)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    async fn pass_many(&self, locks: Vec<DistributedLock>) {
        let mut tasks = JoinSet::new();
        for lock in locks {
            let section = self.clone();
            tasks.spawn(async move {
                let guard = lock.acquire().await.unwrap();
                section.pass().await;
                guard.release().await.unwrap();
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }
}

/// S0.1
async fn one_at_a_time_in_one_process(fixture: Fixture) {
    let section = Section::default();
    section
        .pass_many((0..20).map(|_| fixture.provider.lock("one")).collect())
        .await;
    assert_eq!(section.most.load(Ordering::SeqCst), 1);
}

/// S0.1, S2.5
async fn one_at_a_time_between_processes(fixture: Fixture) {
    let section = Section::default();
    let rivals: Vec<LockProvider> = (0..4).map(|_| fixture.rival()).collect();
    section
        .pass_many((0..20).map(|i| rivals[i % 4].lock("one")).collect())
        .await;
    assert_eq!(section.most.load(Ordering::SeqCst), 1);
}

/// S0.2: both are inside at the same time, else the barrier is never passed.
async fn different_names_do_not_wait(fixture: Fixture) {
    let barrier = tokio::sync::Barrier::new(2);
    let meet = |name: &'static str| {
        let (lock, barrier) = (fixture.provider.lock(name), &barrier);
        async move {
            let _guard = lock.acquire().await.unwrap();
            barrier.wait().await;
        }
    };
    timeout(AMPLE, async { tokio::join!(meet("a"), meet("b")) })
        .await
        .expect("each waits for the other");
}

/// S0.6, S1.1
async fn leaving_the_scope_releases(fixture: Fixture) {
    {
        let guard = fixture.provider.lock("scope").acquire().await.unwrap();
        assert!(!guard.is_lost() && guard.remaining() > Duration::ZERO);
        assert!(
            fixture
                .rival()
                .lock("scope")
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
    }
    let next = timeout(AMPLE / 2, fixture.rival().lock("scope").acquire()).await;
    next.expect("long before the expiry")
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// S0.10, S1.5
async fn a_release_lets_the_next_waiter_in(fixture: Fixture) {
    let first = fixture.provider.lock("next").await.unwrap();
    let rival = fixture.rival().lock("next");
    let waiter = tokio::spawn(async move { rival.acquire().await });
    let local = fixture.provider.lock("next");
    let local_waiter = tokio::spawn(async move { local.acquire().await.unwrap().release().await });
    sleep(Duration::from_millis(30)).await;
    assert!(!waiter.is_finished() && !local_waiter.is_finished());
    first.release().await.unwrap();
    let second = timeout(AMPLE, waiter).await.unwrap().unwrap().unwrap();
    second.release().await.unwrap();
    timeout(AMPLE, local_waiter).await.unwrap().unwrap().unwrap();
}

/// S0.5, S0.16: only the one that waited in vain hears of it.
async fn a_wait_ends_with_an_error_that_names_the_lock(fixture: Fixture) {
    let _held = fixture.provider.lock("busy:7").await.unwrap();
    let limit = Duration::from_millis(120);
    for provider in [fixture.provider.clone(), fixture.rival()] {
        let begun = Instant::now();
        let error = provider
            .lock("busy:7")
            .acquire_timeout(limit)
            .acquire()
            .await
            .unwrap_err();
        assert!(begun.elapsed() >= limit);
        assert!(
            matches!(&error, LockError::Timeout { name, waited } if name == "busy:7" && *waited >= limit)
        );
        assert!(error.to_string().contains("busy:7"), "{error}");
        provider
            .lock("other")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

/// S4.3: with a back-off of half a minute, a sleep before the first attempt would show.
async fn a_free_lock_is_taken_without_waiting(fixture: Fixture) {
    let slow = fixture
        .provider
        .another()
        .retry_interval(AMPLE..=AMPLE)
        .build()
        .unwrap();
    timeout(AMPLE / 3, slow.lock("free").acquire())
        .await
        .expect("no sleep")
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// S4.7
async fn the_lock_itself_is_awaitable(fixture: Fixture) {
    let guard = fixture.provider.lock("t1").await.unwrap();
    assert_eq!(guard.name(), "t1");
}

async fn trying_never_waits(fixture: Fixture) {
    let lock = fixture.provider.lock("try");
    let guard = lock.try_acquire().await.unwrap().expect("it is free");
    assert!(lock.try_acquire().await.unwrap().is_none(), "held here");
    assert!(
        fixture.rival().lock("try").try_acquire().await.unwrap().is_none(),
        "held there"
    );
    guard.release().await.unwrap();
    lock.try_acquire()
        .await
        .unwrap()
        .expect("free again")
        .release()
        .await
        .unwrap();
}

/// S0.12, S2.5, S3.4: 64 at once on a name that nobody has used; one wins and nobody gets an error.
async fn one_of_many_wins_a_new_name(fixture: Fixture) {
    assert_eq!(winners(&fixture, "new", 64).await.len(), 1);
}

/// S3.7, S1.6
async fn one_of_many_wins_an_expired_lock(fixture: Fixture) {
    let expired = unrenewed(&fixture.provider, "expired").acquire().await.unwrap();
    expired.lost().await;
    sleep(Duration::from_millis(60)).await;
    let winners = winners(&fixture, "expired", 32).await;
    assert_eq!(winners.len(), 1);
    assert!(winners[0] > expired.fencing_token());
}

/// The tokens of those of `takers` processes that got the lock; each keeps it until all have tried.
async fn winners(fixture: &Fixture, name: &'static str, takers: usize) -> Vec<FencingToken> {
    let mut tasks = JoinSet::new();
    let start = Arc::new(tokio::sync::Barrier::new(takers));
    for _ in 0..takers {
        let (lock, start) = (fixture.rival().lock(name), Arc::clone(&start));
        tasks.spawn(async move {
            start.wait().await;
            lock.try_acquire().await.unwrap()
        });
    }
    let guards = tasks.join_all().await;
    guards
        .iter()
        .flatten()
        .map(mongolock::LockGuard::fencing_token)
        .collect()
}

/// A lock whose lease is not renewed, as that of a crashed or paused process.
fn unrenewed(provider: &LockProvider, name: &str) -> DistributedLock {
    provider
        .lock(name)
        .expiry(Duration::from_millis(200))
        .max_hold(Duration::ZERO)
}

/// S1.4
async fn a_held_lock_outlives_its_expiry(fixture: Fixture) {
    let expiry = Duration::from_millis(600);
    let guard = fixture
        .provider
        .lock("long")
        .expiry(expiry)
        .acquire()
        .await
        .unwrap();
    let rival = fixture.rival().lock("long");
    let end = Instant::now() + expiry * 3;
    while Instant::now() < end {
        assert!(rival.try_acquire().await.unwrap().is_none());
        assert!(!guard.is_lost());
        sleep(Duration::from_millis(25)).await;
    }
    guard.release().await.unwrap();
}

/// S0.13, S1.6, S2.9, S1.26
async fn a_lock_that_is_not_renewed_can_be_taken_after_its_expiry(fixture: Fixture) {
    let lock = unrenewed(&fixture.provider, "dead");
    let begun = Instant::now();
    let dead = lock.acquire().await.unwrap();
    let next = fixture.rival().lock("dead").acquire().await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert!(dead.is_lost() && dead.remaining() == Duration::ZERO);
    assert!(next.fencing_token() > dead.fencing_token());
}

/// S2.10, B8, S3.8
async fn a_lease_that_ran_out_is_lost_and_its_release_harms_nobody(fixture: Fixture) {
    let dead = unrenewed(&fixture.provider, "stale").acquire().await.unwrap();
    let context = dead.context();
    context.ensure_held().unwrap();
    timeout(AMPLE, context.lost()).await.expect("the deadline passes");
    let next = fixture.rival().lock("stale").acquire().await.unwrap();
    assert!(matches!(context.ensure_held(), Err(LockError::Lost { .. })));
    assert!(matches!(dead.release().await, Err(LockError::Lost { .. })));
    assert!(
        fixture
            .provider
            .lock("stale")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    next.release().await.expect("still the next one's");
}

/// S1.10, S2.11
async fn many_locks_are_held_at_once(fixture: Fixture) {
    let mut guards = Vec::new();
    for index in 0..50 {
        guards.push(fixture.provider.lock(index).await.unwrap());
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// S1.19
async fn tokens_rise_from_hold_to_hold(fixture: Fixture) {
    let providers = [fixture.provider.clone(), fixture.rival()];
    let mut last = None;
    for round in 0..50 {
        let guard = providers[round % 2].lock("token").await.unwrap();
        let token = guard.fencing_token();
        assert!(last < Some(token), "{last:?} before {token:?}");
        assert!(token.get() < 1 << 53);
        last = Some(token);
        guard.release().await.unwrap();
    }
}

/// S2.3
async fn a_name_is_any_displayable_value(fixture: Fixture) {
    struct Order(u32);
    impl std::fmt::Display for Order {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "order:{}", self.0)
        }
    }
    let id = mongodb::bson::oid::ObjectId::new();
    let uuid = mongodb::bson::Uuid::new();
    let provider = &fixture.provider;
    let locks = [
        provider.lock(id),
        provider.lock(uuid),
        provider.lock(-7_i64),
        provider.lock("text"),
        provider.lock(String::from("owned")),
        provider.lock(Order(3)),
    ];
    let names: Vec<&str> = locks.iter().map(DistributedLock::name).collect();
    assert_eq!(
        names,
        [&id.to_hex(), &uuid.to_string(), "-7", "text", "owned", "order:3"]
    );
    for lock in &locks {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
}

async fn bad_names_and_options_are_refused_before_anything_is_sent(fixture: Fixture) {
    let lock = |name: &str| fixture.provider.lock(name);
    for name in ["", "a\nb", &"n".repeat(1025)] {
        assert!(matches!(
            lock(name).acquire().await,
            Err(LockError::InvalidName { .. })
        ));
        assert!(matches!(
            lock(name).try_acquire().await,
            Err(LockError::InvalidName { .. })
        ));
    }
    // B6
    let second = Duration::from_secs(1);
    for (lock, named) in [
        (lock("n").expiry(Duration::ZERO), "expiry"),
        (lock("n").renew_interval(Duration::ZERO), "renew_interval"),
        (lock("n").expiry(second).renew_interval(second), "renew_interval"),
        (
            lock("n").acquire_timeout(second * 60 * 60 * 24 * 8),
            "acquire_timeout",
        ),
    ] {
        match lock.acquire().await {
            Err(LockError::InvalidOption { option, .. }) => assert_eq!(option, named),
            other => panic!("{named} was not refused: {other:?}"),
        }
    }
    // A new expiry rescales the interval that nobody set.
    lock("n")
        .expiry(second)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// B2
async fn a_cancelled_wait_leaves_nothing(fixture: Fixture) {
    for micros in (0..4000).step_by(40) {
        let lock = fixture.provider.lock("cancelled");
        let _ = timeout(Duration::from_micros(micros), lock.acquire()).await;
    }
    let next = timeout(AMPLE / 2, fixture.rival().lock("cancelled").acquire()).await;
    next.expect("nothing is left until its expiry")
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn shutdown_ends_everything(fixture: Fixture) {
    let held = fixture.provider.lock("held").await.unwrap();
    let waiting = fixture.provider.lock("held");
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    let dropped = fixture.provider.lock("dropped").await.unwrap();
    drop(dropped);
    fixture.provider.shutdown().await;
    assert!(matches!(waiter.await.unwrap(), Err(LockError::ShutDown { name }) if name == "held"));
    assert!(held.is_lost());
    for name in ["held", "dropped"] {
        let free = fixture.rival().lock(name).try_acquire().await.unwrap();
        free.expect("released at the server when shutdown returns")
            .release()
            .await
            .unwrap();
        assert!(matches!(
            fixture.provider.lock(name).acquire().await,
            Err(LockError::ShutDown { .. })
        ));
    }
    assert!(matches!(held.release().await, Err(LockError::Lost { .. })));
}

async fn min_hold_keeps_others_out(fixture: Fixture) {
    let min_hold = Duration::from_millis(400);
    for dropped in [false, true] {
        let begun = Instant::now();
        let guard = fixture
            .provider
            .lock("job")
            .min_hold(min_hold)
            .acquire()
            .await
            .unwrap();
        if dropped {
            drop(guard);
        } else {
            guard.release().await.unwrap();
            assert!(begun.elapsed() < min_hold, "the release returns at once");
        }
        fixture
            .rival()
            .lock("job")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        assert!(begun.elapsed() >= min_hold, "{dropped}");
    }
}

async fn waiting_without_a_limit_ends_with_the_release(fixture: Fixture) {
    let guard = fixture.provider.lock("ever").await.unwrap();
    let lock = fixture.rival().lock("ever").acquire_timeout(None);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    sleep(Duration::from_millis(50)).await;
    guard.release().await.unwrap();
    timeout(AMPLE, waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// S4.2: the tests' runtime has one thread, and it is never blocked.
async fn a_thousand_waiters_on_one_thread_make_progress(fixture: Fixture) {
    let held = fixture.provider.lock("thousand").await.unwrap();
    let mut waiters = JoinSet::new();
    for index in 0..1000 {
        let limit = if index % 100 == 0 {
            AMPLE * 4
        } else {
            Duration::from_millis(200)
        };
        let lock = fixture.provider.lock("thousand").acquire_timeout(limit);
        waiters.spawn(async move { lock.acquire().await?.release().await });
    }
    let mut timeouts = 0;
    while timeouts < 990 {
        match waiters.join_next().await.expect("they end").unwrap() {
            Err(LockError::Timeout { .. }) => timeouts += 1,
            other => panic!("{other:?}"),
        }
    }
    held.release().await.unwrap();
    while let Some(done) = waiters.join_next().await {
        done.unwrap().unwrap();
    }
}

/// B13: under contention alone nobody is told that the server does not answer.
async fn a_crowd_hears_busy_and_never_broken(fixture: Fixture) {
    let first = fixture.provider.lock("crowd").acquire().await.unwrap();
    let mut crowd = JoinSet::new();
    for index in 0..200_u64 {
        let lock = fixture
            .provider
            .lock("crowd")
            .acquire_timeout(Duration::from_millis(5 + index % 20));
        crowd.spawn(async move {
            let guard = lock.acquire().await?;
            sleep(Duration::from_millis(1)).await;
            guard.release().await
        });
    }
    first.release().await.unwrap();
    while let Some(ended) = crowd.join_next().await {
        match ended.unwrap() {
            Ok(()) | Err(LockError::Timeout { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// B2: it never held the lock, so nobody has to wait for it.
async fn a_wait_that_was_given_up_owes_no_minimum_hold(fixture: Fixture) {
    for micros in (0..3000).step_by(100) {
        let lock = fixture.provider.lock("given up").min_hold(AMPLE * 4);
        let ended = timeout(Duration::from_micros(micros), lock.acquire()).await;
        if let Ok(Ok(guard)) = ended {
            // It got the lock in time after all, and owes the minimum: that is another test's.
            let name = guard.name().to_owned();
            drop(guard);
            assert!(fixture.rival().lock(name).try_acquire().await.unwrap().is_none());
            return;
        }
        let next = timeout(AMPLE / 2, fixture.provider.lock("given up").acquire()).await;
        next.expect("it is free").unwrap().release().await.unwrap();
    }
}

async fn a_lost_hold_is_not_in_its_own_way(fixture: Fixture) {
    let lock = unrenewed(&fixture.provider, "again");
    let outer = lock.acquire().await.unwrap();
    let again = outer.context().scope(async {
        outer.lost().await;
        fixture.provider.lock("again").acquire().await
    });
    timeout(AMPLE, again)
        .await
        .expect("it is free")
        .unwrap()
        .release()
        .await
        .unwrap();
}
