//! The units in the descriptions of the metrics.

use std::collections::BTreeMap;
use std::sync::Mutex;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use mongolock::LockProvider;
use tokio::runtime::Runtime;

/// The descriptions that it gets.
#[derive(Default)]
struct Described(Mutex<BTreeMap<String, Option<Unit>>>);

impl Described {
    fn note(&self, name: &KeyName, unit: Option<Unit>) {
        self.0.lock().unwrap().insert(name.as_str().to_owned(), unit);
    }
}

impl Recorder for Described {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.note(&name, unit);
    }
    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.note(&name, unit);
    }
    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.note(&name, unit);
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn every_metric_has_its_unit() {
    let described = Described::default();
    metrics::with_local_recorder(&described, || {
        Runtime::new().unwrap().block_on(async {
            let provider = LockProvider::in_memory();
            provider.lock("a").await.unwrap().release().await.unwrap();
        });
    });
    let described = described.0.into_inner().unwrap();
    let guide = include_str!("../../../mongolock/src/guide/observing.md");
    let rows = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `mongolock_")?.split_once('`'));
    let names: Vec<String> = rows.map(|(name, _)| format!("mongolock_{name}")).collect();
    assert_eq!(described.len(), names.len(), "{described:?}");
    for name in names {
        let unit = if name.ends_with("_seconds") {
            Unit::Seconds
        } else {
            Unit::Count
        };
        assert_eq!(described[&name], Some(unit), "{name}");
    }
}
