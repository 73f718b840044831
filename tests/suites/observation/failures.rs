//! S1.15: what an operator learns from the events of failures. That the message of each event begins with its name is asserted
//! for all scenarios of this suite.

use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::doc;
use mongolock::{IndexState, LockError, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, LentServer, must, test_db, until};
use tokio::time::Instant;
use tracing::Level;
use tracing_subscriber::layer::SubscriberExt;

use crate::{NotedEvent, Notes, observed, renewing};

/// A password that no event may have in it.
const PASSWORD: &str = "hunter2";

/// A lease: a release in the background is given up when it would have ended.
const LEASE: Duration = Duration::from_secs(2);

/// The time for which calls wait that do not get their lock.
const SHORT: Duration = Duration::from_secs(1);

/// What the threads of connected providers report: a subscriber of the test's own thread does not hear it.
fn of_threads() -> &'static Notes {
    static NOTES: OnceLock<Notes> = OnceLock::new();
    NOTES.get_or_init(|| {
        let notes = Notes::default();
        let subscriber = tracing_subscriber::registry().with(notes.clone());
        tracing::subscriber::set_global_default(subscriber).unwrap();
        notes
    })
}

/// The events of this name that a scenario has caused, and those of all threads of providers.
fn events(notes: &Notes, name: &str) -> Vec<NotedEvent> {
    [notes.events(name), of_threads().events(name)].concat()
}

/// Waits until an event of this name was recorded.
async fn until_logged(notes: &Notes, event: &str) {
    until(event, async || !events(notes, event).is_empty()).await;
}

/// Runs a scenario, and asserts that each event is recorded at this level and with this part in its message or its fields.
fn is_found(expected: &[(&str, Level, &str)], scenario: impl AsyncFnOnce(Notes)) {
    of_threads();
    let notes = Notes::default();
    let seen = notes.clone();
    notes.observe(async |_| scenario(seen).await);
    for (event, level, part) in expected {
        let recorded = events(&notes, event);
        let has_it = recorded.iter().any(|event| {
            let mut texts = event.fields.0.values();
            event.metadata.level() == level && texts.any(|text| text.contains(part))
        });
        let texts: Vec<_> = recorded.iter().map(|event| &event.fields.0).collect();
        assert!(has_it, "{event} {level} {part}: {texts:?}");
    }
}

/// The events of failing commands have the server's words in them.
#[test]
fn failing_renewals_and_releases_are_found() {
    let events = [
        ("mongolock.renewal_failed", Level::WARN, "InvalidNamespace"),
        ("mongolock.release_failed", Level::WARN, "Failing command"),
    ];
    is_found(&events, async |notes| {
        let db = test_db().await;
        let provider = renewing(&LockProvider::new(db.database()), Duration::from_millis(100));
        let guard = provider.lock("failing").await.unwrap();
        // "InvalidNamespace": a refusal that cannot pass.
        let failing = FailPoint::on(&["findAndModify"]).always().error_code(73);
        let point = failing.enable_for(&db).await.unwrap();
        until_logged(&notes, "mongolock.renewal_failed").await;
        assert!(matches!(guard.release().await, Err(LockError::Mongo(_))));
        point.clear().await.unwrap();
    });
}

/// Runs a scenario, and asserts that no event says that a release has failed.
fn no_release_fails(scenario: impl AsyncFnOnce()) {
    of_threads();
    let notes = observed(async |_| scenario().await);
    let failed = events(&notes, "mongolock.release_failed").len();
    assert_eq!(failed, 0);
}

/// Nothing was ever acquired, so nothing can be left behind: the password is wrong, or the server is not there.
#[test]
fn what_was_never_acquired_is_no_failed_release() {
    no_release_fails(async || {
        let server = must(LentServer::with_users().await);
        let wrong = server.uri().replace("root:secret@", "root:wrong@");
        let client = mongodb::Client::with_uri_str(&wrong).await.unwrap();
        let providers = [
            LockProvider::connect(&wrong).await.unwrap(),
            LockProvider::new(&client.database("app")),
            LockProvider::connect("mongodb://127.0.0.1:1/").await.unwrap(),
        ];
        join_all(providers.iter().map(fail_to_acquire)).await;
    });
}

async fn fail_to_acquire(provider: &LockProvider) {
    let provider = provider.to_builder().expiry(LEASE).build().unwrap();
    let calls = (0..8).map(|call| {
        let lock = provider.lock(format!("closed:{call}"));
        lock.acquire_timeout(SHORT).acquire()
    });
    let set = provider.lock_all(["a", "b"]).acquire_timeout(SHORT);
    let (outcomes, of_set) = tokio::join!(join_all(calls), set.acquire());
    for outcome in outcomes {
        assert!(matches!(outcome, Err(LockError::Mongo(_))), "{outcome:?}");
    }
    assert!(of_set.is_err());
    tokio::time::sleep(LEASE * 2).await;
    provider.shutdown().await;
}

/// The server has confirmed that the claim is gone, or has released it during the shutdown.
#[test]
fn a_hold_that_is_gone_is_no_failed_release_after_a_shutdown() {
    no_release_fails(async || {
        let db = test_db().await;
        for is_forced in [true, false] {
            let provider = renewing(&LockProvider::new(db.database()), Duration::from_millis(50));
            let guard = provider.lock("gone").await.unwrap();
            if is_forced {
                assert!(provider.admin().force_release("gone").await.unwrap());
                guard.lost().await;
            }
            provider.shutdown().await;
            drop(guard);
            // The release of a dropped guard has a task of its own.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
}

/// A waiter learns of an outage long before its deadline, and no event tells the password.
#[test]
fn an_unreachable_server_is_found_with_its_address_and_the_reason() {
    let reason = "MongoDB cannot be reached: 127.0.0.1:1 (Connection refused)";
    let events = [("mongolock.retrying", Level::WARN, reason)];
    is_found(&events, async |notes| {
        let uri = format!("mongodb://root:{PASSWORD}@127.0.0.1:1/");
        let provider = LockProvider::connect(uri).await.unwrap();
        let begun = Instant::now();
        let lock = provider.lock("down").acquire_timeout(AMPLE);
        tokio::select! {
            () = until_logged(&notes, "mongolock.retrying") => {}
            outcome = lock.acquire() => panic!("{outcome:?}"),
        }
        // The library promises 2 s. Without heartbeats it is the driver that speaks, after 30 s.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        for notes in [&notes, of_threads()] {
            let noted = notes.0.lock().unwrap();
            let mut texts = noted.events.iter().flat_map(|event| event.fields.0.values());
            assert!(texts.all(|text| !text.contains(PASSWORD)));
        }
    });
}

/// The first rejection is a warning; the driver has sent the request three times.
#[test]
fn a_server_that_rejects_commands_is_found() {
    let rejects = "MongoDB rejects commands for overload";
    let overloaded = "MongoDB is overloaded (error 462";
    let events = [
        ("mongolock.overloaded", Level::WARN, rejects),
        ("mongolock.retrying", Level::DEBUG, overloaded),
    ];
    is_found(&events, async |_| {
        let db = test_db().await;
        let provider = LockProvider::new(db.database());
        assert_eq!(provider.admin().index_state().await, IndexState::Ready);
        let point = FailPoint::rejecting(&["findAndModify"]).times(3);
        let point = must(point.enable_for(&db).await);
        let guard = provider.lock("free").acquire_timeout(AMPLE).await.unwrap();
        guard.release().await.unwrap();
        must(point.clear().await);
    });
}

#[test]
fn a_missing_index_and_a_missing_stream_are_found() {
    let polls = "falling back to polling";
    let events = [
        ("mongolock.index", Level::WARN, "needs attention"),
        ("mongolock.wake_up_failed", Level::DEBUG, polls),
    ];
    is_found(&events, async |notes| {
        let db = test_db().await;
        let index = doc! { "key": { "expiresAt": 1 }, "name": "expiresAt_ttl" };
        let other = doc! { "createIndexes": "distributed_locks", "indexes": [index] };
        db.database().run_command(other).await.unwrap();
        let failing = FailPoint::on(&["aggregate"]).always().error_code(40573);
        let point = failing.enable_for(&db).await.unwrap();
        let provider = LockProvider::new(db.database());
        let _held = provider.lock("held").await.unwrap();
        let rival = provider.to_builder().owner("rival").build().unwrap();
        let waiting = rival.lock("held").acquire_timeout(AMPLE);
        tokio::select! {
            () = until_logged(&notes, "mongolock.wake_up_failed") => {}
            outcome = waiting.acquire() => panic!("{outcome:?}"),
        }
        until_logged(&notes, "mongolock.index").await;
        point.clear().await.unwrap();
    });
}
