//! Processes that end as the guide says: they print nothing and leave nothing held.

use std::process::{Output, Stdio};
use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{BEFORE_EXPIRY, TestDb, lock_document, locks, must, test_db};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::actor::{Part, command};
use crate::{DEFAULT_EXPIRY, Standalone};

/// The parts that the processes run: with a client of their own, with that of `LockProvider::connect`, and without async
/// code.
const PARTS: [&str; 3] = ["with_a_client_of_its_own", "connected", "blocking"];

/// The number of processes. The driver printed a panic in one of twelve before the library ended its stream itself.
const PROCESSES: usize = 60;

/// How long a body takes.
const BODY: Duration = Duration::from_millis(3);

/// The grace period of a process: some bodies end within it.
const GRACE: Duration = Duration::from_millis(50);

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
        running.spawn(process(&db, PARTS[index % PARTS.len()]));
    }
    ended.extend(running.join_all().await.into_iter().map(Ok));
    for output in ended {
        let output = output.unwrap();
        let (printed, errors) = [&output.stdout, &output.stderr]
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .into();
        let ended_well = output.status.success() && errors.is_empty();
        assert!(ended_well, "{printed}\n{errors}");
    }
    let locks = locks(db.database());
    let held = locks.find_one(doc! { "lockId": { "$ne": "" } }).await;
    assert_eq!(must(held), None, "the processes have released their locks");
    let used = lock_document(db.database(), "load:0").await;
    assert!(used.is_some(), "they had locks");
}

fn process(db: &TestDb, part: &str) -> impl Future<Output = Output> + use<> {
    let part = format!("orderly_end::{part}");
    let mut command = command(&part, db.uri(), db.name(), DEFAULT_EXPIRY);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    async move { command.output().await.unwrap() }
}

/// A part of a process, as the two below, and not a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_a_client_of_its_own() {
    if let Some(Part { database, .. }) = Part::given().await {
        end_under_load(LockProvider::new(&database)).await;
        // The driver waits for its own tasks.
        let closing = database.client().clone().shutdown();
        let _ = timeout(BEFORE_EXPIRY, closing.into_future()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connected() {
    if let Some(uri) = Part::uri() {
        end_under_load(LockProvider::connect(uri).await.unwrap()).await;
    }
}

#[test]
fn blocking() {
    let Some(uri) = Part::uri() else {
        return;
    };
    let provider = mongolock::blocking::LockProvider::connect(uri).unwrap();
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (provider, name) = (&provider, format!("load:{}", number % 3));
            scope.spawn(move || {
                let call = || {
                    provider.run(&provider.lock(&name), |_| {
                        std::thread::sleep(BODY);
                        Ok::<_, LockError>(())
                    })
                };
                while !matches!(call(), Err(LockError::ShutDown { .. })) {}
            });
        }
        std::thread::sleep(running_time());
        provider.wait(provider.provider().shutdown_after(GRACE));
    });
}

/// Calls compete for a few locks, also with those of other processes, and most of them wait with the change stream open.
/// The provider ends in the middle of that.
async fn end_under_load(provider: LockProvider) {
    for number in 0..12 {
        tokio::spawn(work(provider.clone(), number % 3));
    }
    sleep(running_time()).await;
    if std::process::id().is_multiple_of(3) {
        provider.shutdown().await;
    } else {
        provider.shutdown_after(GRACE).await;
    }
}

/// A time that differs between processes.
fn running_time() -> Duration {
    Duration::from_millis(150 + u64::from(std::process::id() % 100))
}

async fn work(provider: LockProvider, lock: u32) {
    let lock = provider.lock(format_args!("load:{lock}"));
    loop {
        let body = lock.run(async |_| {
            sleep(BODY).await;
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
