//! One instance: its handlers, and its life from the first request to the last.

use std::env;
use std::io;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use mongolock::LockProvider;
use mongolock_examples::output::println;
use mongolock_examples::processes::exit_with_parent;
use tokio::net::TcpListener;

use crate::answer::{Changed, Content, Request};
use crate::error::ServiceError;
use crate::options::Serve;
use crate::reports::{Reports, Work};

/// What an instance says first; the address follows.
pub(crate) const LISTENING: &str = "Listening on ";

/// The driver looks for a server for 30 s, and a client has given up by then. An election takes less than this.
const SERVER_SELECTION: Duration = Duration::from_secs(5);

pub(crate) fn router(reports: Reports) -> Router {
    Router::new()
        .route("/reports/{id}", get(read).post(change))
        .with_state(reports)
}

async fn read(State(reports): State<Reports>, Path(id): Path<u32>) -> Result<Json<Content>, ServiceError> {
    let report = reports.read(id).await?.ok_or(ServiceError::NotFound)?;
    Ok(Json(report.into()))
}

async fn change(
    State(reports): State<Reports>,
    Path(id): Path<u32>,
    request: Option<Json<Request>>,
) -> Result<Json<Changed>, ServiceError> {
    let Json(request) = request.unwrap_or_default();
    let work = Work {
        asked: Instant::now(),
        takes: Duration::from_millis(request.work_ms.into()),
    };
    let changed = if request.wait {
        reports.change(id, work).await
    } else {
        reports.change_if_free(id, work).await
    };
    changed.map(Json)
}

/// Serves until Ctrl-C or SIGTERM.
pub(crate) async fn run(options: &Serve) -> anyhow::Result<ExitCode> {
    if options.instance.is_some() {
        exit_with_parent();
    }
    let database = database(&options.database).await?;
    let locks = provider(&database, options)?;
    let stop = stop_signal()?;
    let address = (Ipv4Addr::LOCALHOST, options.port);
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on port {}", options.port))?;
    println(&format!("{LISTENING}http://{}", listener.local_addr()?))?;

    let (grace, end) = (options.grace, locks.clone());
    axum::serve(listener, router(Reports::new(&database, locks.clone())))
        .with_graceful_shutdown(async move {
            stop.await;
            // From here on there are no new connections, and what was asked is answered. What takes too long loses its
            // lock, or its place in the queue, and is answered with that.
            tokio::spawn(async move {
                tokio::time::sleep(grace).await;
                end.shutdown().await;
            });
        })
        .await?;
    // Releases of requests that were dropped at the last moment reach the server before the process ends.
    locks.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

async fn database(name: &str) -> anyhow::Result<Database> {
    let uri = env::var("MONGODB_URI").unwrap_or_default();
    let uri = if uri.is_empty() {
        "mongodb://localhost"
    } else {
        &uri
    };
    let mut options = ClientOptions::parse(uri).await?;
    options.server_selection_timeout.get_or_insert(SERVER_SELECTION);
    Ok(Client::with_options(options)?.database(name))
}

fn provider(database: &Database, options: &Serve) -> anyhow::Result<LockProvider> {
    let mut provider = LockProvider::builder(database).acquire_timeout(options.acquire_timeout);
    if let Some(number) = options.instance {
        provider = provider.owner(format!("instance {number}"));
    }
    Ok(provider.build()?)
}

/// Ctrl-C, or what supervisors send; ready when this returns, so that an early one does not kill the process.
#[cfg(unix)]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    Ok(async move {
        interrupt.recv().await;
    })
}
