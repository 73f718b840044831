//! Several locks that are acquired all or nothing, on both stores.

use std::sync::Arc;
use std::time::Duration;

use mongolock::{DistributedLock, FencingToken, LockContext, LockError, LockProvider, LockSet, LossReason};
use mongolock_tests::{AMPLE, eventually, must, names, recorded};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::conformance::conformance;
use crate::fixture::{Fixture, acquire_and_release, assert_released, renewing};

conformance!(
    a_set_holds_all_names_and_releases_them,
    names_are_sorted_and_count_once,
    a_set_of_one_name_is_a_lock,
    wrong_names_are_refused,
    a_set_that_does_not_get_all_holds_nothing,
    a_set_that_polls_holds_nothing_either,
    a_try_finds_all_or_nothing,
    a_waiting_set_gets_the_locks_as_they_are_released,
    a_set_waits_in_its_own_process_without_holding,
    a_hold_that_was_handed_over_is_released_for_a_set,
    sets_in_any_order_do_not_deadlock,
    a_lease_is_renewed_as_a_whole,
    the_loss_of_one_is_the_loss_of_all,
    a_dropped_guard_releases_all_names,
    a_cancelled_wait_leaves_nothing_held,
    a_minimum_hold_applies_to_all_names,
    a_shutdown_releases_all_names,
    a_timeout_names_the_lock_that_was_held,
    a_body_has_the_names_and_tokens_as_written,
    nested_calls_join_parts_of_a_set,
    siblings_in_a_set_run_one_at_a_time,
    a_nested_set_acquires_what_is_missing,
    a_nested_set_that_deadlocks_ends_at_its_timeout,
    an_explicit_acquire_of_a_part_is_reentrant,
    a_set_among_users_of_single_names_gets_its_turn,
    a_set_among_users_in_its_process_gets_its_turn,
    a_body_that_panics_releases_all_names,
);

/// The timeout of calls that end by it: long enough for the reply of a busy server.
const SHORT: Duration = Duration::from_secs(2);

async fn is_free(fixture: &Fixture, name: &str) -> bool {
    match fixture
        .process("observer")
        .lock(name)
        .try_acquire()
        .await
        .unwrap()
    {
        Some(guard) => {
            guard.release().await.unwrap();
            true
        }
        None => false,
    }
}

async fn assert_all_released(fixture: &Fixture, names: &[&str]) {
    let observer = fixture.process("observer");
    for name in names {
        assert_released(&observer.lock(name)).await;
    }
}

async fn a_set_holds_all_names_and_releases_them(fixture: Fixture) {
    let before: Vec<FencingToken> = {
        let mut tokens = Vec::new();
        for name in ["a", "b", "c"] {
            let guard = fixture.provider.lock(name).await.unwrap();
            tokens.push(guard.fencing_token());
            guard.release().await.unwrap();
        }
        tokens
    };
    let guard = fixture.provider.lock_all(["a", "b", "c"]).await.unwrap();
    assert!(!guard.is_lost() && guard.remaining() > Duration::from_secs(20));
    let held = fixture.provider.held();
    assert!(
        held.iter().map(|lock| &*lock.name).eq(["a", "b", "c"]),
        "{held:?}"
    );
    assert_eq!(fixture.provider.health().await.held, 3);
    for (name, before) in ["a", "b", "c"].into_iter().zip(before) {
        assert!(!is_free(&fixture, name).await, "{name}");
        assert!(guard.fencing_token_of(name).unwrap() > before);
    }
    assert_eq!(guard.fencing_token_of("d"), None);
    let held = fixture.provider.admin().get("b").await.unwrap().unwrap();
    assert_eq!(Some(held.fencing_token), guard.fencing_token_of("b"));
    guard.release().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(is_free(&fixture, name).await, "{name}");
    }
}

async fn names_are_sorted_and_count_once(fixture: Fixture) {
    let set = fixture.provider.lock_all(["b", "a", "b", "c", "a"]);
    assert!(set.names().eq(["a", "b", "c"]));
    let guard = set.acquire().await.unwrap();
    assert!(guard.names().eq(["a", "b", "c"]));
    assert_eq!(guard.context().name(), "b");
    assert_eq!(Some(guard.context().fencing_token()), guard.fencing_token_of("b"));
    guard.release().await.unwrap();
}

async fn a_set_of_one_name_is_a_lock(fixture: Fixture) {
    let guard = fixture.provider.lock_all([7, 7]).await.unwrap();
    assert!(!is_free(&fixture, "7").await);
    guard.release().await.unwrap();
    assert!(is_free(&fixture, "7").await);
}

async fn wrong_names_are_refused(fixture: Fixture) {
    let none: [&str; 0] = [];
    let many: Vec<String> = (0..501).map(|number| number.to_string()).collect();
    let many = fixture.provider.lock_all(many);
    for set in [
        fixture.provider.lock_all(none),
        fixture.provider.lock_all(["a", ""]),
        fixture.provider.lock_all(["a", "b\n"]),
        many,
    ] {
        let error = set.acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidName { .. }), "{error}");
        assert!(matches!(
            set.try_acquire().await,
            Err(LockError::InvalidName { .. })
        ));
    }
    assert!(is_free(&fixture, "a").await);
    let error = fixture
        .provider
        .lock_all(["a"])
        .expiry(Duration::ZERO)
        .acquire()
        .await;
    assert!(matches!(error, Err(LockError::InvalidOption { .. })));
}

/// While a set waits for one lock, the others are free.
async fn a_set_that_does_not_get_all_holds_nothing(fixture: Fixture) {
    holds_nothing(&fixture, &fixture.provider).await;
}

/// Without a stream the first in line sends rounds without a look while the holder has not held the lock for long.
async fn a_set_that_polls_holds_nothing_either(fixture: Fixture) {
    let polling = fixture.provider.to_builder().wake_up(false).build().unwrap();
    holds_nothing(&fixture, &polling).await;
}

/// Checks that the other locks of a set that waits for `b` are free for others, and that it gets them after the release.
async fn holds_nothing(fixture: &Fixture, provider: &LockProvider) {
    let held = fixture.rival().lock("b").await.unwrap();
    let set = provider.lock_all(["a", "b", "c"]).acquire_timeout(AMPLE);
    let waiting = tokio::spawn(async move { set.acquire().await });
    // Before that a round may meet one of the users of the other locks, and after three such rounds the set acquires its
    // locks one by one.
    let admin = fixture.rival().admin();
    let in_line = async || (!admin.get("b").await.ok()??.waiters.is_empty()).then_some(());
    must(eventually(AMPLE, "the set stands in line for `b`", in_line).await);
    let mut free = 0;
    for _ in 0..20 {
        free += u32::from(is_free(fixture, "a").await && is_free(fixture, "c").await);
        sleep(Duration::from_millis(20)).await;
    }
    assert!(free >= 10, "the other locks were free {free} times of 20");
    held.release().await.unwrap();
    let guard = timeout(AMPLE, waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
}

async fn a_try_finds_all_or_nothing(fixture: Fixture) {
    let held = fixture.rival().lock("b").await.unwrap();
    let set = fixture.provider.lock_all(["a", "b"]);
    assert!(set.try_acquire().await.unwrap().is_none());
    assert_all_released(&fixture, &["a"]).await;
    held.release().await.unwrap();
    let guard = set.try_acquire().await.unwrap().expect("all are free");
    assert!(
        set.try_acquire().await.unwrap().is_none(),
        "this process holds them"
    );
    let overlapping = fixture.provider.lock_all(["b", "c"]);
    assert!(overlapping.try_acquire().await.unwrap().is_none());
    assert!(is_free(&fixture, "c").await);
    guard.release().await.unwrap();
    // A timeout of zero tries once as well.
    let guard = set
        .clone()
        .acquire_timeout(Duration::ZERO)
        .acquire()
        .await
        .unwrap();
    let busy = fixture
        .process("other")
        .lock_all(["b"])
        .acquire_timeout(Duration::ZERO);
    let error = busy.acquire().await.unwrap_err();
    assert!(
        matches!(&error, LockError::Timeout { name, .. } if name == "b"),
        "{error}"
    );
    guard.release().await.unwrap();
}

/// Three holders release their locks one after the other.
async fn a_waiting_set_gets_the_locks_as_they_are_released(fixture: Fixture) {
    let rival = fixture.rival();
    let mut held = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        held.push(rival.lock(name).await.unwrap());
    }
    let set = fixture.provider.lock_all(["a", "b", "c", "d", "e"]);
    let waiting = tokio::spawn(async move { set.acquire().await });
    for guard in held {
        sleep(Duration::from_millis(50)).await;
        guard.release().await.unwrap();
    }
    let guard = timeout(AMPLE, waiting).await.unwrap().unwrap().unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        assert!(!is_free(&fixture, name).await, "{name}");
    }
    guard.release().await.unwrap();
    assert_all_released(&fixture, &["a", "b", "c", "d", "e"]).await;
}

/// A caller in the same process has one of the locks: the set waits for it, and the other locks are free for others.
async fn a_set_waits_in_its_own_process_without_holding(fixture: Fixture) {
    let held = fixture.provider.lock("b").await.unwrap();
    let set = fixture.provider.lock_all(["a", "b", "c"]);
    let waiting = tokio::spawn(async move { set.acquire().await });
    sleep(Duration::from_millis(50)).await;
    for name in ["a", "c"] {
        acquire_and_release(&fixture.provider.lock(name)).await;
    }
    held.release().await.unwrap();
    timeout(AMPLE, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// The lock passes to the waiting set with a hold of its own, which the set cannot use.
async fn a_hold_that_was_handed_over_is_released_for_a_set(fixture: Fixture) {
    for _ in 0..5 {
        // A waiter behind the first one makes its request reserve tokens for hand-overs.
        let held = fixture.rival().lock("b").await.unwrap();
        let first = fixture.provider.lock("b");
        let first = tokio::spawn(async move { first.acquire().await });
        sleep(Duration::from_millis(20)).await;
        let set = fixture.provider.lock_all(["a", "b"]);
        let waiting = tokio::spawn(async move { set.acquire().await });
        sleep(Duration::from_millis(20)).await;
        held.release().await.unwrap();
        let first = timeout(AMPLE, first).await.unwrap().unwrap().unwrap();
        let token = first.fencing_token();
        first.release().await.unwrap();
        let guard = timeout(AMPLE, waiting).await.unwrap().unwrap().unwrap();
        assert!(guard.fencing_token_of("b").unwrap() > token);
        guard.release().await.unwrap();
    }
    assert_all_released(&fixture, &["a", "b"]).await;
}

/// Calls of three processes name the same locks in different orders.
async fn sets_in_any_order_do_not_deadlock(fixture: Fixture) {
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]];
    let inside = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut calls = JoinSet::new();
    for (number, order) in orders.into_iter().enumerate() {
        let provider = fixture.process(&format!("process-{number}"));
        for _ in 0..3 {
            let (set, inside) = (provider.lock_all(order), Arc::clone(&inside));
            calls.spawn(async move {
                for _ in 0..5 {
                    let guard = set.acquire().await.unwrap();
                    let others = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    assert_eq!(others, 0, "another call holds the same locks");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            });
        }
    }
    let all = async {
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
        }
    };
    timeout(AMPLE, all).await.expect("no deadlock");
}

async fn a_lease_is_renewed_as_a_whole(fixture: Fixture) {
    let set = fixture
        .provider
        .lock_all(["a", "b"])
        .expiry(Duration::from_secs(1));
    let guard = set.acquire().await.unwrap();
    sleep(Duration::from_millis(2500)).await;
    assert!(!guard.is_lost());
    for name in ["a", "b"] {
        assert!(!is_free(&fixture, name).await, "{name}");
    }
    guard.release().await.unwrap();
}

async fn the_loss_of_one_is_the_loss_of_all(fixture: Fixture) {
    let provider = renewing(&fixture.provider, Duration::from_millis(100));
    let guard = provider.lock_all(["a", "b"]).await.unwrap();
    let token = guard.fencing_token_of("a").unwrap();
    assert!(fixture.rival().admin().force_release("b").await.unwrap());
    timeout(AMPLE, guard.lost())
        .await
        .expect("the next renewal finds out");
    let lost = guard.release().await.unwrap_err();
    let is_expected = matches!(
        &lost,
        LockError::Lost { name, reason: LossReason::Gone, token: lost, .. } if name == "a" && *lost == token
    );
    assert!(is_expected, "{lost:?}");
    // The other lock is not left to its lease of 30 s.
    assert_all_released(&fixture, &["a", "b"]).await;

    // The process of the operator finds out at once, whichever of the names it is.
    let set = fixture.provider.lock_all(["a", "b"]);
    let guard = set.acquire().await.unwrap();
    assert!(fixture.provider.admin().force_release("b").await.unwrap());
    timeout(Duration::from_secs(5), guard.lost())
        .await
        .expect("long before the next renewal");
    drop(guard);
    assert_all_released(&fixture, &["a", "b"]).await;

    // A release that finds one of them gone says so.
    let guard = fixture.provider.lock_all(["a", "b"]).await.unwrap();
    assert!(fixture.rival().admin().force_release("a").await.unwrap());
    assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
    assert_all_released(&fixture, &["a", "b"]).await;
}

async fn a_dropped_guard_releases_all_names(fixture: Fixture) {
    drop(fixture.provider.lock_all(["a", "b", "c"]).await.unwrap());
    assert_all_released(&fixture, &["a", "b", "c"]).await;
}

/// Waits are cancelled at many moments: while a request is in flight, while the call waits, and between two rounds.
async fn a_cancelled_wait_leaves_nothing_held(fixture: Fixture) {
    let rival = fixture.rival();
    for moment in 0..30 {
        let held = (moment % 2 == 0).then(|| rival.lock("b"));
        let held = match held {
            Some(lock) => Some(lock.acquire().await.unwrap()),
            None => None,
        };
        let set = fixture.provider.lock_all(["a", "b", "c"]);
        let cut = timeout(Duration::from_micros(moment * 300), set.acquire()).await;
        drop(cut);
        if let Some(held) = held {
            held.release().await.unwrap();
        }
    }
    assert_all_released(&fixture, &["a", "b", "c"]).await;
}

async fn a_minimum_hold_applies_to_all_names(fixture: Fixture) {
    let set = fixture
        .provider
        .lock_all(["a", "b"])
        .min_hold(Duration::from_secs(2));
    let begun = Instant::now();
    set.acquire().await.unwrap().release().await.unwrap();
    assert!(!is_free(&fixture, "a").await && !is_free(&fixture, "b").await);
    for name in ["a", "b"] {
        acquire_and_release(&fixture.process("observer").lock(name)).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(1900));
    // A set that does not get all locks has held none, so that no minimum hold applies.
    let held = fixture.rival().lock("b").await.unwrap();
    assert!(set.try_acquire().await.unwrap().is_none());
    let begun = Instant::now();
    assert_all_released(&fixture, &["a"]).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    held.release().await.unwrap();
}

async fn a_shutdown_releases_all_names(fixture: Fixture) {
    let provider = fixture.process("ending");
    let guard = provider.lock_all(["a", "b"]).await.unwrap();
    let waiting = fixture.rival().lock("c").await.unwrap();
    let set = provider.lock_all(["c", "d"]);
    let waiter = tokio::spawn(async move { set.acquire().await });
    sleep(Duration::from_millis(50)).await;
    timeout(AMPLE, provider.shutdown()).await.unwrap();
    assert!(guard.is_lost());
    assert!(matches!(waiter.await.unwrap(), Err(LockError::ShutDown { .. })));
    for name in ["a", "b", "d"] {
        assert!(is_free(&fixture, name).await, "{name}");
    }
    let refused = provider.lock_all(["a"]).acquire().await;
    assert!(matches!(refused, Err(LockError::ShutDown { .. })));
    waiting.release().await.unwrap();
}

async fn a_timeout_names_the_lock_that_was_held(fixture: Fixture) {
    let held = fixture.rival().lock("b").await.unwrap();
    let set = fixture.provider.lock_all(["a", "b", "c"]);
    let error = set.acquire_timeout(SHORT).acquire().await.unwrap_err();
    match &error {
        LockError::Timeout {
            name, waited, holder, ..
        } => {
            assert_eq!((name.as_str(), holder.as_deref()), ("b", Some("rival")));
            assert!(*waited >= SHORT);
        }
        other => panic!("{other:?}"),
    }
    assert_all_released(&fixture, &["a", "c"]).await;
    held.release().await.unwrap();
}

async fn a_body_has_the_names_and_tokens_as_written(fixture: Fixture) {
    let set = fixture.provider.lock_all(["b", "a"]);
    let body = set.run(async |context: LockContext| {
        assert_eq!(context.name(), "b");
        assert!(context.names().eq(["a", "b"]));
        assert_eq!(Some(context.fencing_token()), context.fencing_token_of("b"));
        assert!(context.fencing_token_of("a").is_some() && context.fencing_token_of("c").is_none());
        let current = LockContext::current().unwrap();
        assert_eq!(current.name(), "b");
        context.ensure_held()
    });
    body.await.unwrap();
    assert_all_released(&fixture, &["a", "b"]).await;
}

async fn nested_calls_join_parts_of_a_set(fixture: Fixture) {
    let provider = &fixture.provider;
    let inner = provider.lock("a");
    let part = provider.lock_all(["c", "a"]);
    let body = provider
        .lock_all(["b", "a", "c"])
        .run(async |outer: LockContext| {
            let (name, token) = inner
                .run(async |context| {
                    assert!(context.names().eq(["a"]));
                    Ok::<_, LockError>((context.name().to_owned(), context.fencing_token()))
                })
                .await?;
            assert_eq!((name.as_str(), Some(token)), ("a", outer.fencing_token_of("a")));
            // A call of another name of the set within the inner call joins as well, and does not wait for that call.
            let other = provider.lock("b");
            inner
                .run(async |_| {
                    other
                        .run(async |context| {
                            assert_eq!(context.name(), "b");
                            Ok::<_, LockError>(())
                        })
                        .await
                })
                .await?;
            part.run(async |context: LockContext| {
                assert_eq!(context.name(), "c");
                assert!(context.names().eq(["a", "c"]));
                assert_eq!(Some(context.fencing_token()), outer.fencing_token_of("c"));
                Ok::<_, LockError>(())
            })
            .await?;
            outer.ensure_held()
        });
    timeout(AMPLE, body).await.unwrap().unwrap();
    assert_all_released(&fixture, &["a", "b", "c"]).await;
}

/// Calls that join different names of one set do not run at the same time.
async fn siblings_in_a_set_run_one_at_a_time(fixture: Fixture) {
    let provider = &fixture.provider;
    let running = std::sync::atomic::AtomicU32::new(0);
    let sibling = async |set: LockSet| {
        set.run(async |_| {
            let others = running.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(others, 0, "another call runs under the same hold");
            sleep(Duration::from_millis(5)).await;
            running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            Ok::<_, LockError>(())
        })
        .await
    };
    let body = provider.lock_all(["a", "b", "c"]).run(async |_| {
        let (one, two, three) = tokio::join!(
            sibling(provider.lock_all(["a"])),
            sibling(provider.lock_all(["b", "c"])),
            sibling(provider.lock_all(["c", "a"])),
        );
        one.and(two).and(three)
    });
    timeout(AMPLE, body).await.unwrap().unwrap();
}

async fn a_nested_set_acquires_what_is_missing(fixture: Fixture) {
    let provider = &fixture.provider;
    for missing in [&["b"][..], &["b", "c"][..]] {
        let outer = provider.lock("a");
        let all: Vec<&str> = missing.iter().copied().chain(["a"]).collect();
        let inner = provider.lock_all(&all);
        let body = outer.run(async |outer: LockContext| {
            inner
                .run(async |context: LockContext| {
                    assert_eq!(context.name(), "b");
                    assert_eq!(context.fencing_token_of("a"), Some(outer.fencing_token()));
                    for name in &all {
                        assert!(!is_free(&fixture, name).await, "{name}");
                        assert!(context.fencing_token_of(name).is_some());
                    }
                    // Deeper calls join both holds.
                    let deeper = provider.lock_all(&all);
                    let names = deeper.run(async |context: LockContext| {
                        Ok::<_, LockError>(context.names().map(str::to_owned).collect::<Vec<_>>())
                    });
                    assert!(names.await?.len() == all.len());
                    context.ensure_held()
                })
                .await?;
            for name in missing {
                assert!(is_free(&fixture, name).await, "{name}");
            }
            assert!(
                !is_free(&fixture, "a").await,
                "the outer call still holds its lock"
            );
            outer.ensure_held()
        });
        timeout(AMPLE, body).await.unwrap().unwrap();
        assert_all_released(&fixture, &["a", "b", "c"]).await;
    }

    // The loss of the joined hold cancels the inner body.
    let outer = provider.lock("a");
    let inner = provider.lock_all(["a", "b"]);
    let body = outer.run(async |_| {
        inner
            .run(async |_| {
                assert!(fixture.provider.admin().force_release("a").await?);
                std::future::pending::<Result<(), LockError>>().await
            })
            .await
    });
    let lost = timeout(AMPLE, body).await.unwrap().unwrap_err();
    assert!(
        matches!(&lost, LockError::Lost { name, .. } if name == "a"),
        "{lost:?}"
    );
    assert_all_released(&fixture, &["a", "b"]).await;
}

async fn a_nested_set_that_deadlocks_ends_at_its_timeout(fixture: Fixture) {
    let both_hold = Arc::new(Barrier::new(2));
    let call = async |provider: mongolock::LockProvider, own: &str| {
        let both = provider.lock_all(["a", "b"]).acquire_timeout(SHORT);
        provider
            .lock(own)
            .run(async |_| {
                both_hold.wait().await;
                both.run(async |_| Ok::<_, LockError>(())).await
            })
            .await
    };
    let calls = async { tokio::join!(call(fixture.provider.clone(), "a"), call(fixture.rival(), "b")) };
    let (one, other) = timeout(AMPLE, calls).await.expect("the deadlock ends");
    let timed_out = |outcome: &Result<(), LockError>| matches!(outcome, Err(LockError::Timeout { .. }));
    assert!(timed_out(&one) || timed_out(&other), "{one:?} {other:?}");
    assert_all_released(&fixture, &["a", "b"]).await;
}

async fn an_explicit_acquire_of_a_part_is_reentrant(fixture: Fixture) {
    let provider = &fixture.provider;
    let set = provider.lock_all(["b", "c"]);
    let body = provider.lock_all(["a", "b"]).run(async |_| {
        for refused in [set.acquire().await.map(drop), set.try_acquire().await.map(drop)] {
            assert!(
                matches!(&refused, Err(LockError::Reentrant { name, .. }) if name == "b"),
                "{refused:?}"
            );
        }
        let single = provider.lock("a").acquire().await;
        assert!(matches!(single, Err(LockError::Reentrant { .. })));
        assert!(is_free(&fixture, "c").await);
        Ok::<_, LockError>(())
    });
    body.await.unwrap();
}

/// Three processes use single names all the time; a set of another process gets all of them nevertheless.
async fn a_set_among_users_of_single_names_gets_its_turn(fixture: Fixture) {
    let locks = ["a", "b", "c"].map(|name| fixture.process(name).lock(name));
    assert_set_gets_its_turn(&fixture.provider, locks.to_vec()).await;
}

/// Two tasks of the set's own process use each name all the time: whenever one name is the set's turn, another is not.
async fn a_set_among_users_in_its_process_gets_its_turn(fixture: Fixture) {
    let names = ["a", "b", "a", "b", "a", "b"];
    let locks = names.map(|name| fixture.provider.lock(name));
    assert_set_gets_its_turn(&fixture.provider, locks.to_vec()).await;
}

async fn assert_set_gets_its_turn(provider: &LockProvider, locks: Vec<DistributedLock>) {
    let mut users = JoinSet::new();
    for lock in locks {
        users.spawn(async move {
            loop {
                let guard = lock.acquire().await.unwrap();
                sleep(Duration::from_millis(2)).await;
                guard.release().await.unwrap();
            }
        });
    }
    let set = provider.lock_all(["a", "b", "c"]);
    for _ in 0..5 {
        let guard = timeout(AMPLE, set.acquire()).await.expect("a turn").unwrap();
        guard.release().await.unwrap();
    }
    users.shutdown().await;
}

async fn a_body_that_panics_releases_all_names(fixture: Fixture) {
    let set = fixture.provider.lock_all(["a", "b"]);
    let body = tokio::spawn(async move {
        set.run(async |_| -> Result<(), LockError> { panic!("the body fails") })
            .await
    });
    assert!(body.await.unwrap_err().is_panic());
    assert_all_released(&fixture, &["a", "b"]).await;
}

/// Acquiring all locks costs two commands, whatever their number, and releasing them one.
#[tokio::test]
async fn a_set_costs_three_commands() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let provider = LockProvider::new(&database);
    acquire_and_release(&provider.lock("warm")).await;
    provider.admin().index_state().await;
    for count in [2, 10, 50] {
        let set = provider.lock_all((0..count).map(|number| format!("{count}:{number}")));
        commands.clear();
        set.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(
            names(&commands.take()),
            ["update", "find", "update"],
            "{count} names"
        );
    }
}

/// A renewal of a set is one command, like that of many single locks.
#[tokio::test]
async fn a_set_is_renewed_with_one_command() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let builder = mongolock::LockProvider::builder(&database).expiry(Duration::from_secs(3));
    let provider = builder.build().unwrap();
    let guard = provider
        .lock_all((0..20).map(|number| number.to_string()))
        .await
        .unwrap();
    let single = provider.lock("single").await.unwrap();
    commands.clear();
    sleep(Duration::from_secs(5)).await;
    let (renewals, queries) = (commands.count("update"), commands.count("find"));
    assert!(
        (4..=20).contains(&renewals),
        "{renewals} renewals in five intervals"
    );
    assert_eq!(queries, 0, "each renewal has matched all documents");
    assert!(!guard.is_lost() && !single.is_lost());
    guard.release().await.unwrap();
    single.release().await.unwrap();
}
