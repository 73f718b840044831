//! Scenes that measure the order between processes: each rule of the line that exists for a figure has one.
//!
//! Tasks ask for one lock again and again without a fault. `README.md` in this folder has the last figures.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use super::between;
use super::knobs::{Knobs, Way};
use super::link::Link;
use super::plan::Scenario;
use super::process::Process;
use super::server::Server;
use super::tests::{in_virtual_time, number};
use crate::provider::LockProviderBuilder;
use crate::sync::lock;
use crate::{DistributedLock, LockProvider};

/// The processes find out about each other in this time, which is not measured.
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(20);

const NAME: &str = "0";

const NEAR: Way = Way::late(0, 0);
/// The way of a process that is far away by so many milliseconds.
const FAR: [Way; 2] = [NEAR.by(3), NEAR.by(20)];
/// The way on a machine with other work.
const BUSY: Way = Way::late(200, 8);
/// The way of a process that is slow beside the others.
const SLOW: Way = Way::late(500, 8);
/// The way of a process that gets no processor from time to time.
const STALLED: Way = Way::late(100, 25);

/// The names of the figures of a run, in their order.
const FIGURES: [&str; 7] = [
    "longest / mean",
    "p99 / mean",
    "least share",
    "time / work",
    "commands / turn",
    "replies / turn",
    "without line / s",
];

/// One competition for one lock.
#[derive(Clone, Copy)]
struct Scene {
    name: &'static str,
    processes: usize,
    /// The number of tasks in each process.
    tasks: usize,
    /// The way between each process and the server.
    way: Way,
    /// The way between the last process and the server.
    last_way: Way,
    /// The length of a critical section in milliseconds.
    section: u64,
    /// The number of documents of expired waiters in front of the line at the beginning.
    expired: usize,
    /// The number of programs that stand in no line, as those with DistributedLock.MongoDB.
    without_line: usize,
}

impl Scene {
    const fn of(name: &'static str, processes: usize, tasks: usize) -> Self {
        Self {
            name,
            processes,
            tasks,
            way: NEAR,
            last_way: NEAR,
            section: 3,
            expired: 0,
            without_line: 0,
        }
    }

    const fn all(self, way: Way) -> Self {
        Self { way, ..self }.last(way)
    }

    const fn last(self, last_way: Way) -> Self {
        Self { last_way, ..self }
    }

    const fn behind(self, expired: usize) -> Self {
        Self { expired, ..self }
    }

    const fn beside(self, without_line: usize) -> Self {
        Self { without_line, ..self }
    }

    const fn sections_of(self, section: u64) -> Self {
        Self { section, ..self }
    }
}

const SCENES: [Scene; 21] = [
    Scene::of("4 × 4", 4, 4),
    Scene::of("4 × 2", 4, 2),
    Scene::of("8 × 1", 8, 1),
    Scene::of("2 × 1", 2, 1),
    Scene::of("4 × 4, one 3 ms farther", 4, 4).last(FAR[0]),
    Scene::of("8 × 1, one 3 ms farther", 8, 1).last(FAR[0]),
    Scene::of("4 × 4, one 20 ms farther", 4, 4).last(FAR[1]),
    Scene::of("8 × 1, one 20 ms farther", 8, 1).last(FAR[1]),
    Scene::of("8 × 1, one slow", 8, 1).last(SLOW),
    Scene::of("4 × 4, one stalled", 4, 4).last(STALLED),
    Scene::of("4 × 2, one stalled", 4, 2).last(STALLED),
    Scene::of("8 × 1, all stalled", 8, 1).all(STALLED),
    Scene::of("4 × 4, busy", 4, 4).all(BUSY),
    Scene::of("4 × 2, busy", 4, 2).all(BUSY),
    Scene::of("8 × 1, busy", 8, 1).all(BUSY),
    Scene::of("8 × 1, busy, behind 4 expired", 8, 1)
        .all(BUSY)
        .behind(4),
    Scene::of("4 × 4 beside 4 without line", 4, 4).beside(4),
    Scene::of("8 × 1 beside 4 without line", 8, 1).beside(4),
    Scene::of("16 × 1, sections of 50 ms", 16, 1).sections_of(50),
    Scene::of("16 × 1", 16, 1),
    Scene::of("64 × 1", 64, 1),
];

/// What the tasks and the programs without line of a run have counted.
#[derive(Default)]
struct Counts {
    /// The waits that began in the measured time.
    waits: Vec<Duration>,
    /// The number of sections of each process in the measured time.
    sections: Vec<u32>,
    /// The number of sections of the programs without line in it.
    strange: u32,
}

/// One run of a scene.
struct Run {
    scene: Scene,
    server: Arc<Server>,
    begin: Instant,
    counts: Mutex<Counts>,
}

impl Run {
    async fn figures(scene: Scene, seed: u64) -> [f64; FIGURES.len()] {
        let server = Server::new(Scenario::Calm, Default::default());
        server.add_expired_waiters(NAME, scene.expired);
        let run = Arc::new(Self {
            scene,
            server: Arc::new(server),
            begin: Instant::now() + WARM_UP,
            counts: Mutex::default(),
        });
        lock(&run.counts).sections = vec![0; scene.processes];
        let rng = &mut Rng::with_seed(seed);
        for number in 0..scene.processes {
            run.start(number, rng);
        }
        for number in 0..scene.without_line {
            tokio::spawn(Arc::clone(&run).without_line(number, rng.fork()));
        }
        sleep_until(run.begin).await;
        let before = run.costs();
        sleep_until(run.begin + MEASURED).await;
        let costs = run.costs();
        // Calls that still wait end soon, because no task starts another one.
        sleep(WARM_UP).await;
        let breaches = run.server.ledger.breaches();
        assert!(breaches.is_empty(), "{}: {breaches:?}", scene.name);
        run.summary([0, 1, 2].map(|cost| costs[cost] - before[cost]))
    }

    fn start(self: &Arc<Self>, number: usize, rng: &mut Rng) {
        let is_last = number + 1 == self.scene.processes;
        let way = if is_last {
            self.scene.last_way
        } else {
            self.scene.way
        };
        let knobs = Knobs {
            way: Some(way),
            ..Knobs::default()
        };
        let process = Process::new(number, rng.u64(..), 0);
        let link = Link::new(&self.server, &process, &knobs, rng.fork());
        let provider = LockProviderBuilder::simulated(link)
            .owner(format!("p{number}"))
            .with_defaults();
        for _ in 0..self.scene.tasks {
            let task = Arc::clone(self).task(number, provider.clone(), between(rng, 0, 20));
            process.spawn(task);
        }
    }

    async fn task(self: Arc<Self>, process: usize, provider: LockProvider, pause: Duration) {
        let asks: DistributedLock = provider.lock(NAME).acquire_timeout(None);
        sleep(pause).await;
        while !self.is_over() {
            let asked = Instant::now();
            let guard = asks.clone().acquire().await.unwrap();
            self.note_section(process, asked);
            sleep(Duration::from_millis(self.scene.section)).await;
            guard.release().await.unwrap();
        }
    }

    /// Notes that a section of a process begins, whose task has asked for the lock at that time.
    fn note_section(&self, process: usize, asked: Instant) {
        let mut counts = lock(&self.counts);
        if asked >= self.begin {
            counts.waits.push(asked.elapsed());
        }
        counts.sections[process] += u32::from(self.is_measured());
    }

    /// Runs a program with DistributedLock.MongoDB: it asks at once after its release, and after 10 to 800 ms if the lock was
    /// held.
    async fn without_line(self: Arc<Self>, number: usize, mut rng: Rng) {
        let (name, memory): (Arc<str>, _) = (NAME.into(), &self.server.memory);
        for claim in 0.. {
            let id: Arc<str> = format!("net-{number}-{claim}").into();
            sleep(NEAR.draw(&mut rng)).await;
            let has_lock = memory.neighbour_claims(&name, &id, Duration::from_secs(30));
            sleep(NEAR.draw(&mut rng)).await;
            if !has_lock {
                sleep(between(&mut rng, 10, 800)).await;
                continue;
            }
            lock(&self.counts).strange += u32::from(self.is_measured());
            sleep(Duration::from_millis(self.scene.section)).await;
            sleep(NEAR.draw(&mut rng)).await;
            memory.neighbour_releases(&name, &id);
            sleep(NEAR.draw(&mut rng)).await;
        }
    }

    fn is_measured(&self) -> bool {
        Instant::now() >= self.begin && !self.is_over()
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.begin + MEASURED
    }

    /// The numbers of commands, replies of streams and turns of the processes until now.
    fn costs(&self) -> [u64; 3] {
        let traffic = &self.server.traffic;
        let commands: u64 = self.server.counts().iter().sum();
        [
            commands + traffic.line_commands.load(Relaxed),
            traffic.stream_replies.load(Relaxed),
            traffic.grants.load(Relaxed),
        ]
    }

    #[expect(clippy::cast_precision_loss)]
    fn summary(&self, [commands, replies, turns]: [u64; 3]) -> [f64; FIGURES.len()] {
        let counts = &mut *lock(&self.counts);
        let waits = &mut counts.waits;
        waits.sort_unstable();
        let mean = waits.iter().sum::<Duration>().as_secs_f64() / waits.len() as f64;
        let slow = waits[waits.len() * 99 / 100].as_secs_f64();
        let own: u32 = counts.sections.iter().sum();
        let least = counts.sections.iter().min().copied().unwrap_or_default();
        let work = Duration::from_millis(self.scene.section) * (own + counts.strange);
        [
            waits[waits.len() - 1].as_secs_f64() / mean,
            slow / mean,
            f64::from(least) * self.scene.processes as f64 / f64::from(own),
            MEASURED.as_secs_f64() / work.as_secs_f64(),
            commands as f64 / turns as f64,
            replies as f64 / turns as f64,
            f64::from(counts.strange) / MEASURED.as_secs_f64(),
        ]
    }
}

#[test]
#[ignore = "it prints figures to be compared, and checks nothing; MONGOLOCK_SEEDS has the number of runs of each scene"]
fn scenes() {
    let seeds = number("MONGOLOCK_SEEDS").unwrap_or(10);
    println!(
        "| scene | {} |\n|---|{}",
        FIGURES.join(" | "),
        "---|".repeat(FIGURES.len())
    );
    for scene in SCENES {
        let runs = (0..seeds).map(|seed| {
            fastrand::seed(seed);
            in_virtual_time(Run::figures(scene, seed))
        });
        let runs: Vec<_> = runs.collect();
        let figure = |figure: usize| {
            let mut values: Vec<f64> = runs.iter().map(|run| run[figure]).collect();
            values.sort_by(f64::total_cmp);
            let (least, greatest) = (values[0], values[values.len() - 1]);
            format!("{:.2} ({least:.2} to {greatest:.2})", values[values.len() / 2])
        };
        let row: Vec<String> = (0..FIGURES.len()).map(figure).collect();
        println!("| {} | {} |", scene.name, row.join(" | "));
    }
}
