//! One of the processes: a few tasks that rebuild reports, each call told to the parent through standard output.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use mongolock::{FencingToken, LockProvider};
use mongolock_examples::processes::{self, PARENT_IS_GONE, Worker, exit_with_parent};
use tokio::task::JoinSet;

use crate::event::{CallKey, End, Event, Kind};
use crate::options::Options;
use crate::store::Store;
use crate::{read_work_write, rebuild_report};

/// Tasks that make calls at the same time.
const TASKS: u32 = 4;

/// What a killed process keeps the others waiting (its lease), and then some.
const SLACK: Duration = Duration::from_secs(60);

/// The longest `acquire_timeout`.
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// One call, as the body sees it.
pub(crate) struct Call<'a> {
    pub(crate) store: &'a Store,
    pub(crate) hold: Duration,
    pub(crate) key: CallKey,
    id: u32,
    made: Instant,
}

/// A body that runs.
pub(crate) struct Running<'a> {
    call: &'a Call<'a>,
    waited: Duration,
    begun: Instant,
}

impl Call<'_> {
    /// Says that the body has begun: its first act.
    pub(crate) fn begin(&self) -> Running<'_> {
        self.say(Kind::Begin);
        Running {
            call: self,
            waited: self.made.elapsed(),
            begun: Instant::now(),
        }
    }

    /// One write of a line far below the size up to which a pipe takes writes as a whole: lines of several processes
    /// do not mix.
    fn say(&self, kind: Kind) {
        let event = Event {
            call: self.key,
            id: self.id,
            kind,
        };
        let mut out = io::stdout().lock();
        let said = out
            .write_all(format!("{event}\n").as_bytes())
            .and_then(|()| out.flush());
        if said.is_err() {
            std::process::exit(PARENT_IS_GONE);
        }
    }
}

impl Running<'_> {
    /// Says that the body has ended: its last act, still under the lock.
    pub(crate) fn end(self, token: Option<FencingToken>) {
        self.call.say(Kind::End(End {
            token: token.map(FencingToken::get),
            waited: self.waited,
            held: self.begun.elapsed(),
        }));
    }
}

/// What the tasks of a process share.
struct Work {
    store: Store,
    process: u32,
    next: AtomicU32,
    calls: u32,
    ids: u32,
    hold: Duration,
    without_lock: bool,
}

/// Makes the calls of this process.
pub(crate) async fn run(worker: &Worker, options: &Options) -> anyhow::Result<ExitCode> {
    exit_with_parent();
    let process = worker.number;
    let database = processes::database(&worker.database).await?;
    LockProvider::builder(&database)
        .acquire_timeout(longest_wait(options))
        .owner(format!("process {process}"))
        .build()?
        .set_global()?;

    let work = Arc::new(Work {
        store: Store::new(&database),
        process,
        next: AtomicU32::new(1),
        calls: options.calls,
        ids: options.ids,
        hold: options.hold,
        without_lock: options.without_lock,
    });
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS.min(options.calls) {
        tasks.spawn(Arc::clone(&work).make_calls());
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a task panicked")
            .flatten()
            .with_context(|| format!("process {process}"))?;
    }
    LockProvider::global()?.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// A call may have to wait for all the others; longer than that there is something wrong.
fn longest_wait(options: &Options) -> Duration {
    let all = options
        .hold
        .saturating_mul(options.processes.saturating_mul(options.calls));
    all.saturating_add(SLACK).min(WEEK)
}

impl Work {
    async fn make_calls(self: Arc<Self>) -> anyhow::Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number > self.calls {
                return Ok(());
            }
            // The processes begin at different reports and all come round to each of them.
            let id = (self.process + number) % self.ids + 1;
            let call = Call {
                store: &self.store,
                hold: self.hold,
                key: CallKey {
                    process: self.process,
                    number,
                },
                id,
                made: Instant::now(),
            };
            let made = if self.without_lock {
                read_work_write(id, &call).await
            } else {
                rebuild_report(id, &call).await
            };
            made.with_context(|| format!("call {number}, report {id}"))?;
        }
    }
}
