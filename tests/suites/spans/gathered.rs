//! A command for several calls has a span of its own, with links to the spans of the callers.

use std::collections::HashSet;
use std::sync::Arc;

use mongolock::{LockGuard, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, eventually, must};
use opentelemetry::context::FutureExt;
use opentelemetry::trace::{SpanId, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, Value};
use opentelemetry_sdk_of_driver::trace::SpanData;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::{GLOBAL, Spans, Traced, command};

/// The largest number of links of a span.
const MOST_LINKS: usize = 32;

/// The number of calls at once, far more than the commands that a provider has in flight.
const CALLS: usize = 200;

fn value<'a>(span: &'a SpanData, key: &str) -> Option<&'a Value> {
    let mut attributes = span.attributes.iter();
    attributes
        .find(|attribute| attribute.key.as_str() == key)
        .map(|attribute| &attribute.value)
}

fn requests(span: &SpanData) -> usize {
    match value(span, "requests") {
        Some(Value::I64(requests)) => usize::try_from(*requests).unwrap(),
        other => panic!("{other:?} requests"),
    }
}

/// The spans of commands for several of these callers, of this kind.
fn gathered(kind: &str, callers: &HashSet<SpanId>) -> Vec<SpanData> {
    let mut spans = GLOBAL.ended();
    let links_to = |span: &SpanData| {
        let mut links = span.links.links.iter();
        links.all(|link| callers.contains(&link.span_context.span_id()))
    };
    spans.retain(|span| span.name == "mongolock.gathered" && !span.links.links.is_empty() && links_to(span));
    spans.retain(|span| value(span, "command") == Some(&Value::from(kind.to_owned())));
    spans
}

/// Each of these spans is a root, has its links, and has commands of this name below it.
fn assert_good(spans: &Spans, gathered: &[SpanData], name: &str) {
    for span in gathered {
        let requests = requests(span);
        assert!(requests > 1, "{span:?}");
        assert_eq!(span.links.links.len(), requests.min(MOST_LINKS), "{span:?}");
        assert_eq!(span.parent_span_id, SpanId::INVALID, "{span:?}");
        let below = spans.of_commands();
        let below = below
            .iter()
            .filter(|sent| spans.is_below(sent, span.span_context.span_id()));
        let below: Vec<_> = below.filter_map(command).collect();
        assert!(below.iter().any(|sent| sent == name), "{below:?} below {span:?}");
    }
}

/// Begins these calls at once, each by a task of its own in a span of its own.
fn begin<T: Send + 'static>(
    spans: &Spans,
    calls: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> (HashSet<SpanId>, JoinSet<T>) {
    let calls: Vec<_> = calls.collect();
    let together = Arc::new(Barrier::new(calls.len()));
    let (mut callers, mut tasks) = (HashSet::new(), JoinSet::new());
    for call in calls {
        let context = Context::current_with_span(spans.tracer().start("caller"));
        callers.insert(context.span().span_context().span_id());
        let together = Arc::clone(&together);
        let calling = async move {
            together.wait().await;
            call.await
        };
        tasks.spawn(calling.with_context(context));
    }
    (callers, tasks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_releases_that_gather_link_to_their_callers() {
    let _ = &*GLOBAL;
    let traced = Traced::new().await;
    let spans = &traced.spans;
    let acquire = |number| {
        let lock = traced.provider.lock(number);
        async move { lock.acquire().await.unwrap() }
    };
    let release = |guard: LockGuard| async move { guard.release().await.unwrap() };
    // Which requests go together is a matter of time; some of so many do.
    let until = Instant::now() + AMPLE;
    let (mut most_claims, mut most_releases) = (0, 0);
    while most_claims <= MOST_LINKS || most_releases < 2 {
        assert!(Instant::now() < until, "{most_claims} and {most_releases}");
        let (callers, calls) = begin(spans, (0..CALLS).map(acquire));
        let guards = calls.join_all().await;
        let claims = gathered("acquire", &callers);
        assert_good(spans, &claims, "update");
        most_claims = claims.iter().map(requests).fold(most_claims, usize::max);
        let (callers, calls) = begin(spans, guards.into_iter().map(release));
        calls.join_all().await;
        let releases = gathered("release", &callers);
        assert_good(spans, &releases, "update");
        most_releases = releases.iter().map(requests).fold(most_releases, usize::max);
    }
    let (all, shared) = (spans.ended(), GLOBAL.ended());
    for made in all.iter().filter(|span| span.name != "caller") {
        let is_parent = |span: &SpanData| span.span_context.span_id() == made.parent_span_id;
        assert!(
            all.iter().chain(&shared).any(is_parent),
            "without a parent: {made:?}"
        );
    }
}

/// One query looks at the locks of several waiters. The span of one that has failed says so.
#[tokio::test]
async fn looks_link_to_the_waiters() {
    const WAITERS: usize = 10;
    // The code of `LockBusy`, after which the library repeats the query, and the driver does not.
    const LOCK_BUSY: i32 = 46;
    let _ = &*GLOBAL;
    let traced = Traced::new().await;
    let rival = LockProvider::new(traced.db.database());
    let mut held = Vec::new();
    for number in 0..WAITERS {
        held.push(rival.lock(number).await.unwrap());
    }
    let builder = LockProvider::builder(&traced.database).wake_up(false);
    let provider = builder.acquire_timeout(AMPLE).build().unwrap();
    let failing = FailPoint::on(&["find"]).always().error_code(LOCK_BUSY);
    let failing = must(failing.enable_for(&traced.db).await);
    let wait = |number| {
        let lock = provider.lock(number);
        async move { lock.acquire().await.unwrap().release().await.unwrap() }
    };
    let (callers, calls) = begin(&traced.spans, (0..WAITERS).map(wait));
    let found = |has_failed: bool| {
        let mut looks = gathered("look", &callers).into_iter();
        looks.find(|look| matches!(look.status, Status::Error { .. }) == has_failed)
    };
    let failed = must(eventually(AMPLE, "a look that fails", || async { found(true) }).await);
    assert_eq!(
        value(&failed, "error.type"),
        Some(&Value::from(LOCK_BUSY.to_string()))
    );
    must(failing.clear().await);
    must(eventually(AMPLE, "a look", || async { found(false) }).await);
    for guard in held {
        guard.release().await.unwrap();
    }
    calls.join_all().await;
    assert_good(&traced.spans, &gathered("look", &callers), "find");
}

/// Guards that are dropped together are released with one command.
#[tokio::test]
async fn releases_in_the_background_link_to_their_callers() {
    const GUARDS: usize = 5;
    let _ = &*GLOBAL;
    let traced = Traced::new().await;
    let mut guards = Vec::new();
    for number in 0..GUARDS {
        guards.push(traced.provider.lock(number).await.unwrap());
    }
    // No other task runs until all are dropped.
    let mut callers = HashSet::new();
    for guard in guards {
        let context = Context::current_with_span(traced.spans.tracer().start("caller"));
        callers.insert(context.span().span_context().span_id());
        let _attached = context.attach();
        drop(guard);
    }
    let released = || async { Some(gathered("release", &callers)).filter(|found| !found.is_empty()) };
    let found = must(eventually(AMPLE, "the release", released).await);
    assert_eq!(found.iter().map(requests).collect::<Vec<_>>(), [GUARDS]);
    assert_good(&traced.spans, &found, "update");
}
