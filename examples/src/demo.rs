//! A program from its start to its exit status: the runtime, Ctrl-C, and a MongoDB server with a database.

use std::env;
use std::process::{self, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mongodb::Database;
use mongolock_tests::{Deployment, find_mongod};

use crate::summary::Summary;
use crate::{print, show};

/// The end of each help text.
pub const AFTER_HELP: &str = "\
The program starts a MongoDB server and removes it at the end. If MONGODB_URI is set, it uses that server instead, in a \
database of its own, which it drops at the end.

Exit status: 0 if all checks passed, 1 if one failed, 2 for a wrong command line.";

/// The exit status of an interrupted program, by the convention of shells.
const INTERRUPTED: u8 = 130;

/// Finding an installed `mongod` takes less; a search that takes longer is a download.
const SEARCH_LIMIT: Duration = Duration::from_secs(2);

/// The limit for dropping the database, so that an unreachable server does not keep the program from ending.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// The MongoDB server and the database of a demonstration.
#[derive(Debug)]
pub struct Stage {
    deployment: Deployment,
    database: Database,
}

impl Stage {
    /// The connection string of the server.
    #[must_use]
    pub fn uri(&self) -> &str {
        self.deployment.uri()
    }

    /// The database, which is dropped after the demonstration.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }
}

/// Runs a demonstration, and prints its summary and the time that it took. The exit status says whether all checks
/// passed.
///
/// On Ctrl-C the demonstration is dropped; everything that it has started must end with it.
#[must_use]
pub fn demonstrate(program: &str, scene: impl AsyncFnOnce(&Stage) -> anyhow::Result<Summary>) -> ExitCode {
    block_on(async {
        let Some(deployment) = unless_interrupted(start_server()).await.transpose()? else {
            return Ok(ExitCode::from(INTERRUPTED));
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("mongolock_{program}_{}_{}", process::id(), since.as_secs());
        let database = deployment.client().await?.database(&name);
        let stage = Stage { deployment, database };
        let begun = Instant::now();
        let outcome = unless_interrupted(scene(&stage)).await;
        if stage.deployment.server().is_none() {
            // A database that stays behind on an unreachable server is not an error of the demonstration.
            let _ = tokio::time::timeout(DROP_LIMIT, stage.database.drop()).await;
        }
        let Some(mut summary) = outcome.transpose()? else {
            return Ok(ExitCode::from(INTERRUPTED));
        };
        summary.row("time", show(begun.elapsed()));
        print(&summary)?;
        Ok(summary.exit_code())
    })
}

/// Runs anything else that a program does: a worker process, a service, a terminal session.
#[must_use]
pub fn run(program: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    block_on(async { program.await.map(|()| ExitCode::SUCCESS) })
}

fn block_on(program: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    let exit_code = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| {
            let exit_code = runtime.block_on(program);
            // An interrupted download must not keep the program from ending.
            runtime.shutdown_background();
            exit_code
        });
    exit_code.unwrap_or_else(|error| {
        eprintln!("Error: {error:#}");
        ExitCode::FAILURE
    })
}

/// `None` after Ctrl-C; the future is dropped then.
async fn unless_interrupted<F: Future>(future: F) -> Option<F::Output> {
    tokio::select! {
        // Ctrl-C also ends the worker processes, which is not an outcome to report.
        biased;
        Ok(()) = tokio::signal::ctrl_c() => None,
        output = future => Some(output),
    }
}

async fn start_server() -> anyhow::Result<Deployment> {
    if env::var_os("MONGODB_URI").is_some_and(|uri| !uri.is_empty()) {
        eprintln!("Using the MongoDB server of MONGODB_URI ...");
    } else {
        let search = find_mongod();
        tokio::pin!(search);
        if let Ok(found) = tokio::time::timeout(SEARCH_LIMIT, &mut search).await {
            found?;
        } else {
            eprintln!("Downloading mongod, which is kept for the next run ...");
            search.await?;
        }
        eprintln!("Starting a MongoDB server ...");
    }
    Ok(Deployment::from_env_or_start().await?)
}
