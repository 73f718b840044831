//! Other processes of the benchmark: this program again, with a job.

use mongolock_tests::Actor;
use serde::de::DeserializeOwned;
use tokio::process::Command;

use crate::setting::Access;
use crate::worker::{Job, Order};

/// Starts the process of this job, and waits until it is ready. It begins with the next line that it is sent.
pub(crate) async fn start(access: &Access, job: Job) -> anyhow::Result<Actor> {
    start_with(access, job, &[]).await
}

/// The same with these variables in the environment of the process.
pub(crate) async fn start_with(
    access: &Access,
    job: Job,
    variables: &[(&str, &str)],
) -> anyhow::Result<Actor> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments(access, job)?);
    command.envs(variables.iter().copied());
    let mut process = Actor::start(command);
    process.until("ready").await;
    Ok(process)
}

/// The arguments of this program with which it does this job.
pub(crate) fn arguments(access: &Access, job: Job) -> anyhow::Result<[String; 2]> {
    let access = access.clone();
    let order = serde_json::to_string(&Order { access, job })?;
    Ok(["--worker".to_owned(), order])
}

/// Lets these processes, which are ready, begin their next step.
pub(crate) async fn go(processes: &mut [Actor]) {
    for process in processes {
        process.send("go").await;
    }
}

/// The result of a step.
pub(crate) async fn result<T: DeserializeOwned>(process: &mut Actor) -> anyhow::Result<T> {
    Ok(serde_json::from_str(&process.until("result").await)?)
}

/// The only results of these processes, which end after them.
pub(crate) async fn last_results<T: DeserializeOwned>(processes: Vec<Actor>) -> anyhow::Result<Vec<T>> {
    let mut results = Vec::new();
    for mut process in processes {
        results.push(result(&mut process).await?);
        process.end().await;
    }
    Ok(results)
}
