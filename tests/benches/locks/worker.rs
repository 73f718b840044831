//! Tasks that repeatedly acquire one lock and record the times, and the program of the processes that the group
//! `processes` starts.

use std::io::{BufRead, Write};
use std::time::Duration;

use mongolock::{LockError, LockProvider};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::clock;
use crate::setting;

/// The requested duration of a critical section. The timer of tokio rounds it up, so the real duration is measured.
const SECTION: Duration = Duration::from_millis(2);

/// One critical section: the times of its request, its begin and its end, by the clock of the machine.
#[derive(Clone, Copy)]
pub(crate) struct Section {
    /// The number of the process.
    pub(crate) process: usize,
    pub(crate) requested: Duration,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
}

/// The work of one process.
pub(crate) struct Job {
    pub(crate) uri: String,
    pub(crate) database: String,
    pub(crate) name: String,
    pub(crate) tasks: usize,
    pub(crate) sections: usize,
    pub(crate) wake_up: bool,
}

impl Job {
    pub(crate) fn to_argument(&self) -> String {
        json!([
            self.uri,
            self.database,
            self.name,
            self.tasks,
            self.sections,
            self.wake_up
        ])
        .to_string()
    }

    fn from_argument(job: &str) -> anyhow::Result<Self> {
        let (uri, database, name, tasks, sections, wake_up) = serde_json::from_str(job)?;
        Ok(Self {
            uri,
            database,
            name,
            tasks,
            sections,
            wake_up,
        })
    }
}

/// The main function of a child process: it prepares, waits for a line of input, does its job, and prints the sections.
pub(crate) async fn run(job: &str) -> anyhow::Result<()> {
    let job = Job::from_argument(job)?;
    let database = setting::database(&job.uri, &job.database).await?;
    let provider = LockProvider::builder(&database)
        .wake_up(job.wake_up)
        .acquire_timeout(Duration::from_secs(120))
        .build()?;
    // The connections and the background task exist before the measurement begins.
    provider
        .lock(format_args!("{}:{}", job.name, std::process::id()))
        .acquire()
        .await?
        .release()
        .await?;
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    let sections = compete(&provider, &job.name, job.tasks, job.sections).await?;
    let printed: Vec<_> = sections.iter().map(to_value).collect();
    println!("{}", Value::from(printed));
    provider.shutdown().await;
    Ok(())
}

/// Runs tasks that each pass through a number of sections, without a pause between them.
pub(crate) async fn compete(
    provider: &LockProvider,
    name: &str,
    tasks: usize,
    sections: usize,
) -> anyhow::Result<Vec<Section>> {
    let mut working = JoinSet::new();
    for _ in 0..tasks {
        let lock = provider.lock(name).acquire_timeout(Duration::from_secs(120));
        working.spawn(async move {
            let mut passed = Vec::with_capacity(sections);
            for _ in 0..sections {
                let requested = clock::now();
                passed.push(lock.run(move |_| section(requested)).await?);
            }
            anyhow::Ok(passed)
        });
    }
    let mut all = Vec::new();
    while let Some(passed) = working.join_next().await {
        all.extend(passed??);
    }
    Ok(all)
}

async fn section(requested: Duration) -> Result<Section, LockError> {
    let begun = clock::now();
    tokio::time::sleep(SECTION).await;
    Ok(Section {
        process: 0,
        requested,
        begun,
        ended: clock::now(),
    })
}

fn to_value(section: &Section) -> Value {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    json!([
        nanos(section.requested),
        nanos(section.begun),
        nanos(section.ended)
    ])
}

/// The sections that a child process has printed.
pub(crate) fn from_line(process: usize, line: &str) -> anyhow::Result<Vec<Section>> {
    let printed: Vec<[u64; 3]> = serde_json::from_str(line)?;
    let section = |[requested, begun, ended]: [u64; 3]| Section {
        process,
        requested: Duration::from_nanos(requested),
        begun: Duration::from_nanos(begun),
        ended: Duration::from_nanos(ended),
    };
    Ok(printed.into_iter().map(section).collect())
}
