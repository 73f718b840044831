//! Documents that an open foreign transaction has changed: every write to them waits for it in the server.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::ClientSession;
use mongodb::bson::{Document, doc};
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, Purpose, TestDb, eventually, must, recorded, test_db, until};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::callers::{hold_all, release_all};
use crate::refusals::{has_its_source, is_told_once};
use crate::{
    DEFAULT_EXPIRY, LONG_EXPIRY, assert_free, foreign_transaction, is_released, patient, until_indexed,
    until_none_is_held, with_expiry,
};

/// A provider of locks that have documents, of which a transaction has changed these.
async fn blocked(db: &TestDb, names: &[&str], blocked: &[&str]) -> (LockProvider, ClientSession) {
    let provider = with_expiry(db.database(), LONG_EXPIRY);
    until_indexed(&provider).await;
    for name in names {
        assert_free(&provider, name).await;
    }
    let session = foreign_transaction(db, blocked).await;
    (provider, session)
}

/// Asserts that the error names the lock and the transaction that blocks it, and not an unreachable server.
fn names_the_blocked_document(error: &LockError, name: &str) {
    let text = error.to_string().to_lowercase();
    assert!(!text.contains("reachable"), "{text}");
    assert!(text.contains("transaction"), "{text}");
    assert!(text.contains(&format!("`{name}`")), "{text}");
    has_its_source(error);
    is_told_once(error);
}

/// B13: the lock is free, so that neither a wait nor a try says that it is held, whether one request or several fit into the
/// limit.
#[tokio::test]
async fn a_call_names_the_transaction_that_blocks_it() {
    join_all(
        [(3, false), (8, false), (3, true)].map(async |(seconds, is_try)| {
            let db = test_db().await;
            let (provider, mut session) = blocked(&db, &["stuck"], &["stuck"]).await;
            let limit = Duration::from_secs(seconds);
            let begun = Instant::now();
            let lock = provider.lock("stuck").acquire_timeout(limit);
            let outcome = if is_try {
                lock.try_acquire().await
            } else {
                lock.acquire().await.map(Some)
            };
            // The server's own limit for a request is 5 s.
            assert!(begun.elapsed() < limit + Duration::from_millis(1_500));
            names_the_blocked_document(&outcome.unwrap_err(), "stuck");
            session.abort_transaction().await.unwrap();
            assert_free(&provider, "stuck").await;
        }),
    )
    .await;
}

/// A release in the background goes on. Meanwhile the caller learns the same as that of an acquire in this state.
#[tokio::test]
async fn a_release_has_the_words_of_an_acquire() {
    let db = test_db().await;
    let provider = with_expiry(db.database(), LONG_EXPIRY);
    until_indexed(&provider).await;
    assert_free(&provider, "reported").await;
    let guard = provider.lock("released").await.unwrap();
    let mut session = foreign_transaction(&db, &["reported", "released"]).await;
    let reported = provider
        .lock("reported")
        .acquire_timeout(Duration::from_millis(1500));
    let (error, acquire) = tokio::join!(guard.release(), reported.acquire());
    let (error, acquire) = (error.unwrap_err(), acquire.unwrap_err());
    names_the_blocked_document(&error, "released");
    let text = acquire.to_string().replace("`reported`", "`released`");
    assert_eq!((error.to_string(), error.help()), (text, acquire.help()));
    session.abort_transaction().await.unwrap();
    assert_free(&provider, "released").await;
}

/// B3: the documents of six names are blocked, so their requests are without a reply for up to 5 s. The locks of other
/// names are free, and every try acquires one of them.
#[tokio::test]
async fn blocked_documents_do_not_stop_other_names() {
    let db = test_db().await;
    let names = ["b:0", "b:1", "b:2", "b:3", "b:4", "b:5"];
    let (provider, mut session) = blocked(&db, &names, &names).await;
    let mut waiters = JoinSet::new();
    for name in names {
        let lock = provider.lock(name).acquire_timeout(AMPLE);
        waiters.spawn(async move { lock.acquire().await.map(drop) });
    }
    // After 2 s a request counts as overdue, and for 2 s after a reply the server counts as working.
    sleep(Duration::from_millis(2300)).await;
    for number in 0..8 {
        let lock = provider.lock(format!("free:{number}"));
        let tried = lock.acquire_timeout(Duration::from_secs(2)).try_acquire().await;
        let guard = tried.unwrap_or_else(|error| panic!("try {number}: {error}"));
        assert!(guard.is_some(), "try {number}");
        // The waiters notice the reply within 100 ms, and may then send copies.
        sleep(Duration::from_millis(150)).await;
    }
    session.abort_transaction().await.unwrap();
    for waited in waiters.join_all().await {
        waited.unwrap();
    }
}

/// The server runs the claims of a set in their order, and stops at the blocked one. The others are not kept from other calls,
/// also while the set waits, and what hung in the server is granted late, to nobody, and given back again.
#[tokio::test]
async fn a_blocked_document_of_a_set_keeps_none_of_its_locks() {
    let db = test_db().await;
    let all = ["a", "b", "c"];
    let (provider, mut session) = blocked(&db, &all, &["b"]).await;
    let set = provider.lock_all(all).acquire_timeout(Duration::from_secs(2));
    let error = set.await.unwrap_err();
    names_the_blocked_document(&error, "b");
    for name in ["a", "c"] {
        assert_free(&provider, name).await;
    }
    let set = provider.lock_all(all).acquire_timeout(AMPLE);
    let cut = timeout(Duration::from_millis(300), set.acquire()).await;
    assert!(cut.is_err(), "the transaction blocks one of the documents");
    let free = async || is_released(db.database(), "a").await.then_some(());
    must(eventually(Duration::from_secs(2), "the first lock is given back", free).await);
    session.abort_transaction().await.unwrap();
    // The rest is granted late unless the give-back that hung behind it comes right after it. By now both have happened, and
    // the server has ended what it had not run.
    sleep(Duration::from_secs(6)).await;
    until_none_is_held(db.database(), Duration::from_secs(10)).await;
    let held = provider.lock_all(all).acquire().await.unwrap();
    held.release().await.unwrap();
}

/// A foreign transaction blocks the document of one permit: a call that has drawn it takes another one.
#[tokio::test]
async fn a_blocked_permit_does_not_keep_the_others() {
    let db = test_db().await;
    let provider = with_expiry(db.database(), LONG_EXPIRY);
    until_indexed(&provider).await;
    let semaphore = provider.semaphore("s", 2).acquire_timeout(Duration::from_secs(5));
    let (one, other) = (semaphore.acquire().await, semaphore.acquire().await);
    for permit in [one, other] {
        permit.unwrap().release().await.unwrap();
    }
    let mut session = foreign_transaction(&db, &["s\u{1f}0"]).await;
    for _ in 0..4 {
        let permit = timeout(AMPLE, semaphore.acquire()).await.unwrap().unwrap();
        assert_eq!(permit.number(), 1);
        permit.release().await.unwrap();
    }
    session.abort_transaction().await.unwrap();
    until_none_is_held(db.database(), AMPLE).await;
}

/// The common renewal of many locks waits for one document, and no other lock is lost.
#[tokio::test]
async fn a_blocked_renewal_loses_no_other_lock() {
    let db = test_db().await;
    let provider = with_expiry(db.database(), Duration::from_secs(5));
    let locks = (0..40).map(|index| provider.lock(format!("blocked:{index:02}")));
    let mut guards = hold_all(locks).await;
    until_indexed(&provider).await;
    let mut session = foreign_transaction(&db, &["blocked:03"]).await;
    sleep(Duration::from_secs(11)).await;
    for guard in &guards {
        assert_eq!(guard.is_lost(), guard.name() == "blocked:03", "{}", guard.name());
    }
    session.abort_transaction().await.unwrap();
    guards.retain(|guard| !guard.is_lost());
    release_all(guards).await;
}

/// Releases are sent together as well, and a blocked one does not delay the others.
#[tokio::test]
async fn a_blocked_release_delays_no_other_release() {
    let db = test_db().await;
    let (provider, rival) = (patient(db.database()), patient(db.database()));
    let names = ["released:0", "released:1", "released:2"];
    let guards = hold_all(names.iter().map(|name| provider.lock(name))).await;
    until_indexed(&provider).await;
    let mut session = foreign_transaction(&db, &names[..1]).await;
    drop(guards);
    assert_free(&provider, names[1]).await;
    assert_free(&rival, names[2]).await;
    session.abort_transaction().await.unwrap();
}

/// Only a few blocked releases are repeated at the same time, because the application and the renewals need the connections of the pool as
/// well.
#[tokio::test]
async fn blocked_releases_do_not_use_up_the_connections() {
    let db = test_db().await;
    let names: Vec<String> = (0..8).map(|number| format!("blocked:{number}")).collect();
    let (database, commands) = recorded(&db, &["maxPoolSize=5"]).await;
    let provider = LockProvider::new(&database);
    let bystander = provider.lock("bystander").expiry(DEFAULT_EXPIRY).await.unwrap();
    let guards = hold_all(names.iter().map(|name| provider.lock(name))).await;
    until_indexed(&provider).await;
    let mut session = foreign_transaction(&db, &names).await;
    commands.clear();
    drop(guards);
    // A repeated release is for one claim only, and has this limit at the server.
    let limit = 2000;
    let is_repeat = |sent: &Document| {
        let is_single = sent.contains_key("findAndModify") && sent.get_i64("maxTimeMS") == Ok(limit);
        is_single && Purpose::of(sent) == Some(Purpose::Release)
    };
    let repeats = || commands.all().into_iter().filter(is_repeat).count();
    until("each release is repeated several times", async || {
        repeats() >= 2 * names.len()
    })
    .await;
    let users = database.collection::<Document>("users");
    let plain = timeout(AMPLE / 2, users.find_one(doc! {}).into_future()).await;
    plain.expect("a connection is free").unwrap();
    assert!(!bystander.is_lost());
    session.abort_transaction().await.unwrap();
    for name in &names {
        assert_free(&provider, name).await;
    }
    bystander.release().await.unwrap();
}
