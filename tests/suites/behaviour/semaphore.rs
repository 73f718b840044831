//! Permits of semaphores, on both stores.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use mongodb::bson::{Document, doc};
use mongolock::{
    Fenced, FencedExt, FencingToken, LockContext, LockError, LockFilter, LockProvider, LockState, Permit,
    distributed_lock,
};
use mongolock_tests::AMPLE;
use tokio::time::sleep;

use crate::conformance::conformance;
use crate::fixture::{Fixture, in_time};

conformance!(
    many_callers_never_exceed_the_greatest_number,
    a_try_lets_waiters_of_its_process_go_first,
    a_permit_has_no_fencing_token,
    operators_see_and_release_permits,
    an_attribute_takes_permits,
);

/// So many callers of one process that hold all permits.
async fn all(provider: &LockProvider, permits: u32) -> Vec<Permit> {
    let semaphore = provider.semaphore("s", permits);
    let acquiring = (0..permits).map(|_| semaphore.acquire());
    in_time(try_join_all(acquiring)).await.unwrap()
}

async fn release_all(permits: Vec<Permit>) {
    for permit in permits {
        permit.release().await.unwrap();
    }
}

/// Callers of four processes, each with its number of permits.
async fn many_callers_never_exceed_the_greatest_number(fixture: Fixture) {
    for (permits, greatest) in [([3, 3, 3, 3], 3), ([2, 4, 1, 4], 4)] {
        let (now, most) = (AtomicU32::new(0), AtomicU32::new(0));
        let semaphores = permits.map(|permits| fixture.rival().semaphore("s", permits));
        let callers = (0..16).map(async |caller| {
            for _ in 0..10 {
                let permit = semaphores[caller % 4].acquire().await.unwrap();
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_millis(fastrand::u64(0..4))).await;
                now.fetch_sub(1, Ordering::SeqCst);
                permit.release().await.unwrap();
            }
        });
        in_time(join_all(callers)).await;
        let most = most.into_inner();
        assert!((2..=greatest).contains(&most), "{most} with {permits:?}");
    }
}

/// A try that draws a free permit at once would overtake a waiter whose wake-up is on its way.
async fn a_try_lets_waiters_of_its_process_go_first(fixture: Fixture) {
    let semaphore = fixture.provider.semaphore("s", 1).acquire_timeout(AMPLE);
    for _ in 0..5 {
        let held = all(&fixture.rival(), 1).await;
        let waiting = tokio::spawn(semaphore.acquire());
        sleep(Duration::from_millis(50)).await;
        let release = tokio::spawn(release_all(held));
        let mut tries = 0;
        while !waiting.is_finished() {
            let overtaking = semaphore.try_acquire().await.unwrap();
            let overtakes = overtaking.is_some() && !waiting.is_finished();
            assert!(!overtakes, "after {tries} tries");
            tries += 1;
            tokio::task::yield_now().await;
        }
        waiting.await.unwrap().unwrap().release().await.unwrap();
        release.await.unwrap();
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
    let semaphore = fixture.provider.semaphore("s", 12);
    assert_eq!(semaphore.name(), "s");
    assert_eq!(semaphore.available().await.unwrap(), 12);
    let held = all(&fixture.rival(), 12).await;
    let is_held = |permit: &Permit| permit.name() == "s" && !permit.is_lost();
    assert!(held.iter().all(is_held));
    assert_eq!(semaphore.available().await.unwrap(), 0);
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
    assert!(admin.force_release("s").permit(7).await.unwrap());
    assert!(!admin.force_release("s").permit(7).await.unwrap());
    assert!(!lock.is_lost(), "the lock of that name is another one");
    assert_eq!(semaphore.available().await.unwrap(), 1);
    let taken = semaphore.try_acquire().await.unwrap().unwrap();
    assert_eq!(taken.number(), 7);
    assert_eq!(fixture.provider.held()[0].permit, Some(7));
    taken.release().await.unwrap();
    drop((held, lock));
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
