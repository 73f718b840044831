//! Metrics allocate nothing: a call takes the same number of allocations without the feature `metrics`, with it, and with
//! a recorder. The suite is a program of its own, because its allocator counts.

use std::ops::RangeInclusive;

use mongolock::{LockError, LockProvider, distributed_lock};
use tokio::runtime::{Builder, Runtime};

/// The allocations of [`CALLS`] calls in memory, of names with a template that the provider knows. Change it together with the
/// library: it is the same in every build, but for the maps of timers, whose growth depends on the time. Two more allocations in
/// each call are beyond it.
const ALLOCATIONS: RangeInclusive<u64> = 1_890..=2_010;

const CALLS: u32 = 100;

#[distributed_lock(name = "report:<id>")]
async fn rebuild(id: u32) -> Result<(), LockError> {
    Ok(())
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The allocations of these calls after the first ones, in the best of some runs: the maps of the library grow now and then.
fn allocations() -> u64 {
    let (runtime, provider) = (runtime(), LockProvider::in_memory());
    let calls = || {
        runtime.block_on(provider.scope(async {
            for id in 1000..1000 + CALLS {
                rebuild(id).await.unwrap();
            }
        }));
    };
    calls();
    let runs = (0..10).map(|_| allocation_counter::measure(calls).count_total);
    runs.min().unwrap()
}

#[test]
fn a_call_allocates_as_much_with_metrics_as_without() {
    let allocated = allocations();
    assert!(ALLOCATIONS.contains(&allocated), "{allocated}");
}

#[cfg(feature = "metrics")]
mod recorded {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use metrics::{
        Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };

    use super::{ALLOCATIONS, CALLS, allocations};

    /// Counts the measurements, and allocates only when a handle is made.
    #[derive(Default)]
    struct Counts {
        counters: Arc<AtomicU64>,
        gauges: Arc<AtomicU64>,
        histograms: Arc<Recorded>,
    }

    #[derive(Default)]
    struct Recorded(AtomicU64);

    impl HistogramFn for Recorded {
        fn record(&self, _: f64) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Recorder for Counts {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::clone(&self.counters))
        }
        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(Arc::clone(&self.gauges))
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::clone(&self.histograms))
        }
    }

    #[test]
    fn a_call_allocates_as_much_with_a_recorder() {
        let recorder = Counts::default();
        let allocated = metrics::with_local_recorder(&recorder, allocations);
        assert!(ALLOCATIONS.contains(&allocated), "{allocated}");
        let calls = u64::from(CALLS) * 11;
        assert_eq!(recorder.counters.load(Ordering::Relaxed), calls, "acquires");
        let histograms = recorder.histograms.0.load(Ordering::Relaxed);
        assert_eq!(histograms, calls * 2, "waits and holds");
    }
}
