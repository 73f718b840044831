//! Requests that take effect after what was sent later, and replies that arrive after the end of their call: what they have
//! made is released, and nothing is taken for a loss.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::Database;
use mongodb::bson::{DateTime, doc};
use mongolock::{LockError, LockProvider, LossReason};
use mongolock_tests::{AMPLE, Fault, Purpose, eventually, locks, must, until};
use tokio::time::{sleep, timeout};

use crate::act::Act;
use crate::{
    DEFAULT_EXPIRY, LONG_EXPIRY, Proxied, Standalone, assert_free, claims, is_released, until_none_is_held,
};

/// The expiry of a claim that a late request makes. A claim of a minute at most that is made after its release ends by its
/// expiry, which ends in the test.
const GHOST: Duration = Duration::from_secs(8);

/// Longer than a test lasts.
const HOUR: Duration = Duration::from_secs(3600);

/// The number of claims whose leases have not ended.
async fn lasting_claims(database: &Database) -> u64 {
    let lasting = doc! { "lockId": { "$ne": "" }, "expiresAt": { "$gt": DateTime::now() } };
    locks(database).count_documents(lasting).await.unwrap()
}

/// Waits until a late request was granted, and until no claim lasts any more.
async fn granted_for_one_expiry(database: &Database, count: u64) {
    until("the late request is granted", async || {
        claims(database).await == count
    })
    .await;
    let ended = async || (lasting_claims(database).await == 0).then_some(());
    must(eventually(Duration::from_secs(15), "no claim lasts", ended).await);
}

/// B2: the request arrives after the call has ended and its claims were released for the first time. What it makes then lasts for
/// one expiry at most.
#[tokio::test]
async fn a_request_that_arrives_late_leaves_no_claim() {
    let acts = [(Act::Lock, 1), (Act::Set, 3), (Act::Permit(3), 1)];
    join_all(acts.map(|(act, count)| async move {
        let (server, provider) = Standalone::with_provider(GHOST).await;
        let fault = Fault::late_request(Duration::from_millis(1500)).command(Purpose::Acquire);
        let late = server.proxy.inject(fault);
        let hurried = provider.to_builder().acquire_timeout(Duration::from_millis(300));
        assert!(act.acquire(&hurried.build().unwrap(), "n").await.is_err());
        must(late.happened(AMPLE).await);
        granted_for_one_expiry(&server.direct, count).await;
    }))
    .await;
}

/// B2: on a replica set the driver itself repeats the request, and the library gets only the second reply, which says that
/// another one has the lock.
#[tokio::test]
async fn a_request_repeated_by_the_driver_leaves_no_claim() {
    let it = Proxied::start(GHOST).await;
    let held = it.rival().lock("n").acquire().await.unwrap();
    // One request for each call: a later write in the same session would make the server refuse the late one.
    let pause = Duration::from_secs(5);
    let builder = it.provider.to_builder().retry_interval(pause..=pause);
    let provider = builder.build().unwrap();
    // After a closed connection the driver waits for a heartbeat, so that its repetition takes half a second and longer. The call
    // ends after the reply to it, and before the late request arrives.
    let fault = Fault::late_request(Duration::from_secs(7)).command(Purpose::Acquire);
    let late = it.proxy.inject(fault);
    let lock = provider.lock("n").acquire_timeout(Duration::from_secs(3));
    let error = lock.acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Timeout { .. }), "{error:?}");
    assert_eq!(late.hits(), 1);
    held.release().await.unwrap();
    granted_for_one_expiry(it.db.database(), 1).await;
}

/// B3: the first request of a claim arrives after the lease of that claim was released, and acquires the lock without a
/// holder, long before the lease would end. It is released when the last request can no longer arrive, 5 s after it was sent.
#[tokio::test]
async fn a_request_that_arrives_after_the_release_makes_no_try_busy() {
    let it = Proxied::start(LONG_EXPIRY).await;
    let fault = Fault::late_request(Duration::from_secs(3)).command(Purpose::Acquire);
    let late = it.proxy.inject(fault);
    assert_free(&it.provider, "late").await;
    assert_eq!(late.hits(), 1);
    until("the late request takes effect", async || {
        !is_released(it.db.database(), "late").await
    })
    .await;
    let free = async || it.provider.lock("late").try_acquire().await.unwrap();
    let limit = Duration::from_secs(4);
    let guard = must(eventually(limit, "the lock is free", free).await);
    guard.release().await.unwrap();
}

/// A copy of the request gets the first reply, after 2 s, and the reply to the request itself arrives 30 ms later, during the
/// release: the release in the background that follows is not taken for a loss, and does not end the minimum hold.
#[tokio::test]
async fn a_reply_during_the_release_ends_no_minimum_hold() {
    join_all((0..3).map(async |_| {
        let it = Proxied::start(DEFAULT_EXPIRY).await;
        let late = Fault::delay_reply(Duration::from_millis(2030)).command(Purpose::Acquire);
        let late = it.proxy.inject(late);
        let slow = Fault::delay_request(Duration::from_millis(200)).command(Purpose::Release);
        let slow = it.proxy.inject(slow);
        let lock = it.provider.lock("kept").min_hold(HOUR);
        lock.acquire().await.unwrap().release().await.unwrap();
        assert_eq!((late.hits(), slow.hits()), (1, 1));
        // A background release that follows the reply would have been sent by then. No event shows that there is none.
        sleep(Duration::from_millis(500)).await;
        let tried = it.rival().lock("kept").try_acquire().await.unwrap();
        assert!(tried.is_none(), "it is free within its minimum hold");
    }))
    .await;
}

/// The hold that an operator has read ends while the forced release is under way: the next one is not the one that was meant.
#[tokio::test]
async fn a_forced_release_that_arrives_late_ends_no_later_hold() {
    let it = Proxied::start(LONG_EXPIRY).await;
    let rival = it.rival().to_builder().owner("rival").build().unwrap();
    for by_owner in [false, true] {
        let seen = rival.lock("late").acquire().await.unwrap();
        let fault = Fault::delay_request(Duration::from_secs(3)).command(Purpose::Release);
        let late = it.proxy.inject(fault);
        let admin = it.provider.admin();
        let releasing = tokio::spawn(async move {
            if by_owner {
                admin.release_owner("rival").await.map(|released| released > 0)
            } else {
                admin.force_release("late").await
            }
        });
        must(late.happened(AMPLE).await);
        seen.release().await.unwrap();
        let next = rival.lock("late").acquire().await.unwrap();
        assert!(!releasing.await.unwrap().unwrap(), "by the owner: {by_owner}");
        next.release().await.expect("the operator has not seen this hold");
    }
}

/// A detachment is given up, and its request arrives after that: nobody has the handle.
#[tokio::test]
async fn a_late_detachment_leaves_no_lease() {
    let (server, provider) = Standalone::with_provider(DEFAULT_EXPIRY).await;
    let detaching = provider.lock("n").await.unwrap().detach(HOUR);
    let handle = detaching.handle();
    let fault = Fault::late_request(Duration::from_millis(700)).command(Purpose::Detach);
    let late = server.proxy.inject(fault);
    assert!(timeout(Duration::from_millis(300), detaching).await.is_err());
    must(late.happened(AMPLE).await);
    // The late request has arrived by then. No event shows that.
    sleep(Duration::from_secs(1)).await;
    until_none_is_held(&server.direct, Duration::from_secs(25)).await;
    let resumed = LockProvider::new(&server.direct).resume(&handle).await;
    let is_gone = matches!(&resumed, Err(LockError::Lost { reason, .. }) if *reason == LossReason::Gone);
    assert!(is_gone, "{resumed:?}");
}
