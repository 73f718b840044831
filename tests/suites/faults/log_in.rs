//! Log-ins that fail for a transient reason. The driver reports each of them as an authentication error.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock::LockProvider;
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, FailPoint, FailPointGuard, LentServer, Proxy, Server, eventually, must,
    with_parameter,
};
use tokio::time::{Instant, sleep};

use crate::{acquire_soon, connect};

/// The driver logs in with the newer mechanism inside its first message, and sends only `saslContinue` after that. This
/// user has only the older one, for which it sends `saslStart` as well.
const OLDER: &str = "older:older@";

/// The user that the server was started with, as the connection string names it.
const ROOT: &str = "root:secret@";

async fn server() -> LentServer {
    let server = must(LentServer::with_users().await);
    let create = doc! {
        "createUser": "older", "pwd": "older", "roles": ["root"], "mechanisms": ["SCRAM-SHA-1"],
    };
    let admin = server.client().await.unwrap().database("admin");
    admin.run_command(create).await.unwrap();
    server
}

/// Makes the log-ins of the application `app` fail.
async fn fail(server: &Server, point: FailPoint) -> FailPointGuard {
    point.app_name("app").enable(&server.uri()).await.unwrap()
}

/// A connection string of this user through the proxy. After a failed log-in the driver waits for the next heartbeat,
/// by default for up to 10 s.
fn uri(server: &Server, proxy: &Proxy, user: &str) -> String {
    let uri = server.uri().replace(ROOT, user);
    let uri = uri.replace(server.node().address(), proxy.address());
    let uri = uri.replace("replicaSet=mongolock", "directConnection=true");
    with_parameter(&uri, "heartbeatFrequencyMS=500")
}

/// The commands of a log-in that can fail, and a user for whom the driver sends them.
const PHASES: [(&str, &str); 2] = [("saslContinue", ROOT), ("saslStart", OLDER)];

/// Three transient failures of a log-in.
fn failures(phase: &str) -> [FailPoint; 3] {
    let log_in = || FailPoint::on(&[phase]);
    [
        log_in().error_code(91),
        log_in().error_code(11600),
        log_in().close_connection(),
    ]
}

/// B5: the acquire is repeated within its 10 s.
#[tokio::test]
async fn a_log_in_that_fails_for_a_while_does_not_end_a_wait() {
    let server = server().await;
    for (phase, user) in PHASES {
        for (number, failure) in failures(phase).into_iter().enumerate() {
            let proxy = Proxy::start(server.node().address()).await.unwrap();
            let uri = uri(&server, &proxy, user);
            let point = fail(&server, failure.times(3)).await;
            let provider = LockProvider::new(&connect(&uri, "app").await);
            let lock = provider.lock("closed").acquire_timeout(Duration::from_secs(10));
            let outcome = lock.acquire().await;
            let guard = outcome.unwrap_or_else(|error| panic!("{phase}, failure {number}: {error}"));
            assert!(proxy.seen(phase) >= 3, "{phase}: {} sent", proxy.seen(phase));
            guard.release().await.unwrap();
            must(point.clear().await);
        }
    }
}

/// A release in the background is repeated while the lease of 30 s lasts.
#[tokio::test]
async fn a_log_in_that_fails_for_a_while_does_not_end_a_release() {
    let server = server().await;
    let rival = LockProvider::new(&connect(&server.uri(), "rival").await.client().database("app"));
    for (phase, user) in PHASES {
        let [not_primary, interrupted, _] = failures(phase);
        for (code, failure) in [(91, not_primary), (11600, interrupted)] {
            let proxy = Proxy::start(server.node().address()).await.unwrap();
            let uri = uri(&server, &proxy, user);
            let provider = LockProvider::new(&connect(&uri, "app").await);
            let guard = acquire_soon(&provider, "kept").await;
            let point = fail(&server, failure.always()).await;
            let before = proxy.seen(phase);
            // The next command needs a new connection, and a log-in.
            proxy.reset_connections();
            drop(guard);
            let tried = async || (proxy.seen(phase) > before).then_some(());
            must(eventually(AMPLE, "the release tries to log in", tried).await);
            sleep(Duration::from_secs(1)).await;
            must(point.clear().await);
            let begun = Instant::now();
            let next = acquire_soon(&rival, "kept").await;
            assert!(begun.elapsed() < BEFORE_EXPIRY, "{phase}, code {code}");
            next.release().await.unwrap();
        }
    }
}
