//! The samples of one quantity.

use std::time::Duration;

/// Measured durations, with their mean and percentiles.
#[derive(Clone, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn sum(&self) -> Duration {
        self.0.iter().sum()
    }

    pub(crate) fn mean(&self) -> Duration {
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.sum().checked_div(count).unwrap_or_default()
    }

    pub(crate) fn max(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }

    pub(crate) fn p50(&self) -> Duration {
        self.percentile(50)
    }

    pub(crate) fn p95(&self) -> Duration {
        self.percentile(95)
    }

    fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let index = sorted.len() * percent / 100;
        sorted
            .get(index.min(sorted.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }
}

impl Extend<Duration> for Samples {
    fn extend<T: IntoIterator<Item = Duration>>(&mut self, samples: T) {
        self.0.extend(samples);
    }
}

impl IntoIterator for Samples {
    type Item = Duration;
    type IntoIter = std::vec::IntoIter<Duration>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The ratio of a measured duration to its baseline.
pub(crate) fn ratio(measured: Duration, baseline: Duration) -> f64 {
    measured.as_secs_f64() / baseline.as_secs_f64()
}
