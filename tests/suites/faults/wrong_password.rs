//! A user or a password that the server refuses: every call says so at once, until a log-in succeeds.

use std::error::Error as _;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::error::{Error, ErrorKind};
use mongolock::{LockError, LockFilter, LockProvider};
use mongolock_tests::{AMPLE, LentServer, Server, eventually, must};
use tokio::time::Instant;

use crate::assert_free;

/// After a refused log-in the driver looks for a server again after up to 10 s. A call that waited for that, for its
/// acquire timeout or for the driver's 30 s would take longer than this.
const AT_ONCE: Duration = Duration::from_secs(9);

/// Waits for the outcome of a call, which must come at once.
async fn at_once<T>(call: impl IntoFuture<Output = T>) -> T {
    let begun = Instant::now();
    let outcome = call.await;
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    outcome
}

async fn server() -> LentServer {
    let server = must(LentServer::with_users().await);
    let create = doc! { "createUser": "anna", "pwd": "right", "roles": ["root"] };
    let admin = server.client().await.unwrap().database("admin");
    must(admin.run_command(create).await);
    server
}

async fn set_password(server: &Server, password: &str) {
    let admin = server.client().await.unwrap().database("admin");
    let update = doc! { "updateUser": "anna", "pwd": password };
    must(admin.run_command(update).await);
}

/// A provider of the user `anna` with a password.
async fn anna(server: &Server, password: &str) -> LockProvider {
    let uri = server.uri().replace("root:secret@", &format!("anna:{password}@"));
    LockProvider::connect(&uri).await.unwrap()
}

/// Asserts that this is the error of a refused log-in, with the driver's error behind it.
fn is_refused(error: &LockError) {
    assert_eq!(error.to_string(), "MongoDB refused the login");
    assert!(error.help().contains("password"), "{}", error.help());
    let source = error.source().and_then(|source| source.downcast_ref::<Error>());
    let source = source.expect("the driver's error");
    let is_kind = match &*source.kind {
        ErrorKind::Authentication { .. } => true,
        ErrorKind::ConnectionPoolCleared { message, .. } => message.contains("AuthenticationFailed"),
        _ => false,
    };
    assert!(is_kind, "{source:?}");
}

#[tokio::test]
async fn each_of_eight_calls_says_that_the_log_in_was_refused() {
    let server = server().await;
    let provider = anna(&server, "wrong").await;
    let lock = provider.lock("closed").acquire_timeout(AMPLE);
    is_refused(&lock.acquire().await.unwrap_err());
    for _ in 0..8 {
        is_refused(&at_once(lock.acquire()).await.unwrap_err());
        is_refused(&at_once(lock.try_acquire()).await.unwrap_err());
        is_refused(&provider.health().await.error.expect("no log-in succeeds"));
        assert!(!provider.is_ready().await);
    }
    let listed = at_once(provider.admin().list(LockFilter::new())).await;
    is_refused(&listed.unwrap_err());
    let permit = at_once(provider.semaphore("closed", 2).try_acquire()).await;
    is_refused(&permit.unwrap_err());
    let set = at_once(provider.lock_all(["a", "b"]).try_acquire()).await;
    is_refused(&set.unwrap_err());
}

/// All but two of them find a pool that the driver has cleared because of the log-in.
#[tokio::test]
async fn each_of_eight_calls_at_a_time_says_that_the_log_in_was_refused() {
    let server = server().await;
    let provider = anna(&server, "wrong").await;
    let calls = (0..8).map(|call| provider.lock(format!("closed:{call}")).acquire_timeout(AMPLE));
    let calls = calls.map(|lock| async move { lock.acquire().await });
    for outcome in futures_util::future::join_all(calls).await {
        is_refused(&outcome.unwrap_err());
    }
}

/// The password is changed twice while the provider is in use.
#[tokio::test]
async fn a_password_that_is_right_again_is_found() {
    let server = server().await;
    let uri = server.uri().replace("root:secret@", "anna:right@");
    let uri = mongolock_tests::with_parameter(&uri, "heartbeatFrequencyMS=500");
    let uri = mongolock_tests::with_parameter(&uri, "maxIdleTimeMS=100");
    let provider = LockProvider::connect(&uri).await.unwrap();
    assert_free(&provider, "open").await;
    set_password(&server, "other").await;
    // The connections that are open stay logged in; they are closed when they were idle for a while.
    let refused = async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        match provider.lock("open").try_acquire().await {
            Err(error) => Some(error),
            Ok(guard) => {
                guard.expect("the lock is free").release().await.unwrap();
                None
            }
        }
    };
    is_refused(&eventually(AMPLE, "a refused log-in", refused).await.unwrap());
    is_refused(&provider.health().await.error.expect("the log-in is refused"));
    set_password(&server, "right").await;
    // A log-in that has begun before may still fail.
    let open = async || {
        let is_open = provider.is_ready().await && provider.health().await.error.is_none();
        let guard = provider.lock("open").try_acquire().await.ok().flatten();
        guard.filter(|_| is_open)
    };
    let guard = eventually(AMPLE, "a log-in that succeeds", open).await.unwrap();
    guard.release().await.unwrap();
}
