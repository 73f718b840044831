//! The metrics by the bridge to OpenTelemetry that the guide names.

use std::collections::BTreeMap;

use metrics_opentelemetry::opentelemetry::metrics::MeterProvider;
use metrics_opentelemetry::{OpenTelemetryMetrics, OpenTelemetryRecorder};
use mongolock::LockProvider;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, GaugeDataPoint, MetricData, ScopeMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use tokio::runtime::Runtime;

/// The names of the exported metrics with their values: the sum of the counters, the last value of the gauges and the
/// number of measurements of the histograms, over all labels.
fn exported(exporter: &InMemoryMetricExporter) -> BTreeMap<String, f64> {
    let exports = exporter.get_finished_metrics().unwrap();
    let last = exports.last().expect("metrics were exported");
    last.scope_metrics()
        .flat_map(ScopeMetrics::metrics)
        .map(|metric| (metric.name().to_owned(), total(metric.data())))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn total(data: &AggregatedMetrics) -> f64 {
    match data {
        AggregatedMetrics::U64(MetricData::Sum(counter)) => {
            counter.data_points().map(|point| point.value() as f64).sum()
        }
        AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
            gauge.data_points().map(GaugeDataPoint::value).sum()
        }
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
            histogram.data_points().map(|point| point.count() as f64).sum()
        }
        other => panic!("a kind of metric that the library does not have: {other:?}"),
    }
}

#[test]
fn the_bridge_to_opentelemetry_exports_the_metrics() {
    let exporter = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(exporter.clone()).build();
    let meters = SdkMeterProvider::builder().with_reader(reader).build();
    let recorder = OpenTelemetryRecorder::new(OpenTelemetryMetrics::new(meters.meter("service")));
    metrics::with_local_recorder(&recorder, || {
        Runtime::new().unwrap().block_on(async {
            // A gauge counts the locks of all providers, although each of them has handles of its own.
            let (one, other) = (LockProvider::in_memory(), LockProvider::in_memory());
            let _held = (one.lock("a").await.unwrap(), other.lock("a").await.unwrap());
            other.lock("b").await.unwrap().release().await.unwrap();
            assert!(one.lock("a").try_acquire().await.unwrap().is_none());
            meters.force_flush().unwrap();
        });
    });
    let values = exported(&exporter);
    let expected = [
        ("mongolock_acquires_total", 4.0),
        ("mongolock_held", 2.0),
        ("mongolock_hold_seconds", 1.0),
        ("mongolock_wait_seconds", 4.0),
        ("mongolock_waiting", 0.0),
    ];
    for (name, value) in expected {
        assert_eq!(values.get(name), Some(&value), "{name} in {values:?}");
    }
    meters.shutdown().unwrap();
}
