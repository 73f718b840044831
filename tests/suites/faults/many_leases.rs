//! A process with many leases, on a server that is slow, whose connections are in use, or that limits the rate of requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::doc;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongolock::LockProvider;
use mongolock_tests::{BEFORE_EXPIRY, FailPoint, Purpose, must, stable_options, test_db, with_parameter};
use tokio::time::{Instant, sleep, timeout};

use crate::callers::{LEASE, hold, hold_all, lost, release_all, use_connections};
use crate::{assert_free, connect, fail, warm_up};

/// The number of locks, each with an expiry of its own.
const LOCKS: u64 = 100;

/// The shortest expiry; each further one is a millisecond longer.
const SHORTEST: Duration = Duration::from_secs(10);

/// The number of commands of one provider that may be in flight: the pool has ten connections. Beside them there may be one
/// renewal.
const MOST_IN_FLIGHT: usize = 8;

/// What a client sends.
#[derive(Default)]
struct Sent {
    /// The writes in flight, and whether they are renewals.
    in_flight: HashMap<i32, bool>,
    /// The greatest number of them without one renewal.
    most: usize,
    /// The number of statements in each renewal.
    renewals: Vec<usize>,
}

impl Sent {
    fn note(&mut self, event: &CommandEvent) {
        match event {
            CommandEvent::Started(sent) if ["findAndModify", "update"].contains(&&*sent.command_name) => {
                let is_renewal = Purpose::of(&sent.command) == Some(Purpose::Renew);
                self.in_flight.insert(sent.request_id, is_renewal);
                let has_renewal = self.in_flight.values().any(|is_renewal| *is_renewal);
                self.most = (self.in_flight.len() - usize::from(has_renewal)).max(self.most);
                if is_renewal {
                    // A lease that is renewed alone has a command without statements.
                    self.renewals
                        .push(sent.command.get_array("updates").map_or(1, Vec::len));
                }
            }
            CommandEvent::Succeeded(ended) => _ = self.in_flight.remove(&ended.request_id),
            CommandEvent::Failed(ended) => _ = self.in_flight.remove(&ended.request_id),
            _ => {}
        }
    }
}

/// B9: leases of different expiries are renewed with one command for up to 500 of them, which has a statement for each expiry:
/// 30 commands would be sent in each second otherwise, and take 15 s of one connection. So a server that needs 500 ms for each
/// command renews them all, and no more commands are in flight than the pool has connections, without two, and one more for a
/// renewal.
#[tokio::test]
async fn leases_of_different_expiries_survive_a_slow_server() {
    let db = test_db().await;
    let sent = Arc::new(Mutex::new(Sent::default()));
    let noting = Arc::clone(&sent);
    let mut options = must(stable_options(db.uri()).await);
    options.app_name = Some(db.name().to_owned());
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        noting.lock().unwrap_or_else(PoisonError::into_inner).note(&event);
    }));
    let provider = LockProvider::new(&Client::with_options(options).unwrap().database(db.name()));
    let slow = FailPoint::on(&["update", "findAndModify"])
        .always()
        .block(Duration::from_millis(500));
    let _point = fail(&db, slow).await;
    let expiries = (0..LOCKS).map(|number| SHORTEST + Duration::from_millis(number));
    let locks = expiries.map(|expiry| provider.lock(format!("{expiry:?}")).expiry(expiry));
    let mut guards = hold_all(locks).await;
    sleep(SHORTEST * 3 / 2).await;
    assert_eq!(lost(&guards), 0);
    let renewals = std::mem::take(&mut sent.lock().unwrap().renewals);
    // Every lease was renewed at least three times.
    assert!(renewals.iter().sum::<usize>() >= 3 * guards.len(), "{renewals:?}");
    assert!(renewals.len() <= 60, "{renewals:?}");
    release_all(guards.split_off(guards.len() - 20)).await;
    drop(guards);
    provider.shutdown().await;
    let most = sent.lock().unwrap().most;
    assert!((2..=MOST_IN_FLIGHT).contains(&most), "{most}");
}

/// The application uses all connections of its client for three times as long as a lease lasts, and longer than a request waits
/// for its reply. The client of [`LockProvider::connect`] keeps the leases and serves calls. A call on the application's client
/// ends at its limit, and its error says where to look. The calls that have waited meanwhile go on at once when it has ended:
/// the pool then serves no entries of commands that were given up.
#[tokio::test]
async fn a_client_of_connect_keeps_the_leases_while_the_pool_of_the_application_is_used_up() {
    let db = test_db().await;
    let database = connect(db.uri(), db.name()).await;
    let shared = LockProvider::new(&database);
    let connected = LockProvider::connect(db.uri()).await.unwrap();
    let expiry = Duration::from_secs(3);
    let builder = connected.to_builder().database(db.name());
    let provider = builder.expiry(expiry).build().unwrap();
    warm_up(&shared).await;
    warm_up(&provider).await;
    let guards = hold(&provider, 20).await;
    let pings = use_connections(&db, &database, 10, expiry * 3).await;
    sleep(Duration::from_millis(500)).await;
    let waiting = (0..60).map(|number| shared.lock(format!("waits:{number}")));
    let waiting = tokio::spawn(hold_all(waiting.collect::<Vec<_>>().into_iter()));
    let begun = Instant::now();
    let lock = shared.lock("free").acquire_timeout(Duration::from_secs(2));
    let error = lock.acquire().await.unwrap_err();
    assert!(begun.elapsed() < expiry * 2, "{:?}", begun.elapsed());
    assert!(error.to_string().starts_with("MongoDB did not answer"), "{error}");
    let help = error.help();
    assert!(help.contains("connections of the pool"), "{help}");
    assert_free(&provider, "free").await;
    pings.await.unwrap();
    let acquired = timeout(BEFORE_EXPIRY, waiting).await;
    acquired.expect("the calls are served at once").unwrap();
    assert_eq!(lost(&guards), 0);
}

/// B9: a server that limits the rate of requests, and exempts an application name
/// (`ingressRequestRateLimiterApplicationExemptions` of MongoDB 8.2). Here a fail point rejects the commands of the other
/// application name for twice as long as a lease lasts. The client of [`LockProvider::connect`], which has an application name
/// of its own, keeps the leases, serves calls, and releases the locks of dropped guards.
#[tokio::test]
async fn an_exempt_client_of_connect_keeps_all_leases() {
    let expiry = Duration::from_secs(4);
    let db = test_db().await;
    let application = connect(db.uri(), db.name()).await;
    let exempt = LockProvider::connect(with_parameter(db.uri(), "appName=exempt"));
    let builder = exempt.await.unwrap().to_builder().database(db.name());
    let provider = builder.expiry(expiry).build().unwrap();
    warm_up(&provider).await;
    let guards = hold(&provider, 100).await;
    let limit = FailPoint::rejecting(&["update", "findAndModify", "find", "aggregate", "getMore", "ping"]);
    let point = fail(&db, limit.always()).await;
    application.run_command(doc! { "ping": 1 }).await.unwrap_err();
    assert_free(&provider, "free").await;
    sleep(expiry * 2).await;
    assert_eq!(lost(&guards), 0);
    drop(guards);
    for number in [0, 50, 99] {
        assert_free(&provider, &format!("{LEASE}{number}")).await;
    }
    must(point.clear().await);
}
