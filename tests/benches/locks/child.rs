//! Other processes of the benchmark: this program again, with a job.

use mongolock_tests::{Actor, order, say};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::setting::Access;
use crate::{many_names, queue};

/// What another process does.
#[derive(Serialize, Deserialize)]
pub(crate) enum Job {
    Names(many_names::Names),
    Queue(queue::Queueing),
}

/// A job and its server.
#[derive(Serialize, Deserialize)]
struct Order {
    access: Access,
    job: Job,
}

/// Does the job of this process.
pub(crate) async fn run(job: &str) -> anyhow::Result<()> {
    let Order { access, job } = serde_json::from_str(job)?;
    match job {
        Job::Names(names) => many_names::hold_and_wait(&access, names).await,
        Job::Queue(queueing) => queue::queue(&access, queueing).await,
    }
}

/// Says that the next step can begin, and waits until it shall.
pub(crate) async fn ready() {
    say("ready");
    order().await;
}

/// Sends a result to the process that has started this one.
pub(crate) fn print(result: &impl Serialize) -> anyhow::Result<()> {
    say(format_args!("result {}", serde_json::to_string(result)?));
    Ok(())
}

/// Starts the process of this job, and waits until it is ready. It begins with the next line that it is sent.
pub(crate) async fn start(access: &Access, job: Job) -> anyhow::Result<Actor> {
    let access = access.clone();
    let order = serde_json::to_string(&Order { access, job })?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--worker", &order]);
    let mut process = Actor::start(command);
    process.until("ready").await;
    Ok(process)
}

/// The result of a step.
pub(crate) async fn result<T: DeserializeOwned>(process: &mut Actor) -> anyhow::Result<T> {
    Ok(serde_json::from_str(&process.until("result").await)?)
}

/// The last result of a process, which ends after it.
pub(crate) async fn last_result<T: DeserializeOwned>(mut process: Actor) -> anyhow::Result<T> {
    let last = result(&mut process).await?;
    process.end().await;
    Ok(last)
}
