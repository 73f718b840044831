//! Log-ins that are refused or fail for a while, and rights that are missing: what every call says, and that it passes.

use std::error::Error as _;
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongolock::{IndexState, LockError, LockFilter, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, LentServer, Proxy, Server, eventually, must, until, with_parameter};
use tokio::time::{Instant, sleep};

use crate::{CLOSED, acquire_soon, assert_free, connect};

/// A password that no text of an error may have in it.
const PASSWORD: &str = "hunter2";

/// The user that the server was started with, as the connection string names it.
const ROOT: &str = "root:secret@";

/// After a refused log-in the driver looks for a server again after up to 10 s. A call that waited for that, for its
/// acquire timeout or for the driver's 30 s would take longer than this.
const AT_ONCE: Duration = Duration::from_secs(9);

/// Runs a command on this database as the first user.
async fn run(server: &Server, database: &str, command: Document) {
    let client = must(server.client().await);
    must(client.database(database).run_command(command).await);
}

/// Asserts that no form of the error has the password in it.
fn is_discreet(error: &LockError) {
    let report = anyhow::Error::from(error.clone());
    let texts = format!("{error} {error:?} {report:#} {report:?} {}", error.help());
    assert!(!texts.contains(PASSWORD), "{texts}");
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
    is_discreet(error);
}

/// One after the other, and many at a time: all but two of those find a pool that the driver has cleared because of the log-in.
#[tokio::test]
async fn each_call_says_that_the_log_in_was_refused() {
    let server = must(LentServer::with_users().await);
    let wrong = server.uri().replace(ROOT, &format!("root:{PASSWORD}@"));
    let provider = must(LockProvider::connect(&wrong).await);
    let lock = |call: usize| provider.lock(format!("closed:{call}")).acquire_timeout(AMPLE);
    for refused in join_all((0..8).map(|call| lock(call).acquire())).await {
        is_refused(&refused.unwrap_err());
    }
    for call in 0..8 {
        let begun = Instant::now();
        is_refused(&lock(call).acquire().await.unwrap_err());
        is_refused(&lock(call).try_acquire().await.unwrap_err());
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        is_refused(&provider.health().await.error.expect("no log-in succeeds"));
        assert!(!provider.is_ready().await);
    }
    let begun = Instant::now();
    is_refused(&provider.admin().list(LockFilter::new()).await.unwrap_err());
    is_refused(&provider.semaphore("closed", 2).try_acquire().await.unwrap_err());
    is_refused(&provider.lock_all(["a", "b"]).try_acquire().await.unwrap_err());
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert!(!format!("{provider:?} {:?}", provider.to_builder().build()).contains(PASSWORD));
}

/// Unit tests of the library have the strings that cannot be used.
#[tokio::test]
async fn no_error_has_the_password_of_the_connection_string_in_it() {
    let closed = format!("mongodb://root:{PASSWORD}@{CLOSED}/");
    let provider = LockProvider::connect(&closed).await.unwrap();
    let error = provider.lock("secret").try_acquire().await.unwrap_err();
    let text = "MongoDB cannot be reached: 127.0.0.1:1 (Connection refused)";
    assert_eq!(error.to_string(), text);
    is_discreet(&error);
}

/// The password is changed twice while the provider is in use.
#[tokio::test]
async fn a_password_that_is_right_again_is_found() {
    let server = must(LentServer::with_users().await);
    let user = doc! { "createUser": "anna", "pwd": "right", "roles": ["root"] };
    run(&server, "admin", user).await;
    let set_password = |password: &str| run(&server, "admin", doc! { "updateUser": "anna", "pwd": password });
    let uri = server.uri().replace(ROOT, "anna:right@");
    let uri = with_parameter(&uri, "heartbeatFrequencyMS=500&maxIdleTimeMS=100");
    let provider = LockProvider::connect(uri).await.unwrap();
    assert_free(&provider, "open").await;
    set_password("other").await;
    // The connections that are open stay logged in; they are closed when they were idle for a while.
    let refused = async || {
        sleep(Duration::from_millis(200)).await;
        match provider.lock("open").try_acquire().await {
            Err(error) => Some(error),
            Ok(guard) => {
                guard.expect("the lock is free").release().await.unwrap();
                None
            }
        }
    };
    is_refused(&must(eventually(AMPLE, "a refused log-in", refused).await));
    is_refused(&provider.health().await.error.expect("the log-in is refused"));
    set_password("right").await;
    // A log-in that has begun before may still fail.
    let open = async || {
        let is_open = provider.is_ready().await && provider.health().await.error.is_none();
        let guard = provider.lock("open").try_acquire().await.ok().flatten();
        guard.filter(|_| is_open)
    };
    let guard = must(eventually(AMPLE, "a log-in that succeeds", open).await);
    guard.release().await.unwrap();
}

/// B5: a log-in that fails for a transient reason, which the driver reports as an authentication error. The acquire is repeated
/// within its 10 s, and the release while the lease of 30 s lasts.
#[tokio::test]
async fn a_log_in_that_fails_for_a_while_ends_neither_a_wait_nor_a_release() {
    // The driver logs in with the newer mechanism inside its first message, and sends only `saslContinue` after that. A user
    // that has only the older one needs `saslStart` as well.
    const OLDER: &str = "older:older@";
    let server = must(LentServer::with_users().await);
    let older =
        doc! { "createUser": "older", "pwd": "older", "roles": ["root"], "mechanisms": ["SCRAM-SHA-1"] };
    run(&server, "admin", older).await;
    let rival = LockProvider::new(&connect(&server.uri(), "rival").await.client().database("app"));
    for (phase, user) in [("saslContinue", ROOT), ("saslStart", OLDER)] {
        let log_in = || FailPoint::on(&[phase]).app_name("app");
        let errors = [91, 11600].map(|code| log_in().error_code(code));
        for failure in errors.into_iter().chain([log_in().close_connection()]) {
            let proxy = Proxy::start(server.node().address()).await.unwrap();
            let uri = server.uri().replace(ROOT, user);
            let uri = uri.replace(server.node().address(), proxy.address());
            let uri = uri.replace("replicaSet=mongolock", "directConnection=true");
            // After a failed log-in the driver waits for the next heartbeat, by default for up to 10 s.
            let uri = with_parameter(&uri, "heartbeatFrequencyMS=500");
            let point = failure.clone().times(3).enable(&server.uri()).await.unwrap();
            let provider = LockProvider::new(&connect(&uri, "app").await);
            let lock = provider.lock("kept").acquire_timeout(Duration::from_secs(10));
            let guard = lock.acquire().await.unwrap();
            assert!(proxy.seen(phase) >= 3, "{phase}: {} sent", proxy.seen(phase));
            must(point.clear().await);

            let point = failure.always().enable(&server.uri()).await.unwrap();
            let before = proxy.seen(phase);
            // The next command needs a new connection, and a log-in.
            proxy.reset_connections();
            drop(guard);
            until("the release tries to log in", async || proxy.seen(phase) > before).await;
            sleep(Duration::from_secs(1)).await;
            must(point.clear().await);
            acquire_soon(&rival, "kept").await.release().await.unwrap();
        }
    }
}

/// The texts that tell a refusal have no dump of the server's or the driver's error in them.
fn is_told_shortly(text: &str) {
    let is_short = text.contains("error 13, Unauthorized") && text.len() < 600;
    assert!(is_short, "{text}");
    for dump in ["$", "lsid", "kind:", "Kind:", "labels"] {
        assert!(!text.contains(dump), "{text}");
    }
}

/// The server replies to `hello`, and refuses every acquire and renewal.
#[tokio::test]
async fn a_user_without_rights_is_not_ready_until_it_has_them() {
    let server = must(LentServer::with_users().await);
    let app = |command| run(&server, "app", command);
    app(doc! { "createUser": "anna", "pwd": "anna", "roles": [] }).await;
    let uri = server.uri().replace(ROOT, "anna:anna@");
    let uri = uri.replace("authSource=admin", "authSource=app");
    let client = must(Client::with_uri_str(&uri).await).database("app");
    let builder = LockProvider::builder(&client).renew_interval(Duration::from_millis(200));
    let provider = builder.build().unwrap();
    let is_refused = async || {
        assert!(!provider.is_ready().await);
        let health = provider.health().await;
        assert!(health.is_reachable && health.has_primary, "{health:?}");
        is_told_shortly(&serde_json::to_string(&health).unwrap());
        let error = health.error.expect("the refusal").to_string();
        assert_eq!(error, "MongoDB refused an operation (error 13, Unauthorized)");
    };
    let until_ready = async || {
        until("readiness", async || provider.is_ready().await).await;
    };
    let lock = provider.lock("refused").acquire_timeout(AMPLE);
    let refused = lock.acquire().await.unwrap_err();
    is_told_shortly(&refused.to_string());
    // The server's own text has the whole command in it, and the driver's the whole reply.
    let source = refused.source().expect("the driver's error").to_string();
    let is_whole = source.contains("findAndModify") && source.contains("lsid");
    assert!(is_whole, "{source}");
    let IndexState::Unauthorized { reason } = provider.admin().index_state().await else {
        panic!("the user may not create an index");
    };
    is_told_shortly(&reason);
    is_refused().await;
    // A service whose balancer sends it nothing while it is not ready finds its rights all the same.
    let grant = doc! { "grantRolesToUser": "anna", "roles": ["readWrite"] };
    app(grant.clone()).await;
    until_ready().await;
    assert!(provider.health().await.error.is_none());
    let guard = provider.lock("held").await.unwrap();
    app(doc! { "revokeRolesFromUser": "anna", "roles": ["readWrite"] }).await;
    until("a refused renewal", async || !provider.is_ready().await).await;
    is_refused().await;
    app(grant).await;
    until_ready().await;
    guard.release().await.unwrap();
    is_damage_told_shortly(&provider, &client).await;
}

async fn is_damage_told_shortly(provider: &LockProvider, database: &mongodb::Database) {
    let damaged = doc! { "_id": "damaged", "fencingToken": "none" };
    must(mongolock_tests::locks(database).insert_one(damaged).await);
    let lock = provider.lock("damaged").try_acquire().await;
    let set = provider.lock_all(["damaged", "other"]).try_acquire().await;
    for tried in [lock, set] {
        let text = tried.unwrap_err().to_string();
        assert!(text.contains("damaged") && text.len() < 200, "{text}");
        let is_raw = text.contains("kind:") || text.contains("PlanExecutor");
        assert!(!is_raw, "{text}");
    }
}
