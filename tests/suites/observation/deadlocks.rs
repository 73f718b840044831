//! The event of a deadlock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, eventually, must, test_db};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tracing::instrument::WithSubscriber;

use crate::{NotedEvent, Notes, observed};

/// The greatest number of processes in a ring here.
const LONGEST: usize = 6;

/// The events of a ring of calls, which all begin to wait at the same time, and how long it took until all were there.
async fn ring(notes: &Notes, providers: Vec<LockProvider>) -> (Vec<NotedEvent>, Duration) {
    let length = providers.len();
    let (all_hold, mut calls) = (Arc::new(Barrier::new(length + 1)), JoinSet::new());
    for (number, provider) in providers.into_iter().enumerate() {
        let all_hold = Arc::clone(&all_hold);
        let next = provider
            .lock(format!("n{}", (number + 1) % length))
            .acquire_timeout(AMPLE);
        let call = async move {
            let body = async |_| {
                all_hold.wait().await;
                next.acquire().await.map(drop)
            };
            provider.lock(format!("n{number}")).run(body).await
        };
        calls.spawn(call.with_current_subscriber());
    }
    all_hold.wait().await;
    let begun = Instant::now();
    let told = || {
        let events = notes.events("mongolock.deadlock");
        async move { (events.len() >= length).then_some(()) }
    };
    must(eventually(AMPLE, "each member reports it", told).await);
    let elapsed = begun.elapsed();
    if length == LONGEST {
        // Each wait reports it once: a second event would come with the next look.
        tokio::time::sleep(Duration::from_secs(6)).await;
    }
    (notes.events("mongolock.deadlock"), elapsed)
}

fn assert_rings(events: &[NotedEvent], length: usize) {
    let circles = events.iter().map(|event| event.fields.0["circle"].clone());
    let circle = |first: usize| {
        let names: Vec<String> = (first..first + length)
            .map(|number| format!("n{}", number % length))
            .collect();
        names.join(" > ")
    };
    let expected = (0..length).map(circle).collect();
    assert_eq!(circles.collect::<BTreeSet<String>>(), expected);
    assert_eq!(events.len(), length);
    for NotedEvent { metadata, fields, .. } in events {
        let first = fields.0["circle"].split(" > ").next();
        assert_eq!(first, Some(&*fields.0["lock.name"]));
        assert_eq!(metadata.level(), &tracing::Level::WARN);
    }
}

#[test]
fn each_process_in_a_deadlock_reports_it_once() {
    for length in 2..=LONGEST {
        let notes = Notes::default();
        notes.observe(async |_| {
            let db = test_db().await;
            let providers = (0..length).map(|_| LockProvider::new(db.database())).collect();
            let (events, elapsed) = ring(&notes, providers).await;
            println!("a circle of {length} processes was reported by all after {elapsed:?}");
            assert_rings(&events, length);
        });
    }
}

#[test]
fn each_call_of_a_process_in_a_deadlock_reports_it_once() {
    let notes = Notes::default();
    notes.observe(async |provider| {
        let (events, elapsed) = ring(&notes, vec![provider; 3]).await;
        println!("a circle in one process was reported by all after {elapsed:?}");
        assert_rings(&events, 3);
    });
}

/// Calls that wait for each other in one order, for longer than the looks of a deadlock take.
#[test]
fn a_chain_reports_nothing() {
    let notes = observed(async |_| {
        let db = test_db().await;
        let [first, second] = [(); 2].map(|()| LockProvider::new(db.database()));
        let held = second.lock("c").acquire().await.unwrap();
        let middle = second
            .lock("b")
            .run(async |_| second.lock("c").acquire().await.map(drop));
        let outer = first
            .lock("a")
            .run(async |_| first.lock("b").acquire().await.map(drop));
        let releasing = async {
            tokio::time::sleep(Duration::from_secs(7)).await;
            held.release().await
        };
        let (middle, outer, released): (Result<(), LockError>, Result<(), LockError>, _) =
            tokio::join!(middle, outer, releasing);
        middle.and(outer).and(released).unwrap();
    });
    assert!(notes.events("mongolock.deadlock").is_empty());
}
