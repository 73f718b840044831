//! A client of the application that `LockProvider::observe` has prepared: its errors are as clear as those of
//! `LockProvider::connect`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongodb::Client;
use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use mongodb::event::sdam::SdamEvent;
use mongodb::options::ClientOptions;
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, Server, ServerOptions, eventually, must, recorded, shared, test_db};
use tokio::time::{Instant, timeout};

use crate::{assert_free, closed_address};

/// The time in which a call that tries once must have failed. The library promises 2 s; without that promise it takes the
/// 10 s of a single try.
const PROMPT: Duration = Duration::from_secs(6);

async fn options(uri: &str) -> ClientOptions {
    ClientOptions::parse(uri).await.unwrap()
}

/// A provider on an own client that is observed.
fn observed(mut options: ClientOptions) -> LockProvider {
    let observation = LockProvider::observe(&mut options);
    let database = Client::with_options(options).unwrap().database("app");
    let builder = LockProvider::builder(&database).observation(&observation);
    builder.build().unwrap()
}

async fn error_of_a_try(provider: &LockProvider) -> LockError {
    let begun = Instant::now();
    let error = provider.lock("free").try_acquire().await.unwrap_err();
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    error
}

/// Providers that are made from it say it as well.
#[tokio::test]
async fn an_observed_client_names_the_address_and_the_reason() {
    let address = closed_address();
    let provider = observed(options(&format!("mongodb://{address}/")).await);
    let other = provider.to_builder().collection("other").build().unwrap();
    for provider in [&provider, &other] {
        let text = format!("MongoDB at {address} cannot be reached: Connection refused");
        assert_eq!(error_of_a_try(provider).await.to_string(), text);
        let health = provider.health().await;
        assert_eq!(health.error.unwrap().to_string(), text);
    }
}

#[tokio::test]
async fn an_observed_client_says_that_the_log_in_was_refused() {
    let server = Server::start(ServerOptions::single().auth()).await.unwrap();
    let wrong = server.uri().replace("root:secret@", "root:wrong@");
    let provider = observed(options(&wrong).await);
    for _ in 0..8 {
        let lock = provider.lock("closed").acquire_timeout(AMPLE);
        let error = lock.acquire().await.unwrap_err();
        assert_eq!(error.to_string(), "MongoDB refused the login");
    }
}

/// The application's own handlers, of each kind, go on to get the events.
#[tokio::test]
async fn the_handlers_of_the_application_are_kept() {
    let server = shared().await.unwrap();
    let mut options = options(server.uri()).await;
    let called = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&called);
    options.sdam_event_handler = Some(EventHandler::<SdamEvent>::async_callback(move |_| {
        let counter = Arc::clone(&counter);
        Box::pin(async move {
            counter.fetch_add(1, Ordering::Relaxed);
        })
    }));
    // The driver waits for no receiver, so that even a channel of one gets all events.
    let (sender, mut events) = tokio::sync::mpsc::channel::<CmapEvent>(1);
    options.cmap_event_handler = Some(sender.into());
    let provider = observed(options);
    assert_free(&provider, "observed:handlers").await;
    let is_called = async || (called.load(Ordering::Relaxed) > 0).then_some(());
    must(eventually(AMPLE, "an event for the callback", is_called).await);
    let ready = async {
        while let Some(event) = events.recv().await {
            if matches!(event, CmapEvent::ConnectionReady(_)) {
                return;
            }
        }
        panic!("the channel has ended");
    };
    timeout(AMPLE, ready).await.expect("an event for the channel");
}

#[tokio::test]
async fn a_wrong_set_name_is_reported_with_the_right_one() {
    let shared = shared().await.unwrap();
    let server = shared.server().expect("fault tests need a server of their own");
    let address = server.node().address();
    let text = format!(
        "MongoDB at {address} belongs to the replica set `mongolock`; the connection string names `other`"
    );
    for parameters in ["replicaSet=other", "replicaSet=other&directConnection=true"] {
        let uri = format!("mongodb://{address}/app?{parameters}");
        let connected = LockProvider::connect(&uri).await.unwrap();
        for provider in [connected, observed(options(&uri).await)] {
            let begun = Instant::now();
            // It cannot pass, so that a call which waits ends as well.
            let lock = provider.lock("elsewhere").acquire_timeout(AMPLE);
            let error = lock.acquire().await.unwrap_err();
            assert_eq!(error.to_string(), text);
            assert!(error.help().contains("`replicaSet`"), "{}", error.help());
            assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
            assert_eq!(error_of_a_try(&provider).await.to_string(), text);
            assert_eq!(provider.health().await.error.unwrap().to_string(), text);
        }
    }
}

#[tokio::test]
async fn a_server_without_a_set_is_named_as_such() {
    let server = Server::start(ServerOptions::standalone()).await.unwrap();
    let address = server.node().address();
    let uri = format!("mongodb://{address}/app?replicaSet=other");
    let provider = LockProvider::connect(&uri).await.unwrap();
    let error = error_of_a_try(&provider).await;
    let text = format!("MongoDB at {address} belongs to no replica set; the connection string names `other`");
    assert_eq!(error.to_string(), text);
}

/// One host without a set beside the right ones is no failure.
#[tokio::test]
async fn a_host_without_a_set_fails_nothing() {
    let other = Server::start(ServerOptions::standalone()).await.unwrap();
    let shared = shared().await.unwrap();
    let server = shared.server().expect("fault tests need a server of their own");
    let hosts = format!("{},{}", other.node().address(), server.node().address());
    let uri = format!("mongodb://{hosts}/app?replicaSet=mongolock");
    let provider = LockProvider::connect(&uri).await.unwrap();
    for round in 0..3 {
        assert_free(&provider, &format!("observed:seed:{round}")).await;
    }
}

#[tokio::test]
async fn a_provider_made_from_another_one_keeps_its_clients_and_its_owner() {
    let db = test_db().await;
    let (background, commands) = recorded(&db, &[]).await;
    let connected = LockProvider::connect(db.uri()).await.unwrap();
    let builder = connected.to_builder().database(db.name()).owner("anna");
    let first = builder.background_client(background.client().clone()).build();
    let second = first.unwrap().to_builder().collection("other");
    let second = second.renew_interval(Duration::from_millis(100)).build().unwrap();
    let guard = second.lock("kept").await.unwrap();
    let info = second.admin().get("kept").await.unwrap().expect("it is held");
    assert_eq!(info.owner.as_deref(), Some("anna"));
    commands.until_sent("update").await;
    guard.release().await.unwrap();
    assert_eq!(
        commands.count("findAndModify"),
        0,
        "acquires use the other client"
    );
    // The last provider of a client shuts it down, and no other one.
    second.shutdown().await;
    assert_free(&connected, "observed:kept").await;
}
