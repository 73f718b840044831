//! A failover of 12 s, as an election with the server's default timeout takes it.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock_tests::{Server, ServerOptions, must};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::{acquire_soon, assert_free, connect, patient, with_expiry};

/// No member becomes the primary for this time.
const WITHOUT_PRIMARY: Duration = Duration::from_secs(12);

/// After the failover each lock is free within this time: the limits of a command that was sent in its last moment, its release,
/// and the time of a slow machine. It is far less than the lease of 30 s.
const SOON: Duration = Duration::from_secs(10);

/// Calls that begin during the failover and are cancelled hold no lock after it: each of their claims is released, also one that
/// the new primary has applied after its call was gone.
#[tokio::test]
async fn claims_that_are_cancelled_during_a_failover_hold_no_lock_after_it() {
    let server = Server::start(ServerOptions::three_members()).await.unwrap();
    let database = connect(&server.uri(), "app").await;
    let (ours, theirs) = (
        with_expiry(&database, Duration::from_secs(30)),
        patient(&database),
    );
    assert_free(&ours, "warm").await;

    let primary = must(server.primary().await);
    for secondary in server.secondaries().await {
        let admin = secondary.client().await.unwrap().database("admin");
        let seconds = i64::try_from(WITHOUT_PRIMARY.as_secs()).unwrap();
        admin
            .run_command(doc! { "replSetFreeze": seconds })
            .await
            .unwrap();
    }
    must(primary.kill().await);
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    let mut number = 0;
    let elected = async {
        must(server.primary().await);
        begun.elapsed()
    };
    tokio::pin!(elected);
    let failover = loop {
        tokio::select! {
            failover = &mut elected => break failover,
            () = sleep(Duration::from_millis(150)) => {
                let lock = ours.lock(format!("cancelled-{number}"));
                let patience = Duration::from_millis(100 + 300 * (number % 8));
                callers.spawn(async move { timeout(patience, lock.acquire()).await.is_err() });
                number += 1;
            }
        }
    };
    assert!(
        failover > WITHOUT_PRIMARY / 2,
        "the failover took {failover:?} only"
    );
    // The last calls end after the election, and may have acquired their lock.
    let cancelled = callers
        .join_all()
        .await
        .into_iter()
        .filter(|cancelled| *cancelled)
        .count();
    assert!(cancelled > 30, "{cancelled} of {number} calls were cancelled");

    let over = Instant::now();
    for number in 0..number {
        let guard = acquire_soon(&theirs, &format!("cancelled-{number}")).await;
        guard.release().await.unwrap();
    }
    assert!(
        over.elapsed() < SOON,
        "the last one was free after {:?}",
        over.elapsed()
    );
}
