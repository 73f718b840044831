//! Renewals that fail until the lease ends, and those of leases beside them.

use std::time::Duration;

use futures_util::future::join_all;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, Fault, Purpose, must, recorded, test_db, transaction_on};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{Proxied, STEPPED_DOWN, connect, fail, patient, until_indexed, until_none_is_held};

/// The error code of a command that the server has ended at its time limit (`MaxTimeMSExpired`).
const MAX_TIME_EXPIRED: i32 = 50;

/// A lease that ends in the test.
const EXPIRY: Duration = Duration::from_secs(3);

/// What keeps renewals from being confirmed.
enum Trouble {
    /// No message goes through.
    Freeze,
    /// No reply to a renewal.
    Silence,
    /// The server fails each renewal, and nothing else of the holder.
    Failure(FailPoint),
}

fn troubles() -> Vec<Trouble> {
    let on = || FailPoint::on(&["findAndModify"]).always();
    vec![
        Trouble::Freeze,
        Trouble::Silence,
        Trouble::Failure(on().error_code(STEPPED_DOWN)),
        Trouble::Failure(on().error_code(MAX_TIME_EXPIRED)),
        // It was executed, and a failover could take it back.
        Trouble::Failure(on().write_concern_error(64, "injected")),
        Trouble::Failure(on().write_concern_error(STEPPED_DOWN, "injected")),
    ]
}

/// B4, B9, B12, S1.11, S1.27: a holder whose renewals are not confirmed loses the lock before a rival can acquire it. It
/// repeats them with pauses. Its body ends, and its late commands change nothing.
#[tokio::test]
async fn a_lease_without_a_confirmed_renewal_is_lost_in_time() {
    join_all(troubles().into_iter().map(lost_in_time)).await;
}

async fn lost_in_time(trouble: Trouble) {
    let it = Proxied::start(EXPIRY).await;
    let lock = it.provider.lock("cut");
    let (inside, entered) = tokio::sync::oneshot::channel();
    let body = lock.run(async |context| {
        inside.send(context).unwrap();
        std::future::pending::<Result<(), LockError>>().await
    });
    let rival = connect(it.db.uri(), "rival").await;
    let rival = rival.client().database(it.db.name());
    let rival = patient(&rival);
    let failing = async {
        let context = entered.await.unwrap();
        let begun = (Instant::now(), it.proxy.seen(Purpose::Renew));
        let mut point = None;
        match trouble {
            Trouble::Freeze => it.proxy.freeze(),
            Trouble::Silence => {
                let silence = Fault::swallow_reply().command(Purpose::Renew);
                it.proxy.inject(silence.times(u32::MAX));
            }
            Trouble::Failure(failure) => point = Some(fail(&it.db, failure).await),
        }
        let next = rival.lock("cut").acquire().await.unwrap();
        // The holder knows that its lock is lost.
        assert!(context.is_lost());
        assert!(context.remaining().is_zero());
        let (renewals, seconds) = (
            it.proxy.seen(Purpose::Renew) - begun.1,
            begun.0.elapsed().as_secs(),
        );
        assert!(renewals <= 10 * (seconds + 1), "{renewals} in {seconds} s");
        assert!(next.fencing_token() > context.fencing_token());
        if let Some(point) = point {
            must(point.clear().await);
        }
        it.proxy.thaw();
        next
    };
    let ended = timeout(AMPLE, async { tokio::join!(body, failing) }).await;
    let (ran, next) = ended.expect("the body notices the loss");
    let is_lost = matches!(&ran, Err(LockError::Lost { name, .. }) if name == "cut");
    assert!(is_lost, "{ran:?}");
    next.release()
        .await
        .expect("late commands of the first holder change nothing");
}

/// B14: nothing is renewed after a release or a drop.
#[tokio::test]
async fn renewal_ends_with_the_hold() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let builder = LockProvider::builder(&database).renew_interval(Duration::from_millis(100));
    let lock = builder.build().unwrap().lock("ended");
    lock.acquire().await.unwrap().release().await.unwrap();
    drop(lock.acquire().await.unwrap());
    until_none_is_held(db.database(), AMPLE).await;
    commands.clear();
    sleep(Duration::from_millis(500)).await;
    for purpose in [Purpose::Renew, Purpose::Release] {
        assert_eq!(commands.count(purpose), 0, "{purpose:?}");
    }
}

/// B4: renewals of two locks wait in the server behind a foreign transaction, which counts their leases from before that. The one that
/// takes effect late must not shorten the lease that a later one has granted: its holder relies on that, and stops renewing after
/// `max_hold`.
#[tokio::test]
async fn a_renewal_that_takes_effect_late_does_not_shorten_the_lease() {
    // Long enough for a single renewal to pass two batches that are stuck.
    let expiry = Duration::from_secs(12);
    let db = test_db().await;
    let foreign = db.connect_again().await.unwrap();
    let holder = LockProvider::new(db.database());
    until_indexed(&holder).await;
    let acquired = Instant::now();
    let lock = |name| holder.lock(name).expiry(expiry).max_hold(Duration::from_secs(8));
    let (_blocked, guard) = (lock("m").await.unwrap(), lock("n").await.unwrap());
    let rival = LockProvider::new(&foreign);
    let taking = async {
        let next = rival.lock("n").acquire_timeout(AMPLE).acquire().await.unwrap();
        // Both providers are in this process, so there is one monotonic clock.
        (next, guard.remaining())
    };
    let blocking = async {
        sleep_until(acquired + Duration::from_millis(2500)).await;
        let mut session = transaction_on(&foreign, &["m"]).await;
        sleep_until(acquired + Duration::from_millis(8500)).await;
        session.abort_transaction().await.unwrap();
    };
    let ((next, left), ()) = tokio::join!(taking, blocking);
    // There are not two live guards.
    assert!(left.is_zero(), "the first one relies on its lease for {left:?}");
    next.release().await.unwrap();
}
