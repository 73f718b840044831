//! What the library sends by itself has no spans.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongolock::LockProvider;
use mongolock_tests::{AMPLE, Commands, eventually, must, names};
use opentelemetry_sdk_of_driver::trace::SpanData;
use tokio::time::{Instant, sleep};

use crate::{Spans, Traced, command, database};

/// The time without a call.
const IDLE: Duration = Duration::from_secs(8);

/// The collection of the documents of waiters.
const WAITERS: &str = "distributed_locks.waiters";

/// The number of commands on the documents of waiters.
fn on_waiters(commands: &Commands) -> usize {
    let is_one = |sent: &&Document| sent.values().next().and_then(Bson::as_str) == Some(WAITERS);
    commands.all().iter().filter(is_one).count()
}

/// One process holds locks with short leases, and another one waits for one of them, with a stream and a place in line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_streams_lines_and_checks_have_no_span() {
    let traced = Traced::new().await;
    let holder = traced.provider.to_builder().expiry(Duration::from_secs(2));
    let holder = holder.build().unwrap();
    let mut held = Vec::new();
    for number in 0..20 {
        held.push(holder.lock(number).await.unwrap());
    }
    let awaited = holder.lock("awaited").await.unwrap();

    let spans_of_waiter = Spans::new();
    let (through, sent_by_waiter) = database(&traced.db, &spans_of_waiter).await;
    let waiter = LockProvider::builder(&through).acquire_timeout(AMPLE);
    let waiter = waiter.build().unwrap();
    let lock = waiter.lock("awaited");
    let waiting = spans_of_waiter.call(async { lock.acquire().await?.release().await });
    let idling = async {
        sent_by_waiter.until_sent("getMore").await;
        let stands = || async {
            let documents = traced.db.database().collection::<Document>(WAITERS);
            (documents.count_documents(doc! {}).await.ok()? == 1).then_some(())
        };
        must(eventually(AMPLE, "a place in line", stands).await);
        traced.spans.exporter.reset();
        traced.commands.clear();
        let begun = Instant::now();
        while begun.elapsed() < IDLE {
            assert!(holder.health().await.is_reachable);
            assert!(holder.is_ready().await);
            sleep(Duration::from_millis(500)).await;
        }
        let (sent, spans) = (traced.commands.all(), traced.spans.ended());
        assert!(spans.is_empty(), "{spans:#?}");
        let count = |command| names(&sent).iter().filter(|sent| **sent == command).count();
        assert!(count("update") >= 10, "renewals: {:?}", names(&sent));
        assert!(count("hello") >= 8, "health: {:?}", names(&sent));
        awaited.release().await.unwrap();
    };
    let ((caller, acquired), ()) = tokio::join!(waiting, idling);
    acquired.unwrap();
    assert!(sent_by_waiter.count("getMore") >= 4);
    assert!(on_waiters(&sent_by_waiter) >= 2);
    // The driver ends the cursor of the stream with a command on a task of its own.
    waiter.shutdown().await;
    sent_by_waiter.until_sent("killCursors").await;
    let ended = || async {
        let spans = spans_of_waiter.of_commands();
        let is_last = |span: &SpanData| command(span).as_deref() == Some("killCursors");
        spans.iter().any(is_last).then_some(spans)
    };
    let spans = must(eventually(AMPLE, "the last span", ended).await);
    let (of_calls, others): (Vec<_>, Vec<_>) = spans
        .into_iter()
        .partition(|span| spans_of_waiter.is_below(span, caller));
    let others: Vec<_> = others.iter().filter_map(command).collect();
    assert_eq!(others, ["killCursors"]);
    let of_calls: Vec<_> = of_calls.iter().filter_map(command).collect();
    let claims = sent_by_waiter.count("findAndModify");
    assert_eq!(of_calls.len(), claims + 1, "{of_calls:?}");
    assert_eq!(of_calls.last().map(String::as_str), Some("update"));
}
