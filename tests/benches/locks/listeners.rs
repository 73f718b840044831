//! Many processes that listen for releases, while others release locks that none of them waits for.
//!
//! A listener is a provider with a client of its own and a waiter for a held name, so that its change stream is open. The
//! server sends each release to every stream, unless the stream's own filter leaves it out. The figure is the processor's
//! time of the server for each foreign cycle of acquire and release, beside the same cycles without listeners. At the same
//! time locks that listeners wait for are released, to measure wake-ups.

use std::time::{Duration, Instant};

use mongolock::{LockGuard, LockProvider};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::report::Report;
use crate::samples::{Samples, Turns, number, per_second};
use crate::server::Server;
use crate::setting::Setting;
use crate::worker::warm_up;

/// Foreign cycles of acquire and release a second.
const RATE: u32 = 400;

/// The tasks that share the foreign cycles.
const TASKS: u32 = 16;

/// The pause between two measured wake-ups.
const BETWEEN_WAKE_UPS: Duration = Duration::from_millis(100);

/// The time in which listeners open their streams.
const SETTLE: Duration = Duration::from_secs(4);

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let count = setting.pick(50, 20);
    let time = setting.pick(Duration::from_secs(15), Duration::from_secs(5));
    let database = setting.database().await?;
    let server = Server::of(database.client()).await?;
    let foreign = LockProvider::new(&database);
    warm_up(&foreign, 10).await?;
    let (mut without, mut with, mut ratios) = (Turns::default(), Turns::default(), Turns::default());
    let (mut rates, mut commands) = (Turns::default(), Turns::default());
    let mut wake_ups = Samples::default();
    for _ in 0..setting.pick(3, 2) {
        let (cycles, load) = server.during(release_foreign(&foreign, time)).await?;
        let floor = load.of_each(cycles);
        without.add(floor);

        let mut room = Room::open(setting, count).await?;
        let working = async { tokio::try_join!(release_foreign(&foreign, time), room.wake(time)) };
        let ((cycles, woken), load) = server.during(working).await?;
        room.close().await?;
        wake_ups.extend(woken);
        // A wake-up is a cycle of the holder and one of the listener.
        with.add(load.of_each(cycles));
        ratios.add(load.of_each(cycles) / floor);
        rates.add(per_second(cycles, load.time));
        commands.add(load.commands);
    }
    foreign.shutdown().await;
    let who = format!("{count} listeners");
    report.figure(format!("{who}: foreign cycles"), &rates, "/s");
    report.figure(format!("{who}: commands, by the server's count"), &commands, "/s");
    report.figure(
        "no listener: the server's processor time of a cycle",
        &without,
        "us",
    );
    report.figure(
        format!("{who}: the server's processor time of a cycle"),
        &with,
        "us",
    );
    report.at_most(5.0, format!("{who}: the same / without"), &ratios, "x");
    let p50 = wake_ups.p50().as_secs_f64() * 1e3;
    report.at_most(40.0, format!("{who}: release to hold, p50"), p50, "ms");
    report.millis(format!("{who}: release to hold, p95"), wake_ups.p95());
    report.millis(format!("{who}: release to hold, max"), wake_ups.max());
    report.figure(
        format!("{who}: measured wake-ups"),
        number(wake_ups.len()),
        "wake-ups",
    );
    Ok(())
}

/// Acquires and releases locks at an even rate, and returns how many cycles there were.
async fn release_foreign(provider: &LockProvider, time: Duration) -> anyhow::Result<u64> {
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let lock = provider.lock(format_args!("listeners:foreign:{task}"));
        tasks.spawn(async move {
            let mut ticks = interval(Duration::from_secs(1) * TASKS / RATE);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut cycles = 0;
            while Instant::now() < end {
                ticks.tick().await;
                lock.acquire().await?.release().await?;
                cycles += 1;
            }
            anyhow::Ok(cycles)
        });
    }
    let mut cycles = 0;
    while let Some(of_task) = tasks.join_next().await {
        cycles += of_task??;
    }
    Ok(cycles)
}

/// The listeners, and the holder of the names that they wait for.
struct Room {
    holder: LockProvider,
    listeners: Vec<Listener>,
    next: usize,
}

struct Listener {
    name: String,
    provider: LockProvider,
    held: Option<LockGuard>,
    /// The waiter, which releases the lock at once and returns when it had it.
    waiter: JoinHandle<anyhow::Result<Instant>>,
}

impl Room {
    async fn open(setting: &Setting, count: usize) -> anyhow::Result<Self> {
        let holder = LockProvider::new(&setting.database().await?);
        let mut listeners = Vec::with_capacity(count);
        for index in 0..count {
            let name = format!("listeners:{index}");
            let database = setting.database().await?;
            let provider = LockProvider::builder(&database).acquire_timeout(None).build()?;
            let held = Some(holder.lock(&*name).acquire().await?);
            let waiter = listen(&provider, &name);
            listeners.push(Listener {
                name,
                provider,
                held,
                waiter,
            });
        }
        sleep(SETTLE).await;
        Ok(Self {
            holder,
            listeners,
            next: 0,
        })
    }

    /// Releases the lock of one listener after the other, and returns how long it took until the listener had it.
    async fn wake(&mut self, time: Duration) -> anyhow::Result<Samples> {
        let end = Instant::now() + time;
        let mut samples = Samples::default();
        while Instant::now() < end {
            let index = self.next % self.listeners.len();
            let listener = &mut self.listeners[index];
            self.next += 1;
            let Some(guard) = listener.held.take() else {
                continue;
            };
            let released = Instant::now();
            guard.release().await?;
            samples.add((&mut listener.waiter).await?? - released);
            listener.held = Some(self.holder.lock(&*listener.name).acquire().await?);
            listener.waiter = listen(&listener.provider, &listener.name);
            sleep(BETWEEN_WAKE_UPS).await;
        }
        Ok(samples)
    }

    async fn close(self) -> anyhow::Result<()> {
        let mut closing = JoinSet::new();
        for listener in self.listeners {
            listener.waiter.abort();
            drop(listener.held);
            closing.spawn(async move { listener.provider.shutdown().await });
        }
        while let Some(closed) = closing.join_next().await {
            closed?;
        }
        self.holder.shutdown().await;
        Ok(())
    }
}

fn listen(provider: &LockProvider, name: &str) -> JoinHandle<anyhow::Result<Instant>> {
    let lock = provider.lock(name);
    tokio::spawn(async move {
        let guard = lock.acquire().await?;
        let held = Instant::now();
        guard.release().await?;
        Ok(held)
    })
}
