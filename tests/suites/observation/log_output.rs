//! S1.15: what an operator finds by the name of an event in the log of `tracing-subscriber`, as text and as JSON.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, eventually, must, test_db};
use serde_json::Value;
use tokio::time::Instant;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use crate::{observed_by, write_stale};

/// A password that no event may have in it.
const PASSWORD: &str = "hunter2";

/// What a program has logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines with the events of this name, as `grep` finds them.
    fn lines(&self, event: &str) -> Vec<String> {
        let text = self.text();
        let found = text.lines().filter(|line| line.contains(&format!("{event}: ")));
        found.map(str::to_owned).collect()
    }

    async fn until_logged(&self, event: &str) {
        let logged = async || (!self.lines(event).is_empty()).then_some(());
        must(eventually(AMPLE, event, logged).await);
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Runs a scenario twice, with a log as text and with one as JSON, and asserts that each event is found by its name, at
/// this level and with this part in its line.
fn is_found(events: &[(&str, Level, &str)], scenario: impl AsyncFn(LockProvider, Log)) {
    let (text, json) = (Log::default(), Log::default());
    let plain = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_ansi(false);
    observed_by(plain.with_writer(text.clone()).finish(), async |provider| {
        scenario(provider, text.clone()).await;
    });
    let objects = tracing_subscriber::fmt().json().with_max_level(Level::TRACE);
    observed_by(objects.with_writer(json.clone()).finish(), async |provider| {
        scenario(provider, json.clone()).await;
    });
    for (event, level, part) in events {
        for log in [&text, &json] {
            let lines = log.lines(event);
            let has_it = lines
                .iter()
                .any(|line| line.contains(&level.to_string()) && line.contains(part));
            assert!(has_it, "{event} {level} {part}: {lines:?}");
        }
        for line in json.lines(event) {
            let object: Value = serde_json::from_str(&line).unwrap();
            let message = object["fields"]["message"].as_str().unwrap();
            assert!(message.starts_with(&format!("{event}: ")), "{line}");
            assert_eq!(object["target"], "mongolock", "{line}");
        }
    }
}

#[test]
fn the_life_of_a_lock_is_found() {
    let events = [
        ("mongolock.waiting", Level::DEBUG, "another holder has the lock"),
        ("mongolock.acquired", Level::DEBUG, "seen"),
        ("mongolock.renewed", Level::TRACE, "seen"),
        ("mongolock.released", Level::DEBUG, "held_ms"),
        ("mongolock.index", Level::DEBUG, "TTL index ready"),
    ];
    is_found(&events, async |provider, log| {
        let renewed = provider.lock("seen").renew_interval(Duration::from_millis(20));
        let guard = renewed.acquire().await.unwrap();
        let rival = provider.to_builder().owner("rival").build().unwrap();
        let waiting = rival.lock("seen").acquire_timeout(Duration::from_millis(50));
        waiting.acquire().await.unwrap_err();
        log.until_logged("mongolock.renewed").await;
        guard.release().await.unwrap();
    });
}

#[test]
fn each_reason_of_a_loss_is_found() {
    let events = ["expired", "gone", "shut_down"].map(|reason| ("mongolock.lost", Level::WARN, reason));
    is_found(&events, async |provider, _| {
        let expiring = provider.lock("expires").expiry(Duration::from_millis(150));
        let expired = expiring.max_hold(Duration::ZERO).acquire().await.unwrap();
        expired.lost().await;
        let renewed = provider.lock("removed").renew_interval(Duration::from_millis(20));
        let gone = renewed.acquire().await.unwrap();
        assert!(provider.admin().force_release("removed").await.unwrap());
        gone.lost().await;
        let _held = provider.lock("held").await.unwrap();
        provider.shutdown().await;
    });
}

#[test]
fn forced_releases_are_found() {
    let events = [
        ("mongolock.forced", Level::INFO, "released the lock by force"),
        ("mongolock.forced", Level::INFO, "all locks of an owner"),
    ];
    is_found(&events, async |provider, _| {
        let gone = provider.to_builder().owner("gone").build().unwrap();
        let _stuck = gone.lock("stuck").await.unwrap();
        let _other = gone.lock("other").await.unwrap();
        assert!(provider.admin().force_release("stuck").await.unwrap());
        assert_eq!(provider.admin().release_owner("gone").await.unwrap(), 1);
    });
}

#[test]
fn a_stale_write_is_found() {
    let events = [("mongolock.stale", Level::WARN, "stale lock holder")];
    is_found(&events, async |_, _| write_stale().await);
}

/// The events of failing commands have the driver's text in them.
#[test]
fn failing_renewals_and_releases_are_found() {
    let events = [
        ("mongolock.renewal_failed", Level::WARN, "Unauthorized"),
        ("mongolock.release_failed", Level::WARN, "Command failed"),
    ];
    is_found(&events, async |_, log| {
        let db = test_db().await;
        let provider = LockProvider::new(db.database());
        let lock = provider
            .lock("failing")
            .renew_interval(Duration::from_millis(100));
        let guard = lock.acquire().await.unwrap();
        let failing = FailPoint::on(&["update"]).always().error_code(13);
        let point = failing.enable_for(&db).await.unwrap();
        log.until_logged("mongolock.renewal_failed").await;
        assert!(matches!(guard.release().await, Err(LockError::Mongo(_))));
        point.clear().await.unwrap();
    });
}

/// A waiter learns of an outage long before its deadline, and no event tells the password.
#[test]
fn an_unreachable_server_is_found_with_its_address_and_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let reason = format!("MongoDB at {address} cannot be reached: Connection refused");
    let events = [("mongolock.retrying", Level::WARN, &*reason)];
    is_found(&events, async |_, log| {
        let uri = format!("mongodb://root:{PASSWORD}@{address}/");
        let provider = LockProvider::connect(uri).await.unwrap();
        let begun = Instant::now();
        let lock = provider.lock("down").acquire_timeout(AMPLE);
        tokio::select! {
            () = log.until_logged("mongolock.retrying") => {}
            outcome = lock.acquire() => panic!("{outcome:?}"),
        }
        // The library promises 2 s. Without heartbeats it is the driver that speaks, after 30 s.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert!(!log.text().contains(PASSWORD), "{}", log.text());
    });
}

#[test]
fn a_missing_index_and_a_missing_stream_are_found() {
    let events = [
        ("mongolock.index", Level::WARN, "no TTL index"),
        (
            "mongolock.wake_up_failed",
            Level::DEBUG,
            "falling back to polling",
        ),
    ];
    is_found(&events, async |_, log| {
        let db = test_db().await;
        let other = doc! {
            "createIndexes": "distributed_locks",
            "indexes": [{ "key": { "expiresAt": 1 }, "name": "expiresAt_ttl" }],
        };
        db.database().run_command(other).await.unwrap();
        let failing = FailPoint::on(&["aggregate"]).always().error_code(40573);
        let point = failing.enable_for(&db).await.unwrap();
        let provider = LockProvider::new(db.database());
        let _held = provider.lock("held").await.unwrap();
        let rival = provider.to_builder().owner("rival").build().unwrap();
        let waiting = rival.lock("held").acquire_timeout(AMPLE);
        tokio::select! {
            () = log.until_logged("mongolock.wake_up_failed") => {}
            outcome = waiting.acquire() => panic!("{outcome:?}"),
        }
        log.until_logged("mongolock.index").await;
        point.clear().await.unwrap();
    });
}
