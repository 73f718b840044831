//! A program from its start to its exit status: the runtime, Ctrl-C, and a MongoDB with a database of its own.

use std::env;
use std::future::Future;
use std::process::{self, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongodb::Database;
use mongolock_tests::{Deployment, MongodSource};

/// Where an interrupted program ends, by the custom of shells.
const INTERRUPTED: u8 = 130;

/// Finding a `mongod` that is there takes less; past it one is being fetched.
const FETCHING: Duration = Duration::from_secs(2);

/// A server that is gone must not keep the program from ending.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// Runs a program to its exit status, and says what went wrong if it ends with an error.
#[must_use]
pub fn run(program: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure(&error.into()),
    };
    let status = runtime.block_on(program);
    // A download that Ctrl-C has left behind must not keep the program.
    runtime.shutdown_background();
    status.unwrap_or_else(|error| failure(&error))
}

fn failure(error: &anyhow::Error) -> ExitCode {
    eprintln!("Error: {error:#}");
    ExitCode::FAILURE
}

/// Works in a database of its own, on a MongoDB that it starts or on the one that `MONGODB_URI` names.
///
/// `work` says whether all was right: that is the exit status. On Ctrl-C it is dropped, and whatever it has started
/// must end with it. The database is gone at the end, whatever happens.
///
/// # Errors
/// Those of `work`, and when there is no MongoDB.
pub async fn with_database(
    program: &str,
    work: impl AsyncFnOnce(&Deployment, &Database) -> anyhow::Result<bool>,
) -> anyhow::Result<ExitCode> {
    let Some(deployment) = unless_interrupted(start_server()).await.transpose()? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let name = format!("mongolock_{program}_{}_{}", process::id(), seconds());
    let database = deployment.client().await?.database(&name);
    let outcome = unless_interrupted(work(&deployment, &database)).await;
    if deployment.server().is_none() {
        // The work is done: that a database stays behind on a server that has gone is no failure of it.
        let _ = tokio::time::timeout(DROP_LIMIT, database.drop()).await;
    }
    match outcome.transpose()? {
        None => Ok(ExitCode::from(INTERRUPTED)),
        Some(true) => Ok(ExitCode::SUCCESS),
        Some(false) => Ok(ExitCode::FAILURE),
    }
}

/// `None` on Ctrl-C; the future is dropped then, and whatever it has started ends.
async fn unless_interrupted<F: Future>(future: F) -> Option<F::Output> {
    tokio::select! {
        // Ctrl-C ends the processes as well: that is no outcome to report.
        biased;
        Ok(()) = tokio::signal::ctrl_c() => None,
        output = future => Some(output),
    }
}

async fn start_server() -> anyhow::Result<Deployment> {
    if env::var_os("MONGODB_URI").is_some_and(|uri| !uri.is_empty()) {
        eprintln!("Using the MongoDB of MONGODB_URI ..");
    } else {
        let finding = MongodSource::from_env().find();
        tokio::pin!(finding);
        if let Ok(found) = tokio::time::timeout(FETCHING, &mut finding).await {
            found?;
        } else {
            eprintln!("Fetching mongod, which is kept for the next time ..");
            finding.await?;
        }
        eprintln!("Starting a MongoDB ..");
    }
    Ok(Deployment::from_env_or_start().await?)
}

fn seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
