//! A process with many leases of different expiries, on a server that is slow or whose connections are in use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mongodb::bson::Document;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::{Client, Database};
use mongolock::{LockGuard, LockProvider};
use mongolock_tests::{BEFORE_EXPIRY, FailPoint, Purpose, TestDb, must, recorded, stable_options, test_db};
use tokio::time::{Instant, sleep, timeout};

use crate::callers::{hold, hold_all, lost, release_all, use_connections};
use crate::{assert_free, connect, fail, warm_up};

/// The number of locks, each with an expiry of its own.
const LOCKS: u64 = 100;

/// The shortest expiry; each further one is a millisecond longer.
const SHORTEST: Duration = Duration::from_secs(10);

/// The number of commands of one provider that may be in flight: the pool has ten connections. Beside them there may be one
/// renewal.
const MOST_IN_FLIGHT: usize = 8;

/// Acquires all locks at the same time.
async fn acquire_all(provider: &LockProvider) -> Vec<LockGuard> {
    let expiries = (0..LOCKS).map(|number| SHORTEST + Duration::from_millis(number));
    hold_all(expiries.map(|expiry| provider.lock(format!("{expiry:?}")).expiry(expiry))).await
}

/// The test's database through a client that counts the writes in flight without one renewal, and the greatest number so far.
async fn counted(db: &TestDb) -> (Database, Arc<Mutex<(HashMap<i32, bool>, usize)>>) {
    let in_flight = Arc::new(Mutex::new((HashMap::new(), 0)));
    let counting = Arc::clone(&in_flight);
    let mut options = must(stable_options(db.uri()).await);
    options.app_name = Some(db.name().to_owned());
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        let (in_flight, most) = &mut *counting.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            CommandEvent::Started(sent) if ["findAndModify", "update"].contains(&&*sent.command_name) => {
                let is_renewal = Purpose::of(&sent.command) == Some(Purpose::Renew);
                in_flight.insert(sent.request_id, is_renewal);
                let has_renewal = in_flight.values().any(|is_renewal| *is_renewal);
                *most = (in_flight.len() - usize::from(has_renewal)).max(*most);
            }
            CommandEvent::Succeeded(ended) => {
                in_flight.remove(&ended.request_id);
            }
            CommandEvent::Failed(ended) => {
                in_flight.remove(&ended.request_id);
            }
            _ => {}
        }
    }));
    let client = Client::with_options(options).unwrap();
    (client.database(db.name()), in_flight)
}

/// B9: leases of different expiries are renewed with one command for up to 500 of them, which has a statement for each
/// expiry. 30 commands would be sent in each second otherwise.
#[tokio::test]
async fn leases_of_different_expiries_are_renewed_with_one_command() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let guards = acquire_all(&LockProvider::new(&database)).await;
    commands.clear();
    sleep(SHORTEST * 2).await;
    let sent = commands.all();
    assert_eq!(lost(&guards), 0);
    let is_renewal = |command: &&Document| Purpose::of(command) == Some(Purpose::Renew);
    // A lease that is renewed alone has a command without statements.
    let leases = |command: &Document| command.get_array("updates").map_or(1, Vec::len);
    let renewals: Vec<usize> = sent.iter().filter(is_renewal).map(leases).collect();
    // Every lease was renewed at least three times.
    assert!(renewals.iter().sum::<usize>() >= 3 * guards.len(), "{renewals:?}");
    assert!(renewals.len() <= 60, "{renewals:?}");
}

/// B9: a server that needs 500 ms for each command renews them all, and no more commands are in flight than the pool has
/// connections, without two, and one more for a renewal. 30 commands in a second would take 15 s of one connection.
#[tokio::test]
async fn leases_of_different_expiries_survive_a_slow_server() {
    let db = test_db().await;
    let (database, in_flight) = counted(&db).await;
    let slow = FailPoint::on(&["update", "findAndModify"])
        .always()
        .block(Duration::from_millis(500));
    let _point = fail(&db, slow).await;
    let provider = LockProvider::new(&database);
    let mut guards = acquire_all(&provider).await;
    sleep(SHORTEST * 5 / 2).await;
    assert_eq!(lost(&guards), 0);
    let releases = guards.split_off(guards.len() - 20);
    release_all(releases).await;
    drop(guards);
    provider.shutdown().await;
    let (_, most) = &*in_flight.lock().unwrap();
    assert!((2..=MOST_IN_FLIGHT).contains(most), "{most}");
}

/// The application uses all connections of the pool for longer than a request waits for its reply. The calls that have
/// waited meanwhile go on at once when it has ended: the pool then serves no entries of commands that were given up.
#[tokio::test]
async fn a_pool_that_was_used_up_serves_the_calls_at_once() {
    let db = test_db().await;
    let database = connect(db.uri(), db.name()).await;
    let provider = LockProvider::new(&database);
    warm_up(&provider).await;
    let pings = use_connections(&db, &database, 10, Duration::from_secs(9)).await;
    sleep(Duration::from_millis(500)).await;
    let calls = tokio::spawn(async move { hold(&provider, 60).await });
    pings.await.unwrap();
    let acquired = timeout(BEFORE_EXPIRY, calls).await;
    acquired.expect("the calls are served at once").unwrap();
}

/// The application uses all connections of its client for three times as long as a lease lasts. The client of
/// [`LockProvider::connect`] keeps the leases and serves calls. A call on the application's client ends at its limit, and its
/// error says where to look.
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
    let begun = Instant::now();
    let lock = shared.lock("free").acquire_timeout(Duration::from_secs(2));
    let error = lock.acquire().await.unwrap_err();
    assert!(begun.elapsed() < expiry * 2, "{:?}", begun.elapsed());
    assert!(error.to_string().starts_with("MongoDB did not answer"), "{error}");
    assert!(
        error.help().contains("connections of the pool"),
        "{}",
        error.help()
    );
    assert_free(&provider, "free").await;
    pings.await.unwrap();
    assert_eq!(lost(&guards), 0);
}
