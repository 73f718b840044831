//! Many measurements of one thing.

use std::time::Duration;

/// Durations of single events.
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
        self.percentile(500)
    }

    pub(crate) fn p95(&self) -> Duration {
        self.percentile(950)
    }

    pub(crate) fn p99(&self) -> Duration {
        self.percentile(990)
    }

    pub(crate) fn p999(&self) -> Duration {
        self.percentile(999)
    }

    fn percentile(&self, per_mille: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let index = sorted.len() * per_mille / 1000;
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

impl FromIterator<Duration> for Samples {
    fn from_iter<T: IntoIterator<Item = Duration>>(samples: T) -> Self {
        Self(samples.into_iter().collect())
    }
}

impl IntoIterator for Samples {
    type Item = Duration;
    type IntoIter = std::vec::IntoIter<Duration>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// One figure of several turns of a run.
#[derive(Clone, Default)]
pub(crate) struct Turns(Vec<f64>);

impl Turns {
    pub(crate) fn add(&mut self, figure: f64) {
        self.0.push(figure);
        self.0.sort_unstable_by(f64::total_cmp);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        match self.0.get(middle) {
            None => f64::NAN,
            Some(upper) if self.0.len() % 2 == 1 => *upper,
            Some(upper) => f64::midpoint(self.0[middle - 1], *upper),
        }
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }
}

impl FromIterator<f64> for Turns {
    fn from_iter<T: IntoIterator<Item = f64>>(figures: T) -> Self {
        let mut turns = Self::default();
        figures.into_iter().for_each(|figure| turns.add(figure));
        turns
    }
}

/// Compares two ways in turns; each is the first one in every second round. The first rounds do not count. The argument of a
/// run is whether it is the second way.
pub(crate) async fn compare(
    warm_up: u32,
    rounds: u32,
    mut run: impl AsyncFnMut(bool) -> anyhow::Result<Duration>,
) -> anyhow::Result<[Samples; 2]> {
    let mut samples = [(); 2].map(|()| Samples::default());
    for round in 0..warm_up + rounds {
        let first = round % 2 == 1;
        for is_second in [first, !first] {
            let took = run(is_second).await?;
            if round >= warm_up {
                samples[usize::from(is_second)].add(took);
            }
        }
    }
    Ok(samples)
}

/// The first divided by the second.
pub(crate) fn ratio(measured: Duration, floor: Duration) -> f64 {
    measured.as_secs_f64() / floor.as_secs_f64()
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn number(count: impl TryInto<u64>) -> f64 {
    count.try_into().unwrap_or(u64::MAX) as f64
}

pub(crate) fn per_second(count: impl TryInto<u64>, time: Duration) -> f64 {
    number(count) / time.as_secs_f64()
}
