//! Elections, killed and stopped members, a lost majority, and a set without a primary.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{LockError, LockEventKind, LockEvents, LockFilter, LockProvider};
use mongolock_tests::{AMPLE, Server, ServerOptions, eventually, must, until};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::health::{BOUND, until_ready};
use crate::{LONG_EXPIRY, acquire_soon, assert_free, connect, patient};

#[tokio::test]
async fn holds_waits_and_events_outlast_what_happens_to_members() {
    let server = must(Server::start(ServerOptions::three_members()).await);
    let ours = patient(&connect(&server.uri(), "app").await);
    let connected = must(LockProvider::connect(server.uri()).await);
    let builder = connected.to_builder().database("app");
    let theirs = builder.acquire_timeout(AMPLE).build().unwrap();
    let mut events = theirs.admin().events(LockFilter::new().name("followed"));
    let first = ours.lock("followed").acquire().await.unwrap();
    let told = timeout(AMPLE, events.next()).await.expect("an event comes");
    assert!(told.expect("they go on").unwrap().kind.is_held());
    first.release().await.unwrap();

    a_stepdown_ends_neither_a_hold_nor_a_wait(&server, &ours, &theirs).await;
    let stopped = server.secondaries().await[0];
    must(stopped.stop());
    let mut tokens = turns(&ours).await;
    must(stopped.resume());
    let killed = must(server.primary().await);
    let held = ours.lock("kept").expiry(LONG_EXPIRY).acquire().await.unwrap();
    must(killed.kill().await);
    // The other members answer heartbeats during the election, so that a single try waits for the new primary.
    let free = theirs.lock("free").try_acquire().await.unwrap();
    free.expect("the lock is free").release().await.unwrap();
    // B12: a lock that a majority has acknowledged survives the loss of the primary.
    let busy = theirs.lock("kept").try_acquire().await;
    assert!(matches!(busy, Ok(None)), "{busy:?}");
    assert!(!held.is_lost());
    let token = held.fencing_token();
    held.release().await.unwrap();
    assert!(acquire_soon(&theirs, "kept").await.fencing_token() > token);
    tokens.extend(turns(&ours).await);
    each_is_told_once(&mut events, tokens).await;

    must(killed.restart().await);
    without_a_majority_nothing_is_acquired(&server, &ours).await;
    claims_that_are_cancelled_during_a_failover_hold_no_lock_after_it(&server, &theirs).await;
}

/// B5, S1.19: the hold and the wait survive an election, because the lease is longer than the election.
async fn a_stepdown_ends_neither_a_hold_nor_a_wait(
    server: &Server,
    ours: &LockProvider,
    theirs: &LockProvider,
) {
    let guard = ours.lock("kept").acquire().await.unwrap();
    let waiting = theirs.lock("kept");
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    sleep(Duration::from_millis(100)).await;
    let former = must(server.primary().await).address().to_owned();
    let elected = must(server.step_down().await);
    assert_ne!(elected.address(), former);
    assert!(!guard.is_lost() && !waiter.is_finished());
    let held = guard.fencing_token();
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(next.fencing_token() > held);
    next.release().await.unwrap();
}

/// The tokens of six holds in a row.
async fn turns(provider: &LockProvider) -> Vec<mongolock::FencingToken> {
    let mut tokens = Vec::new();
    for _ in 0..6 {
        let held = acquire_soon(provider, "followed").await;
        tokens.push(held.fencing_token());
        held.release().await.unwrap();
    }
    tokens
}

/// Each of the holds is told once, in its order, whatever has happened to the members meanwhile.
async fn each_is_told_once(events: &mut LockEvents, tokens: Vec<mongolock::FencingToken>) {
    let mut holds = Vec::new();
    while holds.last() < tokens.last() {
        let event = timeout(AMPLE, events.next()).await.expect("an event comes");
        let event = event.expect("they go on").unwrap();
        match event.kind {
            LockEventKind::Acquired => holds.extend(event.fencing_token),
            kind => assert_eq!(kind, LockEventKind::Released),
        }
    }
    let in_order = holds.is_sorted_by(|one, next| one < next);
    assert!(in_order, "once each, in order: {holds:?}");
    // A request that is sent again during the election may be granted as well. It is given back, and no caller has its token.
    holds.retain(|token| tokens.contains(token));
    assert_eq!(holds, tokens);
}

/// B12: without a majority no lock is acquired, and the attempt leaves nothing behind.
async fn without_a_majority_nothing_is_acquired(server: &Server, provider: &LockProvider) {
    assert_free(provider, "warm").await;
    let secondaries = server.secondaries().await;
    assert_eq!(secondaries.len(), 2);
    for node in &secondaries {
        must(node.stop());
    }
    let begun = Instant::now();
    let lock = provider.lock("lonely").acquire_timeout(Duration::from_secs(3));
    let error = lock.acquire().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10), "the limit holds");
    assert!(matches!(error, LockError::Mongo(_)), "{error}");
    for node in &secondaries {
        must(node.resume());
    }
    // The lock becomes free long before the expiry of 30 s.
    assert_free(provider, "lonely").await;
}

/// Calls that begin during a failover of 12 s, as an election with the server's default timeout takes it, and are cancelled
/// hold no lock after it: each of their claims is released, also one that the new primary has applied after its call was gone.
async fn claims_that_are_cancelled_during_a_failover_hold_no_lock_after_it(
    server: &Server,
    theirs: &LockProvider,
) {
    const WITHOUT_PRIMARY: Duration = Duration::from_secs(12);
    let ours = LockProvider::new(&connect(&server.uri(), "app").await);
    assert_free(&ours, "warm").await;
    let primary = must(server.primary().await);
    let both = || async { Some(server.secondaries().await).filter(|both| both.len() == 2) };
    for secondary in must(eventually(AMPLE, "two secondaries", both).await) {
        let admin = must(secondary.client().await).database("admin");
        let freeze = doc! { "replSetFreeze": i64::try_from(WITHOUT_PRIMARY.as_secs()).unwrap() };
        must(admin.run_command(freeze).await);
    }
    must(primary.kill().await);
    let (begun, mut callers, mut number) = (Instant::now(), JoinSet::new(), 0);
    let mut elected = Box::pin(server.primary());
    loop {
        tokio::select! {
            primary = &mut elected => {
                must(primary);
                break;
            }
            () = sleep(Duration::from_millis(150)) => {}
        }
        let lock = ours.lock(format!("cancelled-{number}"));
        let patience = Duration::from_millis(100 + 300 * (number % 8));
        callers.spawn(async move { timeout(patience, lock.acquire()).await.is_err() });
        number += 1;
    }
    let failover = begun.elapsed();
    let took_long = failover > WITHOUT_PRIMARY / 2;
    assert!(took_long, "the failover took {failover:?} only");
    // The last calls end after the election, and may have acquired their lock.
    let ended = callers.join_all().await.into_iter();
    let cancelled = ended.filter(|is_cancelled| *is_cancelled).count();
    assert!(cancelled > 30, "{cancelled} of {number} calls were cancelled");

    let over = Instant::now();
    for number in 0..number {
        assert_free(theirs, &format!("cancelled-{number}")).await;
    }
    // The limits of a command that was sent in the last moment of the failover, its release, and the time of a slow machine:
    // far less than the lease of 30 s.
    let took = over.elapsed();
    let soon = took < Duration::from_secs(10);
    assert!(soon, "the last one was free after {took:?}");
}

/// The primary is silent and still counts as one to the driver, so another member has to be asked; the set elects another
/// primary only after several checks. Then that one is killed: the third member is alone. It replies to a direct connection,
/// and takes no write.
#[tokio::test]
async fn a_set_without_a_primary_is_reachable() {
    let options = ServerOptions::three_members().election_timeout(Duration::from_secs(10));
    let server = must(Server::start(options).await);
    let provider = LockProvider::connect(server.uri()).await.unwrap();
    until_ready(&provider).await;
    assert!(provider.health().await.has_primary);
    let silent = must(server.primary().await);
    must(silent.stop());
    let has_none = async || {
        let begun = Instant::now();
        let health = provider.health().await;
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        assert!(health.is_reachable, "{health:?}");
        (!health.has_primary).then_some(())
    };
    must(eventually(AMPLE, "a silent primary", has_none).await);
    until("election", async || provider.health().await.has_primary).await;

    let other = || async { server.secondaries().await.first().copied() };
    let secondary = must(eventually(AMPLE, "a secondary", other).await);
    let primary = must(server.primary().await);
    must(primary.kill().await);
    let says_so = async || {
        let health = provider.health().await;
        let lock = provider.lock("free").acquire_timeout(Duration::from_secs(1));
        let text = lock.acquire().await.unwrap_err().to_string();
        let down = format!("{} (Connection refused)", primary.address());
        let up = format!("{} (RsSecondary)", secondary.address());
        let told = text.starts_with("MongoDB has no primary: ") && text.contains(&down) && text.contains(&up);
        (told && health.is_reachable && !health.has_primary).then_some(())
    };
    must(eventually(AMPLE, "a set without a primary", says_so).await);
    assert!(!provider.is_ready().await);
    let direct = format!("mongodb://{}/?directConnection=true", secondary.address());
    let direct = LockProvider::new(&connect(&direct, "app").await);
    until("a refused write", async || {
        let lock = direct.lock("free").acquire_timeout(Duration::from_secs(1));
        let text = lock.acquire().await.unwrap_err().to_string();
        text.contains("NotWritablePrimary")
    })
    .await;
    must(primary.restart().await);
    until_ready(&provider).await;
    assert!(provider.health().await.has_primary);
    must(silent.resume());
}
