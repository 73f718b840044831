//! Other processes of the benchmark: this program again, with a job.

use mongolock_tests::Actor;
use serde::de::DeserializeOwned;
use tokio::process::Command;

use crate::setting::Setting;
use crate::worker::{Job, Order};

/// Starts the process of this job, and waits until it is ready. It begins with the next line that it is sent.
pub(crate) async fn start(setting: &Setting, job: Job) -> anyhow::Result<Actor> {
    start_with(setting, setting.uri(), job, &[]).await
}

/// The same for a server at this address, which may be a proxy, and with these variables in the environment of the process.
pub(crate) async fn start_with(
    setting: &Setting,
    uri: &str,
    job: Job,
    variables: &[(&str, &str)],
) -> anyhow::Result<Actor> {
    let order = Order {
        uri: uri.to_owned(),
        database: setting.database_name().to_owned(),
        job,
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--worker", &serde_json::to_string(&order)?]);
    command.envs(variables.iter().copied());
    let mut process = Actor::start(command);
    process.until("ready").await;
    Ok(process)
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

/// The results of so many processes that do this job at the same time.
pub(crate) async fn results<T: DeserializeOwned>(
    setting: &Setting,
    count: usize,
    job: impl Fn() -> Job,
) -> anyhow::Result<Vec<T>> {
    let mut processes = Vec::new();
    for _ in 0..count {
        processes.push(start(setting, job()).await?);
    }
    go(&mut processes).await;
    last_results(processes).await
}
