//! The ways to acquire and release a lock that no other client wants: the floors, and the library. Tasks repeat one of them
//! for a time, and the ways take turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mongodb::Database;
use mongolock::LockProvider;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::bare::{Cheapest, Own};
use crate::samples::{Samples, millis, number};
use crate::setting::Access;

/// One way to acquire and release.
#[derive(Clone)]
pub(crate) enum Rival {
    Own(Own),
    Cheapest(Cheapest),
    Library(LockProvider),
}

/// The places of the ways in what [`Rival::all`] returns.
pub(crate) const OWN: usize = 0;
pub(crate) const LIBRARY: usize = 2;

impl Rival {
    /// All ways.
    pub(crate) async fn all(access: &Access) -> anyhow::Result<[Self; 3]> {
        let database = access.database().await?;
        let cheapest = Self::Cheapest(Cheapest::new(&database));
        let library = Self::Library(access.provider().await?);
        Ok([Self::own(&database), cheapest, library])
    }

    pub(crate) fn own(database: &Database) -> Self {
        Self::Own(Own::new(database))
    }

    /// The name of a task, which each way has for itself.
    pub(crate) fn name(&self, task: usize) -> String {
        let way = match self {
            Self::Own(_) => "own commands",
            Self::Cheapest(_) => "the cheapest commands",
            Self::Library(_) => "mongolock",
        };
        format!("{way}:{task}")
    }

    /// Acquires and releases this name; returns when each began, and when the release ended.
    pub(crate) async fn cycle(&self, name: &str) -> anyhow::Result<[Instant; 3]> {
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
            Self::Library(provider) => {
                let guard = provider.lock(name).acquire().await?;
                let acquired = Instant::now();
                guard.release().await?;
                acquired
            }
        };
        Ok([begun, acquired, Instant::now()])
    }

    /// Shuts down the provider of the library.
    pub(crate) async fn end(&self) {
        if let Self::Library(provider) = self {
            provider.shutdown().await;
        }
    }
}

/// Tasks that repeat one way at the same time, each with a name of its own.
#[derive(Clone, Copy)]
pub(crate) struct Crowd {
    tasks: usize,
    time: Duration,
}

/// What the tasks of a crowd have done.
#[derive(Default)]
pub(crate) struct Done {
    /// The cycles a second.
    pub(crate) rate: f64,
    /// The lengths of cycles and of their first halves, in milliseconds.
    pub(crate) cycles: Samples,
    pub(crate) acquires: Samples,
}

impl Crowd {
    pub(crate) fn of(tasks: usize, time: Duration) -> Self {
        Self { tasks, time }
    }

    pub(crate) async fn run(self, rival: &Rival) -> anyhow::Result<Done> {
        let barrier = Arc::new(Barrier::new(self.tasks));
        let mut running = JoinSet::new();
        for task in 0..self.tasks {
            let (rival, barrier) = (rival.clone(), Arc::clone(&barrier));
            running.spawn(async move {
                barrier.wait().await;
                let until = Instant::now() + self.time;
                let (name, mut cycles) = (rival.name(task), Vec::new());
                while Instant::now() < until {
                    cycles.push(rival.cycle(&name).await?);
                }
                anyhow::Ok((until, cycles))
            });
        }
        // A cycle of many tasks may be a large part of the time: only its halves that have ended in it count.
        let (mut done, mut halves) = (Done::default(), 0);
        while let Some(of_task) = running.join_next().await {
            let (until, cycles) = of_task??;
            for [begun, acquired, ended] in cycles {
                halves += [acquired, ended].into_iter().filter(|end| *end <= until).count();
                done.cycles.add(millis(ended - begun));
                done.acquires.add(millis(acquired - begun));
            }
        }
        done.rate = number(halves) / 2.0 / self.time.as_secs_f64();
        Ok(done)
    }
}

/// Runs so many ways in turns; each turn begins with another one. What a way does has its place among them as its argument. The
/// outcome is that of each way in each turn.
pub(crate) async fn in_turns<const N: usize>(
    turns: usize,
    mut run: impl AsyncFnMut(usize) -> anyhow::Result<Done>,
) -> anyhow::Result<[Vec<Done>; N]> {
    let mut done = [(); N].map(|()| Vec::new());
    for turn in 0..=turns {
        for step in 0..N {
            let index = (turn + step) % N;
            let of_turn = run(index).await?;
            // The first turn opens connections and makes documents.
            if turn > 0 {
                done[index].push(of_turn);
            }
        }
    }
    Ok(done)
}

/// A figure of each turn.
pub(crate) fn figures(done: &[Done], of: impl Fn(&Done) -> f64) -> Samples {
    done.iter().map(of).collect()
}

/// The same, divided by that of another way.
pub(crate) fn over(done: &[Done], other: &[Done], of: impl Fn(&Done) -> f64) -> Samples {
    let pairs = done.iter().zip(other);
    pairs.map(|(one, other)| of(one) / of(other)).collect()
}
