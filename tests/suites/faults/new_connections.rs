//! New connections that fail while the pool has others: an overloaded server closes them before the handshake, and a network
//! that has just been cut accepts them and never replies. The driver has no limit for the reply to a handshake.

use std::time::Duration;

use mongolock::LockProvider;
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, FailPoint, Fault, Proxy, Purpose, TestDb, must, test_db};
use tokio::time::{Instant, sleep};

use crate::callers::{Callers, Calls, hold, lost, use_connections};
use crate::{DEFAULT_EXPIRY, LONG_EXPIRY, Proxied, assert_free, fail, warm_up, with_expiry};

/// An expiry that ends several times while connections fail.
const SHORT: Duration = Duration::from_secs(3);

/// The number of connections that the pool has before new ones fail.
const WARM: usize = 4;

/// The number of tasks that acquire and release locks: they ask for more connections than the pool has.
const CALLERS: usize = 16;

/// The time within which calls must end that do not wait for a lock. A release waits for 6 s and a shutdown for 15 s; the
/// driver looks for a server for 30 s.
const ENDS: Duration = Duration::from_secs(22);

/// Tasks that ask for more connections than the pool has.
fn callers(provider: &LockProvider) -> Callers {
    let locks = (0..CALLERS).map(|number| provider.lock(format!("busy:{number}")).acquire_timeout(AMPLE));
    Callers::start(locks, Duration::from_millis(5))
}

/// Keeps new connections out for this time, beside leases and calls that ask for more connections than there are. No lease is
/// lost, and the longest acquire is shorter than the limit.
async fn keep_out_for(time: Duration, keep_out: fn(&Proxy), limit: Duration) {
    let it = Proxied::start(SHORT).await;
    let opening = use_connections(&it.db, &it.database, WARM, Duration::from_millis(300));
    opening.await.await.unwrap();
    let guards = hold(&it.provider, 20).await;
    keep_out(&it.proxy);
    let callers = callers(&it.provider);
    sleep(time).await;
    let Calls { count, longest, .. } = callers.stop().await;
    let kept_out = it.proxy.kept_out();
    assert_eq!(lost(&guards), 0);
    assert!(kept_out > 0 && count > CALLERS, "{count}");
    assert!(longest < limit, "{longest:?}");
}

/// A provider of [`LockProvider::connect`] through a proxy.
async fn connected(options: &str, expiry: Duration) -> (TestDb, Proxy, LockProvider) {
    let db = test_db().await;
    let proxy = must(db.proxy().await);
    let uri = format!("{}{options}", proxy.uri());
    let connected = must(LockProvider::connect(uri).await);
    let builder = connected.to_builder().database(db.name());
    let provider = must(builder.expiry(expiry).build());
    warm_up(&provider).await;
    (db, proxy, provider)
}

/// The driver clears no pool because of them, and what it has goes on to be used. It repeats a command without a connection
/// after pauses of 0.6 s together, and the library after 0.25 s.
#[tokio::test]
async fn refused_connections_do_not_concern_those_of_the_pool() {
    keep_out_for(Duration::from_secs(8), Proxy::refuse_connections, SHORT).await;
}

/// A command whose new connection is silent is given up, and goes over another one. It takes 2 s, and 7 s if the request
/// waits for the end of the first one.
#[tokio::test]
async fn swallowed_connections_delay_commands_for_seconds_and_lose_no_lease() {
    keep_out_for(SHORT * 3, Proxy::swallow_connections, SHORT * 2).await;
}

/// All connections of the client are cut, and new ones are silent: calls, releases and the shutdown end in time.
#[tokio::test]
async fn nothing_hangs_while_all_connections_are_silent() {
    let (_db, proxy, provider) = connected("", SHORT).await;
    let mut guards = hold(&provider, 20).await;
    proxy.swallow_connections();
    proxy.reset_connections();
    let begun = Instant::now();
    let lock = provider.lock("free").acquire_timeout(Duration::from_secs(4));
    lock.acquire().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    let begun = Instant::now();
    drop(guards.pop().unwrap().release().await);
    drop(guards);
    provider.shutdown().await;
    assert!(begun.elapsed() < ENDS, "{:?}", begun.elapsed());
}

/// The longest time for which the driver looks for a server is `connectTimeoutMS`, because its monitoring has met the
/// silence as well. The renewal is sent again as soon as there is a connection.
#[tokio::test]
async fn a_renewal_is_sent_again_when_the_driver_has_given_the_silent_connection_up() {
    let expiry = Duration::from_secs(8);
    let (_db, proxy, provider) = connected("&connectTimeoutMS=1000", expiry).await;
    let guards = hold(&provider, 3).await;
    proxy.swallow_connections();
    proxy.reset_connections();
    let begun = Instant::now();
    // The driver opens a connection at once.
    sleep(Duration::from_secs(1)).await;
    proxy.accept_connections();
    assert_free(&provider, "next").await;
    let works_again = begun.elapsed();
    assert!(works_again < Duration::from_secs(7), "{works_again:?}");
    sleep((expiry + expiry / 2).saturating_sub(works_again)).await;
    assert_eq!(lost(&guards), 0);
}

/// Silent connections stay in the pool of the driver for good, and two of them keep it from opening others. When an error
/// has then closed those that worked, a client with the driver's `maxConnecting` of 2 has none any more, while that of
/// [`LockProvider::connect`] goes on.
#[tokio::test]
async fn silent_connections_do_not_stop_a_client_of_connect() {
    let (_db, proxy, provider) = connected("", DEFAULT_EXPIRY).await;
    let guards = hold(&provider, 3).await;
    proxy.swallow_connections();
    let callers = callers(&provider);
    sleep(Duration::from_secs(3)).await;
    proxy.accept_connections();
    let cut = proxy.inject(Fault::drop_reply().command(Purpose::Acquire));
    must(cut.happened(AMPLE).await);
    assert_free(&provider, "again").await;
    assert!(proxy.kept_out() >= 2, "{}", proxy.kept_out());
    let Calls { longest, .. } = callers.stop().await;
    assert!(longest < BEFORE_EXPIRY, "{longest:?}");
    assert_eq!(lost(&guards), 0);
}

/// A fifth of the commands cut their connections, each of which clears the pool of the driver.
#[tokio::test]
async fn connections_that_are_cut_lose_no_lease_and_leave_no_lock_held() {
    const PART: f64 = 0.2;
    // Few commands get through: a lease must last for more than one of them, also on a busy machine.
    const EXPIRY: Duration = Duration::from_secs(6);
    let db = test_db().await;
    let provider = with_expiry(db.database(), EXPIRY);
    warm_up(&provider).await;
    let guards = hold(&provider, 50).await;
    let point = FailPoint::on(&["update", "findAndModify", "find"]).part(PART);
    let point = fail(&db, point.close_connection()).await;
    let locks = (0..CALLERS).map(|number| {
        let lock = provider.lock(format!("busy:{number}")).expiry(LONG_EXPIRY);
        lock.acquire_timeout(AMPLE)
    });
    let callers = Callers::start(locks, Duration::ZERO);
    sleep(EXPIRY * 2).await;
    let lost = lost(&guards);
    must(point.clear().await);
    let Calls { count, .. } = callers.stop().await;
    drop(guards);
    let begun = Instant::now();
    let rival = LockProvider::new(db.database());
    for number in 0..CALLERS {
        assert_free(&rival, &format!("busy:{number}")).await;
    }
    assert_eq!(lost, 0);
    assert!(count > 0);
    // A release that gets no reply is sent again at once, and then after 10 s.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}
