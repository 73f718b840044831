//! S0.17, S1.15: the events and spans of the library have the names that the documentation promises.
//!
//! Each test has a subscriber of its own. No test without one that uses the library may run in the same process, because
//! `tracing` caches for the whole process which events have a subscriber.

mod failures;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use mongolock::{FencedExt, FencingToken, LockContext, LockError, LockProvider, distributed_lock};
use mongolock_tests::{FailPoint, must, test_db};
use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber;
use tracing::{Event, Id, Instrument, Level, Metadata, Subscriber, info_span, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A layer that records events with the spans around them, and spans with their fields.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    /// The names of the spans with their fields.
    spans: Vec<(&'static str, Fields)>,
    events: Vec<NotedEvent>,
}

#[derive(Clone)]
struct NotedEvent {
    metadata: &'static Metadata<'static>,
    fields: Fields,
    /// The names of the spans around the event, the innermost first.
    within: Vec<&'static str>,
}

#[derive(Clone, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// The place of a span in the notes, which the registry keeps with the span.
#[derive(Clone, Copy)]
struct Place(usize);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Notes {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("mongolock") || metadata.target() == module_path!()
    }

    fn on_new_span(&self, span: &span::Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        span.record(&mut fields);
        let spans = &mut self.0.lock().unwrap().spans;
        let span = context.span(id).unwrap();
        span.extensions_mut().insert(Place(spans.len()));
        spans.push((span.name(), fields));
    }

    fn on_record(&self, id: &Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let Place(place) = *span.extensions().get::<Place>().unwrap();
        values.record(&mut self.0.lock().unwrap().spans[place].1);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let around = context.event_scope(event).into_iter().flatten();
        self.0.lock().unwrap().events.push(NotedEvent {
            metadata: event.metadata(),
            fields,
            within: around.map(|span| span.name()).collect(),
        });
    }
}

impl Notes {
    fn events(&self, name: &str) -> Vec<NotedEvent> {
        let mut events = self.0.lock().unwrap().events.clone();
        events.retain(|event| event.metadata.name() == name);
        events
    }

    /// Asserts that the events of this name are those of these locks, and have this level.
    #[track_caller]
    fn assert_events(&self, name: &str, level: Level, locks: &[&str]) -> Vec<NotedEvent> {
        let events = self.events(name);
        let seen = events.iter().map(|event| &*event.fields.0["lock.name"]);
        assert_eq!(seen.collect::<Vec<_>>(), locks, "{name}");
        let has_level = |event: &NotedEvent| *event.metadata.level() == level;
        assert!(events.iter().all(has_level), "{name}");
        events
    }

    fn spans(&self, name: &str) -> Vec<Fields> {
        let noted = self.0.lock().unwrap();
        let spans = noted.spans.iter().filter(|(found, _)| *found == name);
        spans.map(|(_, fields)| fields.clone()).collect()
    }

    /// Runs a scenario on a runtime of its own, so that the provider's background task reports to the same subscriber, and
    /// asserts that the message of each event begins with its name, by which operators find it in a log.
    fn observe(&self, scenario: impl AsyncFnOnce(LockProvider)) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(self.clone()), || {
            runtime.block_on(scenario(LockProvider::in_memory()).with_current_subscriber());
        });
        for NotedEvent { metadata, fields, .. } in &self.0.lock().unwrap().events {
            let message = &fields.0["message"];
            let begin = format!("{}: ", metadata.name());
            assert!(message.starts_with(&begin), "{message}");
            assert_eq!(metadata.target(), "mongolock", "{message}");
        }
    }
}

/// The notes of a scenario.
fn observed(scenario: impl AsyncFnOnce(LockProvider)) -> Notes {
    let notes = Notes::default();
    notes.observe(scenario);
    notes
}

/// A provider for the same locks that renews its leases so often.
fn renewing(provider: &LockProvider, interval: Duration) -> LockProvider {
    provider.to_builder().renew_interval(interval).build().unwrap()
}

#[test]
fn waits_and_holds_are_spans() {
    let notes = observed(async |provider| {
        let rival = provider.to_builder().owner("rival").build().unwrap();
        let often = renewing(&provider, Duration::from_millis(130));
        let lock = often.lock("seen").expiry(Duration::from_secs(10));
        let waited = rival.lock("seen");
        let held = lock.run(async |_| {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok::<_, LockError>(())
        });
        let (held, next) = tokio::join!(held, async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(waited.try_acquire().await.unwrap().is_none());
            waited.acquire().await
        });
        held.unwrap();
        next.unwrap().release().await.unwrap();
        let brief = lock.acquire_timeout(Duration::from_millis(20));
        let _busy = rival.lock("seen").await.unwrap();
        brief.acquire().await.unwrap_err();
    });
    outcomes_of_acquires(&notes);
    one_hold_of_300_ms(&notes);
    levels_of_events(&notes);
}

/// Without a change stream the pauses between two looks are drawn anew each time, from the shortest one to the longest.
#[test]
fn pauses_between_polls_have_fresh_jitter() {
    let notes = observed(async |_| {
        let db = test_db().await;
        let _held = LockProvider::new(db.database()).lock("polled").await.unwrap();
        let pause = Duration::from_millis(10)..=Duration::from_millis(90);
        let polling = LockProvider::builder(db.database()).wake_up(false);
        let polling = polling.retry_interval(pause).build().unwrap();
        let lock = polling.lock("polled").acquire_timeout(Duration::from_secs(3));
        lock.acquire().await.unwrap_err();
    });
    let waiting = notes.events("mongolock.waiting").into_iter();
    let pauses = waiting.map(|event| event.fields.0["pause_ms"].parse().unwrap());
    let mut pauses: Vec<u64> = pauses.collect();
    // The first pauses are shorter, and a busy machine makes few of them.
    assert!(pauses.len() > 15, "{pauses:?}");
    pauses.drain(..4);
    assert!(pauses.iter().all(|pause| (10..=90).contains(pause)), "{pauses:?}");
    pauses.sort_unstable();
    let least_and_most = (pauses[0], pauses[pauses.len() - 1]);
    pauses.dedup();
    let is_spread = least_and_most.0 < 50 && least_and_most.1 > 50 && pauses.len() > 5;
    assert!(is_spread, "{pauses:?}");
}

/// A set has one span for the wait and one for the body, with all names, and an event for each lock.
#[test]
fn a_set_has_all_names_in_its_spans_and_an_event_for_each() {
    let notes = observed(async |provider| {
        let set = provider.lock_all(["b", "a"]);
        let single = provider.lock("a");
        let body = set.run(async |_| single.run(async |_| Ok::<_, LockError>(())).await);
        body.await.unwrap();
    });
    let [acquire] = &notes.spans("mongolock.acquire")[..] else {
        panic!("exactly one call waited")
    };
    assert_eq!(acquire.0["lock.name"], "b");
    assert_eq!(acquire.0["lock.names"], "[\"a\", \"b\"]");
    assert_eq!(acquire.0["outcome"], "acquired");
    let [hold, inner] = &notes.spans("mongolock.hold")[..] else {
        panic!("two bodies ran")
    };
    assert_eq!(hold.0["lock.names"], "[\"a\", \"b\"]");
    assert_eq!(hold.0["lock.token"], acquire.0["lock.token"]);
    assert_eq!(inner.0["lock.name"], "a");
    assert!(!inner.0.contains_key("lock.names"));
    for event in ["mongolock.acquired", "mongolock.released"] {
        notes.assert_events(event, Level::DEBUG, &["a", "b"]);
    }
}

fn outcomes_of_acquires(notes: &Notes) {
    let spans = notes.spans("mongolock.acquire");
    let field = |name: &str| -> Vec<&str> {
        let values = spans
            .iter()
            .map(|span| span.0.get(name).map_or("", String::as_str));
        values.collect()
    };
    let outcomes = ["acquired", "busy", "acquired", "acquired", "timeout"];
    assert_eq!(field("outcome"), outcomes);
    assert_eq!(field("error.type"), ["", "busy", "", "", "timeout"]);
    assert_eq!(field("lock.name"), ["seen"; 5]);
    for span in &spans {
        assert!(span.0.contains_key("lock.owner") && span.0["waited_ms"].parse::<u64>().is_ok());
    }
}

fn one_hold_of_300_ms(notes: &Notes) {
    let [hold] = &notes.spans("mongolock.hold")[..] else {
        panic!("exactly one body ran")
    };
    assert_eq!(hold.0["outcome"], "returned");
    assert!(hold.0["held_ms"].parse::<u64>().unwrap() >= 300);
    assert!(hold.0["lock.token"].parse::<i64>().is_ok());
}

#[distributed_lock(name = "report:<id>")]
async fn report(id: u64) -> Result<(), LockError> {
    let template = LockContext::current().and_then(|context| context.template());
    assert_eq!(template, Some("report:<id>"));
    labelled(id).await
}

/// A nested call, which joins the lock and keeps its own template.
#[distributed_lock(name = "report:<nested>")]
async fn labelled(nested: u64) -> Result<(), LockError> {
    let template = LockContext::current().and_then(|context| context.template());
    assert_eq!(template, Some("report:<nested>"));
    Ok(())
}

#[test]
fn spans_have_the_template_of_the_name() {
    let notes = observed(async |provider| {
        provider.scope(report(7)).await.unwrap();
        provider.lock("plain").await.unwrap().release().await.unwrap();
    });
    let templates = |span: &str| -> Vec<(String, Option<String>)> {
        let fields = |mut span: Fields| (span.0["lock.name"].clone(), span.0.remove("lock.template"));
        notes.spans(span).into_iter().map(fields).collect()
    };
    let some = |name: &str, template: &str| (name.to_owned(), Some(template.to_owned()));
    let [outer, nested] = ["report:<id>", "report:<nested>"].map(|template| some("report:7", template));
    let plain = ("plain".to_owned(), None);
    assert_eq!(templates("mongolock.acquire"), [outer.clone(), plain]);
    assert_eq!(templates("mongolock.hold"), [outer, nested]);
}

fn levels_of_events(notes: &Notes) {
    for event in ["mongolock.acquired", "mongolock.waiting", "mongolock.released"] {
        assert_eq!(notes.events(event)[0].metadata.level(), &Level::DEBUG);
    }
    let events = &notes.0.lock().unwrap().events;
    let is_loud = events.iter().any(|event| *event.metadata.level() <= Level::INFO);
    assert!(!is_loud, "nothing is logged at info or above without a failure");
}

/// Whoever reads the events, the spans and the debug forms finds no handle in them, also where calls fail.
#[test]
fn the_text_of_a_handle_is_in_no_event_and_no_span() {
    let mut texts = Vec::new();
    let notes = observed(async |provider| {
        let hour = Duration::from_secs(3600);
        for names in [vec!["a"], vec!["a", "b"]] {
            let guard = provider.lock_all(names).await.unwrap();
            let detaching = guard.detach(hour).owner("session:1");
            let seen = format!("{detaching:?}");
            let handle = detaching.await.unwrap();
            let other = LockProvider::in_memory();
            let errors = [
                other.resume(&handle).await.unwrap_err(),
                provider.resume_permit(&handle).await.unwrap_err(),
            ];
            provider.extend(&handle, hour).await.unwrap();
            let guard = provider.resume(&handle).await.unwrap();
            let lost = provider.resume(&handle).await.unwrap_err();
            let again = guard.detach(hour).await.unwrap();
            assert!(provider.release(&again).await.unwrap());
            let seen = format!("{seen} {errors:?} {lost} {lost:?} {handle:?} {again:?} {provider:?}");
            for handle in [handle, again] {
                let secret = handle.text().trim_start_matches("mlh1.").to_owned();
                assert!(!seen.contains(&secret) && !seen.contains("mlh1."), "{seen}");
                texts.push(secret);
            }
        }
    });
    let resumed = |event: &&NotedEvent| event.fields.0["lock.owner"] == "session:1";
    let acquired = notes.events("mongolock.acquired");
    assert!(acquired.iter().any(|event| resumed(&event)));
    let ended = notes.events("mongolock.released");
    for how in ["detached", "released"] {
        let is_it = |event: &&NotedEvent| event.fields.0["how"] == how && resumed(event);
        let found = ended.iter().find(is_it).expect(how);
        assert_eq!(found.metadata.level(), &Level::DEBUG, "{how}");
    }
    let spans = notes.spans("mongolock.acquire").len();
    assert_eq!(spans, 6, "two of locks, four of leases");
    let all = notes.0.lock().unwrap();
    let events = all.events.iter().map(|event| &event.fields);
    let fields = events.chain(all.spans.iter().map(|(_, fields)| fields));
    let seen: Vec<&String> = fields.flat_map(|fields| fields.0.values()).collect();
    assert!(seen.len() > 50, "{seen:?}");
    for text in texts {
        assert!(seen.iter().all(|seen| !seen.contains(&text[..40])), "{seen:?}");
    }
}

#[test]
fn losses_are_warnings_with_their_reason() {
    let notes = observed(async |provider| {
        let lock = provider.lock("expired").expiry(Duration::from_millis(150));
        let lock = lock.max_hold(Duration::ZERO);
        let guard = lock.acquire().await.unwrap();
        guard.lost().await;
        drop(guard);
        let _held = provider.lock("shut down").await.unwrap();
        provider.shutdown().await;
    });
    let lost = notes.assert_events("mongolock.lost", Level::WARN, &["expired", "shut down"]);
    let reasons: Vec<&str> = lost.iter().map(|event| &*event.fields.0["reason"]).collect();
    assert_eq!(reasons, ["expired", "shut_down"]);
}

/// A success is an event of its own, and a call that finds it says so on its span.
#[test]
fn finished_work_is_an_event() {
    let notes = observed(async |provider| {
        let lock = provider.lock("nightly").once();
        lock.acquire().await.unwrap().done().await.unwrap();
        lock.acquire().await.map(drop).unwrap_err();
    });
    let ended = notes.assert_events("mongolock.released", Level::DEBUG, &["nightly"]);
    assert_eq!(ended[0].fields.0["how"], "done");
    let spans = notes.spans("mongolock.acquire");
    let outcomes: Vec<&str> = spans.iter().map(|span| &*span.0["outcome"]).collect();
    assert_eq!(outcomes, ["acquired", "done"]);
    assert!(notes.events("mongolock.lost").is_empty());
}

/// A mark that the server does not write at first is repeated, and one that it refuses is given up.
#[test]
fn a_mark_that_is_repeated_or_given_up_is_an_event() {
    const STEPPED_DOWN: i32 = 189;
    const INVALID_NAMESPACE: i32 = 73;
    const VIEW: i32 = 166;
    let outcome_of = |code: i32, name: &'static str| {
        observed(async move |_| {
            let db = test_db().await;
            let provider = LockProvider::new(db.database());
            let guard = provider.lock(name).once().acquire().await.unwrap();
            let refusing = FailPoint::on(&["findAndModify"]).error_code(code).times(1);
            let refusing = must(refusing.enable_for(&db).await);
            let ended = guard.done().await;
            must(refusing.clear().await);
            assert_eq!(ended.is_ok(), code == STEPPED_DOWN, "{ended:?}");
        })
    };
    let notes = outcome_of(STEPPED_DOWN, "repeated");
    let how = |notes: &Notes| -> Vec<String> {
        let ended = notes.events("mongolock.released").into_iter();
        ended.map(|event| event.fields.0["how"].clone()).collect()
    };
    let repeated = notes.assert_events("mongolock.retrying", Level::WARN, &["repeated"]);
    assert_eq!(repeated[0].fields.0["request"], "mark");
    assert_eq!(how(&notes), ["done"]);
    assert!(notes.events("mongolock.release_failed").is_empty());
    for code in [INVALID_NAMESPACE, VIEW] {
        let notes = outcome_of(code, "given up");
        let failed = notes.assert_events("mongolock.release_failed", Level::WARN, &["given up"]);
        let fields = &failed[0].fields.0;
        assert_eq!(fields["request"], "mark");
        assert!(fields["error"].contains(&code.to_string()), "{fields:?}");
        assert_eq!(how(&notes), ["released"], "the lock is released");
    }
}

#[test]
fn forced_releases_are_events() {
    let notes = observed(async |provider| {
        let _held = provider.lock("stuck").await.unwrap();
        let admin = provider.admin();
        assert!(admin.force_release("stuck").await.unwrap());
        assert!(!admin.force_release("stuck").await.unwrap());
    });
    notes.assert_events("mongolock.forced", Level::INFO, &["stuck"]);

    let notes = observed(async |provider| {
        let owner = provider.to_builder().owner("gone").build().unwrap();
        let _held = owner.lock("a").await.unwrap();
        assert_eq!(provider.admin().release_owner("gone").await.unwrap(), 1);
    });
    let [NotedEvent { metadata, fields, .. }] = &notes.events("mongolock.forced")[..] else {
        panic!("one release is one event")
    };
    assert_eq!(metadata.level(), &Level::INFO);
    assert_eq!((&*fields.0["lock.owner"], &*fields.0["locks"]), ("gone", "1"));
}

/// Sends a fenced write to a document that stores a greater token.
async fn write_stale() {
    let db = test_db().await;
    let reports = db.database().collection::<Document>("reports");
    let stored = reports.insert_one(doc! { "_id": 1, "fencingToken": 10 });
    stored.await.unwrap();
    let late = reports.fenced(FencingToken::from(9));
    late.delete_one(doc! { "_id": 1 }).await.unwrap_err();
}

#[test]
fn a_stale_write_is_a_warning() {
    let notes = observed(async |_| write_stale().await);
    let NotedEvent { metadata, fields, .. } = &notes.events("mongolock.stale")[0];
    assert_eq!(metadata.level(), &Level::WARN);
    assert_eq!((&*fields.0["lock.token"], &*fields.0["seen"]), ("9", "10"));
    assert!(fields.0["collection"].ends_with(".reports"));
}

/// The requests of a call run in tasks of their own, but their events are in the span of the call, so that a trace of
/// many requests shows each event in the request that caused it.
#[test]
fn events_are_in_the_span_of_their_caller() {
    for is_in_memory in [true, false] {
        let notes = observed(async |memory| {
            let db = test_db().await;
            let provider = if is_in_memory {
                memory
            } else {
                LockProvider::new(db.database())
            };
            let calls = async {
                let guard = provider.lock("a").await.unwrap();
                let brief = provider.lock("a").acquire_timeout(Duration::from_millis(200));
                assert!(matches!(brief.acquire().await, Err(LockError::Timeout { .. })));
                guard.release().await.unwrap();
                let _held = provider.lock("b").await.unwrap();
                assert!(provider.admin().force_release("b").await.unwrap());
                write_stale().await;
            };
            calls.instrument(info_span!("request")).await;
        });
        for (event, within) in [
            ("mongolock.acquired", &["mongolock.acquire", "request"][..]),
            ("mongolock.released", &["request"]),
            ("mongolock.forced", &["request"]),
            ("mongolock.stale", &["request"]),
        ] {
            assert_eq!(notes.events(event)[0].within, within, "{event}, {is_in_memory}");
        }
    }
}

#[tracing::instrument]
#[distributed_lock(name = "job")]
async fn span_under_the_lock() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job")]
#[tracing::instrument]
async fn span_around_the_lock() -> Result<(), LockError> {
    Ok(())
}

#[test]
fn an_instrumented_function_has_its_span_under_the_lock_or_around_it() {
    let notes = observed(async |provider| provider.scope(span_under_the_lock()).await.unwrap());
    let acquired = notes.events("mongolock.acquired");
    assert_eq!(acquired[0].within, ["mongolock.acquire"]);
    assert_eq!(notes.spans("span_under_the_lock").len(), 1);
    let notes = observed(async |provider| provider.scope(span_around_the_lock()).await.unwrap());
    let acquired = notes.events("mongolock.acquired");
    assert_eq!(acquired[0].within, ["mongolock.acquire", "span_around_the_lock"]);
}

/// The application uses all connections of its client for longer than a lease lasts.
#[test]
fn a_renewal_that_waits_for_a_connection_is_reported() {
    const EXPIRY: Duration = Duration::from_secs(6);
    let notes = observed(async |_| {
        let db = test_db().await;
        let database = must(db.connect_again().await);
        let provider = LockProvider::builder(&database).expiry(EXPIRY).build().unwrap();
        let guard = provider.lock("held").await.unwrap();
        let blocking = FailPoint::on(&["ping"]).always();
        let blocking = blocking.block(EXPIRY + Duration::from_secs(2));
        let point = must(blocking.enable_for(&db).await);
        let pings = (0..10).map(|_| database.run_command(doc! { "ping": 1 }).into_future());
        join_all(pings).await;
        must(point.clear().await);
        let error = guard.ensure_held().unwrap_err();
        let help = error.help();
        assert!(help.contains("mongolock.renewal_waiting"), "{help}");
    });
    let waiting = notes.events("mongolock.renewal_waiting");
    assert_eq!(*waiting[0].metadata.level(), Level::WARN);
    assert_eq!(waiting[0].fields.0["lock.name"], "held");
    let waited: u64 = waiting[0].fields.0["waited_ms"].parse().unwrap();
    assert!((2000..3000).contains(&waited), "{waited} ms");
}
