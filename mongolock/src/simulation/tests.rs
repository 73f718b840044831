use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::fleet::World;
use super::knobs::Knobs;
use super::link::Link;
use super::plan::{Plan, Scenario};
use super::process::Process;
use super::seeds::FAILED;
use super::server::Server;
use crate::LockProvider;
use crate::provider::LockProviderBuilder;

/// The number of seeds of a scenario: the workflow `deep` runs ten thousand over all of them.
const SEEDS: u64 = 3;
/// Those of a scenario with more to see, see [`Scenario::has_more_to_see`].
const MORE_SEEDS: u64 = 6;
const SCENARIOS: u64 = Scenario::ALL.len() as u64;

#[test]
fn calm() {
    many(Scenario::Calm);
}

#[test]
fn network() {
    many(Scenario::Network);
}

#[test]
fn pauses() {
    many(Scenario::Pauses);
}

#[test]
fn crashes() {
    many(Scenario::Crashes);
}

#[test]
fn everything() {
    many(Scenario::Everything);
}

#[test]
fn leaps_of_the_clock() {
    many(Scenario::Leaps);
}

#[test]
fn late_commands() {
    many(Scenario::LateCommands);
}

#[test]
fn blocked_documents() {
    many(Scenario::BlockedDocuments);
}

#[test]
fn partial_batches() {
    many(Scenario::PartialBatches);
}

#[test]
fn repetitions_by_the_driver() {
    many(Scenario::Repetitions);
}

#[test]
fn long_leases() {
    many(Scenario::LongLeases);
}

#[test]
fn silent_connections() {
    many(Scenario::SilentConnections);
}

#[test]
fn typed_errors() {
    many(Scenario::TypedErrors);
}

#[test]
fn operators() {
    many(Scenario::Operators);
}

#[test]
fn sweeps_of_the_ttl_monitor() {
    many(Scenario::Sweeps);
}

#[test]
fn neighbours() {
    many(Scenario::Neighbours);
}

#[test]
fn outages() {
    many(Scenario::Outages);
}

#[test]
fn failovers() {
    many(Scenario::Failovers);
}

#[test]
fn takeover_margins() {
    many(Scenario::Margins);
}

#[test]
fn lines_that_are_wrong() {
    many(Scenario::Lines);
}

#[test]
fn turns_of_processes() {
    many(Scenario::Turns);
}

#[test]
fn turns_of_processes_with_sets() {
    many(Scenario::SetTurns);
}

#[test]
fn steps_of_the_clock() {
    many(Scenario::Steps);
}

#[test]
fn many_leases_of_different_expiries() {
    many(Scenario::ManyLeases);
}

#[test]
fn many_calls_at_once() {
    many(Scenario::Gathered);
}

#[test]
fn commands_that_are_rejected_for_overload() {
    many(Scenario::Overload);
}

#[test]
fn several_locks() {
    many(Scenario::Sets);
}

#[test]
fn permits() {
    many(Scenario::Permits);
}

#[test]
fn work_that_succeeds_once() {
    many(Scenario::Marks);
}

#[test]
fn leases_that_outlive_their_processes() {
    many(Scenario::Detached);
}

/// The corrections that seeds have led to still hold.
#[test]
fn seeds_that_have_failed_once() {
    let again = |(scenario, seed, wrong): &(Scenario, u64, &str)| {
        let breach = try_simulate(&Plan::small(*scenario, *seed)).err()?;
        Some(format!("once: {wrong}\n{breach}"))
    };
    let breaches: Vec<String> = FAILED.iter().filter_map(again).collect();
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn two_hundred_processes() {
    many_processes(200);
}

#[test]
#[ignore = "it takes a minute of a processor; the same with fewer is `two_hundred_processes`"]
fn a_thousand_processes() {
    many_processes(1000);
}

/// Two runs at the same time.
fn many_processes(processes: usize) {
    let run = |scenario| {
        let mut total = Total::default();
        total.add(&simulate(&Plan::large(scenario, processes, 1)));
        total.report("many processes", scenario);
    };
    thread::scope(|scope| {
        scope.spawn(|| run(Scenario::Calm));
        scope.spawn(|| run(Scenario::Everything));
    });
}

#[test]
fn a_seed_repeats_the_same_run() {
    use Scenario::{Everything, Failovers, LateCommands, Outages, SilentConnections, TypedErrors};
    let others = [Failovers, LateCommands, Outages, SilentConnections, TypedErrors].map(|other| (other, 0));
    for (scenario, seed) in (0..2).map(|seed| (Everything, seed)).chain(others) {
        let plan = Plan::small(scenario, seed);
        let digest = || simulate(&plan).server.digest();
        assert_eq!(digest(), digest(), "{scenario:?} with seed {seed}");
    }
}

/// A change that must not change behaviour leaves the digests as they are: compare the output, before and after it, of
/// `cargo test --release -p mongolock --lib digests -- --ignored --nocapture`. A breach has its place in the output as well.
#[test]
#[ignore = "it prints the digests of 150 seeds of each scenario to be compared, and checks nothing"]
fn digests() {
    let seeds = number("MONGOLOCK_SEEDS").map_or(150, |seeds| seeds.div_ceil(SCENARIOS));
    let of = |(scenario, seed)| match try_simulate(&Plan::small(scenario, seed)) {
        Ok(world) => format!("{scenario:?} {seed} {:016x}", world.server.digest()),
        Err(breach) => {
            let mut hasher = DefaultHasher::new();
            breach.hash(&mut hasher);
            format!("{scenario:?} {seed} breach {:016x}", hasher.finish())
        }
    };
    let plans = |parity: u64| {
        Scenario::ALL
            .into_iter()
            .flat_map(move |scenario| (0..seeds).map(move |seed| (scenario, seed)))
            .filter(move |(_, seed)| seed % 2 == parity)
    };
    let mut lines = std::thread::scope(|scope| {
        let other = scope.spawn(|| plans(1).map(of).collect::<Vec<String>>());
        let mut lines: Vec<String> = plans(0).map(of).collect();
        lines.extend(other.join().unwrap());
        lines
    });
    lines.sort();
    println!("{}", lines.join("\n"));
}

#[test]
fn names_used_once_leave_nothing_behind() {
    in_virtual_time(async {
        let server = Arc::new(Server::new(Scenario::Calm, Default::default()));
        let link = Link::new(
            &server,
            &Process::new(0, 0, 0),
            &Knobs::default(),
            fastrand::Rng::with_seed(0),
        );
        let provider = LockProviderBuilder::simulated(link).with_defaults();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..100 {
            tasks.spawn(use_names(provider.clone(), task));
        }
        while tasks.join_next().await.is_some() {}
        tokio::time::sleep(Duration::from_secs(1)).await;
        let engine = provider.engine();
        assert!(engine.queues.is_idle() && engine.renewer.is_idle() && engine.notifier.is_idle());
        assert!(server.memory.taken().is_empty());
        assert_eq!(Arc::strong_count(engine), 1);
    });
}

/// The minute counts from the last reply, and the call ends when its present attempt has ended.
#[test]
fn a_minute_without_a_reply_ends_a_wait_without_a_limit() {
    in_virtual_time(async {
        let server = Arc::new(Server::new(Scenario::Calm, Default::default()));
        let link = Link::new(
            &server,
            &Process::new(0, 0, 0),
            &Knobs::default(),
            fastrand::Rng::with_seed(0),
        );
        let provider = LockProviderBuilder::simulated(link).with_defaults();
        let expiry = Duration::from_secs(3600);
        for name in ["a", "b"] {
            server.memory.acquire(name, "rival");
        }
        let wait = async |name: &str| {
            let begun = tokio::time::Instant::now();
            let lock = provider.lock(name).acquire_timeout(None);
            let ended = timeout(expiry, lock.acquire()).await;
            let error = ended.expect("the wait ends").unwrap_err();
            assert!(
                error.to_string().contains("did not answer the acquire request"),
                "{error}"
            );
            begun.elapsed().as_secs()
        };
        server.silent.store(true, Relaxed);
        let waited = wait("a").await;
        assert!((60..=70).contains(&waited), "{waited} s");

        let answers = async {
            sleep(Duration::from_secs(50)).await;
            server.silent.store(false, Relaxed);
            sleep(Duration::from_secs(10)).await;
            server.silent.store(true, Relaxed);
        };
        let (waited, ()) = tokio::join!(wait("b"), answers);
        assert!((60 + 60..=60 + 70).contains(&waited), "{waited} s");
    });
}

async fn use_names(provider: LockProvider, task: u32) {
    for name in 0..200 {
        let guard = provider.lock(task * 200 + name).acquire().await.unwrap();
        if name % 2 == 0 {
            guard.release().await.unwrap();
        }
    }
}

/// What several simulations have counted.
#[derive(Default)]
struct Total {
    seeds: u64,
    holds: u64,
    handed_over: u64,
    commands: [u64; 5],
    handles: [u64; 6],
    longest_wait: u64,
}

impl Total {
    fn add(&mut self, world: &World) {
        self.seeds += 1;
        self.holds += world.server.ledger.holds.load(Relaxed);
        self.handed_over += world.server.ledger.handed_over.load(Relaxed);
        self.longest_wait = self.longest_wait.max(world.longest_wait.load(Relaxed));
        for (total, count) in self.commands.iter_mut().zip(world.server.counts()) {
            *total += count;
        }
        for (total, count) in self.handles.iter_mut().zip(&world.server.handles.counts) {
            *total += count.load(Relaxed);
        }
    }

    #[expect(clippy::cast_precision_loss)]
    fn report(&self, what: &str, scenario: Scenario) {
        let per_hold = |count: u64| count as f64 / self.holds as f64;
        let [claims, renewals, releases, background, looks] = self.commands.map(per_hold);
        let all = claims + renewals + releases + background + looks;
        println!(
            "{what}, {scenario:?}: {} seeds, {} holds ({} handed over), commands per hold {all:.2} (claims {claims:.2}, renewals \
             {renewals:.2}, releases {releases:.2}, background releases {background:.2}, looks {looks:.2}), longest wait with a limit {} ms",
            self.seeds, self.holds, self.handed_over, self.longest_wait,
        );
        let [detached, resumed, extended, by_handle, given_up, killed] = self.handles;
        if detached > 0 {
            println!(
                "leases: {detached} detached, {resumed} resumed, {extended} extended, {by_handle} released by their handles, {given_up} \
                 resumptions given up, {killed} processes killed"
            );
        }
    }
}

fn many(scenario: Scenario) {
    let (mut total, begun) = (Total::default(), Instant::now());
    let usual = if scenario.has_more_to_see() {
        MORE_SEEDS
    } else {
        SEEDS
    };
    let seeds =
        number("MONGOLOCK_SEEDS").map_or(usual, |seeds| seeds.div_ceil(SCENARIOS) * usual.div_ceil(SEEDS));
    let seeds = match number("MONGOLOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..seeds,
    };
    let mut breaches = Vec::new();
    for seed in seeds {
        match try_simulate(&Plan::small(scenario, seed)) {
            Ok(world) => total.add(&world),
            Err(breach) => breaches.push(breach),
        }
    }
    total.report("a small fleet", scenario);
    println!("{:?}", begun.elapsed());
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

fn simulate(plan: &Plan) -> Arc<World> {
    try_simulate(plan).unwrap_or_else(|breach| panic!("{breach}"))
}

/// Runs a simulation; an error says what it breaks.
fn try_simulate(plan: &Plan) -> Result<Arc<World>, String> {
    let world = in_virtual_time(World::run(plan.clone()));
    let breaches = world.server.ledger.breaches();
    if breaches.is_empty() {
        return Ok(world);
    }
    Err(format!(
        "MONGOLOCK_SEED={seed} shows this again in {plan:#?}:\n{}\nfor seeds.rs, once it is corrected: ({:?}, {seed}, \"what was \
         wrong\"),",
        breaches.join("\n"),
        plan.scenario,
        seed = plan.seed,
    ))
}

pub(super) fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
}
