//! Many measurements of one thing.

use std::time::Duration;

/// What was measured of several events or turns. Times are in milliseconds, unless a figure says another unit.
#[derive(Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn add(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / number(self.0.len())
    }

    pub(crate) fn min(&self) -> f64 {
        self.percentile(0)
    }

    pub(crate) fn max(&self) -> f64 {
        self.percentile(1000)
    }

    pub(crate) fn p50(&self) -> f64 {
        self.percentile(500)
    }

    /// The sample of which this part in a thousand is not greater.
    pub(crate) fn percentile(&self, per_mille: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let index = sorted.len() * per_mille / 1000;
        let index = index.min(sorted.len().saturating_sub(1));
        sorted.get(index).copied().unwrap_or(f64::NAN)
    }

    /// The range of several turns, for a table.
    pub(crate) fn range(&self) -> String {
        if self.0.len() < 2 {
            return String::new();
        }
        format!("{} to {}", short(self.min()), short(self.max()))
    }
}

impl From<f64> for Samples {
    fn from(figure: f64) -> Self {
        Self(vec![figure])
    }
}

impl From<usize> for Samples {
    fn from(count: usize) -> Self {
        number(count).into()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<T: IntoIterator<Item = f64>>(figures: T) -> Self {
        Self(figures.into_iter().collect())
    }
}

/// A number with three digits, or with all of those before its point.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

pub(crate) fn millis(value: Duration) -> f64 {
    value.as_secs_f64() * 1e3
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn number(count: impl TryInto<u64>) -> f64 {
    count.try_into().unwrap_or(u64::MAX) as f64
}

pub(crate) fn per_second(count: impl TryInto<u64>, time: Duration) -> f64 {
    number(count) / time.as_secs_f64()
}
