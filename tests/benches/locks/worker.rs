//! Tasks that want one lock again and again, and what they note of it; also the program of the processes that the
//! group `processes` starts.

use std::io::{BufRead, Write};
use std::time::Duration;

use mongolock::{LockError, LockProvider};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::clock;
use crate::setting;

/// The length that is asked of a section; tokio's timer rounds it up, so that the real one is measured.
const SECTION: Duration = Duration::from_millis(2);

/// One hold: when it was wanted, begun and ended, by the clock of the machine.
#[derive(Clone, Copy)]
pub(crate) struct Section {
    /// The process.
    pub(crate) process: usize,
    pub(crate) asked: Duration,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
}

/// What one process does.
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

/// The whole of a child process: gets ready, waits for a line, works, and prints what it noted.
pub(crate) async fn run(job: &str) -> anyhow::Result<()> {
    let job = Job::from_argument(job)?;
    let database = setting::database(&job.uri, &job.database).await?;
    let provider = LockProvider::builder(&database)
        .wake_up(job.wake_up)
        .acquire_timeout(Duration::from_secs(120))
        .build()?;
    // Connections and the background task are there before it begins.
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
    let noted: Vec<_> = sections.iter().map(to_value).collect();
    println!("{}", Value::from(noted));
    provider.shutdown().await;
    Ok(())
}

/// So many tasks, each with so many sections, without a pause between them.
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
            let mut noted = Vec::with_capacity(sections);
            for _ in 0..sections {
                let asked = clock::now();
                noted.push(lock.run(move |_| section(asked)).await?);
            }
            anyhow::Ok(noted)
        });
    }
    let mut noted = Vec::new();
    while let Some(sections) = working.join_next().await {
        noted.extend(sections??);
    }
    Ok(noted)
}

async fn section(asked: Duration) -> Result<Section, LockError> {
    let begun = clock::now();
    tokio::time::sleep(SECTION).await;
    Ok(Section {
        process: 0,
        asked,
        begun,
        ended: clock::now(),
    })
}

fn to_value(section: &Section) -> Value {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    json!([nanos(section.asked), nanos(section.begun), nanos(section.ended)])
}

/// What a child process has printed.
pub(crate) fn from_line(process: usize, line: &str) -> anyhow::Result<Vec<Section>> {
    let noted: Vec<[u64; 3]> = serde_json::from_str(line)?;
    let section = |[asked, begun, ended]: [u64; 3]| Section {
        process,
        asked: Duration::from_nanos(asked),
        begun: Duration::from_nanos(begun),
        ended: Duration::from_nanos(ended),
    };
    Ok(noted.into_iter().map(section).collect())
}
