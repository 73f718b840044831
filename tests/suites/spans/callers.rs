//! The spans of commands that calls send.

use std::collections::BTreeSet;
use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{LockError, LockFilter};
use mongolock_tests::{AMPLE, FailPoint, eventually, must, names};
use opentelemetry::Context;
use opentelemetry::context::FutureExt;
use opentelemetry::trace::{SpanId, TraceContextExt, Tracer};
use tracing::Instrument;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

use crate::{Spans, Traced, command};

/// How an application makes its spans.
#[derive(Debug, Clone, Copy, PartialEq)]
enum World {
    /// With OpenTelemetry alone.
    Plain,
    /// With `tracing`, also for the spans of mongolock.
    Tracing,
    /// With `tracing`, without the spans of mongolock.
    TracingInfo,
    /// With `tracing`, and with a span of OpenTelemetry inside, which is the caller's.
    Both,
}

const WORLDS: [World; 4] = [World::Plain, World::Tracing, World::TracingInfo, World::Both];

impl World {
    /// The subscriber of the application, for this thread.
    fn subscribe(self, spans: &Spans) -> Option<DefaultGuard> {
        let level = match self {
            Self::Plain => return None,
            Self::TracingInfo => LevelFilter::INFO,
            Self::Tracing | Self::Both => LevelFilter::DEBUG,
        };
        let layer = tracing_opentelemetry::layer().with_tracer(spans.tracer());
        let registry = tracing_subscriber::registry().with(level).with(layer);
        Some(tracing::subscriber::set_default(registry))
    }

    /// Runs this work in a span of a caller, and returns the id of that span.
    async fn call(self, spans: &Spans, work: impl Future<Output = Result<(), LockError>>) -> SpanId {
        let outer = tracing::info_span!("caller");
        if [Self::Plain, Self::Both].contains(&self) {
            let (caller, done) = spans.call(work).instrument(outer).await;
            done.unwrap();
            return caller;
        }
        let id = outer.context().span().span_context().span_id();
        work.instrument(outer).await.unwrap();
        id
    }
}

/// Runs this work in each world. It sends these commands, and each of them has a span below that of the caller.
async fn assert_below_caller(expected: &[&str], work: impl AsyncFn(&Traced) -> Result<(), LockError>) {
    for world in WORLDS {
        let traced = Traced::new().await;
        assert_below_caller_in(world, &traced, expected, work(&traced)).await;
    }
}

async fn assert_below_caller_in(
    world: World,
    traced: &Traced,
    expected: &[&str],
    work: impl Future<Output = Result<(), LockError>>,
) {
    let Traced { spans, commands, .. } = traced;
    let subscriber = world.subscribe(spans);
    let caller = world.call(spans, work).await;
    drop(subscriber);
    // Some commands of a call have their replies after its end.
    let ended = || async { (spans.of_commands().len() >= expected.len()).then_some(()) };
    must(eventually(AMPLE, "the spans of the commands", ended).await);
    let sent = commands.all();
    let mut sent = names(&sent);
    // The TTL index is checked at the first acquire of a provider.
    sent.retain(|command| !["listIndexes", "listCollections"].contains(command));
    assert_eq!(sent, expected, "{world:?}");
    let made: BTreeSet<String> = spans.of_commands().iter().filter_map(command).collect();
    let expected_once: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    assert_eq!(made, expected_once, "{world:?}");
    let all = spans.ended();
    assert_eq!(spans.of_commands().len(), expected.len(), "{world:?}: {all:#?}");
    for span in spans.of_commands() {
        assert!(spans.is_below(&span, caller), "{world:?}: {span:?} in {all:#?}");
    }
}

/// A call in each world has its span of mongolock between those of the caller and of the driver, where the application wants it.
#[tokio::test]
async fn the_span_of_mongolock_is_between_the_callers_and_the_drivers() {
    for world in WORLDS {
        let traced = Traced::new().await;
        let acquiring = async { traced.provider.lock("a").acquire().await.map(std::mem::forget) };
        assert_below_caller_in(world, &traced, &["findAndModify"], acquiring).await;
        let spans = &traced.spans;
        let all = spans.ended();
        let own = all.iter().find(|span| span.name == "mongolock.acquire");
        assert_eq!(own.is_some(), [World::Tracing, World::Both].contains(&world));
        if let Some(own) = own {
            let command = &spans.of_commands()[0];
            assert!(spans.is_below(command, own.span_context.span_id()), "{all:#?}");
        }
    }
}

#[tokio::test]
async fn acquires_and_releases() {
    assert_below_caller(&["findAndModify", "update"], async |traced| {
        traced.provider.lock("a").acquire().await?.release().await
    })
    .await;
}

#[tokio::test]
async fn copies_of_an_overdue_request_and_the_release_of_what_it_acquires() {
    // A reply is overdue after 2 s. The request takes effect after the release, so that its claim is released once more.
    let late = Duration::from_secs(3);
    let expected = ["findAndModify", "findAndModify", "update", "update"];
    for world in [World::Plain, World::Tracing] {
        let traced = Traced::new().await;
        let slow = FailPoint::on(&["findAndModify"]).times(1).block(late);
        let slow = must(slow.enable_for(&traced.db).await);
        let holding = async { traced.provider.lock("a").acquire().await?.release().await };
        assert_below_caller_in(world, &traced, &expected, holding).await;
        must(slow.clear().await);
    }
}

#[tokio::test]
async fn marks_of_work_that_is_done() {
    assert_below_caller(&["findAndModify", "findAndModify"], async |traced| {
        traced.provider.lock("a").once().acquire().await?.done().await
    })
    .await;
}

#[tokio::test]
async fn sets() {
    assert_below_caller(&["update", "find", "update"], async |traced| {
        let set = traced.provider.lock_all(["a", "b"]);
        set.acquire().await?.release().await
    })
    .await;
}

#[tokio::test]
async fn permits() {
    assert_below_caller(&["findAndModify", "update"], async |traced| {
        traced.provider.semaphore("a", 3).acquire().await?.release().await
    })
    .await;
}

/// The driver has a span for the transaction, below that of the caller.
#[tokio::test]
async fn guarded_commits() {
    let expected = ["findAndModify", "insert", "update", "commitTransaction", "update"];
    assert_below_caller(&expected, async |traced| {
        let guard = traced.provider.lock("a").acquire().await?;
        let mut session = traced.database.client().start_session().await?;
        session.start_transaction().await?;
        let accounts = traced.database.collection("accounts");
        accounts.insert_one(doc! {}).session(&mut session).await?;
        guard.context().commit(&mut session).await?;
        guard.release().await
    })
    .await;
}

#[tokio::test]
async fn requests_of_operators() {
    let expected = ["find", "find", "find"];
    assert_below_caller(&expected, async |traced| {
        let admin = traced.provider.admin();
        assert!(admin.get("a").await?.is_none());
        assert!(admin.list(LockFilter::default()).await?.is_empty());
        assert!(!admin.force_release("a").await?);
        Ok(())
    })
    .await;
}

/// The release of a dropped guard is sent by a task of the provider.
#[tokio::test]
async fn a_dropped_guard_is_released_below_the_span_in_which_it_was_dropped() {
    for world in WORLDS {
        let traced = Traced::new().await;
        let guard = traced.provider.lock("a").acquire().await.unwrap();
        traced.spans.exporter.reset();
        traced.commands.clear();
        let dropping = async {
            drop(guard);
            Ok(())
        };
        assert_below_caller_in(world, &traced, &["update"], dropping).await;
    }
}

/// With one thread for the calls and others for the tasks of the library.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_on_many_threads() {
    let traced = Traced::new().await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..20 {
        let lock = traced.provider.lock(number);
        let context = Context::current_with_span(traced.spans.tracer().start("caller"));
        calls.spawn(async move {
            let holding = async { lock.acquire().await?.release().await };
            holding.with_context(context).await
        });
    }
    for ended in calls.join_all().await {
        ended.unwrap();
    }
    let spans = traced.spans.ended();
    let (roots, below): (Vec<_>, Vec<_>) = spans
        .iter()
        .partition(|span| span.parent_span_id == SpanId::INVALID);
    let is_known = |name: &str| ["caller", "mongolock.gathered"].contains(&name);
    assert!(roots.iter().all(|span| is_known(&span.name)));
    assert_eq!(roots.iter().filter(|span| span.name == "caller").count(), 20);
    assert!(below.len() >= 4, "acquire requests and releases may gather");
}
