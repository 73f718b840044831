//! The metrics of the feature `metrics`, as a real exporter prints them. Each test has a recorder of its own, which only its
//! thread sees.

mod alerts;
mod units;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use mongodb::bson::{Document, doc};
use mongolock::{FencedExt, FencingToken, LockError, LockProvider, WakeUp, distributed_lock};
use mongolock_tests::{AMPLE, must, test_db, until};
use tokio::runtime::Runtime;
use tokio::time::sleep;

fn recorder() -> (PrometheusRecorder, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    (recorder, handle)
}

/// Runs a test on a runtime of this thread with a recorder, and returns what the exporter prints at the end.
fn recorded(test: impl AsyncFnOnce(&PrometheusHandle)) -> String {
    let (recorder, handle) = recorder();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(test(&handle));
    });
    handle.render()
}

/// The value of a series: a line that begins with this name and has all these labels.
fn value(printed: &str, name: &str, labels: &[&str]) -> f64 {
    let matching = printed.lines().filter(|line| {
        let (series, _) = line.rsplit_once(' ').unwrap_or_default();
        let is_named = series.split('{').next() == Some(name);
        is_named && labels.iter().all(|label| series.contains(label))
    });
    let lines: Vec<_> = matching.collect();
    assert_eq!(lines.len(), 1, "{name} {labels:?}: {lines:#?} in\n{printed}");
    lines[0].rsplit_once(' ').unwrap().1.parse().unwrap()
}

fn assert_value(printed: &str, name: &str, labels: &[&str], expected: f64) {
    let value = value(printed, name, labels);
    let is_it = (value - expected).abs() < 1e-9;
    assert!(is_it, "{name} {labels:?} is {value} in\n{printed}");
}

/// Each outcome of an acquire, and the numbers of calls that hold and wait.
#[test]
fn acquires_holds_and_losses_are_counted() {
    let printed = recorded(async |handle| {
        let provider = LockProvider::in_memory();
        let lock = provider.lock("a");
        let guard = lock.acquire().await.unwrap();
        assert!(lock.try_acquire().await.unwrap().is_none());
        let hurried = lock.clone().acquire_timeout(Duration::from_millis(20));
        assert!(matches!(hurried.acquire().await, Err(LockError::Timeout { .. })));
        let waiter = tokio::spawn(lock.acquire());
        sleep(Duration::from_millis(20)).await;
        let now = handle.render();
        assert_value(&now, "mongolock_held", &[r#"lock="-""#], 1.0);
        assert_value(&now, "mongolock_waiting", &[r#"lock="-""#], 1.0);
        waiter.abort();
        waiter.await.unwrap_err();

        // The first of two waiters gets the lock from the store, and then hands it over to the second one.
        let waiters = [(); 2].map(|()| tokio::spawn(lock.acquire()));
        sleep(Duration::from_millis(20)).await;
        guard.release().await.unwrap();
        let [first, second] = waiters;
        first.await.unwrap().unwrap().release().await.unwrap();
        let handed_over = second.await.unwrap().unwrap();
        assert!(provider.admin().force_release("a").await.unwrap());
        assert!(matches!(handed_over.release().await, Err(LockError::Lost { .. })));

        let unawaited = provider.lock("c").await_release(false);
        for _ in 0..2 {
            unawaited.run(async |_| Ok::<_, LockError>(())).await.unwrap();
        }

        let cut = provider.lock("b").acquire().await.unwrap();
        provider.shutdown().await;
        assert!(cut.is_lost());
        assert!(matches!(lock.acquire().await, Err(LockError::ShutDown { .. })));
    });
    let expected = [
        ("acquired", 6.0),
        ("busy", 1.0),
        ("timeout", 1.0),
        ("cancelled", 1.0),
        ("shut_down", 1.0),
        ("error", 0.0),
    ];
    for (outcome, number) in expected {
        let label = format!(r#"outcome="{outcome}""#);
        assert_value(&printed, "mongolock_acquires_total", &[&label], number);
    }
    assert_value(&printed, "mongolock_wait_seconds_count", &[], 10.0);
    assert_value(&printed, "mongolock_hold_seconds_count", &[], 6.0);
    assert_value(&printed, "mongolock_handovers_total", &[], 1.0);
    assert_value(&printed, "mongolock_lost_total", &[r#"reason="gone""#], 1.0);
    assert_value(&printed, "mongolock_lost_total", &[r#"reason="shut_down""#], 1.0);
    assert_value(&printed, "mongolock_lost_total", &[r#"reason="expired""#], 0.0);
    assert_value(&printed, "mongolock_held", &[], 0.0);
    assert_value(&printed, "mongolock_waiting", &[], 0.0);
    assert_value(&printed, "mongolock_stale_writes_total", &[], 0.0);
}

/// What the exporter prints after the events that need a server: each metric, with all values of its labels.
static PRINTED: LazyLock<String> = LazyLock::new(|| {
    recorded(async |_| {
        let db = test_db().await;
        let builder = LockProvider::builder(db.database()).renew_interval(Duration::from_millis(50));
        let provider = builder.build().unwrap();
        let guard = provider.lock("renewed").acquire().await.unwrap();
        let renewed = async || provider.health().await.last_renewal;
        must(mongolock_tests::eventually(AMPLE, "renewal", renewed).await);
        let documents = db.database().collection::<Document>("documents");
        let (newer, stale) = (guard.fencing_token(), FencingToken::from(1));
        let write = documents.fenced(newer).insert_one(doc! { "_id": 1 });
        write.await.unwrap();
        let changed = doc! { "$set": { "a": 1 } };
        let write = documents.fenced(stale).update_one(doc! { "_id": 1 }, changed);
        assert!(matches!(write.await, Err(LockError::Stale { .. })));
        // This lock is not renewed during the transaction, which would be a conflict.
        let rival = LockProvider::new(db.database());
        let committing = rival.lock("committing").expiry(AMPLE).acquire().await.unwrap();
        let mut session = db.database().client().start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        let write = documents.insert_one(doc! { "_id": 2 });
        write.session(&mut session).await.unwrap();
        committing.context().commit(&mut session).await.unwrap();
        let waiter = tokio::spawn(rival.lock("renewed").acquire());
        until("stream", async || rival.health().await.wake_up == WakeUp::Stream).await;
        waiter.abort();
        guard.release().await.unwrap();
        let expired = provider.lock("expired").expiry(Duration::from_millis(200));
        let expired = expired.max_hold(Duration::ZERO);
        expired.acquire().await.unwrap().lost().await;
        sleep(Duration::from_millis(20)).await;
    })
});

#[test]
fn commands_renewals_and_stale_writes_are_counted() {
    let printed = &*PRINTED;
    let renewals = value(printed, "mongolock_renewal_age_seconds_count", &[]);
    assert!(renewals >= 1.0, "{printed}");
    assert_value(printed, "mongolock_stale_writes_total", &[], 1.0);
    assert_value(printed, "mongolock_lost_total", &[r#"reason="expired""#], 1.0);
    let commands = |kind: &str| {
        let label = format!(r#"command="{kind}""#);
        value(printed, "mongolock_commands_total", &[&label, r#"outcome="ok""#])
    };
    assert!(commands("acquire") >= 2.0 && commands("renew") >= 1.0 && commands("release") >= 1.0);
    assert!(commands("hello") >= 1.0 && commands("stream") >= 1.0);
    assert!((commands("commit") - 1.0).abs() < 1e-9, "{printed}");
    let failed = [r#"command="acquire""#, r#"outcome="error""#];
    assert_value(printed, "mongolock_commands_total", &failed, 0.0);
}

#[distributed_lock(name = "report:<id>")]
async fn rebuild(id: u32) -> Result<(), LockError> {
    Ok(())
}

/// The values of the label `lock`.
fn lock_labels(printed: &str) -> BTreeSet<&str> {
    let begins = printed.split("lock=\"").skip(1);
    begins.filter_map(|rest| rest.split('"').next()).collect()
}

/// The label is the template of the name, and never the name: the number of series does not depend on the number of names.
#[test]
fn ten_thousand_names_make_no_more_series_than_one() {
    let series = |printed: &str| printed.lines().filter(|line| !line.starts_with('#')).count();
    let run = |names: u32| {
        recorded(async |_| {
            let provider = LockProvider::in_memory();
            for id in 0..names {
                provider.scope(rebuild(id)).await.unwrap();
                drop(provider.lock(id).acquire().await.unwrap());
            }
        })
    };
    let (one, many) = (run(1), run(10_000));
    for (printed, names) in [(&one, 1.0), (&many, 10_000.0)] {
        let labels = BTreeSet::from(["-", "report:<id>"]);
        assert_eq!(lock_labels(printed), labels, "{printed}");
        for label in labels {
            let label = format!(r#"lock="{label}""#);
            let acquired = [&label, r#"outcome="acquired""#];
            assert_value(printed, "mongolock_acquires_total", &acquired, names);
            assert_value(printed, "mongolock_hold_seconds_count", &[&label], names);
        }
    }
    assert!(series(&one) > 30, "{one}");
    assert_eq!(series(&one), series(&many));
}

/// The handles are made at the first acquire, with the recorder that is installed then.
#[test]
fn a_recorder_that_is_installed_later_gets_nothing() {
    let runtime = Runtime::new().unwrap();
    let provider = LockProvider::in_memory();
    let acquire = || runtime.block_on(async { drop(provider.lock("a").acquire().await.unwrap()) });
    acquire();
    let (recorder, handle) = recorder();
    metrics::with_local_recorder(&recorder, acquire);
    let printed = handle.render();
    assert!(!printed.contains("mongolock_acquires_total"), "{printed}");

    let (recorder, handle) = self::recorder();
    let provider = LockProvider::in_memory();
    let acquire = || runtime.block_on(async { drop(provider.lock("a").acquire().await.unwrap()) });
    metrics::with_local_recorder(&recorder, acquire);
    // The recorder is no longer installed, and the handles still go to it.
    acquire();
    let (printed, acquired) = (handle.render(), [r#"outcome="acquired""#]);
    assert_value(&printed, "mongolock_acquires_total", &acquired, 2.0);
}

/// The dashboard shows every metric, and asks for none that does not exist.
#[test]
fn the_dashboard_knows_the_metrics() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mongolock/dashboards/grafana.json");
    let dashboard: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            queries.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    let asked: BTreeSet<String> = queries.iter().flat_map(|query| names(query)).collect();
    let described: BTreeSet<String> = PRINTED
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned))
        .collect();
    assert_eq!(described.len(), 10, "{}", *PRINTED);
    assert_eq!(asked, described);
}

/// The names of metrics in a query, without the suffixes of a histogram.
fn names(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("mongolock_"));
    names.map(|name| without_suffix(name).to_owned()).collect()
}

/// The name of a metric, without the suffix of a histogram.
fn without_suffix(name: &str) -> &str {
    let suffixes = ["_bucket", "_count", "_sum"];
    let stripped = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
    stripped.unwrap_or(name)
}
