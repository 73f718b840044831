//! Processes that end as the guide says: they print nothing and leave nothing held.

use std::process::{Output, Stdio};
use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{TestDb, lock_document, locks, must, test_db};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::actor::{Part, command};
use crate::{DEFAULT_EXPIRY, Standalone};

/// Set for a process that uses a client of its own, and not the one of `LockProvider::connect`.
const OWN_CLIENT: &str = "MONGOLOCK_OWN_CLIENT";

/// The number of processes. The driver printed a panic in one of twelve before the library ended its stream itself.
const PROCESSES: usize = 200;

/// The number of processes at a time: more than the machine has cores, so that they end under load.
const AT_A_TIME: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_end_under_load_print_nothing() {
    let db = test_db().await;
    let (mut running, mut ended) = (JoinSet::new(), Vec::new());
    for index in 0..PROCESSES {
        if running.len() == AT_A_TIME {
            ended.extend(running.join_next().await);
        }
        running.spawn(process(&db, index % 2 == 0));
    }
    ended.extend(running.join_all().await.into_iter().map(Ok));
    for output in ended {
        let output = output.unwrap();
        let (printed, errors) = [&output.stdout, &output.stderr]
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .into();
        assert!(
            output.status.success() && errors.is_empty(),
            "{printed}\n{errors}"
        );
    }
    let held = locks(db.database())
        .find_one(doc! { "lockId": { "$ne": "" } })
        .await;
    assert_eq!(must(held), None, "the processes have released their locks");
    assert!(
        lock_document(db.database(), "load:0").await.is_some(),
        "they had locks"
    );
}

fn process(db: &TestDb, has_own_client: bool) -> impl Future<Output = Output> + use<> {
    let mut command = command("orderly_end::work_under_load", db, DEFAULT_EXPIRY);
    if has_own_client {
        command.env(OWN_CLIENT, "yes");
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    async move { command.output().await.unwrap() }
}

/// The part of a process, and not a test: calls compete for a few locks, also with those of other processes, and most of
/// them wait with the change stream open. The process ends in the middle of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn work_under_load() {
    let Some(Part { database, .. }) = Part::given().await else {
        return;
    };
    let own_client = std::env::var(OWN_CLIENT).is_ok();
    let provider = if own_client {
        LockProvider::new(&database)
    } else {
        let uri = Part::uri().unwrap();
        let (hosts, options) = uri.split_once("/?").expect("it has options");
        let uri = format!("{hosts}/{}?{options}", database.name());
        LockProvider::connect(uri).await.unwrap()
    };
    let mut calls = JoinSet::new();
    for number in 0..12 {
        calls.spawn(work(provider.clone(), number % 3));
    }
    let started = std::process::id();
    sleep(Duration::from_millis(150 + u64::from(started % 100))).await;
    if started % 3 == 0 {
        provider.shutdown().await;
    } else {
        provider.shutdown_after(Duration::from_millis(50)).await;
    }
    if own_client {
        database.client().clone().shutdown().await;
    }
}

async fn work(provider: LockProvider, lock: u32) {
    let lock = provider.lock(format_args!("load:{lock}"));
    loop {
        let body = lock.run(async |_| {
            sleep(Duration::from_millis(3)).await;
            Ok::<_, LockError>(())
        });
        if let Err(LockError::ShutDown { .. } | LockError::Lost { .. }) = body.await {
            return;
        }
    }
}

/// A server that has stopped keeps neither the provider nor its client for longer than their limits: 15 s for the releases,
/// 1 s for the requests, and twice 3 s for the client.
#[tokio::test]
async fn a_stopped_server_does_not_keep_a_process() {
    let standalone = Standalone::start().await;
    let provider = LockProvider::connect(standalone.proxy.uri()).await.unwrap();
    let guard = provider.lock("held").await.unwrap();
    standalone.server.node().stop().unwrap();
    let begun = Instant::now();
    provider.shutdown_after(Duration::from_millis(100)).await;
    // Without the limits it would take 30 s and longer: the driver's time to find a server.
    assert!(begun.elapsed() < Duration::from_secs(27), "{:?}", begun.elapsed());
    assert!(guard.is_lost());
    standalone.server.node().resume().unwrap();
}
