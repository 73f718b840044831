//! A server that cannot be reached. To a provider that was made from a connection string it is an error with the address and the
//! reason, and to one of an application's client an error of MongoDB.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::doc;
use mongodb::error::ErrorKind;
use mongolock::{LockError, LockProvider, distributed_lock};
use mongolock_tests::{AMPLE, LentServer, Set, must, test_db};
use tokio::time::{Instant, sleep};

use crate::refusals::is_told_once;
use crate::{CLOSED, assert_free, connect as connect_client};

/// The limit of a single try: 300 ms, less than the 500 ms after which a missing reply counts as no reply.
const SHORT: Duration = Duration::from_millis(300);

/// The time in which a call that tries once must have failed. The library promises 2 s; without that promise it takes the
/// 10 s of a single try.
const PROMPT: Duration = Duration::from_secs(6);

async fn connect(address: &str, options: &str) -> LockProvider {
    let uri = format!("mongodb://{address}/app?{options}");
    LockProvider::connect(uri).await.unwrap()
}

/// What an error says.
const REFUSED: &str = "MongoDB cannot be reached: 127.0.0.1:1 (Connection refused)";

/// Asserts that the error names the address and the reason.
fn names_both(error: &LockError) {
    assert_eq!(error.to_string(), REFUSED);
    let is_io = matches!(error, LockError::Mongo(error) if matches!(&*error.kind, ErrorKind::Io(_)));
    assert!(is_io, "{error:?}");
}

#[distributed_lock(name = "job", on_busy = "skip")]
async fn skipping() -> Result<Option<()>, LockError> {
    unreachable!("the server is down")
}

#[distributed_lock(name = "job", on_busy = "skip", acquire_timeout = "300ms")]
async fn patiently_skipping() -> Result<Option<()>, LockError> {
    unreachable!("the server is down")
}

#[distributed_lock(name = "job", on_busy = "fail")]
async fn failing() -> Result<(), LockError> {
    unreachable!("the server is down")
}

/// A provider of an application's client, which sends its events to the application only, at an address where nothing listens.
async fn of_application(options: &str) -> LockProvider {
    let uri = format!("mongodb://{CLOSED}/?directConnection=true{options}");
    LockProvider::new(&connect_client(&uri, "app").await)
}

/// Asserts that a call with the shortest limit ends with an error of the server, and in time.
async fn fails<T: Debug>(call: impl IntoFuture<Output = Result<T, LockError>>) {
    let begun = Instant::now();
    let answer = call.await;
    let took = begun.elapsed();
    let failed = matches!(answer, Err(LockError::Mongo(_)));
    assert!(failed, "after {took:?}: {answer:?}");
    assert!(took < SHORT + Duration::from_secs(1), "{took:?}");
}

/// S4.5, B13, B16: all waiters of one name get the error of the server, and none gets "busy", nor does a try beside them, the first
/// and every later one, and several at a time, which delay each other. A job is skipped only if another process holds its lock.
#[tokio::test]
async fn nothing_is_busy_while_the_server_is_down() {
    let provider = of_application("").await;
    let lock = provider.lock("down");
    let hurried = lock.clone().acquire_timeout(SHORT);
    let begun = Instant::now();
    let waits = (0..40).map(|_| lock.clone().acquire_timeout(Duration::from_secs(3)).acquire());
    let trying = async {
        sleep(Duration::from_secs(1)).await;
        fails(hurried.try_acquire()).await;
    };
    let (outcomes, ()) = tokio::join!(join_all(waits), trying);
    for outcome in outcomes {
        assert!(matches!(outcome, Err(LockError::Mongo(_))), "{outcome:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // One attempt takes as long as the provider's acquire timeout at most.
    let quick = provider.to_builder().acquire_timeout(SHORT).build().unwrap();
    for _ in 0..3 {
        fails(hurried.try_acquire()).await;
        fails(quick.scope(skipping())).await;
        fails(provider.scope(patiently_skipping())).await;
    }
    join_all((0..10).map(|_| fails(hurried.try_acquire()))).await;
}

/// The driver's own error is passed on when there is one, and until then the help says how to get it.
#[tokio::test]
async fn the_drivers_own_error_is_passed_on() {
    let error_of = async |options: &str| {
        let provider = of_application(options).await;
        let lock = provider.lock("down").acquire_timeout(Duration::from_secs(1));
        let error = lock.acquire().await.unwrap_err();
        is_told_once(&error);
        error
    };
    let error = error_of("&serverSelectionTimeoutMS=100").await;
    assert_eq!(error.to_string(), REFUSED);
    assert!(is_of_selection(&error), "{error:?}");
    let report = format!("{:#}", anyhow::Error::from(error));
    let is_named = report.contains(CLOSED) && report.contains("refused");
    assert!(is_named, "{report}");

    let error = error_of("&retryWrites=true").await;
    let begin = "MongoDB did not answer the acquire request within ";
    assert!(error.to_string().starts_with(begin), "{error}");
    assert!(error.help().contains("serverSelectionTimeoutMS"));
}

/// Whether the driver has looked for a server in vain.
fn is_of_selection(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(error) if matches!(&*error.kind, ErrorKind::ServerSelection { .. }))
}

/// Calls that try once say it within seconds, and `health` as well. A wait says it at its deadline, also with a limit that is
/// shorter than the time after which a request fails. A provider that is made from another one has its client.
#[tokio::test]
async fn each_call_names_the_address_and_the_reason() {
    let provider = connect(CLOSED, "").await;
    let provider = provider.to_builder().collection("other").build().unwrap();
    for _ in 0..2 {
        let begun = Instant::now();
        let (tried, skipped, failed) = tokio::join!(
            async { provider.lock("free").try_acquire().await.unwrap_err() },
            async { provider.scope(skipping()).await.unwrap_err() },
            async { provider.scope(failing()).await.unwrap_err() },
        );
        let health = provider.health().await;
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        assert!(!health.is_reachable && !health.has_primary && !provider.is_ready().await);
        for error in [tried, skipped, failed, health.error.expect("no server replies")] {
            names_both(&error);
        }
    }
    for limit in [Duration::from_millis(300), Duration::from_secs(4)] {
        let begun = Instant::now();
        let lock = provider.lock("down").acquire_timeout(limit);
        let error = lock.acquire().await.unwrap_err();
        assert!(begun.elapsed() >= limit);
        names_both(&error);
    }
    // The driver itself gives up first, and its error stays one of server selection.
    let provider = connect(CLOSED, "serverSelectionTimeoutMS=200").await;
    let lock = provider.lock("down").acquire_timeout(Duration::from_secs(1));
    let error = lock.acquire().await.unwrap_err();
    assert!(error.to_string().contains(CLOSED), "{error}");
    assert!(is_of_selection(&error), "{error:?}");
    // An application's client does not say it.
    let own = of_application("").await;
    let error = own.health().await.error.unwrap();
    assert!(error.to_string().contains("`hello`"), "{error}");
}

/// B5: a wait outlasts an outage, and a try outlasts one that is shorter than the time after which a request fails.
#[tokio::test]
async fn an_outage_that_is_over_in_time_fails_no_call() {
    let db = test_db().await;
    let proxy = must(db.proxy().await);
    proxy.refuse_connections();
    let connected = LockProvider::connect(proxy.uri()).await.unwrap();
    let provider = connected.to_builder().database(db.name()).build().unwrap();
    let lock = provider.lock("outlasted").acquire_timeout(AMPLE);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    let text = error_of_a_try(&provider).await.to_string();
    assert!(text.contains(proxy.address()), "{text}");
    assert!(!waiter.is_finished());
    proxy.accept_connections();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert_free(&provider, "free").await;

    proxy.refuse_connections();
    proxy.reset_connections();
    let trying = async { provider.lock("short").try_acquire().await.unwrap() };
    let ending = async {
        sleep(Duration::from_millis(300)).await;
        proxy.accept_connections();
    };
    let (guard, ()) = tokio::join!(trying, ending);
    guard.expect("the lock is free").release().await.unwrap();
}

/// A member that was never initiated serves no request. As soon as it has its set, a call that waits goes on.
#[tokio::test]
async fn a_server_without_its_replica_set_is_named_until_it_is_initiated() {
    let set = Set::uninitiated("late", 1).await;
    let address = set.address(0);
    let waiting = connect(address, "replicaSet=late").await;
    let waiting = waiting.lock("late").acquire_timeout(AMPLE);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    for options in ["", "replicaSet=late"] {
        let error = error_of_a_try(&connect(address, options).await).await;
        let text = format!("MongoDB has no primary: {address} (no replica set yet)");
        assert_eq!(error.to_string(), text);
        assert!(error.help().contains("rs.initiate()"), "{}", error.help());
    }
    set.run(0, doc! { "replSetInitiate": set.config(1, &[doc! {}]) })
        .await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

async fn error_of_a_try(provider: &LockProvider) -> LockError {
    let begun = Instant::now();
    let error = provider.lock("free").try_acquire().await.unwrap_err();
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    error
}

#[tokio::test]
async fn a_wrong_set_name_is_reported_with_the_right_one() {
    let server = must(LentServer::single().await);
    let address = server.node().address();
    let text = format!(
        "MongoDB at {address} belongs to the replica set `mongolock`; the connection string names `other`"
    );
    let provider = connect(address, "replicaSet=other").await;
    let begun = Instant::now();
    // It cannot pass, so that a call which waits ends as well.
    let lock = provider.lock("elsewhere").acquire_timeout(AMPLE);
    let error = lock.acquire().await.unwrap_err();
    assert_eq!(error.to_string(), text);
    assert!(error.help().contains("`replicaSet`"), "{}", error.help());
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    assert_eq!(error_of_a_try(&provider).await.to_string(), text);
    assert_eq!(provider.health().await.error.unwrap().to_string(), text);

    // The driver says it of a direct connection.
    let direct = connect(address, "replicaSet=other&directConnection=true").await;
    let said = error_of_a_try(&direct).await.to_string();
    for part in [address, "\"other\"", "\"mongolock\""] {
        assert!(said.contains(part), "{said}");
    }

    let server = must(LentServer::standalone().await);
    let address = server.node().address();
    let provider = connect(address, "replicaSet=other").await;
    let text = format!("MongoDB at {address} belongs to no replica set; the connection string names `other`");
    assert_eq!(error_of_a_try(&provider).await.to_string(), text);
}
