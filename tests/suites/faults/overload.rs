//! A server that rejects commands for overload, as MongoDB 8.2 and later do. The client is that of an application, so the
//! driver repeats rejected commands after pauses of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mongodb::bson::Document;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, recorded, test_db};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::{acquire_soon, fail, patient, warm_up};

/// The code of a rejection for overload.
const OVERLOADED: i32 = 462;

/// The commands with which locks are acquired, renewed and released.
const COMMANDS: [&str; 3] = ["update", "findAndModify", "find"];

const LEASES: usize = 300;

fn rejecting() -> FailPoint {
    let labels = ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"];
    FailPoint::on(&COMMANDS)
        .error_code(OVERLOADED)
        .error_labels(&labels)
}

/// The number of names in a command that renews leases.
fn names(command: &Document) -> usize {
    let statements = command.get_array("updates").unwrap().iter();
    let of_statement = |statement: &mongodb::bson::Bson| {
        let filter = statement.as_document().unwrap().get_document("q").unwrap();
        let ids = filter.get_document("_id").and_then(|id| id.get_array("$in"));
        ids.map_or(1, Vec::len)
    };
    statements.map(of_statement).sum()
}

/// B9: nine of ten commands are rejected for longer than a lease lasts. The rejected renewals are repeated whole.
#[tokio::test]
async fn leases_last_while_most_commands_are_rejected() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[&format!("appName={}", db.name())]).await;
    let provider = LockProvider::new(&database);
    let expiry = Duration::from_secs(6);
    let mut calls = JoinSet::new();
    for number in 0..LEASES {
        let lock = provider.lock(format!("lease:{number}")).expiry(expiry);
        calls.spawn(async move { lock.acquire_timeout(AMPLE).await.unwrap() });
    }
    let guards = calls.join_all().await;
    commands.clear();
    let point = fail(&db, rejecting().part(0.9)).await;
    sleep(expiry * 2).await;
    let lost = guards.iter().filter(|guard| guard.is_lost()).count();
    let renewals: Vec<Document> = commands.take();
    let renewals = renewals.iter().filter(|sent| sent.contains_key("update"));
    let alone = renewals.clone().filter(|sent| names(sent) == 1).count();
    assert_eq!((lost, alone), (0, 0));
    assert!(renewals.count() > 1);
    assert!(provider.health().await.overloaded_since.is_some());
    point.clear().await.unwrap();
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// While everything is rejected, calls for free locks say so, and the provider sends few requests. They are served soon after
/// the end.
#[tokio::test]
async fn acquire_requests_give_way_and_calls_say_why_they_fail() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[&format!("appName={}", db.name())]).await;
    let provider = patient(&database);
    warm_up(&provider).await;
    assert_eq!(provider.health().await.overloaded_since, None);
    let point = fail(&db, rejecting().always()).await;
    let stops = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for number in 0..16 {
        let (provider, stops) = (provider.clone(), Arc::clone(&stops));
        callers.spawn(async move {
            let mut errors = Vec::new();
            while !stops.load(Ordering::Relaxed) {
                let lock = provider.lock(format!("free:{number}"));
                match lock.acquire_timeout(Duration::from_secs(2)).await {
                    Ok(guard) => guard.release().await.unwrap(),
                    Err(error) => errors.push(error),
                }
                sleep(Duration::from_millis(100)).await;
            }
            errors
        });
    }
    sleep(Duration::from_secs(4)).await;
    commands.clear();
    sleep(Duration::from_secs(4)).await;
    // Eight requests a second, each of which the driver sends three times, and hints about waiters.
    let sent = commands.take().len();
    assert!(sent < 140, "{sent}");
    assert!(provider.health().await.overloaded_since.unwrap() > Duration::from_secs(4));
    stops.store(true, Ordering::Relaxed);
    let errors: Vec<LockError> = callers.join_all().await.into_iter().flatten().collect();
    assert!(errors.len() >= 16);
    for error in &errors {
        assert!(error.to_string().starts_with("MongoDB is overloaded"), "{error}");
        assert!(error.help().contains("Retry later"), "{}", error.help());
    }
    point.clear().await.unwrap();
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    for number in 0..16 {
        let provider = provider.clone();
        calls.spawn(async move { acquire_soon(&provider, &format!("free:{number}")).await });
    }
    let guards = timeout(AMPLE, calls.join_all()).await.unwrap();
    println!("{sent} commands in 4 s, served after {:?}", begun.elapsed());
    for guard in guards {
        guard.release().await.unwrap();
    }
}
