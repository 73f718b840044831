//! One instance: its handlers, and its life from the first request to the last.

use std::env;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use mongolock::LockProvider;
use mongolock_examples::print;
use mongolock_examples::worker::exit_with_parent;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::Serve;
use crate::error::ServiceError;
use crate::reports::{Changed, Reports, Revision, Work};

/// The beginning of the first line that an instance prints; the address follows.
pub(crate) const LISTENING: &str = "Listening on ";

/// The limit for finding a server. The driver's own limit of 30 s is longer than clients wait; an election takes less.
const SERVER_SELECTION: Duration = Duration::from_secs(5);

/// The body of a POST. The type of the duration limits it to about a minute, the longest time that a client can hold a
/// report.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Request {
    /// How long the work takes.
    pub(crate) work_ms: u16,
    /// Whether to wait while other requests change the report.
    pub(crate) wait: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            work_ms: 100,
            wait: true,
        }
    }
}

/// The answer to a GET.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) id: u32,
    pub(crate) revisions: Vec<Revision>,
}

async fn read(State(reports): State<Reports>, Path(id): Path<u32>) -> Result<Json<Content>, ServiceError> {
    let report = reports.read(id).await?.ok_or(ServiceError::NotFound)?;
    Ok(Json(Content {
        id,
        revisions: report.revisions,
    }))
}

async fn change(
    State(reports): State<Reports>,
    Path(id): Path<u32>,
    request: Option<Json<Request>>,
) -> Result<Json<Changed>, ServiceError> {
    let Json(request) = request.unwrap_or_default();
    let work = Work {
        requested: Instant::now(),
        duration: Duration::from_millis(request.work_ms.into()),
    };
    let changed = if request.wait {
        reports.change(id, work).await
    } else {
        reports.change_if_free(id, work).await
    };
    changed.map(Json)
}

/// Serves until Ctrl-C or SIGTERM.
pub(crate) async fn run(options: &Serve) -> anyhow::Result<()> {
    if options.instance.is_some() {
        exit_with_parent();
    }
    let database = database(&options.database).await?;
    let mut locks = LockProvider::builder(&database).acquire_timeout(options.acquire_timeout);
    if let Some(number) = options.instance {
        locks = locks.owner(format!("instance {number}"));
    }
    let locks = locks.build()?;
    // Before the first request, so that an early signal does not kill the process. Ctrl-C, and the signal of supervisors:
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await;
    let listener = listener.with_context(|| format!("cannot listen on port {}", options.port))?;
    print(format!("{LISTENING}http://{}", listener.local_addr()?))?;
    let router = Router::new()
        .route("/reports/{id}", get(read).post(change))
        .with_state(Reports::new(&database, locks.clone()));
    let (grace, end) = (options.grace, locks.clone());
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // From here on the server accepts no connection, and answers the requests that it has. A request that takes too
        // long loses its lock, or leaves the queue, and is answered with that.
        tokio::spawn(async move {
            tokio::time::sleep(grace).await;
            end.shutdown().await;
        });
    };
    axum::serve(listener, router).with_graceful_shutdown(stop).await?;
    // The locks of requests that were dropped last are released before the process ends.
    locks.shutdown().await;
    Ok(())
}

async fn database(name: &str) -> anyhow::Result<Database> {
    let uri = env::var("MONGODB_URI").ok().filter(|uri| !uri.is_empty());
    let uri = uri.unwrap_or_else(|| "mongodb://localhost".to_owned());
    let mut options = ClientOptions::parse(uri).await?;
    options.server_selection_timeout.get_or_insert(SERVER_SELECTION);
    Ok(Client::with_options(options)?.database(name))
}
