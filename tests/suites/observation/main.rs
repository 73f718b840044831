//! S0.17, S1.15: the events and spans of the library have the names that the documentation promises.
//!
//! This suite is a process of its own and runs one test at a time, because `tracing` caches for the whole process which
//! events have a subscriber.

mod deadlocks;
mod log_output;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::iter;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongolock::{FencedExt, FencingToken, LockContext, LockError, LockProvider, distributed_lock};
use mongolock_tests::{FailPoint, must, test_db};
use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber;
use tracing::{Event, Id, Instrument, Level, Metadata, Subscriber, info_span, span};
use tracing_core::span::Current;

/// A subscriber that records events with the spans around them, and spans with their fields.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    spans: Vec<NotedSpan>,
    events: Vec<NotedEvent>,
    /// The spans that are entered now; the innermost is the last one.
    entered: Vec<Id>,
}

struct NotedSpan {
    metadata: &'static Metadata<'static>,
    parent: Option<Id>,
    fields: Fields,
}

#[derive(Clone)]
struct NotedEvent {
    name: &'static str,
    level: Level,
    fields: Fields,
    /// The names of the spans around the event, the innermost first.
    within: Vec<&'static str>,
}

#[derive(Clone, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = self.0.entry(field.name()).or_default();
        text.clear();
        write!(text, "{value:?}").unwrap();
    }
}

impl Notes {
    fn event(&self, name: &str) -> Option<NotedEvent> {
        self.events(name).into_iter().next()
    }

    fn events(&self, name: &str) -> Vec<NotedEvent> {
        let noted = self.0.lock().unwrap();
        noted
            .events
            .iter()
            .filter(|event| event.name == name)
            .cloned()
            .collect()
    }

    fn spans(&self, name: &str) -> Vec<Fields> {
        let noted = self.0.lock().unwrap();
        noted
            .spans
            .iter()
            .filter(|span| span.metadata.name() == name)
            .map(|span| span.fields.clone())
            .collect()
    }
}

impl Noted {
    fn span(&self, id: &Id) -> &NotedSpan {
        &self.spans[index(id)]
    }

    /// The names of the spans that are entered now, the innermost first.
    fn within(&self) -> Vec<&'static str> {
        let innermost = self.entered.last();
        let around = iter::successors(innermost, |id| self.span(id).parent.as_ref());
        around.map(|id| self.span(id).metadata.name()).collect()
    }
}

fn index(span: &Id) -> usize {
    usize::try_from(span.into_u64()).unwrap() - 1
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("mongolock") || metadata.target() == module_path!()
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> Id {
        let mut noted = self.0.lock().unwrap();
        let mut fields = Fields::default();
        span.record(&mut fields);
        let inherited = noted.entered.last().filter(|_| span.is_contextual()).cloned();
        noted.spans.push(NotedSpan {
            metadata: span.metadata(),
            parent: span.parent().cloned().or(inherited),
            fields,
        });
        Id::from_u64(noted.spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &span::Record<'_>) {
        let mut noted = self.0.lock().unwrap();
        values.record(&mut noted.spans[index(span)].fields);
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let mut noted = self.0.lock().unwrap();
        let within = noted.within();
        noted.events.push(NotedEvent {
            name: metadata.name(),
            level: *metadata.level(),
            fields,
            within,
        });
    }

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().entered.push(span.clone());
    }

    fn exit(&self, span: &Id) {
        let mut noted = self.0.lock().unwrap();
        if let Some(place) = noted.entered.iter().rposition(|entered| entered == span) {
            noted.entered.remove(place);
        }
    }

    fn current_span(&self) -> Current {
        let noted = self.0.lock().unwrap();
        match noted.entered.last() {
            Some(id) => Current::new(id.clone(), noted.span(id).metadata),
            None => Current::none(),
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
}

/// The notes of a scenario.
fn observed(scenario: impl AsyncFnOnce(LockProvider)) -> Notes {
    let notes = Notes::default();
    observed_by(notes.clone(), scenario);
    notes
}

/// A provider for the same locks that renews its leases so often.
fn renewing(provider: &LockProvider, interval: Duration) -> LockProvider {
    provider.to_builder().renew_interval(interval).build().unwrap()
}

/// Runs a scenario on a runtime of its own, so that the provider's background task reports to the same subscriber.
fn observed_by(
    subscriber: impl Subscriber + Send + Sync + 'static,
    scenario: impl AsyncFnOnce(LockProvider),
) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(scenario(LockProvider::in_memory()).with_current_subscriber());
    });
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
    assert_eq!(acquire.0["lock.name"], "\"b\"");
    assert_eq!(acquire.0["lock.names"], "[\"a\", \"b\"]");
    assert_eq!(acquire.0["outcome"], "\"acquired\"");
    let [hold, inner] = &notes.spans("mongolock.hold")[..] else {
        panic!("two bodies ran")
    };
    assert_eq!(hold.0["lock.names"], "[\"a\", \"b\"]");
    assert_eq!(hold.0["lock.token"], acquire.0["lock.token"]);
    assert_eq!(inner.0["lock.name"], "\"a\"");
    assert!(!inner.0.contains_key("lock.names"));
    for event in ["mongolock.acquired", "mongolock.released"] {
        let all = notes.0.lock().unwrap();
        let events = all.events.iter().filter(|noted| noted.name == event);
        let names: Vec<&str> = events.map(|noted| noted.fields.0["lock.name"].as_str()).collect();
        assert_eq!(names, ["\"a\"", "\"b\""], "{event}");
    }
}

fn outcomes_of_acquires(notes: &Notes) {
    let outcomes: Vec<String> = notes
        .spans("mongolock.acquire")
        .iter()
        .map(|s| s.0["outcome"].clone())
        .collect();
    assert_eq!(
        outcomes,
        [
            "\"acquired\"",
            "\"busy\"",
            "\"acquired\"",
            "\"acquired\"",
            "\"timeout\""
        ]
    );
    let mut error_types = notes.spans("mongolock.acquire").into_iter();
    let error_types = error_types.by_ref().map(|mut span| span.0.remove("error.type"));
    let text = |error_type: &str| Some(format!("\"{error_type}\""));
    assert_eq!(
        error_types.collect::<Vec<_>>(),
        [None, text("busy"), None, None, text("timeout")]
    );
    for span in notes.spans("mongolock.acquire") {
        assert_eq!(span.0["lock.name"], "\"seen\"");
        assert!(span.0.contains_key("lock.owner") && span.0["waited_ms"].parse::<u64>().is_ok());
    }
}

fn one_hold_of_300_ms(notes: &Notes) {
    let [hold] = &notes.spans("mongolock.hold")[..] else {
        panic!("exactly one body ran")
    };
    assert_eq!(hold.0["outcome"], "\"returned\"");
    assert!(hold.0["held_ms"].parse::<u64>().unwrap() >= 300);
    assert!(hold.0["lock.token"].parse::<i64>().is_ok());
}

#[distributed_lock(name = "report:<id>")]
async fn report(id: u64) -> Result<(), LockError> {
    assert_eq!(
        LockContext::current().and_then(|context| context.template()),
        Some("report:<id>")
    );
    labelled(id).await
}

/// A nested call, which joins the lock and keeps its own template.
#[distributed_lock(name = "report:<nested>")]
async fn labelled(nested: u64) -> Result<(), LockError> {
    assert_eq!(
        LockContext::current().and_then(|context| context.template()),
        Some("report:<nested>")
    );
    Ok(())
}

#[test]
fn spans_have_the_template_of_the_name() {
    let notes = observed(async |provider| {
        provider.scope(report(7)).await.unwrap();
        provider
            .lock("plain")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    });
    let templates = |span: &str| -> Vec<(String, Option<String>)> {
        let spans = notes.spans(span);
        let fields = |span: &Fields| (span.0["lock.name"].clone(), span.0.get("lock.template").cloned());
        spans.iter().map(fields).collect()
    };
    let some = |name: &str, template: &str| (format!("{name:?}"), Some(format!("{template:?}")));
    assert_eq!(
        templates("mongolock.acquire"),
        [some("report:7", "report:<id>"), ("\"plain\"".to_owned(), None)]
    );
    let holds = templates("mongolock.hold");
    for hold in [
        some("report:7", "report:<id>"),
        some("report:7", "report:<nested>"),
    ] {
        assert!(holds.contains(&hold), "{holds:?}");
    }
}

fn levels_of_events(notes: &Notes) {
    for (event, level) in [
        ("mongolock.acquired", Level::DEBUG),
        ("mongolock.waiting", Level::DEBUG),
        ("mongolock.renewed", Level::TRACE),
        ("mongolock.released", Level::DEBUG),
        ("mongolock.index", Level::DEBUG),
    ] {
        assert_eq!(notes.event(event).expect(event).level, level);
    }
    let loud = notes
        .0
        .lock()
        .unwrap()
        .events
        .iter()
        .any(|event| event.level <= Level::INFO);
    assert!(!loud, "nothing is logged at info or above without a failure");
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
    for (event, level) in [
        ("mongolock.detached", Level::DEBUG),
        ("mongolock.resumed", Level::DEBUG),
        ("mongolock.released", Level::DEBUG),
    ] {
        let found = notes.event(event).expect(event);
        assert_eq!(
            (found.level, &*found.fields.0["lock.owner"]),
            (level, "\"session:1\"")
        );
    }
    assert_eq!(notes.spans("mongolock.resume").len(), 4);
    let all = notes.0.lock().unwrap();
    let events = all.events.iter().map(|event| &event.fields);
    let fields = events.chain(all.spans.iter().map(|span| &span.fields));
    let seen: Vec<&String> = fields.flat_map(|fields| fields.0.values()).collect();
    assert!(seen.len() > 50, "{seen:?}");
    for text in texts {
        assert!(seen.iter().all(|seen| !seen.contains(&text[..40])), "{seen:?}");
    }
}

#[test]
fn losses_are_warnings_with_their_reason() {
    let notes = observed(async |provider| {
        let lock = provider
            .lock("expired")
            .expiry(Duration::from_millis(150))
            .max_hold(Duration::ZERO);
        let guard = lock.acquire().await.unwrap();
        guard.lost().await;
        drop(guard);
        let _held = provider.lock("shut down").await.unwrap();
        provider.shutdown().await;
    });
    let reasons: Vec<String> = {
        let seen = notes.0.lock().unwrap();
        let lost = seen
            .events
            .iter()
            .filter(|event| event.name == "mongolock.lost" && event.level == Level::WARN);
        lost.map(|event| event.fields.0["lock.name"].clone() + &event.fields.0["reason"])
            .collect()
    };
    assert_eq!(reasons, ["\"expired\"\"expired\"", "\"shut down\"\"shut_down\""]);
}

/// A success is an event of its own, and a call that finds it says so on its span.
#[test]
fn finished_work_is_an_event() {
    let notes = observed(async |provider| {
        let lock = provider.lock("nightly").once();
        lock.acquire().await.unwrap().done().await.unwrap();
        lock.acquire().await.map(drop).unwrap_err();
    });
    let NotedEvent { level, fields, .. } = notes.event("mongolock.done").unwrap();
    assert_eq!((level, &*fields.0["lock.name"]), (Level::DEBUG, "\"nightly\""));
    let outcomes: Vec<String> = notes
        .spans("mongolock.acquire")
        .iter()
        .map(|span| span.0["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["\"acquired\"", "\"done\""]);
    assert!(notes.event("mongolock.released").is_none() && notes.event("mongolock.lost").is_none());
}

/// A release in a transaction is an event as any other release, one for each lock.
#[test]
fn a_release_by_a_commit_is_an_event() {
    let notes = observed(async |_| {
        let db = test_db().await;
        let provider = LockProvider::new(db.database());
        let guard = provider.lock_all(["a", "b"]).acquire().await.unwrap();
        let mut session = db.database().client().start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        guard.commit_and_release(&mut session).await.unwrap();
        guard.release().await.unwrap();
    });
    let released: Vec<String> = {
        let seen = notes.0.lock().unwrap();
        let released = seen
            .events
            .iter()
            .filter(|event| event.name == "mongolock.released");
        released
            .map(|event| event.fields.0["lock.name"].clone())
            .collect()
    };
    assert_eq!(released, ["\"a\"", "\"b\""]);
    assert!(notes.event("mongolock.lost").is_none() && notes.event("mongolock.done").is_none());
}

/// A mark that the server does not write at first is repeated, and one that it refuses is given up.
#[test]
fn a_mark_that_is_repeated_or_given_up_is_an_event() {
    const STEPPED_DOWN: i32 = 189;
    const UNAUTHORIZED: i32 = 13;
    const INVALID_OPTIONS: i32 = 72;
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
    let NotedEvent { level, fields, .. } = notes.event("mongolock.done_retrying").unwrap();
    assert_eq!((level, &*fields.0["lock.name"]), (Level::WARN, "\"repeated\""));
    assert!(notes.event("mongolock.done").is_some() && notes.event("mongolock.done_failed").is_none());
    for code in [UNAUTHORIZED, INVALID_OPTIONS] {
        let notes = outcome_of(code, "given up");
        let NotedEvent { level, fields, .. } = notes.event("mongolock.done_failed").unwrap();
        assert_eq!((level, &*fields.0["lock.name"]), (Level::ERROR, "\"given up\""));
        assert!(
            fields.0["error"].contains(&code.to_string()),
            "{}",
            fields.0["error"]
        );
        assert!(notes.event("mongolock.done").is_none() && notes.event("mongolock.done_retrying").is_none());
        assert!(
            notes.event("mongolock.released").is_some(),
            "the lock is released"
        );
    }
}

/// The length of the period is chosen so that a period has just begun by the store's clock.
#[test]
fn a_call_close_to_a_boundary_is_reported_once() {
    let close = async |provider: LockProvider| {
        let clock = provider.lock("clock").await.unwrap();
        let info = provider.admin().get(clock.name()).await.unwrap().unwrap();
        let now = u64::try_from(info.acquired_at.timestamp_millis()).unwrap();
        let year = 366 * 24 * 60 * 60 * 1000;
        let periods = now / year + 1;
        let lock = provider
            .lock("nightly")
            .once_per(Duration::from_millis(now / periods));
        for _ in 0..3 {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
    };
    let notes = observed(close);
    let seen = notes.0.lock().unwrap_or_else(PoisonError::into_inner);
    let reports = seen
        .events
        .iter()
        .filter(|event| event.name == "mongolock.close_to_boundary");
    let reports: Vec<_> = reports
        .map(|event| (event.level, &*event.fields.0["lock.name"]))
        .collect();
    assert_eq!(reports, [(Level::WARN, "\"nightly\"")]);
}

#[test]
fn forced_releases_are_events() {
    let notes = observed(async |provider| {
        let _held = provider.lock("stuck").await.unwrap();
        let admin = provider.admin();
        assert!(admin.force_release("stuck").await.unwrap());
        assert!(!admin.force_release("stuck").await.unwrap());
    });
    let NotedEvent { level, fields, .. } = notes.event("mongolock.forced").unwrap();
    assert_eq!((level, &*fields.0["lock.name"]), (Level::INFO, "\"stuck\""));

    let notes = observed(async |provider| {
        let owner = provider.to_builder().owner("gone").build().unwrap();
        let _held = owner.lock("a").await.unwrap();
        assert_eq!(provider.admin().release_owner("gone").await.unwrap(), 1);
    });
    let NotedEvent { fields, .. } = notes.event("mongolock.forced").unwrap();
    assert_eq!((&*fields.0["lock.owner"], &*fields.0["locks"]), ("\"gone\"", "1"));
}

#[test]
fn a_loss_says_who_has_released_the_lock_by_force() {
    for by_renewal in [false, true] {
        let notes = observed(async |provider| {
            let guard = provider.lock("stuck").await.unwrap();
            let anna = provider.to_builder().owner("anna").build().unwrap();
            // A release by the holder's own provider has its leases renewed at once.
            let operator = if by_renewal { &provider } else { &anna };
            let release = operator.admin().force_release("stuck").reason("deploy");
            assert!(release.await.unwrap());
            if by_renewal {
                guard.lost().await;
            }
            guard.release().await.unwrap_err();
        });
        let NotedEvent { level, fields, .. } = notes.event("mongolock.lost").unwrap();
        assert_eq!((level, &*fields.0["reason"]), (Level::WARN, "\"gone\""));
        let forced = &fields.0["forced"];
        assert!(forced.ends_with(": deploy\""), "{forced}");
        assert_eq!(forced.starts_with("\"anna"), !by_renewal, "{forced}");
    }
}

/// Sends a fenced write to a document that stores a greater token.
async fn write_stale() {
    let db = test_db().await;
    let reports = db.database().collection::<Document>("reports");
    reports
        .insert_one(doc! { "_id": 1, "fencingToken": 10 })
        .await
        .unwrap();
    let late = reports.fenced(FencingToken::from(9));
    late.delete_one(doc! { "_id": 1 }).await.unwrap_err();
}

#[test]
fn a_stale_write_is_a_warning() {
    let notes = observed(async |_| {
        write_stale().await;
    });
    let NotedEvent { level, fields, .. } = notes.event("mongolock.stale").unwrap();
    assert_eq!(level, Level::WARN);
    assert_eq!((&*fields.0["lock.token"], &*fields.0["seen"]), ("9", "10"));
    assert!(fields.0["collection"].ends_with(".reports"));
}

/// The requests of a call run in tasks of their own, but their events are in the span of the call, so that a trace of
/// many requests shows each event in the request that caused it.
#[test]
fn events_are_in_the_span_of_their_caller() {
    let notes = observed(async |provider| {
        let calls = async {
            let guard = provider.lock("a").await.unwrap();
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
        assert_eq!(notes.event(event).expect(event).within, within, "{event}");
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
    let acquired = notes.event("mongolock.acquired").unwrap();
    assert_eq!(acquired.within, ["mongolock.acquire"]);
    assert_eq!(notes.spans("span_under_the_lock").len(), 1);
    let notes = observed(async |provider| provider.scope(span_around_the_lock()).await.unwrap());
    let acquired = notes.event("mongolock.acquired").unwrap();
    assert_eq!(acquired.within, ["mongolock.acquire", "span_around_the_lock"]);
}

/// A user without a right on the documents of the line is told once, however often its callers wait.
#[test]
fn a_refused_line_is_one_warning() {
    let notes = observed(async |_| {
        let db = test_db().await;
        let namespace = format!("{}.distributed_locks.waiters", db.name());
        // 13: the user lacks a right.
        let refused = FailPoint::on(&["update", "find", "delete"])
            .always()
            .error_code(13);
        let point = must(refused.collection(&namespace).enable_for(&db).await);
        let waiting = LockProvider::new(db.database());
        let holder = waiting.to_builder().build().unwrap();
        for name in 0..3 {
            let held = holder.lock(name).await.unwrap();
            let brief = waiting.lock(name).acquire_timeout(Duration::from_millis(300));
            brief.acquire().await.unwrap_err();
            held.release().await.unwrap();
            waiting.lock(name).await.unwrap().release().await.unwrap();
        }
        must(point.clear().await);
    });
    let all = notes.0.lock().unwrap();
    let refusals = all
        .events
        .iter()
        .filter(|event| event.name == "mongolock.line_refused");
    let levels: Vec<Level> = refusals.map(|event| event.level).collect();
    assert_eq!(levels, [Level::WARN]);
}
