//! A web service whose requests change a report under a lock, with a status for each `LockError`.
//!
//! ```text
//! cargo run -p mongolock --example axum_service
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example axum_service
//! curl -i -X POST http://127.0.0.1:3000/reports/42
//! ```
//!
//! A change takes 3 s and a request waits for at most 2 s: send two requests at the same time to see a 503.

use std::env;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use mongolock::{LockError, LockProvider, distributed_lock};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// How long the requests that hold a lock may go on after SIGTERM.
const GRACE: Duration = Duration::from_secs(8);

#[distributed_lock(name = "report:<id>", acquire_timeout = "2s")]
async fn rebuild_report(id: u32) -> Result<String, ServiceError> {
    // The work.
    tokio::time::sleep(Duration::from_secs(3)).await;
    Ok(format!("report {id} is rebuilt\n"))
}

async fn rebuild(Path(id): Path<u32>) -> Result<String, ServiceError> {
    rebuild_report(id).await
}

/// The error of the handlers. The attribute needs no more than `From<LockError>`.
struct ServiceError(LockError);

impl From<LockError> for ServiceError {
    fn from(error: LockError) -> Self {
        Self(error)
    }
}

impl IntoResponse for ServiceError {
    /// The caller gets a fixed text. The text of a `LockError` is for the log: it names hosts, owners and locks.
    fn into_response(self) -> Response {
        eprintln!("request failed: {}", self.0);
        let (status, text) = match self.0 {
            // Nothing was changed, and the request may be sent again as it is. `Mongo` comes from the acquire here; a body
            // that writes to MongoDB needs an error of its own for its writes.
            LockError::Timeout { .. } | LockError::ShutDown { .. } | LockError::Mongo(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "nothing was changed, try again later\n",
            ),
            // With `on_busy = "fail"`, or after a fenced write that was refused: another request was first.
            LockError::Busy { .. } | LockError::Stale { .. } => {
                (StatusCode::CONFLICT, "another request changes this report\n")
            }
            // The body was cancelled at some await point.
            LockError::Lost { .. } => {
                let text = "the change was interrupted, check the report before you repeat it\n";
                (StatusCode::INTERNAL_SERVER_ERROR, text)
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal error\n"),
        };
        let mut response = (status, text).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, 1.into());
        }
        response
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    locks.clone().set_global()?;
    let routes = Router::new().route("/reports/{id}", post(rebuild));
    let listener = TcpListener::bind(("127.0.0.1", 3000)).await?;
    println!(
        "listening on http://{}; SIGTERM ends the program",
        listener.local_addr()?
    );
    let server = axum::serve(listener, routes).with_graceful_shutdown(sigterm());
    // The requests that hold a lock go on, and those that wait for one get `ShutDown`, a 503. All locks are released when
    // this ends.
    let ending = async {
        sigterm().await;
        locks.shutdown_after(GRACE).await;
    };
    let (ended, ()) = tokio::join!(server.into_future(), ending);
    Ok(ended?)
}

async fn sigterm() {
    let mut signal = signal(SignalKind::terminate()).expect("the runtime handles signals");
    signal.recv().await;
}
