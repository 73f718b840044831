//! A web service whose requests change a report under a lock, with a status for each `LockError`.
//!
//! ```text
//! cargo run -p mongolock --example axum_service
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example axum_service
//! curl -i -X POST http://127.0.0.1:3000/reports/42
//! ```
//!
//! A change takes 3 s and a request waits for at most 2 s: send two requests at the same time to see a 503. `PORT` sets another
//! port.

use std::env;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use mongolock::{LockError, LockProvider, distributed_lock};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// How long the requests that hold a lock may go on after SIGTERM.
const GRACE: Duration = Duration::from_secs(8);

/// The usual time of the work under the lock.
const WORK: Duration = Duration::from_secs(3);

#[distributed_lock(name = "report:<id>", acquire_timeout = "2s")]
async fn rebuild(Path(id): Path<u32>) -> Result<String, ServiceError> {
    tokio::time::sleep(WORK).await;
    Ok(format!("report {id} is rebuilt\n"))
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
        // Nothing was changed, and the request may be sent again as it is.
        let again = |seconds: u64| {
            let text = "nothing was changed, try again later\n";
            let header = [(RETRY_AFTER, seconds.to_string())];
            (StatusCode::SERVICE_UNAVAILABLE, header, text).into_response()
        };
        match self.0 {
            // The rest of the holder's work. `remaining` says nothing of it: that lease is renewed until the work ends.
            LockError::Timeout { held_for, .. } => {
                again(WORK.saturating_sub(held_for.unwrap_or_default()).as_secs() + 1)
            }
            // `Mongo` comes from the acquire here; a body that writes to MongoDB needs an error of its own for its writes.
            LockError::ShutDown { .. } | LockError::Mongo(_) => again(1),
            // With `on_busy = "fail"`, or after a fenced write that was refused: another request was first.
            LockError::Busy { .. } | LockError::Stale { .. } => {
                (StatusCode::CONFLICT, "another request changes this report\n").into_response()
            }
            // The body was cancelled at some await point.
            LockError::Lost { .. } => {
                let text = "the change was interrupted, check the report before you repeat it\n";
                (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal error\n").into_response(),
        }
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
    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
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
