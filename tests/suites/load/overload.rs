//! A process with a thousand leases and steady work while the server rejects commands for overload, or while all connections
//! are cut: what is lost, what fails, and how many commands it sends. Each test prints its figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use mongodb::error::Error;
use mongodb::{Client, ClientSession, Database};
use mongolock::{IndexState, LockContext, LockGuard, LockProvider};
use mongolock_tests::{
    AMPLE, FailPoint, Server, ServerOptions, eventually, must, recorded, stable_options, test_db,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::traffic::{Kind, LEASE, Traffic, renewed};

/// All commands of mongolock and of transactions.
const REJECTED_COMMANDS: [&str; 7] = [
    "update",
    "findAndModify",
    "find",
    "insert",
    "aggregate",
    "commitTransaction",
    "abortTransaction",
];

const LEASES: usize = 1000;

/// The tasks that acquire and release free locks.
const CALLERS: usize = 8;

/// The pause of each of them between two locks.
const PAUSE: Duration = Duration::from_millis(100);

/// How long one of them waits for its lock.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time before the fault whose rate of locks is the usual one.
const BEFORE: Duration = Duration::from_secs(5);

/// Acquires locks of this expiry at the same time.
async fn hold(provider: &LockProvider, count: usize, expiry: Duration) -> Vec<LockGuard> {
    let lock = |number| provider.lock(format!("{LEASE}{number}")).expiry(expiry);
    let acquired = join_all((0..count).map(|number| lock(number).acquire_timeout(AMPLE).acquire()));
    acquired.await.into_iter().map(Result::unwrap).collect()
}

/// The number of guards whose locks are lost.
fn lost(guards: &[LockGuard]) -> usize {
    guards.iter().filter(|guard| guard.is_lost()).count()
}

/// One kind of fault.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// This part of the commands is rejected.
    Rejections(f64),
    /// Each command cuts its connection.
    Cuts,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Setting {
    fault: Fault,
    /// The expiry of the leases, and how long the fault lasts, in seconds.
    expiry: u64,
    lasts: u64,
    /// How often the driver repeats a rejected command itself; by default as for a client of the application.
    driver_repeats: Option<u32>,
}

/// What the tasks of the process have seen so far.
#[derive(Default)]
struct Counts {
    number: AtomicUsize,
    done: AtomicUsize,
    failed: AtomicUsize,
    /// Acquires that failed with words that are not those of an overloaded server.
    failed_otherwise: AtomicUsize,
    /// Commits that failed by the statement of mongolock, or by the commit itself.
    failed_commits: AtomicUsize,
    /// Transactions that failed by a statement of the application.
    failed_statements: AtomicUsize,
    not_ready: AtomicUsize,
    stops: AtomicBool,
}

/// The figures of one measurement.
#[derive(Debug)]
struct Figures {
    lost: usize,
    /// The time from the beginning of the fault to the first loss.
    first_loss: Option<Duration>,
    done: usize,
    failed: usize,
    failed_otherwise: usize,
    /// Locks a second before the fault, and from 1 s after its end on.
    usual: f64,
    after: f64,
    /// The number of commands of all kinds for each lock that was acquired and released.
    per_lock: f64,
    /// The greatest number of commands in a second, and in one after the fault.
    peak: usize,
    peak_after: usize,
    /// Acquire requests in the last 4 s of the fault.
    last_claims: usize,
    /// Renewals of one lease alone, from the beginning of the fault on.
    lone_renewals: usize,
    failed_commits: usize,
    failed_statements: usize,
    not_ready: usize,
}

struct Process {
    traffic: Traffic,
    counts: Arc<Counts>,
    leases: Vec<LockGuard>,
    tasks: JoinSet<()>,
}

impl Process {
    async fn start(server: &Server, setting: Setting) -> Self {
        let mut options = must(stable_options(server.uri()).await);
        options.app_name = Some("measured".to_owned());
        options.max_adaptive_retries = setting.driver_repeats;
        let traffic = Traffic::default();
        traffic.record(&mut options);
        let database = must(Client::with_options(options)).database("app");
        must(database.create_collection("documents").await);
        let expiry = Duration::from_secs(setting.expiry);
        let provider = must(LockProvider::builder(&database).expiry(expiry).build());
        let mut process = Self {
            leases: hold(&provider, LEASES, expiry).await,
            traffic,
            counts: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..CALLERS {
            process.go_on(PAUSE, &provider, |counts, provider| async move {
                counts.use_lock(&provider).await;
            });
        }
        process.go_on(PAUSE * 20, &provider, move |counts, provider| {
            let database = database.clone();
            async move { counts.commit(&provider, &database).await }
        });
        process.go_on(PAUSE, &provider, |counts, provider| async move {
            let is_ready = provider.is_ready().await;
            counts.not_ready.fetch_add(usize::from(!is_ready), Relaxed);
        });
        process
    }

    /// Repeats this work with pauses until the end.
    fn go_on<F: Future<Output = ()> + Send>(
        &mut self,
        pause: Duration,
        provider: &LockProvider,
        work: impl Fn(Arc<Counts>, LockProvider) -> F + Send + 'static,
    ) {
        let (provider, counts) = (provider.clone(), Arc::clone(&self.counts));
        self.tasks.spawn(async move {
            while !counts.stops.load(Relaxed) {
                work(Arc::clone(&counts), provider.clone()).await;
                sleep(pause).await;
            }
        });
    }

    /// The number of locks that it acquires in each second of this time.
    async fn rate(&self, time: Duration) -> f64 {
        let before = self.counts.done.load(Relaxed);
        sleep(time).await;
        number(self.counts.done.load(Relaxed) - before) / time.as_secs_f64()
    }

    /// Waits for this time, and returns the time to the first loss.
    async fn watch(&self, lasts: Duration) -> Option<Duration> {
        let begun = Instant::now();
        let mut first_loss = None;
        while begun.elapsed() < lasts {
            sleep(PAUSE.min(lasts.saturating_sub(begun.elapsed()))).await;
            if first_loss.is_none() && lost(&self.leases) > 0 {
                first_loss = Some(begun.elapsed());
            }
        }
        first_loss
    }
}

impl Counts {
    /// Acquires and releases a lock that nobody else wants.
    async fn use_lock(&self, provider: &LockProvider) {
        let name = format!("free:{}", self.number.fetch_add(1, Relaxed));
        match provider.lock(name).acquire_timeout(ACQUIRE_TIMEOUT).await {
            Ok(guard) => {
                // The release may be overdue; then it is repeated in the background.
                let _ = guard.release().await;
                self.done.fetch_add(1, Relaxed);
            }
            Err(error) => {
                self.failed.fetch_add(1, Relaxed);
                if !error.to_string().starts_with("MongoDB is overloaded") {
                    eprintln!("an acquire failed: {error}");
                    self.failed_otherwise.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// Commits one document under a lock. The driver repeats the transaction as the errors say.
    async fn commit(&self, provider: &LockProvider, database: &Database) {
        let name = format!("commit:{}", self.number.fetch_add(1, Relaxed));
        let Ok(guard) = provider.lock(name).acquire_timeout(ACQUIRE_TIMEOUT).await else {
            return;
        };
        let Ok(mut session) = database.client().start_session().await else {
            return;
        };
        let (context, documents) = (guard.context(), database.collection::<Document>("documents"));
        let is_of_statement = Arc::new(AtomicBool::new(false));
        let failed = Arc::clone(&is_of_statement);
        let committed: Result<(), Error> = session
            .start_transaction()
            .and_run2(async move |session: &mut ClientSession| {
                let inserted = documents.insert_one(doc! {}).session(&mut *session).await;
                failed.store(inserted.is_err(), Relaxed);
                inserted?;
                commit_under(&context, session).await
            })
            .await;
        if let Err(error) = committed {
            eprintln!("a transaction failed: {error}");
            let is_of_statement = is_of_statement.load(Relaxed);
            self.failed_statements
                .fetch_add(usize::from(is_of_statement), Relaxed);
            self.failed_commits
                .fetch_add(usize::from(!is_of_statement), Relaxed);
        }
        let _ = guard.release().await;
    }
}

async fn commit_under(context: &LockContext, session: &mut ClientSession) -> Result<(), Error> {
    Ok(context.commit(session).await?)
}

fn number(count: usize) -> f64 {
    u32::try_from(count).unwrap().into()
}

/// A process at its usual work on a server of its own, and the number of locks that it acquires a second. One that has lost a
/// lease before any fault says nothing about the fault: the machine was too slow for it.
async fn at_work(setting: Setting) -> (Server, Process, f64) {
    for _ in 0..3 {
        let server = must(Server::start(ServerOptions::single()).await);
        let process = Process::start(&server, setting).await;
        let usual = process.rate(BEFORE).await;
        if lost(&process.leases) == 0 {
            return (server, process, usual);
        }
    }
    panic!("leases are lost without a fault, three times");
}

/// Runs one measurement.
async fn measured(setting: Setting) -> Figures {
    let (server, mut process, usual) = at_work(setting).await;
    let counts = Arc::clone(&process.counts);
    let (begun, before) = (Instant::now(), counts.done.load(Relaxed));
    let point = match setting.fault {
        Fault::None => None,
        Fault::Rejections(part) => Some(FailPoint::rejecting(&REJECTED_COMMANDS).part(part)),
        Fault::Cuts => Some(FailPoint::on(&REJECTED_COMMANDS).close_connection().always()),
    };
    let point = match point {
        Some(point) => Some(must(point.app_name("measured").enable(&server.uri()).await)),
        None => None,
    };
    let first_loss = process.watch(Duration::from_secs(setting.lasts)).await;
    let four_seconds_ago = Instant::now() - Duration::from_secs(4);
    let last_claims = process
        .traffic
        .since(four_seconds_ago, |kind| kind == Kind::Claim);
    if let Some(point) = point {
        must(point.clear().await);
    }
    let ended = Instant::now();
    let done = counts.done.load(Relaxed) - before;
    let per_lock = number(process.traffic.since(begun, |_| true)) / number(done.max(1));
    let peak = process.traffic.peak(begun);
    sleep(Duration::from_secs(1)).await;
    let after = process.rate(BEFORE).await;
    counts.stops.store(true, Relaxed);
    let ending = async { while process.tasks.join_next().await.is_some() {} };
    timeout(AMPLE, ending).await.expect("the calls end");
    let figures = Figures {
        lost: lost(&process.leases),
        first_loss,
        done,
        failed: counts.failed.load(Relaxed),
        failed_otherwise: counts.failed_otherwise.load(Relaxed),
        usual,
        after,
        per_lock,
        peak,
        peak_after: process.traffic.peak(ended),
        last_claims,
        lone_renewals: process.traffic.since(begun, |kind| kind == Kind::LoneRenewal),
        failed_commits: counts.failed_commits.load(Relaxed),
        failed_statements: counts.failed_statements.load(Relaxed),
        not_ready: counts.not_ready.load(Relaxed),
    };
    eprintln!("{setting:?}: {figures:?}");
    figures
}

/// Everything is rejected for so many seconds.
async fn all_rejected(expiry: u64, lasts: u64) -> Figures {
    measured(Setting {
        fault: Fault::Rejections(1.0),
        expiry,
        lasts,
        driver_repeats: None,
    })
    .await
}

/// Everything is rejected for half of a lease, of which up to a third is over by then: no lease is lost, acquire requests give
/// way, and work goes on at once.
#[tokio::test]
async fn everything_is_rejected_for_less_than_a_lease() {
    let figures = all_rejected(16, 8).await;
    assert_eq!(
        (figures.lost, figures.failed_otherwise, figures.not_ready),
        (0, 0, 0)
    );
    assert!(figures.last_claims <= 4 * 15, "{figures:?}");
    assert!(figures.after > figures.usual / 2.0, "{figures:?}");
}

/// Everything is rejected for longer than a lease lasts: the leases are lost at their deadlines, and the server is not flooded.
#[tokio::test]
async fn everything_is_rejected_for_longer_than_a_lease() {
    let figures = all_rejected(6, 8).await;
    assert_eq!(
        (figures.lost, figures.failed_otherwise, figures.not_ready),
        (LEASES, 0, 0)
    );
    // The last renewal was confirmed up to a third of the expiry before the rejections began.
    assert!(
        figures.first_loss.unwrap() > Duration::from_secs(3),
        "{figures:?}"
    );
    assert!(figures.peak <= 200 && figures.lone_renewals == 0, "{figures:?}");
}

/// What must be true of a measurement.
type Check = fn(&Figures) -> bool;

/// The measurements that take minutes: the fault, the expiry, how long it lasts, and what must be true.
const LONG: [(Fault, u64, u64, Check); 6] = [
    (Fault::None, 30, 140, |of| {
        of.failed + of.failed_statements == 0 && of.per_lock <= 2.4
    }),
    (Fault::Rejections(0.5), 30, 140, |of| {
        of.failed == 0 && of.per_lock <= 4.8
    }),
    (Fault::Rejections(0.5), 6, 140, |of| {
        of.failed == 0 && of.per_lock <= 4.8
    }),
    (Fault::Rejections(0.9), 30, 140, |of| {
        of.failed * 20 <= of.done + of.failed && of.per_lock <= 28.0
    }),
    // A lease that is due while copies for all others are in flight has a renewal of its own; a split batch has thousands.
    (Fault::Rejections(0.9), 6, 140, |of| {
        of.lone_renewals <= 100 && of.peak <= 300
    }),
    // After the outage the leases are renewed together.
    (Fault::Cuts, 30, 20, |of| {
        of.lone_renewals <= 20 && of.peak <= 200 && of.peak_after <= 200
    }),
];

/// Each for a client of the application, and for one like that of `connect`.
#[tokio::test]
#[ignore = "they take half an hour"]
async fn nothing_is_lost_for_minutes_of_rejections_and_cuts() {
    let mut wrong = Vec::new();
    for (fault, expiry, lasts, is_right) in LONG {
        for driver_repeats in [None, Some(0)] {
            let setting = Setting {
                fault,
                expiry,
                lasts,
                driver_repeats,
            };
            let figures = measured(setting).await;
            if figures.lost + figures.failed_commits > 0 || !is_right(&figures) {
                wrong.push((setting, figures));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// So few leases share one command.
const FEW: usize = 300;

/// B9: nine of ten commands are rejected for longer than a lease lasts. The rejected renewals are repeated whole.
#[tokio::test]
async fn leases_last_while_most_commands_are_rejected() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &[]).await;
    let provider = LockProvider::new(&database);
    // The check of the index has a lock of its own.
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    // On a slow machine the first renewals are late by seconds.
    let expiry = Duration::from_secs(10);
    let guards = hold(&provider, FEW, expiry).await;
    // Leases that were acquired at different times share a command from then on.
    let together = || async {
        assert_eq!(lost(&guards), 0, "before the fault");
        let sent = commands.take();
        sent.iter().any(|sent| renewed(sent).len() == FEW).then_some(())
    };
    must(eventually(AMPLE, "a common renewal", together).await);
    let rejecting = FailPoint::rejecting(&["update", "findAndModify", "find"]).part(0.9);
    let point = must(rejecting.enable_for(&db).await);
    sleep(expiry * 3 / 2).await;
    let sent = commands.take();
    let renewals: Vec<usize> = sent.iter().map(|sent| renewed(sent).len()).collect();
    assert_eq!((lost(&guards), renewals.contains(&1)), (0, false));
    assert!(renewals.contains(&FEW));
    assert!(provider.health().await.overloaded_since.is_some());
    must(point.clear().await);
    for released in join_all(guards.into_iter().map(LockGuard::release)).await {
        released.unwrap();
    }
}
