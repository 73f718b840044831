//! A schedule with many ticks on several processes that have wrong clocks and are killed: each tick is done.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc, oid::ObjectId};
use mongodb::{ClientSession, Collection, Database};
use mongolock::{LockContext, LockError, LockProvider};
use mongolock_tests::{AMPLE, Actor, Server, ServerOptions, order, say, test_db, wrong_clock};
use rustix::process::{Signal, getpid, kill_process};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::actor::{Part, command, number, wrong};
use crate::{connect, until_indexed};

/// The time between two ticks.
const INTERVAL: Duration = Duration::from_millis(20);

/// The environment variable with the number of the ticks; 200 if it is not set.
const TICKS: &str = "MONGOLOCK_TEST_TICKS";

/// The environment variable with the number of seconds by which the first clock is behind, and the last one ahead.
const SHIFT: &str = "MONGOLOCK_TEST_CLOCK_SHIFT";

/// One of this number of runs ends with SIGKILL: before the end of the body, after it, or while the mark is on its way.
const KILLED: u32 = 20;

fn runs(database: &Database) -> Collection<Document> {
    database.collection("runs")
}

fn clock() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

fn die() -> ! {
    kill_process(getpid(), Signal::KILL).unwrap();
    loop {
        std::thread::park();
    }
}

fn die_soon() {
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..3000)));
        die();
    });
}

/// How a run is to be killed.
fn fate() -> Option<u32> {
    (fastrand::u32(0..KILLED) == 0).then(|| fastrand::u32(0..3))
}

/// The body of one tick: it notes its beginning and its end.
async fn work(runs: &Collection<Document>, tick: i64, fate: Option<u32>) -> Result<ObjectId, LockError> {
    let id = ObjectId::new();
    let run =
        doc! { "_id": id, "tick": tick, "pid": getpid().as_raw_pid(), "ended": false, "confirmed": false };
    runs.insert_one(run).await?;
    if fate == Some(0) {
        die();
    }
    runs.update_one(doc! { "_id": id }, doc! { "$set": { "ended": true } })
        .await?;
    match fate {
        Some(1) => die(),
        // The request for the mark is on its way, or it has just been confirmed.
        Some(_) => die_soon(),
        None => {}
    }
    Ok(id)
}

/// The body of one tick with a transaction that has the work and the mark.
async fn commit(
    database: &Database,
    lock: LockContext,
    tick: i64,
    fate: Option<u32>,
) -> Result<(), LockError> {
    let mut session = database.client().start_session().await?;
    let transaction = session.start_transaction();
    let committed: mongodb::error::Result<()> = transaction
        .and_run2(async move |session: &mut ClientSession| {
            let run = doc! { "tick": tick, "ended": true };
            runs(database).insert_one(run).session(&mut *session).await?;
            if fate == Some(0) {
                die();
            }
            if fate == Some(1) {
                die_soon();
            }
            Ok(lock.commit_done(session).await?)
        })
        .await;
    committed?;
    if fate == Some(2) {
        die();
    }
    Ok(())
}

/// A process that does each tick when its own clock says so. Its first line says the first tick, and the time of that.
async fn keep_schedule(part: Part, commits: bool) {
    let provider = LockProvider::new(&part.database);
    let mut plan = order().await.unwrap();
    plan.push(' ');
    let mut plan = plan
        .split(' ')
        .map(|value| value.parse::<i64>().unwrap_or_default());
    let (begin, ticks) = (plan.next().unwrap(), plan.next().unwrap());
    let database = &part.database;
    for tick in 0..ticks {
        let due = begin + tick * i64::try_from(INTERVAL.as_millis()).unwrap();
        // The test waits for each line for a limited time.
        if tick % 20 == 0 {
            say("goes on");
        }
        while let Ok(left @ 1..) = u64::try_from(due - clock()) {
            sleep(Duration::from_millis(left.min(10_000))).await;
            if left > 10_000 {
                say("goes on");
            }
        }
        let lock = provider.lock(format!("job:{tick}")).expiry(part.expiry).once();
        let fate = fate();
        let running = async {
            if commits {
                lock.run(async |context| commit(database, context, tick, fate).await)
                    .await
            } else {
                let id = lock
                    .run(async |_| work(&runs(database), tick, fate).await)
                    .await?;
                let confirmed = doc! { "$set": { "confirmed": true } };
                let runs = runs(database);
                let confirming = runs.update_one(doc! { "_id": id }, confirmed);
                confirming.await.unwrap();
                if fate.is_some() {
                    die();
                }
                Ok(())
            }
        };
        let Ok(outcome) = timeout(AMPLE / 2, running).await else {
            let info = provider.admin().get(lock.name()).await;
            return say(format_args!("stuck {tick} {info:?}"));
        };
        match outcome {
            Ok(()) | Err(LockError::Done { .. }) => {}
            Err(LockError::Lost { .. }) => say(format_args!("lost {tick}")),
            // The next round finds the tick again.
            Err(error) => say(format_args!("failed {tick} {error:?}")),
        }
    }
    say("finished");
    order().await;
}

#[tokio::test]
async fn mark_ticks() {
    if let Some(part) = Part::given().await {
        keep_schedule(part, false).await;
    }
}

#[tokio::test]
async fn commit_ticks() {
    if let Some(part) = Part::given().await {
        keep_schedule(part, true).await;
    }
}

/// A part: a job of 10 ms at each full second of the clock of this process.
#[tokio::test]
async fn run_at_ticks() {
    let Some(part) = Part::given().await else {
        return;
    };
    let provider = LockProvider::new(&part.database);
    let ticks: i64 = order().await.unwrap().parse().unwrap();
    for tick in (clock() / 1000 + 1..).take(usize::try_from(ticks).unwrap()) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(tick.unsigned_abs());
        sleep(time.duration_since(SystemTime::now()).unwrap_or_default()).await;
        let job = provider.lock("job").once_at(time).run(async |_| {
            sleep(Duration::from_millis(10)).await;
            let run = doc! { "tick": tick, "pid": getpid().as_raw_pid(), "ended": true };
            runs(&part.database).insert_one(run).await?;
            Ok(())
        });
        match timeout(AMPLE, job).await.unwrap() {
            Ok(()) | Err(LockError::Done { .. }) => say(format_args!("tick {tick}")),
            Err(error) => panic!("{error:?}"),
        }
    }
    say("finished");
    order().await;
}

/// A job that is shorter than the difference of the clocks runs once for each tick, because its name has the scheduled time.
#[tokio::test]
async fn each_tick_of_wrong_clocks_is_done_once() {
    const TICKS: usize = 6;
    let db = test_db().await;
    until_indexed(&LockProvider::new(db.database())).await;
    let directory = tempfile::tempdir().unwrap();
    let shim = wrong_clock(directory.path()).await;
    let mut processes = [-2, 0, 2].map(|shift| {
        let mut command = command(
            "ticks::run_at_ticks",
            db.uri(),
            db.name(),
            Duration::from_secs(30),
        );
        command.envs(wrong(&shim, shift));
        Actor::start(command)
    });
    for process in &mut processes {
        process.send(&TICKS.to_string()).await;
    }
    let mut by: HashMap<i64, usize> = HashMap::new();
    for process in &mut processes {
        loop {
            match process.next().await {
                (word, tick) if word == "tick" => *by.entry(tick.parse().unwrap()).or_default() += 1,
                (word, rest) => break assert_eq!(word, "finished", "{rest}"),
            }
        }
    }
    let history = history(db.database()).await;
    assert!(
        by.values().any(|processes| *processes == 3),
        "no tick is common to all: {by:?}"
    );
    for tick in by.keys() {
        assert_eq!(history.get(tick).map(Vec::len), Some(1), "tick {tick}");
    }
    assert_eq!(history.len(), by.len());
}

/// What has happened to the processes of a schedule.
#[derive(Default)]
struct Events {
    /// The ids of the processes that were killed.
    killed: HashSet<u32>,
    /// The ticks whose leases were lost.
    lost: Vec<i64>,
}

/// Runs five processes until each of them has come to the end of the schedule; a process that is killed is started again.
/// It returns what has happened.
async fn run_schedule(uri: &str, database: &Database, part: &'static str) -> Events {
    let directory = tempfile::tempdir().unwrap();
    let shim = wrong_clock(directory.path()).await;
    let (ticks, shift) = (number(TICKS, 200), number(SHIFT, 2));
    let begin = clock() + shift * 1000 + 500;
    let mut processes = JoinSet::new();
    for index in 0..5 {
        let environment = wrong(&shim, shift * (index - 2) / 2);
        let start = {
            let (uri, name) = (uri.to_owned(), database.name().to_owned());
            move || {
                let mut command = command(part, &uri, &name, Duration::from_secs(2));
                command.envs(environment.iter().map(|(key, value)| (*key, value)));
                Actor::start(command)
            }
        };
        processes.spawn(async move {
            let mut events = Events::default();
            loop {
                let mut process = start();
                let id = process.id().unwrap();
                process.send(&format!("{begin} {ticks}")).await;
                loop {
                    match process.next_unless_ended().await {
                        Some((word, _)) if word == "finished" => return events,
                        Some((word, _)) if word == "goes" => {}
                        Some((word, rest)) if word == "lost" => events.lost.push(rest.parse().unwrap()),
                        Some((word, rest)) => panic!("{word} {rest}"),
                        None => break,
                    }
                }
                events.killed.insert(id);
            }
        });
    }
    let all = timeout(AMPLE * 6, processes.join_all())
        .await
        .expect("the schedule ends");
    let mut sum = Events::default();
    for events in all {
        sum.killed.extend(events.killed);
        sum.lost.extend(events.lost);
    }
    sum
}

/// A run that came to the end of its body.
struct Run {
    process: u32,
    /// Whether the call has returned successfully, so that its mark was confirmed.
    confirmed: bool,
}

/// The runs of each tick that came to the end of their bodies.
async fn history(database: &Database) -> HashMap<i64, Vec<Run>> {
    let mut ticks: HashMap<i64, Vec<Run>> = HashMap::new();
    let mut found = runs(database).find(doc! { "ended": true }).await.unwrap();
    while let Some(run) = found.try_next().await.unwrap() {
        let tick = run.get_i64("tick").unwrap();
        ticks.entry(tick).or_default().push(Run {
            process: u32::try_from(run.get_i32("pid").unwrap_or_default()).unwrap(),
            confirmed: run.get_bool("confirmed").unwrap_or_default(),
        });
    }
    ticks
}

/// Each tick is completed at least once. It is completed again only where its process was killed, or its lease was lost,
/// between the end of the body and the confirmed mark.
#[tokio::test]
async fn each_tick_is_done_and_again_only_after_a_kill() {
    let db = test_db().await;
    until_indexed(&LockProvider::new(db.database())).await;
    let events = run_schedule(db.uri(), db.database(), "ticks::mark_ticks").await;
    let (history, ticks) = (history(db.database()).await, number(TICKS, 200));
    let mut again = 0;
    for tick in 0..ticks {
        let runs = history.get(&tick).map_or(&[][..], Vec::as_slice);
        assert!(!runs.is_empty(), "tick {tick} was not done");
        again += runs.len() - 1;
        let (confirmed, others): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.confirmed);
        assert!(confirmed.len() <= 1, "tick {tick} was done again after its mark");
        for run in others {
            let is_excused = events.killed.contains(&run.process) || events.lost.contains(&tick);
            assert!(
                is_excused,
                "a run of tick {tick} in process {} left no mark",
                run.process
            );
        }
    }
    let (killed, lost) = (events.killed.len(), events.lost.len());
    println!("{ticks} ticks, {killed} processes killed, {lost} leases lost, {again} runs again");
    assert!(killed > 0, "no process was killed");
}

/// With the mark in the transaction of the work each tick takes effect exactly once. A process that is killed between the
/// guarding statement and the commit leaves a transaction, which blocks the lock until the server ends it: sooner here.
#[tokio::test]
async fn each_committed_tick_takes_effect_exactly_once() {
    let server = Server::start(ServerOptions::single()).await.unwrap();
    let database = connect(&server.uri(), "app").await;
    let sooner = doc! { "setParameter": 1, "transactionLifetimeLimitSeconds": 2 };
    // The Stable API has no `setParameter`.
    let admin = server.client().await.unwrap().database("admin");
    admin.run_command(sooner).await.unwrap();
    until_indexed(&LockProvider::new(&database)).await;
    database.create_collection("runs").await.unwrap();
    let events = run_schedule(&server.uri(), &database, "ticks::commit_ticks").await;
    let (history, ticks) = (history(&database).await, number(TICKS, 200));
    for tick in 0..ticks {
        assert_eq!(history.get(&tick).map(Vec::len), Some(1), "tick {tick}");
    }
    let (killed, lost) = (events.killed.len(), events.lost.len());
    println!("{ticks} ticks, {killed} processes killed, {lost} leases lost, each once");
    assert!(killed > 0, "no process was killed");
}
