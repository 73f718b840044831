//! A failover to a member whose clock is ahead: leases end early there, unless a takeover margin covers the difference. What a
//! clock that was ahead leaves: `behaviour/admin.rs`.

use std::time::{Duration, SystemTime};

use mongodb::bson::{Document, doc};
use mongolock::{DistributedLock, LockProvider};
use mongolock_tests::{AMPLE, Node, Server, ServerOptions, eventually, must, one_clock_ahead, until};
use tokio::time::Instant;

use crate::{assert_free, connect, patient};

/// The difference between the clocks.
const AHEAD: Duration = Duration::from_secs(20);

/// The lease, which is not renewed. After the failover 10 s of it are left by the clock that is ahead, and 30 s by the
/// holder's: the difference is long enough for an election and for a slow machine.
const EXPIRY: Duration = Duration::from_secs(30);

async fn run(node: &Node, command: Document) -> Document {
    let client = node.client().await.unwrap();
    client.database("admin").run_command(command).await.unwrap()
}

/// Whether this is the member whose clock is ahead of that of this process.
async fn is_ahead(node: &Node) -> bool {
    let hello = run(node, doc! { "hello": 1 }).await;
    let there = hello.get_datetime("localTime").unwrap().to_system_time();
    there > SystemTime::now() + AHEAD / 2
}

/// Makes a member with a correct clock the primary, and keeps the third member from becoming one: the next failover leads
/// to the member whose clock is ahead.
async fn prepare(server: &Server) {
    let settled = async || {
        let primary = server.primary().await.ok()?;
        if is_ahead(primary).await {
            server.step_down().await.ok()?;
            return None;
        }
        Some(())
    };
    must(eventually(AMPLE * 2, "a primary with a correct clock", settled).await);
    for node in server.secondaries().await {
        if !is_ahead(node).await {
            run(node, doc! { "replSetFreeze": 120 }).await;
        }
    }
}

/// A lock with a lease that is not renewed.
fn unrenewed(provider: &LockProvider, name: &str) -> DistributedLock {
    provider.lock(name).expiry(EXPIRY).max_hold(Duration::ZERO)
}

#[tokio::test]
async fn a_margin_keeps_a_lock_with_its_holder_across_a_failover_to_a_clock_that_is_ahead() {
    let directory = tempfile::tempdir().unwrap();
    let server = one_clock_ahead(ServerOptions::three_members(), directory.path(), AHEAD).await;
    let provider = async |margin: Duration| {
        let database = connect(&server.uri(), "app").await;
        let builder = LockProvider::builder(&database)
            .takeover_margin(margin)
            .acquire_timeout(AMPLE * 2);
        builder.build().unwrap()
    };
    let (ours, careful, careless) = (
        provider(AHEAD).await,
        provider(AHEAD).await,
        provider(Duration::ZERO).await,
    );
    prepare(&server).await;
    assert_free(&ours, "warm").await;
    let begun = Instant::now();
    let kept = unrenewed(&ours, "kept").await.unwrap();
    let taken = unrenewed(&ours, "taken").await.unwrap();
    // On a slow machine the former primary may be elected again.
    until("the member whose clock is ahead is the primary", async || {
        let elected = server.step_down().await;
        matches!(elected, Ok(primary) if is_ahead(primary).await)
    })
    .await;

    // Without a margin the lock is taken from its holder, about 20 s early.
    let early = careless.lock("taken").acquire().await.unwrap();
    let after = begun.elapsed();
    assert!(!taken.is_lost(), "taken {after:?} after the acquisition");
    assert!(careful.lock("kept").try_acquire().await.unwrap().is_none());
    let next = careful.lock("kept").acquire().await.unwrap();
    let relied = begun.elapsed();
    assert!(kept.is_lost(), "the holder relied on its lease after {relied:?}");
    assert!(next.fencing_token() > kept.fencing_token() && early.fencing_token() > taken.fencing_token());
}

#[tokio::test]
async fn after_a_clock_has_gone_back_no_lock_stays_taken() {
    const OWNER: &str = "before";
    let directory = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let server = one_clock_ahead(ServerOptions::single(), directory.path(), hour).await;
    assert!(is_ahead(server.node()).await);
    let before = LockProvider::builder(&connect(&server.uri(), "app").await);
    let before = before.owner(OWNER).build().unwrap();
    assert_free(&before, "released").await;
    for name in ["held", "of owner"] {
        // Its process is gone.
        std::mem::forget(unrenewed(&before, name).await.unwrap());
    }
    before.lock("mark").once().await.unwrap().done().await.unwrap();
    for name in ["kept", "kept of owner"] {
        let kept = before.lock(name).min_hold(hour).await.unwrap();
        kept.release().await.unwrap();
    }
    let detached = before.lock("detached").await.unwrap();
    detached.detach(hour).await.unwrap();

    must(server.node().restart().await);
    assert!(!is_ahead(server.node()).await);
    let after = patient(&connect(&server.uri(), "app").await);
    let soon = Instant::now();
    let released = after.lock("released").acquire().await.unwrap();
    assert!(soon.elapsed() < hour / 2, "it is not busy for the step");
    released.release().await.unwrap();
    let admin = after.admin();
    for name in ["held", "mark", "kept", "detached"] {
        let tried = after.lock(name).try_acquire().await.unwrap();
        assert!(tried.is_none(), "{name} is taken");
        assert!(admin.force_release(name).await.unwrap(), "{name}");
        assert_free(&after, name).await;
    }
    assert_eq!(admin.release_owner(OWNER).await.unwrap(), 2);
    for name in ["of owner", "kept of owner"] {
        assert_free(&after, name).await;
    }
}
