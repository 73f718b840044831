//! A web service as it runs in production: reports under a lock, `/metrics` for Prometheus, `/ready` and `/live` for
//! Kubernetes, `/health` for people, and an end in good order on SIGTERM.
//!
//! ```text
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --features metrics --example service
//! curl -i -X POST http://127.0.0.1:3000/reports/42
//! curl http://127.0.0.1:3000/health
//! curl http://127.0.0.1:3000/metrics
//! ```
//!
//! Without `MONGODB_URI` the locks are in memory; `PORT` sets another port. A dashboard and alerts are in `dashboards`.

use std::env;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use mongolock::{Health, LockError, LockProvider, distributed_lock};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// How long the requests that hold a lock may go on after SIGTERM. `terminationGracePeriodSeconds` has to be longer by the
/// `preStop` pause and by 22 s, the worst case of the confirmation by MongoDB.
const GRACE: Duration = Duration::from_secs(20);

/// The bounds of the histograms in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];

#[derive(Clone)]
struct App {
    locks: LockProvider,
    metrics: PrometheusHandle,
}

#[distributed_lock(name = "report:<id>", acquire_timeout = "2s")]
async fn rebuild_report(id: u32) -> Result<String, ServiceError> {
    // The work.
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(format!("report {id} is rebuilt\n"))
}

async fn rebuild(Path(id): Path<u32>) -> Result<String, ServiceError> {
    rebuild_report(id).await
}

/// The metrics of this process, in the text format of Prometheus.
async fn metrics(State(app): State<App>) -> String {
    app.metrics.render()
}

/// Readiness: every request of this service needs a lock. Liveness does not ask MongoDB.
async fn ready(State(app): State<App>) -> StatusCode {
    if app.locks.is_ready().await {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

/// For people: what this process knows about its locks and about MongoDB. It names hosts.
async fn health(State(app): State<App>) -> Json<Health> {
    Json(app.locks.health().await)
}

/// The error of the handlers, with a fixed text for the caller.
struct ServiceError(LockError);

impl From<LockError> for ServiceError {
    fn from(error: LockError) -> Self {
        Self(error)
    }
}

impl IntoResponse for ServiceError {
    fn into_response(self) -> Response {
        match self.0 {
            LockError::Timeout { .. } | LockError::ShutDown { .. } | LockError::Mongo(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "nothing was changed, try again later\n",
            )
                .into_response(),
            error => {
                eprintln!("request failed: {error}");
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal error, check the report\n",
                )
                    .into_response()
            }
        }
    }
}

async fn sigterm() {
    let mut signal = signal(SignalKind::terminate()).expect("the runtime handles signals");
    signal.recv().await;
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // The recorder comes before the first lock.
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?
        .install_recorder()?;
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    locks.clone().set_global()?;
    let app = App {
        locks: locks.clone(),
        metrics,
    };
    let routes = Router::new()
        .route("/reports/{id}", post(rebuild))
        .route("/metrics", get(self::metrics))
        .route("/live", get(|| async { StatusCode::OK }))
        .route("/ready", get(ready))
        .route("/health", get(health))
        .with_state(app);

    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!(
        "listening on http://{}; SIGTERM ends the program",
        listener.local_addr()?
    );
    let server = axum::serve(listener, routes).with_graceful_shutdown(sigterm());
    let ending = async {
        sigterm().await;
        // `/ready` is false from here on, requests that hold a lock end, and others get a 503.
        locks.shutdown_after(GRACE).await;
    };
    let (ended, ()) = tokio::join!(server.into_future(), ending);
    println!("all locks are released");
    Ok(ended?)
}
