//! Commands that take effect later than commands that were sent after them: renewals that waited in the server, and
//! acquire requests that were delayed in the network.

use std::time::Duration;

use mongodb::Database;
use mongolock::{DistributedLock, LockError, LockGuard, LockProvider};
use mongolock_tests::{
    AMPLE, FailPoint, Fault, LentServer, Proxy, Purpose, eventually, must, test_db, transaction_on,
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{
    LONG_EXPIRY, Proxied, acquire_soon, assert_free, connect, is_released, through_proxy, until_indexed,
};

/// The lease of `m` and `n`: long enough for a single renewal to pass two batches that are stuck.
const EXPIRY: Duration = Duration::from_secs(12);

/// The delay after which the first copy of an acquire request reaches the server.
const LATE: Duration = Duration::from_secs(2);

/// The expiry of a claim that a late request makes. A claim of a minute at most that is made after its release ends by its
/// expiry, which ends in the test.
const GHOST: Duration = Duration::from_secs(8);

/// The rival's guard of `n`, and the time for which the first holder still relied on its lease when the rival acquired
/// the lock.
async fn left_at_takeover(rival: LockProvider, guard: &LockGuard) -> (LockGuard, Duration) {
    let context = guard.context();
    let taking = async move {
        let lock = rival.lock("n").acquire_timeout(AMPLE);
        let next = lock.acquire().await.unwrap();
        // Both providers are in this process, so there is one monotonic clock.
        (next, context.remaining())
    };
    tokio::spawn(taking).await.unwrap()
}

/// Makes the first renewals of `m` and `n` wait behind a foreign transaction on `m` from the third second to the ninth.
async fn block_the_first_renewals(foreign: &Database, acquired: Instant) {
    sleep_until(acquired + Duration::from_millis(2500)).await;
    let mut session = transaction_on(foreign, &["m"]).await;
    sleep_until(acquired + Duration::from_millis(8500)).await;
    session.abort_transaction().await.unwrap();
}

/// Acquires `m` and `n`, blocks their first renewals, and lets `then` happen. The first holder does not rely on its lease any
/// more when the rival has acquired `n`.
async fn assert_lease_is_not_shortened<T>(
    database: &Database,
    foreign: &Database,
    with_options: impl Fn(DistributedLock) -> DistributedLock,
    then: impl Future<Output = T>,
) -> (LockGuard, T) {
    let holder = LockProvider::new(database);
    until_indexed(&holder).await;
    let acquired = Instant::now();
    let mut guards = Vec::new();
    for name in ["m", "n"] {
        let lock = with_options(holder.lock(name).expiry(EXPIRY));
        guards.push(lock.acquire().await.unwrap());
    }
    let taking = left_at_takeover(LockProvider::new(foreign), &guards[1]);
    let blocking = async {
        block_the_first_renewals(foreign, acquired).await;
        then.await
    };
    let ((next, left), then) = tokio::join!(taking, blocking);
    assert!(
        left.is_zero(),
        "two live guards {:?} after the acquire: the first one relies on its lease for another {left:?}",
        acquired.elapsed()
    );
    (next, then)
}

/// B4: a renewal that waited in the server must not shorten the lease that a later one has granted. The holder, which
/// stops renewing after `max_hold`, relies on the later one.
#[tokio::test]
async fn a_renewal_that_takes_effect_late_does_not_shorten_the_lease() {
    let db = test_db().await;
    let foreign = db.connect_again().await.unwrap();
    let max_hold = |lock: DistributedLock| lock.max_hold(Duration::from_secs(8));
    let (next, ()) = assert_lease_is_not_shortened(db.database(), &foreign, max_hold, async {}).await;
    next.release().await.unwrap();
}

/// B4: the same without `max_hold`, when the later renewals hang.
#[tokio::test]
async fn a_late_renewal_does_not_shorten_the_lease_while_later_ones_hang() {
    let server = must(LentServer::single().await);
    let database = connect(&server.uri(), "holder").await;
    let foreign = connect(&server.uri(), "rival").await;
    let foreign = foreign.client().database("holder");
    let hanging = async {
        let point = FailPoint::on(&["update", "findAndModify"]);
        let point = point.always().block(EXPIRY);
        point.app_name("holder").enable(&server.uri()).await.unwrap()
    };
    let (next, point) = assert_lease_is_not_shortened(&database, &foreign, |lock| lock, hanging).await;
    must(point.clear().await);
    next.release().await.unwrap();
}

/// The first request of a claim arrives late. Its repetition, by the driver or by the library, is answered "held", and
/// the caller gives up. The late request then acquires the lock without a caller, and this claim keeps it for one expiry at
/// most.
async fn late_request_leaves_no_claim(proxy: &Proxy, late: &Database, direct: &Database, is_try: bool) {
    // One request for each call: a later write in the same session would make the server refuse the late one.
    let pause = Duration::from_secs(5);
    let provider = LockProvider::builder(late).expiry(GHOST);
    let provider = provider.retry_interval(pause..=pause).build().unwrap();
    let rival = LockProvider::new(direct);
    assert_free(&provider, "warm").await;
    let guard = acquire_soon(&rival, "late").await;

    let fault = Fault::late_request(LATE).command(Purpose::Acquire);
    let late = proxy.inject(fault);
    let lock = provider.lock("late").acquire_timeout(Duration::from_millis(600));
    let outcome = if is_try {
        lock.try_acquire().await
    } else {
        lock.acquire().await.map(Some)
    };
    // On a standalone server a try ends with the error of the connection, because nothing repeats it.
    match outcome {
        Ok(None) | Err(LockError::Timeout { .. } | LockError::Mongo(_)) => {}
        other => panic!("another holder has the lock: {other:?}"),
    }
    assert_eq!(late.hits(), 1);
    guard.release().await.unwrap();

    // The server has executed the late request by now. No event shows that, hence the sleep.
    sleep(LATE + Duration::from_secs(1)).await;
    let lock = rival.lock("late").acquire_timeout(AMPLE);
    let next = timeout(Duration::from_secs(15), lock.acquire()).await;
    let next = next.expect("the lock is free").unwrap();
    next.release().await.unwrap();
}

/// B2: on a replica set the driver itself repeats the request, and the library gets only the second reply.
#[tokio::test]
async fn a_request_repeated_by_the_driver_leaves_no_claim() {
    for is_try in [false, true] {
        let db = test_db().await;
        let (proxy, database) = through_proxy(&db).await;
        late_request_leaves_no_claim(&proxy, &database, db.database(), is_try).await;
    }
}

/// B2: on a standalone server only the library repeats the request.
#[tokio::test]
async fn a_request_repeated_by_the_library_leaves_no_claim() {
    let server = must(LentServer::standalone().await);
    for (name, is_try) in [("wait", false), ("try", true)] {
        let proxy = Proxy::start(server.node().address()).await.unwrap();
        let late = connect(&proxy.uri(), name).await;
        let direct = connect(&server.uri(), name).await;
        late_request_leaves_no_claim(&proxy, &late, &direct, is_try).await;
    }
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
    let taken = async || (!is_released(it.db.database(), "late").await).then_some(());
    must(eventually(AMPLE, "the late request takes effect", taken).await);
    let free = async || it.provider.lock("late").try_acquire().await.unwrap();
    let limit = Duration::from_secs(4);
    let guard = must(eventually(limit, "the lock is free", free).await);
    guard.release().await.unwrap();
}

/// The hold that an operator has read ends while the forced release is under way: the next one is not the one that was meant.
#[tokio::test]
async fn a_forced_release_that_arrives_late_ends_no_later_hold() {
    let it = Proxied::start(LONG_EXPIRY).await;
    let rival = it.rival().to_builder().owner("rival").build().unwrap();
    for by_owner in [false, true] {
        let seen = rival.lock("late").acquire().await.unwrap();
        let late = it
            .proxy
            .inject(Fault::delay_request(LATE * 3).command(Purpose::Release));
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
