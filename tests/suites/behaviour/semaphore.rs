//! Permits of semaphores, on both stores.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongolock::{
    Fenced, FencedExt, FencingToken, IndexState, LockContext, LockError, LockFilter, LockProvider, LockState,
    Permit, distributed_lock,
};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, must, test_db};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::conformance::conformance;
use crate::fixture::{Fixture, in_time, refused_option};

conformance!(
    so_many_callers_hold_permits_and_no_more,
    a_released_permit_wakes_a_waiter,
    a_semaphore_and_a_lock_of_one_name_are_independent,
    many_callers_never_exceed_the_greatest_number,
    every_permit_is_used,
    a_try_finds_the_last_free_permit,
    a_try_lets_waiters_of_its_process_go_first,
    tries_of_one_process_do_not_make_each_other_fail,
    a_permit_has_no_fencing_token,
    operators_see_and_release_permits,
    wrong_numbers_are_refused,
    an_attribute_takes_permits,
);

async fn all(provider: &LockProvider, permits: u32) -> Vec<Permit> {
    let semaphore = provider.semaphore("s", permits);
    let mut held = Vec::new();
    for _ in 0..permits {
        held.push(in_time(semaphore.acquire()).await.unwrap());
    }
    held
}

async fn release_all(permits: Vec<Permit>) {
    for permit in permits {
        permit.release().await.unwrap();
    }
}

async fn so_many_callers_hold_permits_and_no_more(fixture: Fixture) {
    let semaphore = fixture.provider.semaphore("s", 3);
    assert_eq!((semaphore.name(), semaphore.permits()), ("s", 3));
    assert_eq!(semaphore.available().await.unwrap(), 3);
    let held = all(&fixture.provider, 3).await;
    let numbers: BTreeSet<u32> = held.iter().map(Permit::number).collect();
    assert_eq!(numbers, BTreeSet::from([0, 1, 2]));
    let is_held = |permit: &Permit| permit.name() == "s" && !permit.is_lost();
    assert!(held.iter().all(is_held));
    for process in [&fixture.provider, &fixture.rival()] {
        let semaphore = process.semaphore("s", 3);
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        assert_eq!(semaphore.available().await.unwrap(), 0);
    }
    release_all(held).await;
    assert_eq!(semaphore.available().await.unwrap(), 3);
}

/// Whichever of the permits is released, and in whichever process the waiter is. The next waiters get permits of this process.
async fn a_released_permit_wakes_a_waiter(fixture: Fixture) {
    for (holder, released) in [
        (fixture.rival(), 0),
        (fixture.rival(), 1),
        (fixture.provider.clone(), 0),
    ] {
        let mut held = all(&holder, 2).await;
        let mut waiting = JoinSet::new();
        for _ in 0..4 {
            waiting.spawn(fixture.provider.semaphore("s", 2).acquire());
        }
        sleep(Duration::from_millis(300)).await;
        assert!(waiting.try_join_next().is_none());
        while !waiting.is_empty() {
            held.remove(released).release().await.unwrap();
            let woken = timeout(BEFORE_EXPIRY, waiting.join_next()).await;
            let permit = woken.expect("one is woken").unwrap();
            held.push(permit.unwrap().unwrap());
        }
        release_all(held).await;
    }
}

async fn a_semaphore_and_a_lock_of_one_name_are_independent(fixture: Fixture) {
    let held = all(&fixture.provider, 2).await;
    let lock = fixture.rival().lock("s").try_acquire().await.unwrap();
    lock.expect("the lock is free").release().await.unwrap();
    let other = fixture.rival().semaphore("s:other", 2);
    let other = other.try_acquire().await.unwrap();
    other.expect("it is another semaphore").release().await.unwrap();
    release_all(held).await;
}

/// Runs tasks on several providers, each with its number of permits, and returns the most callers that were inside.
async fn contend(fixture: &Fixture, permits: [u32; 4]) -> u32 {
    let inside = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for (process, permits) in permits.into_iter().enumerate() {
        let semaphore = fixture.process(&format!("p{process}")).semaphore("s", permits);
        for _ in 0..4 {
            let (semaphore, inside) = (semaphore.clone(), Arc::clone(&inside));
            tasks.spawn(async move {
                let (now, most) = &*inside;
                for _ in 0..10 {
                    let permit = semaphore.acquire().await.unwrap();
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    sleep(Duration::from_millis(fastrand::u64(0..4))).await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    permit.release().await.unwrap();
                }
            });
        }
    }
    in_time(tasks.join_all()).await;
    inside.1.load(Ordering::SeqCst)
}

async fn many_callers_never_exceed_the_greatest_number(fixture: Fixture) {
    let most = contend(&fixture, [3, 3, 3, 3]).await;
    assert!((2..=3).contains(&most), "{most}");
    let most = contend(&fixture, [2, 4, 1, 4]).await;
    assert!((2..=4).contains(&most), "{most}");
}

/// Claims that meet each other do not leave a permit unused: as many calls as there are permits all get one.
async fn every_permit_is_used(fixture: Fixture) {
    for _ in 0..5 {
        let mut tasks = JoinSet::new();
        for process in 0..10 {
            let semaphore = fixture.process(&format!("p{process}")).semaphore("s", 10);
            tasks.spawn(async move { semaphore.acquire().await.unwrap() });
        }
        let held = timeout(BEFORE_EXPIRY, tasks.join_all()).await;
        release_all(held.expect("each call has a permit")).await;
    }
}

/// Only one of many permits is free, which the draw seldom hits.
async fn a_try_finds_the_last_free_permit(fixture: Fixture) {
    let mut held = all(&fixture.rival(), 20).await;
    let semaphore = fixture.provider.semaphore("s", 20);
    for _ in 0..5 {
        let freed = held.pop().unwrap();
        let number = freed.number();
        freed.release().await.unwrap();
        let found = semaphore.try_acquire().await.unwrap().expect("one is free");
        assert_eq!(found.number(), number);
        held.push(found);
    }
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    release_all(held).await;
}

/// A try that draws a free permit at once would overtake a waiter whose wake-up is on its way.
async fn a_try_lets_waiters_of_its_process_go_first(fixture: Fixture) {
    let semaphore = fixture.provider.semaphore("s", 1).acquire_timeout(AMPLE);
    for _ in 0..5 {
        let held = all(&fixture.rival(), 1).await;
        let waits = semaphore.clone();
        let waiting = tokio::spawn(async move { waits.acquire().await });
        sleep(Duration::from_millis(100)).await;
        let release = tokio::spawn(release_all(held));
        let mut tries = 0;
        while !waiting.is_finished() {
            let overtaking = semaphore.try_acquire().await.unwrap();
            assert!(
                overtaking.is_none() || waiting.is_finished(),
                "after {tries} tries"
            );
            tries += 1;
        }
        waiting.await.unwrap().unwrap().release().await.unwrap();
        release.await.unwrap();
    }
}

/// That another caller of the process claims a permit just now says nothing about the other permits.
async fn tries_of_one_process_do_not_make_each_other_fail(fixture: Fixture) {
    for _ in 0..5 {
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let semaphore = fixture.provider.semaphore("s", 8);
            tasks.spawn(async move { semaphore.try_acquire().await.unwrap() });
        }
        let held: Option<Vec<Permit>> = tasks.join_all().await.into_iter().collect();
        release_all(held.expect("each try has a permit")).await;
    }
}

async fn a_permit_has_no_fencing_token(fixture: Fixture) {
    let permit = fixture.provider.semaphore("s", 2).acquire().await.unwrap();
    let context = permit.context();
    assert!(context.names().eq(["s"]));
    assert_eq!(context.fencing_token_of("s"), None);
    assert!(context.fencing_token() < FencingToken::from(0));
    // No server is asked.
    let client = mongodb::Client::with_uri_str("mongodb://127.0.0.1:1/").await;
    let database = client.unwrap().database("none");
    let documents = database.collection::<Document>("none");
    let fenced = documents.fenced(context.fencing_token());
    let error = fenced.insert_one(doc! { "_id": 1 }).await.unwrap_err();
    assert!(matches!(error, LockError::NoFencingToken), "{error}");
    let text = "fenced write refused: a permit has no fencing token";
    assert_eq!(error.to_string(), text);
    // A value in memory accepts any token at first.
    let value = Fenced::new(0);
    let written = value.write(context.fencing_token(), |value| *value = 1);
    assert!(matches!(written, Err(LockError::NoFencingToken)), "{written:?}");
    assert_eq!(value.read(|value, _| *value), 0);
    permit.release().await.unwrap();
}

async fn operators_see_and_release_permits(fixture: Fixture) {
    let held = all(&fixture.rival(), 12).await;
    let lock = fixture.rival().lock("s").await.unwrap();
    let admin = fixture.provider.admin();
    let listed = admin.list(LockFilter::new().prefix("s")).await.unwrap();
    let permits: Vec<Option<u32>> = listed.iter().map(|info| info.permit).collect();
    // They are in the order of their documents' ids, which are text.
    let mut expected: Vec<u32> = (0..12).collect();
    expected.sort_by_key(ToString::to_string);
    let expected: Vec<Option<u32>> = [None].into_iter().chain(expected.into_iter().map(Some)).collect();
    assert_eq!(permits, expected);
    for info in &listed {
        assert_eq!((&*info.name, info.state), ("s", LockState::Held));
        assert_eq!(info.owner.as_deref(), Some("rival"));
    }
    let own = fixture.rival().held();
    assert!(own.is_empty(), "another provider of the same owner");

    assert!(admin.force_release("s").permit(7).await.unwrap());
    assert!(!admin.force_release("s").permit(7).await.unwrap());
    assert!(!lock.is_lost(), "the lock of that name is another one");
    let semaphore = fixture.provider.semaphore("s", 12);
    let taken = semaphore.try_acquire().await.unwrap().unwrap();
    assert_eq!(taken.number(), 7);
    assert_eq!(fixture.provider.held()[0].permit, Some(7));
    taken.release().await.unwrap();
    drop((held, lock));
}

async fn wrong_numbers_are_refused(fixture: Fixture) {
    for permits in [0, 1001] {
        let semaphore = fixture.provider.semaphore("s", permits);
        for refused in [
            semaphore.acquire().await.map(drop),
            semaphore.try_acquire().await.map(drop),
            semaphore.available().await.map(drop),
        ] {
            assert_eq!(refused_option(refused), "permits");
        }
    }
}

#[distributed_lock(name = "export:<tenant>", permits = 2, on_busy = "skip", provider = provider)]
async fn export(
    provider: &LockProvider,
    tenant: &str,
    #[lock] lock: LockContext,
) -> Result<Option<String>, LockError> {
    assert_eq!(lock.template(), Some("export:<tenant>"));
    Ok(Some(lock.name().to_owned()))
}

async fn an_attribute_takes_permits(fixture: Fixture) {
    let provider = &fixture.provider;
    let rival = fixture.rival().semaphore("export:a", 2);
    let first = rival.acquire().await.unwrap();
    assert_eq!(export(provider, "a").await.unwrap().as_deref(), Some("export:a"));
    let second = rival.acquire().await.unwrap();
    assert_eq!(export(provider, "a").await.unwrap(), None);
    assert_eq!(export(provider, "b").await.unwrap().as_deref(), Some("export:b"));
    release_all(vec![first, second]).await;
}

/// The document of a permit has the five fields of every lock, and nothing else is stored.
#[tokio::test]
async fn a_permit_is_an_ordinary_lock_document() {
    let fixture = Fixture::mongodb().await;
    // Built before there is a collection, the TTL index needs no document of the internal lock.
    fixture.until_indexed().await;
    let permit = fixture.provider.semaphore("s", 1).acquire().await.unwrap();
    let document = fixture.document("s\u{1f}0").await.unwrap();
    let fields = ["_id", "lockId", "acquiredAt", "expiresAt", "fencingToken"];
    assert!(document.keys().eq(fields), "{document}");
    assert_eq!(fixture.locks().count_documents(doc! {}).await.unwrap(), 1);
    permit.release().await.unwrap();
}

/// With the collation of a language, separators are ignored: the permit of a semaphore could be the lock of another name.
#[tokio::test]
async fn a_collation_is_reported() {
    let db = test_db().await;
    let create = doc! { "create": "distributed_locks", "collation": { "locale": "en" } };
    db.database().run_command(create).await.unwrap();
    let provider = LockProvider::new(db.database());
    let state = provider.admin().index_state().await;
    assert!(
        matches!(&state, IndexState::Collation { locale } if locale == "en"),
        "{state:?}"
    );
    // Locks of ordinary names work all the same.
    let guard = must(timeout(AMPLE, provider.lock("a").acquire()).await).unwrap();
    guard.release().await.unwrap();
}
