//! A schedule with many ticks on several processes that have wrong clocks and are killed: each tick is done.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use mongodb::bson::{Document, doc, oid::ObjectId};
use mongodb::{ClientSession, Collection, Database};
use mongolock::{LockContext, LockError, LockProvider};
use mongolock_tests::{AMPLE, Actor, Server, ServerOptions, must, order, say, wrong_clock};
use rustix::process::{Signal, getpid, kill_process};
use tokio::time::{sleep, timeout};

use crate::actor::{Part, command, wrong};
use crate::{connect, until_indexed};

/// The number of the ticks, and the milliseconds between two of them.
const TICKS: i64 = 200;
const INTERVAL: i64 = 20;

/// The number of seconds by which the first clock is behind, and the last one ahead.
const SHIFT: i64 = 2;

/// One of this number of runs ends with SIGKILL: before the end of the body, after it, or while the mark is on its way.
const KILLED: u32 = 20;

fn runs(database: &Database) -> Collection<Document> {
    database.collection("runs")
}

/// Milliseconds since 1970 by the clock of this process.
fn clock() -> i64 {
    i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
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
            match fate {
                Some(0) => die(),
                Some(1) => die_soon(),
                _ => {}
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

/// Waits until this time by the clock of this process. The test waits for each line for a limited time.
async fn until(time: i64) {
    while let Ok(left @ 1..) = u64::try_from(time - clock()) {
        say("goes on");
        sleep(Duration::from_millis(left.min(10_000))).await;
    }
}

/// A part: it does each tick when its own clock says so, every second one in a transaction, and those at full seconds under the
/// name of their time. Its first line says the time of the first tick.
#[tokio::test]
async fn keep_schedule() {
    let Some(part) = Part::given().await else {
        return;
    };
    let provider = LockProvider::new(&part.database);
    let begin: i64 = order().await.unwrap().parse().unwrap();
    let database = &part.database;
    for tick in 0..TICKS {
        until(begin + tick * INTERVAL).await;
        let lock = if tick % 50 == 0 {
            let time = Duration::from_millis((begin + tick * INTERVAL).unsigned_abs());
            provider.lock("job").once_at(SystemTime::UNIX_EPOCH + time)
        } else {
            provider.lock(format!("job:{tick}")).once()
        };
        let (lock, fate) = (lock.expiry(part.expiry), fate());
        let running = async {
            if commits(tick) {
                let body = async |context| commit(database, context, tick, fate).await;
                return lock.run(body).await;
            }
            let body = async |_| work(&runs(database), tick, fate).await;
            let id = lock.run(body).await?;
            let confirmed = doc! { "$set": { "confirmed": true } };
            let confirming = runs(database).update_one(doc! { "_id": id }, confirmed).await;
            confirming.unwrap();
            if fate.is_some() {
                die();
            }
            Ok(())
        };
        match timeout(AMPLE / 2, running).await.expect("no tick is stuck") {
            Ok(()) | Err(LockError::Done { .. }) => {}
            Err(LockError::Lost { .. }) => say(format_args!("lost {tick}")),
            // The next round finds the tick again.
            Err(error) => say(format_args!("failed {tick} {error:?}")),
        }
    }
    say("finished");
    order().await;
}

/// Whether the mark of a tick is in the transaction of its work.
fn commits(tick: i64) -> bool {
    tick % 2 == 1
}

/// What has happened to the processes of a schedule.
#[derive(Default)]
struct Events {
    /// The ids of the processes that were killed.
    killed: HashSet<u32>,
    /// The ticks whose leases were lost.
    lost: Vec<i64>,
}

/// Runs five processes with wrong clocks until each of them has come to the end of the schedule; a process that is killed is
/// started again.
async fn run_schedule(uri: &str, database: &Database) -> Events {
    let directory = tempfile::tempdir().unwrap();
    let shim = wrong_clock(directory.path()).await;
    let begin = ((clock() / 1000 + SHIFT + 1) * 1000).to_string();
    let run = async |shift: i64| {
        let mut events = Events::default();
        loop {
            let (part, expiry) = ("at_each_tick::keep_schedule", Duration::from_secs(2));
            let mut command = command(part, uri, database.name(), expiry);
            command.envs(wrong(&shim, shift));
            let mut process = Actor::start(command);
            let id = process.id().unwrap();
            process.send(&begin).await;
            while let Some((word, rest)) = process.next_unless_ended().await {
                match &*word {
                    "finished" => return events,
                    "goes" => {}
                    "lost" => events.lost.push(rest.parse().unwrap()),
                    _ => panic!("{word} {rest}"),
                }
            }
            events.killed.insert(id);
        }
    };
    let all = timeout(AMPLE * 6, join_all([-SHIFT, -1, 0, 1, SHIFT].map(run))).await;
    let mut sum = Events::default();
    for events in all.expect("the schedule ends") {
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
/// between the end of the body and the confirmed mark, although it is shorter than the differences of the clocks. With the mark
/// in the transaction of the work it takes effect exactly once.
#[tokio::test]
async fn each_tick_is_done_and_again_only_after_a_kill() {
    // A process that is killed between the guarding statement and the commit leaves a transaction, which blocks the lock until
    // the server ends it: sooner here.
    let server = Server::start(ServerOptions::single()).await.unwrap();
    let sooner = doc! { "setParameter": 1, "transactionLifetimeLimitSeconds": 2 };
    // The Stable API has no `setParameter`.
    let admin = server.client().await.unwrap().database("admin");
    must(admin.run_command(sooner).await);
    let database = connect(&server.uri(), "app").await;
    until_indexed(&LockProvider::new(&database)).await;
    database.create_collection("runs").await.unwrap();
    let events = run_schedule(&server.uri(), &database).await;
    let history = history(&database).await;
    for tick in 0..TICKS {
        let runs = history.get(&tick).map_or(&[][..], Vec::as_slice);
        assert!(!runs.is_empty(), "tick {tick} was not done");
        if commits(tick) {
            assert_eq!(runs.len(), 1, "tick {tick}");
            continue;
        }
        let (confirmed, others): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.confirmed);
        assert!(confirmed.len() <= 1, "tick {tick} was done again after its mark");
        for run in others {
            let process = run.process;
            let is_excused = events.killed.contains(&process) || events.lost.contains(&tick);
            assert!(
                is_excused,
                "tick {tick} has no mark of its run in process {process}"
            );
        }
    }
    assert!(!events.killed.is_empty(), "no process was killed");
}
