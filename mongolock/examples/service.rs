//! A web service: reports under a lock, metrics for Prometheus, readiness, and an end in good order on SIGTERM.
//!
//! `MONGODB_URI=mongodb://localhost/app cargo run -p mongolock --features metrics --example service`. A copy needs
//! `cargo add mongolock anyhow axum metrics-exporter-prometheus tokio --features mongolock/metrics,tokio/full`.

use std::{env, time::Duration};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{Router, get, post};
use metrics_exporter_prometheus::PrometheusBuilder;
use mongolock::{LockError, LockProvider, distributed_lock};
use tokio::signal::unix::{SignalKind, signal};

#[distributed_lock(name = "report:<id>", acquire_timeout = "2s", provider = locks)]
async fn rebuild_report(locks: &LockProvider, id: u32) -> Result<String, LockError> {
    tokio::time::sleep(Duration::from_millis(50)).await; // the work
    Ok(format!("report {id} is rebuilt\n"))
}

async fn rebuild(State(locks): State<LockProvider>, Path(id): Path<u32>) -> Result<String, StatusCode> {
    rebuild_report(&locks, id).await.map_err(|error| match error {
        LockError::Timeout { .. } | LockError::ShutDown { .. } | LockError::Mongo(_) => {
            StatusCode::SERVICE_UNAVAILABLE // nothing was changed: the request may be sent again as it is
        }
        _ => {
            eprintln!("request failed: {error}"); // for the log: it names hosts, owners and locks
            StatusCode::INTERNAL_SERVER_ERROR
        }
    })
}

async fn ready(State(locks): State<LockProvider>) -> Result<(), StatusCode> {
    let is_ready = locks.is_ready().await.then_some(());
    is_ready.ok_or(StatusCode::SERVICE_UNAVAILABLE)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let metrics = PrometheusBuilder::new()
        .set_buckets(&[0.001, 0.01, 0.1, 1.0, 10.0, 60.0])?
        .install_recorder()?; // before the first lock
    let uri = env::var("MONGODB_URI").unwrap_or_else(|_| "mongodb://localhost/app".to_owned());
    let locks = LockProvider::connect(uri).await?;
    let routes = Router::new()
        .route("/reports/{id}", post(rebuild))
        .route("/metrics", get(async move || metrics.render()))
        .route("/ready", get(ready))
        .with_state(locks.clone());
    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let mut sigterm = signal(SignalKind::terminate())?;
    let server = axum::serve(listener, routes).with_graceful_shutdown(async move {
        sigterm.recv().await;
        // Readiness fails from here on. Requests that hold a lock end, others get a 503, and then the server stops.
        locks.shutdown_after(Duration::from_secs(20)).await;
    });
    Ok(server.await?)
}
