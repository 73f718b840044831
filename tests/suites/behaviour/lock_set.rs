//! Several locks that are acquired all or nothing, on both stores.

use std::time::Duration;

use futures_util::future::try_join_all;
use mongolock::{DistributedLock, LockContext, LockError, LockProvider};
use mongolock_tests::{AMPLE, Purpose, eventually, must, recorded};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::conformance::conformance;
use crate::fixture::{Fixture, assert_released, in_time};
use crate::waiting::{release_to, waiter};

conformance!(
    a_set_holds_all_names_and_releases_them,
    names_are_sorted_and_count_once,
    wrong_names_are_refused,
    a_set_leaves_what_it_cannot_use,
    a_set_that_polls_leaves_it_too,
    an_error_names_the_lock_that_a_set_has_waited_for,
    a_try_finds_all_or_nothing,
    a_waiting_set_gets_the_locks_as_they_are_released,
    a_hold_that_was_handed_over_is_released_for_a_set,
    a_body_has_the_names_and_tokens_as_written,
    a_nested_set_acquires_what_is_missing,
    a_set_among_users_of_single_names_gets_its_turn,
    a_set_among_users_in_its_process_gets_its_turn,
);

async fn assert_all_released(fixture: &Fixture, names: &[&str]) {
    let observer = fixture.process("observer");
    for name in names {
        assert_released(&observer.lock(name)).await;
    }
}

async fn a_set_holds_all_names_and_releases_them(fixture: Fixture) {
    let guard = fixture.provider.lock_all(["a", "b", "c"]).await.unwrap();
    let held = fixture.provider.held();
    assert!(held.iter().map(|lock| &*lock.name).eq(["a", "b", "c"]));
    assert_eq!(fixture.provider.health().await.held, 3);
    for name in ["a", "b", "c"] {
        assert!(!fixture.is_free(name).await, "{name}");
        let token = fixture.info(name).await.fencing_token;
        assert_eq!(guard.fencing_token_of(name), Some(token));
    }
    assert_eq!(guard.fencing_token_of("d"), None);
    guard.release().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(fixture.is_free(name).await, "{name}");
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

async fn wrong_names_are_refused(fixture: Fixture) {
    let none: &[&str] = &[];
    let many: Vec<String> = (0..501).map(|number| number.to_string()).collect();
    for set in [
        fixture.provider.lock_all(none),
        fixture.provider.lock_all(["a", ""]),
        fixture.provider.lock_all(["a", "b\n"]),
        fixture.provider.lock_all(many),
    ] {
        for refused in [set.acquire().await.map(drop), set.try_acquire().await.map(drop)] {
            assert!(
                matches!(refused, Err(LockError::InvalidName { .. })),
                "{refused:?}"
            );
        }
    }
    assert!(fixture.is_free("a").await);
}

/// While a set waits for one lock, which another process or a caller of its own process holds, the locks behind it are free, and
/// those before it are held or free.
async fn a_set_leaves_what_it_cannot_use(fixture: Fixture) {
    leaves_locks(&fixture, &fixture.provider, &fixture.rival()).await;
    leaves_locks(&fixture, &fixture.provider, &fixture.provider).await;
}

/// Without a stream a set asks again and again.
async fn a_set_that_polls_leaves_it_too(fixture: Fixture) {
    let polling = fixture.with(|options| options.wake_up(false));
    leaves_locks(&fixture, &polling, &fixture.rival()).await;
}

/// Checks what a set has that waits for `b`, and that it gets all after the release.
async fn leaves_locks(fixture: &Fixture, provider: &LockProvider, holder: &LockProvider) {
    let held = holder.lock("b").await.unwrap();
    let set = provider.lock_all(["a", "b", "c"]).acquire_timeout(AMPLE);
    let waiting = tokio::spawn(async move { set.acquire().await });
    let has_first = || async { (!fixture.is_free("a").await).then_some(()) };
    must(eventually(AMPLE, "the set has its first lock", has_first).await);
    let mut free = Vec::new();
    for _ in 0..20 {
        free.push([fixture.is_free("a").await, fixture.is_free("c").await]);
        sleep(Duration::from_millis(20)).await;
    }
    assert!(
        free.iter().all(|free| *free == [false, true]),
        "it keeps those before the one that it waits for: {free:?}"
    );
    held.release().await.unwrap();
    let guard = in_time(waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

/// Of two sets that wait, the second one finds the lock that the first one keeps, if it keeps one.
async fn an_error_names_the_lock_that_a_set_has_waited_for(fixture: Fixture) {
    let held = fixture.rival().lock("b").await.unwrap();
    let set = |owner| fixture.process(owner).lock_all(["a", "b"]);
    let first = waiter(set("first"));
    let has_first = || async { (!fixture.is_free("a").await).then_some(()) };
    must(eventually(AMPLE, "the set has its first lock", has_first).await);
    // On a slow machine the first reply takes seconds.
    let second = set("second").acquire_timeout(Duration::from_secs(6));
    match second.acquire().await {
        Err(LockError::Timeout { name, holder, .. }) => {
            assert_eq!((&*name, holder.as_deref()), ("a", Some("first")));
        }
        other => panic!("{other:?}"),
    }
    release_to(held, first, AMPLE).await;
}

async fn a_try_finds_all_or_nothing(fixture: Fixture) {
    for provider in [fixture.rival(), fixture.provider.clone()] {
        let held = provider.lock_all(["b", "c"]).await.unwrap();
        let set = fixture.provider.lock_all(["a", "b"]);
        assert!(set.try_acquire().await.unwrap().is_none());
        assert_all_released(&fixture, &["a"]).await;
        held.release().await.unwrap();
        let guard = set.try_acquire().await.unwrap().expect("all are free");
        guard.release().await.unwrap();
    }
}

/// Five holders release their locks one after the other.
async fn a_waiting_set_gets_the_locks_as_they_are_released(fixture: Fixture) {
    let names = ["a", "b", "c", "d", "e"];
    let rival = fixture.rival();
    let held = try_join_all(names.map(|name| rival.lock(name).acquire())).await;
    let waiting = tokio::spawn(fixture.provider.lock_all(names).acquire());
    for guard in held.unwrap() {
        sleep(Duration::from_millis(50)).await;
        assert!(!waiting.is_finished());
        guard.release().await.unwrap();
    }
    let guard = in_time(waiting).await.unwrap().unwrap();
    for name in names {
        assert!(!fixture.is_free(name).await, "{name}");
    }
    guard.release().await.unwrap();
    assert_all_released(&fixture, &names).await;
}

/// The lock passes to the waiting set with a hold of its own, which the set cannot use.
async fn a_hold_that_was_handed_over_is_released_for_a_set(fixture: Fixture) {
    for _ in 0..5 {
        // A waiter behind the first one makes its request reserve tokens for hand-overs.
        let held = fixture.rival().lock("b").await.unwrap();
        let first = tokio::spawn(fixture.provider.lock("b").acquire());
        sleep(Duration::from_millis(20)).await;
        let waiting = tokio::spawn(fixture.provider.lock_all(["a", "b"]).acquire());
        sleep(Duration::from_millis(20)).await;
        held.release().await.unwrap();
        let first = in_time(first).await.unwrap().unwrap();
        let token = first.fencing_token();
        first.release().await.unwrap();
        let guard = in_time(waiting).await.unwrap().unwrap();
        assert!(guard.fencing_token_of("b").unwrap() > token);
        guard.release().await.unwrap();
    }
    assert_all_released(&fixture, &["a", "b"]).await;
}

async fn a_body_has_the_names_and_tokens_as_written(fixture: Fixture) {
    let set = fixture.provider.lock_all(["b", "a", "c"]);
    let body = set.run(async |context: LockContext| {
        assert_eq!(context.name(), "b");
        assert!(context.names().eq(["a", "b", "c"]));
        assert_eq!(Some(context.fencing_token()), context.fencing_token_of("b"));
        assert!(context.fencing_token_of("a").is_some() && context.fencing_token_of("d").is_none());
        assert_eq!(LockContext::current().unwrap().name(), "b");
        let part = fixture.provider.lock_all(["c", "a"]);
        part.run(async |context: LockContext| {
            assert_eq!(context.name(), "c");
            assert!(context.names().eq(["a", "c"]));
            assert_eq!(Some(context.fencing_token()), context.fencing_token_of("c"));
            Ok::<_, LockError>(())
        })
        .await?;
        context.ensure_held()
    });
    body.await.unwrap();
    assert_all_released(&fixture, &["a", "b"]).await;
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
                        assert!(!fixture.is_free(name).await, "{name}");
                        assert!(context.fencing_token_of(name).is_some());
                    }
                    // Deeper calls join both holds.
                    let deeper = provider.lock_all(&all);
                    let names = deeper.run(async |context| Ok::<_, LockError>(context.names().count()));
                    assert_eq!(names.await?, all.len());
                    context.ensure_held()
                })
                .await?;
            for name in missing {
                assert!(fixture.is_free(name).await, "{name}");
            }
            assert!(!fixture.is_free("a").await, "the outer call still holds its lock");
            outer.ensure_held()
        });
        in_time(body).await.unwrap();
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
    let lost = in_time(body).await;
    assert!(
        matches!(&lost, Err(LockError::Lost { name, .. }) if name == "a"),
        "{lost:?}"
    );
    assert_all_released(&fixture, &["a", "b"]).await;
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
        let guard = in_time(set.acquire()).await.unwrap();
        guard.release().await.unwrap();
    }
    users.shutdown().await;
}

/// A renewal of a set is one command, like that of many single locks.
#[tokio::test]
async fn a_set_is_renewed_with_one_command() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let (database, commands) = recorded(fixture.db(), &[]).await;
    let builder = LockProvider::builder(&database).expiry(Duration::from_secs(3));
    let provider = builder.build().unwrap();
    let set = provider.lock_all((0..20).map(|number| number.to_string()));
    let guard = set.await.unwrap();
    let single = provider.lock("single").await.unwrap();
    commands.clear();
    sleep(Duration::from_secs(5)).await;
    let (renewals, queries) = (commands.count(Purpose::Renew), commands.count("find"));
    assert!((4..=20).contains(&renewals), "{renewals} in five intervals");
    assert_eq!(queries, 0, "each renewal has matched all documents");
    assert!(!guard.is_lost() && !single.is_lost());
    guard.release().await.unwrap();
    single.release().await.unwrap();
}
