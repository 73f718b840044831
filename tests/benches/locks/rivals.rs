//! The ways to acquire and release a lock that no other client wants: the floors, and the library. Tasks repeat one of them
//! for a time, and the ways take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mongodb::Database;
use mongolock::{LockError, LockProvider};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::bare::{Cheapest, Own};
use crate::samples::{Samples, Turns, number, ratio};
use crate::setting::Access;

/// The names of one task whose calls do not wait for their release.
const NAMES: usize = 8;

/// One way to acquire and release.
#[derive(Clone)]
pub(crate) enum Rival {
    Own(Own),
    Cheapest(Cheapest),
    /// The library with this label.
    Library(LockProvider, &'static str),
    /// The library with releases that the calls do not wait for, and the number of cycles so far.
    Unawaited(LockProvider, Arc<AtomicUsize>),
}

/// The places of the ways in what [`Rival::all`] returns.
pub(crate) const OWN: usize = 0;
pub(crate) const CHEAPEST: usize = 1;
pub(crate) const LIBRARY: usize = 2;
pub(crate) const UNAWAITED: usize = 3;

impl Rival {
    /// All ways, and the provider of those of the library.
    pub(crate) async fn all(access: &Access) -> anyhow::Result<([Self; 4], LockProvider)> {
        let (database, provider) = (access.database().await?, access.provider().await?);
        let rivals = [
            Self::own(&database),
            Self::Cheapest(Cheapest::new(&database)),
            Self::Library(provider.clone(), "mongolock"),
            Self::Unawaited(provider.clone(), Arc::default()),
        ];
        Ok((rivals, provider))
    }

    pub(crate) fn own(database: &Database) -> Self {
        Self::Own(Own::new(database))
    }

    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Own(_) => "own commands",
            Self::Cheapest(_) => "the cheapest commands",
            Self::Library(_, label) => label,
            Self::Unawaited(..) => "mongolock without waiting for the release",
        }
    }

    /// The name of a task, which each way has for itself.
    pub(crate) fn name(&self, task: usize) -> String {
        format!("{}:{task}", self.label())
    }

    /// A name that no document has yet.
    pub(crate) fn new_name(&self) -> String {
        format!("{}:{:x}", self.label(), fastrand::u128(..))
    }

    pub(crate) async fn cycle(&self, name: &str) -> anyhow::Result<Cycle> {
        let begun = Instant::now();
        let acquired = match self {
            Self::Own(own) => {
                own.acquire(name).await?;
                let acquired = Instant::now();
                own.release(name).await?;
                acquired
            }
            Self::Cheapest(cheapest) => {
                cheapest.acquire(name).await?;
                let acquired = Instant::now();
                cheapest.release(name).await?;
                acquired
            }
            Self::Library(provider, _) => {
                let guard = provider.lock(name).acquire().await?;
                let acquired = Instant::now();
                guard.release().await?;
                acquired
            }
            Self::Unawaited(provider, cycles) => {
                let turn = cycles.fetch_add(1, Ordering::Relaxed) % NAMES;
                let lock = provider.lock(format_args!("{name}:{turn}")).await_release(false);
                lock.run(|_| async { Ok::<_, LockError>(Instant::now()) }).await?
            }
        };
        let ended = Instant::now();
        Ok(Cycle {
            begun,
            acquired,
            ended,
        })
    }
}

/// One cycle.
pub(crate) struct Cycle {
    begun: Instant,
    pub(crate) acquired: Instant,
    ended: Instant,
}

/// The lengths of many cycles.
#[derive(Default)]
pub(crate) struct Lengths {
    pub(crate) all: Samples,
    pub(crate) acquires: Samples,
    pub(crate) releases: Samples,
}

impl Lengths {
    fn add(&mut self, cycle: &Cycle) {
        self.all.add(cycle.ended - cycle.begun);
        self.acquires.add(cycle.acquired - cycle.begun);
        self.releases.add(cycle.ended - cycle.acquired);
    }

    fn extend(&mut self, other: Self) {
        self.all.extend(other.all);
        self.acquires.extend(other.acquires);
        self.releases.extend(other.releases);
    }
}

/// Tasks that repeat one way at the same time.
#[derive(Clone, Copy)]
pub(crate) struct Crowd {
    pub(crate) tasks: usize,
    /// The number of the first task, by which the names of several processes differ.
    pub(crate) first_task: usize,
    pub(crate) time: Duration,
    /// Whether each cycle has a new name. Otherwise each task has one.
    pub(crate) has_new_names: bool,
}

/// What the tasks of a crowd have done.
#[derive(Default)]
pub(crate) struct Done {
    /// The cycles a second.
    pub(crate) rate: f64,
    pub(crate) lengths: Lengths,
    /// The time of the server's processor for each cycle in microseconds, if it was measured.
    pub(crate) processor: f64,
    /// The acquires and the releases that have ended within the time: two for each cycle.
    halves: usize,
}

impl Crowd {
    pub(crate) fn of(tasks: usize, time: Duration) -> Self {
        Self {
            tasks,
            first_task: 0,
            time,
            has_new_names: false,
        }
    }

    pub(crate) async fn run(self, rival: &Rival) -> anyhow::Result<Done> {
        let barrier = Arc::new(Barrier::new(self.tasks));
        let mut running = JoinSet::new();
        for task in self.first_task..self.first_task + self.tasks {
            let (rival, barrier) = (rival.clone(), Arc::clone(&barrier));
            running.spawn(async move {
                barrier.wait().await;
                self.repeat(&rival, task).await
            });
        }
        let mut done = Done::default();
        while let Some(of_task) = running.join_next().await {
            let of_task = of_task??;
            done.lengths.extend(of_task.lengths);
            done.halves += of_task.halves;
        }
        // A cycle of many tasks may be a large part of the time: only its halves that have ended count.
        done.rate = number(done.halves) / 2.0 / self.time.as_secs_f64();
        Ok(done)
    }

    /// The cycles of one task.
    async fn repeat(self, rival: &Rival, task: usize) -> anyhow::Result<Done> {
        let until = Instant::now() + self.time;
        let mut done = Done::default();
        let mut name = rival.name(task);
        while Instant::now() < until {
            if self.has_new_names {
                name = rival.new_name();
            }
            let cycle = rival.cycle(&name).await?;
            let ends = [cycle.acquired, cycle.ended];
            done.halves += ends.into_iter().filter(|end| *end <= until).count();
            done.lengths.add(&cycle);
        }
        Ok(done)
    }
}

/// What one way has done in all turns.
#[derive(Default)]
pub(crate) struct Measured {
    rates: Vec<f64>,
    /// The p50 of a cycle of each turn.
    medians: Vec<Duration>,
    /// The p99.9 of an acquire of each turn.
    pub(crate) slow_acquires: Vec<Duration>,
    /// The time of the server's processor for each cycle of each turn.
    pub(crate) processor: Turns,
    pub(crate) lengths: Lengths,
}

impl Measured {
    pub(crate) fn rates(&self) -> Turns {
        self.rates.iter().copied().collect()
    }

    /// The cycles of the fastest one of these ways in each turn.
    pub(crate) fn fastest(ways: &[Self]) -> Vec<f64> {
        let of_turn = |turn| ways.iter().map(|way| way.rates[turn]).fold(0.0, f64::max);
        (0..ways[0].rates.len()).map(of_turn).collect()
    }

    /// The cycles of the floors, the faster one in each turn.
    pub(crate) fn floor(measured: &[Self]) -> Vec<f64> {
        Self::fastest(&measured[OWN..=CHEAPEST])
    }

    /// The cycles of each turn, divided by these.
    pub(crate) fn over(&self, rates: &[f64]) -> Turns {
        let pairs = self.rates.iter().zip(rates);
        pairs.map(|(rate, other)| rate / other).collect()
    }

    /// The same for those of another way.
    pub(crate) fn over_other(&self, other: &Self) -> Turns {
        self.over(&other.rates)
    }

    /// The p50 of a cycle of each turn, divided by that of another way.
    pub(crate) fn median_over(&self, other: &Self) -> Turns {
        let pairs = self.medians.iter().zip(&other.medians);
        pairs.map(|(median, other)| ratio(*median, *other)).collect()
    }
}

/// Runs so many ways in turns; each turn begins with another one. What a way does has its place among them as its argument.
pub(crate) async fn in_turns<const N: usize>(
    turns: usize,
    mut run: impl AsyncFnMut(usize) -> anyhow::Result<Done>,
) -> anyhow::Result<[Measured; N]> {
    let mut measured = [(); N].map(|()| Measured::default());
    for turn in 0..=turns {
        for step in 0..N {
            let index = (turn + step) % N;
            let done = run(index).await?;
            // The first turn opens connections and makes documents.
            if turn > 0 {
                let measured = &mut measured[index];
                measured.rates.push(done.rate);
                measured.medians.push(done.lengths.all.p50());
                measured.slow_acquires.push(done.lengths.acquires.p999());
                measured.processor.add(done.processor);
                measured.lengths.extend(done.lengths);
            }
        }
    }
    Ok(measured)
}
