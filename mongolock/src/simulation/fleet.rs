use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::link::Link;
use super::plan::{Plan, Scenario};
use super::process::Process;
use super::server::Server;
use super::turns::Turns;
use super::worker::Worker;
use super::{between, chance};
use crate::LockProvider;
use crate::provider::LockProviderBuilder;
use crate::sync::lock;

/// The time in which late requests, late releases and leases end.
const AFTERMATH: Duration = Duration::from_secs(130);

/// The longest time without the beginning or the end of a hold while a caller waits and nothing fails: leases and the last
/// late requests end, and the claims that these leave are released.
const STALL: Duration = Duration::from_secs(45);

/// What all parts of a simulation share.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) server: Arc<Server>,
    /// The longest wait of a call with a limit in milliseconds.
    pub(super) longest_wait: AtomicU64,
    /// The time from which no new calls begin.
    end: Instant,
    /// The last time at which a hold began or ended.
    progress: Mutex<Instant>,
}

/// A process with its provider and its workers.
struct Member {
    process: Arc<Process>,
    provider: LockProvider,
    workers: Vec<JoinHandle<()>>,
}

enum Fate {
    Crash,
    ShutDown,
    Survive,
}

impl World {
    pub(super) async fn run(plan: Plan) -> Arc<Self> {
        let mut server = Server::new(plan.scenario, plan.knobs.takeover_margins);
        server.turns = Turns::of(&plan);
        server.add_expired_waiters("0", plan.knobs.expired_waiters);
        let world = Arc::new(Self {
            server: Arc::new(server),
            longest_wait: AtomicU64::new(0),
            end: Instant::now() + plan.lasts,
            progress: Mutex::new(Instant::now()),
            plan,
        });
        let places: Vec<_> = (0..world.plan.processes)
            .map(|place| tokio::spawn(Arc::clone(&world).occupy(place)))
            .collect();
        let disturbances = world.disturb();
        world.turn_the_clock().await;
        for disturbance in disturbances {
            if let Err(error) = disturbance.await {
                world.breach(format!("a disturbance ended with {error}"));
            }
        }
        world.server.calm.store(true, Relaxed);
        for place in places {
            if let Err(error) = place.await {
                world.breach(format!("a process ended with {error}"));
            }
        }
        for breach in world.server.turns.breaches() {
            world.breach(breach);
        }
        let left: Vec<_> = world.server.memory.taken();
        if !left.is_empty() {
            world.breach(format!("still held at the end: {left:?}"));
        }
        world
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Notes that a hold begins or ends.
    pub(super) fn note_progress(&self) {
        *lock(&self.progress) = Instant::now();
    }

    pub(super) fn is_calm(&self) -> bool {
        self.plan.scenario == Scenario::Calm
    }

    /// Runs one process after another in one slot of the fleet.
    async fn occupy(self: Arc<Self>, place: usize) {
        let mut number = place;
        loop {
            let rng = &mut self.plan.rng(number as u64 + 1);
            let member = self.start(number, rng);
            let fate = self.fate(&member.process, rng).await;
            self.server.turns.crashed(&member.process);
            match fate {
                Fate::Survive => return self.see_out(member).await,
                Fate::Crash => {
                    self.server.handles.process_killed();
                    member.process.crash();
                }
                Fate::ShutDown => self.shut_down(member).await,
            }
            sleep(between(rng, 0, 3000)).await;
            number += self.plan.processes;
        }
    }

    fn start(self: &Arc<Self>, number: usize, rng: &mut Rng) -> Member {
        self.server.note(|| format!("{number} starts"));
        let process = Process::new(number, rng.u64(..), self.plan.late_polls);
        self.server.turns.begin(&process);
        let link = Link::new(&self.server, &process, &self.plan.knobs, rng.fork());
        let mut builder = LockProviderBuilder::simulated(link)
            .owner(format!("p{number}"))
            .wake_up(chance(rng, self.plan.wake_ups))
            .takeover_margin(self.takeover_margin(rng));
        // Such frequent renewals overtake earlier ones that are still in the server.
        let is_hasty = self.plan.knobs.late_effects > 0 && rng.bool();
        if self.plan.scenario != Scenario::ManyLeases && (is_hasty || chance(rng, 100)) {
            let shortest = self.plan.least_expiry().max(Duration::from_secs(1));
            builder = builder.renew_interval(shortest.mul_f64(0.02 + 0.4 * rng.f64()));
        }
        let provider = builder.with_defaults();
        // In many processes one query looks at all awaited locks, however few they are.
        let look_from = *rng.choice(&[1, 2, usize::MAX]).unwrap_or(&1);
        // Then a waiter looks before it stands in line, with pauses that the line does not shorten.
        let looks_early =
            look_from < usize::MAX && self.plan.scenario == Scenario::Turns && self.plan.wake_ups == 0;
        let look_from = if looks_early { usize::MAX } else { look_from };
        provider.engine().notifier.look_from(look_from);
        process.contacts.wake_ups.begin(provider.engine());
        let worker = |rng| Worker {
            world: Arc::clone(self),
            process: Arc::clone(&process),
            provider: provider.clone(),
            rng,
        };
        let workers = (0..self.plan.workers)
            .map(|_| process.spawn(worker(rng.fork()).work()))
            .collect();
        Member {
            process,
            provider,
            workers,
        }
    }

    fn takeover_margin(&self, rng: &mut Rng) -> Duration {
        let (least, greatest) = self.plan.knobs.takeover_margins;
        if greatest.is_zero() {
            return Duration::ZERO;
        }
        let millis = |margin: Duration| u64::try_from(margin.as_millis()).unwrap_or(u64::MAX);
        between(rng, millis(least), millis(greatest))
    }

    /// Pauses the process at random times, until its end or the end of all faults.
    async fn fate(&self, process: &Process, rng: &mut Rng) -> Fate {
        let (has_crashes, has_pauses) = (self.plan.has_crashes(), self.plan.has_pauses());
        while !self.is_over() {
            let next = Instant::now() + between(rng, 0, 8000);
            sleep_until(next.min(self.end)).await;
            match rng.u8(0..6) {
                _ if self.is_over() => {}
                0 if has_crashes => return Fate::Crash,
                1 if has_crashes => return Fate::ShutDown,
                _ if has_pauses => self.pause(process, rng).await,
                _ => {}
            }
        }
        Fate::Survive
    }

    async fn pause(&self, process: &Process, rng: &mut Rng) {
        let longest = if rng.bool() { 200 } else { 8000 };
        self.server.note(|| format!("{} pauses", process.number));
        process.pause();
        sleep(between(rng, 0, longest)).await;
        self.server.note(|| format!("{} resumes", process.number));
        process.resume(rng);
    }

    async fn shut_down(&self, member: Member) {
        self.server
            .note(|| format!("{} shuts down", member.process.number));
        let provider = member.provider.clone();
        let shutting_down = member.process.spawn(async move { provider.shutdown().await });
        if timeout(Duration::from_secs(16), shutting_down).await.is_err() {
            self.breach(format!("{} does not end its shutdown", member.process.number));
        }
        self.see_out(member).await;
    }

    /// Checks that all workers end, and that the provider has no task, queue or stream left.
    async fn see_out(&self, member: Member) {
        let number = member.process.number;
        for worker in member.workers {
            match timeout(self.plan.patience(), self.unless_stalled(worker)).await {
                Ok(None) => {
                    return self.breach(format!("a worker of {number} waits, and no hold begins or ends"));
                }
                Ok(Some(Ok(()))) => {}
                Ok(Some(Err(error))) => self.breach(format!("a worker of {number} ended with {error}")),
                Err(_) => return self.breach(format!("a worker of {number} does not end")),
            }
        }
        sleep(AFTERMATH).await;
        let engine = member.provider.engine();
        let idle = (
            engine.queues.is_idle(),
            engine.renewer.is_idle(),
            engine.notifier.is_idle(),
        );
        if idle != (true, true, true) {
            self.breach(format!(
                "{number} leaves something behind: queues, renewer, wake-ups are idle: {idle:?}"
            ));
        }
        let others = Arc::strong_count(engine) - 1;
        if others > 0 {
            self.breach(format!("{others} still use the provider of {number}"));
        }
    }

    /// Waits for a worker; `None` if no hold begins or ends for too long meanwhile.
    async fn unless_stalled(&self, worker: JoinHandle<()>) -> Option<Result<(), JoinError>> {
        let mut worker = worker;
        if !self.plan.scenario.has_several_kinds() {
            return Some(worker.await);
        }
        loop {
            if let Ok(ended) = timeout(Duration::from_secs(1), &mut worker).await {
                return Some(ended);
            }
            let since = (*lock(&self.progress)).max(self.end);
            if since.elapsed() > STALL {
                return None;
            }
        }
    }

    async fn turn_the_clock(&self) {
        let rng = &mut self.plan.rng(0);
        while !self.is_over() {
            sleep(Duration::from_secs(1)).await;
            match self.plan.jump(rng) {
                0 => {}
                millis => self.jump(millis),
            }
        }
    }

    fn breach(&self, what: String) {
        self.server.ledger.breach(what);
    }
}
