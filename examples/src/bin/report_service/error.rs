//! What can go wrong in a handler, and what HTTP says about it.

use std::io::{self, Write};
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mongolock::LockError;
use serde::{Deserialize, Serialize};

/// In seconds: the usual time for a change of a report, rounded up. The remaining time of the current holder is not
/// known, because its lease is renewed while it works.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// The one error of all handlers. Its status says what the client may do:
///
/// - 503 with `Retry-After`: nothing was changed, and the request is not at fault. The client may send it again as it is;
///   a load balancer may send it to another instance.
/// - 409: nothing was changed, because another request changes this report, or has just changed it. The client decides
///   whether its request still makes sense.
/// - 500: the service failed, perhaps after the report was changed. A client has to read the report before it sends the
///   request again, so there is no `Retry-After`.
///
/// Each status has a fixed text. The errors of mongolock and of the driver name locks, hosts and processes: they are logged,
/// and not sent.
#[derive(Debug)]
pub(crate) enum ServiceError {
    Lock(LockError),
    /// The report could not be read.
    Read(mongodb::error::Error),
    /// The report could not be written; perhaps only the reply to the write is missing.
    Write(mongodb::error::Error),
    NotFound,
}

/// All that the attribute needs of the error type.
impl From<LockError> for ServiceError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

/// The body of an answer with an error.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Problem {
    pub(crate) error: Reason,
    pub(crate) message: String,
    /// How long the request waited for its lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited_ms: Option<u64>,
}

/// The reason, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    LockTimeout,
    LockBusy,
    LockLost,
    Stale,
    ShuttingDown,
    NoDatabase,
    WriteFailed,
    NotFound,
    Internal,
}

impl ServiceError {
    fn answer(&self) -> (StatusCode, Reason) {
        match self {
            // There are too many requests for one report, and soon there will be fewer. The client has waited, so this
            // is not a conflict (409); and it has not sent more than others, so it is not 429 either.
            Self::Lock(LockError::Timeout { .. }) => (StatusCode::SERVICE_UNAVAILABLE, Reason::LockTimeout),
            // The client asked to be told about the conflict, and not to wait.
            Self::Lock(LockError::Busy { .. }) => (StatusCode::CONFLICT, Reason::LockBusy),
            Self::Lock(LockError::Stale { .. }) => (StatusCode::CONFLICT, Reason::Stale),
            // The body was dropped at some await point, perhaps between the write and its reply.
            Self::Lock(LockError::Lost { .. }) => (StatusCode::INTERNAL_SERVER_ERROR, Reason::LockLost),
            Self::Lock(LockError::ShutDown { .. }) => (StatusCode::SERVICE_UNAVAILABLE, Reason::ShuttingDown),
            // The attribute returns this error only before it runs the body.
            Self::Lock(LockError::Mongo(_)) | Self::Read(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, Reason::NoDatabase)
            }
            Self::Write(_) => (StatusCode::INTERNAL_SERVER_ERROR, Reason::WriteFailed),
            Self::NotFound => (StatusCode::NOT_FOUND, Reason::NotFound),
            // A defect, such as a name that is too long.
            Self::Lock(_) => (StatusCode::INTERNAL_SERVER_ERROR, Reason::Internal),
        }
    }

    fn waited(&self) -> Option<Duration> {
        match self {
            Self::Lock(LockError::Timeout { waited, .. }) => Some(*waited),
            _ => None,
        }
    }

    /// The error with its sources, for the log.
    fn detail(self) -> Option<anyhow::Error> {
        match self {
            Self::Lock(error) => Some(error.into()),
            Self::Read(error) | Self::Write(error) => Some(error.into()),
            Self::NotFound => None,
        }
    }
}

/// The text for users; it depends on nothing but the status.
fn message(status: StatusCode) -> &'static str {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => "nothing was changed: try again later",
        StatusCode::CONFLICT => "another request changes this report or has changed it: nothing was changed",
        StatusCode::NOT_FOUND => "this report does not exist",
        _ => "the service failed: read the report to see whether it was changed",
    }
}

impl IntoResponse for ServiceError {
    fn into_response(self) -> Response {
        let (status, error) = self.answer();
        let problem = Problem {
            error,
            message: message(status).to_owned(),
            waited_ms: self.waited().map(millis),
        };
        if let Some(detail) = self.detail() {
            // A service has a logger for this. The answer is sent even if the line cannot be written.
            let _ = writeln!(io::stderr(), "log: {} {error:?}: {detail:#}", status.as_u16());
        }
        let mut response = (status, Json(problem)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use mongodb::error::Error;
    use mongolock::{Fenced, FencingToken, LockProvider};

    use super::*;

    async fn timeout() -> LockError {
        let lock = LockProvider::in_memory()
            .lock("secret")
            .acquire_timeout(Duration::ZERO);
        let _held = lock.acquire().await.unwrap();
        lock.acquire().await.unwrap_err()
    }

    async fn lost() -> LockError {
        let lock = LockProvider::in_memory().lock("secret");
        let guard = lock
            .expiry(Duration::from_millis(100))
            .max_hold(Duration::ZERO)
            .acquire()
            .await
            .unwrap();
        guard.lost().await;
        guard.release().await.unwrap_err()
    }

    async fn shut_down() -> LockError {
        let provider = LockProvider::in_memory();
        provider.shutdown().await;
        provider.lock("secret").acquire().await.unwrap_err()
    }

    fn stale() -> LockError {
        let fenced = Fenced::restored((), FencingToken::from(8));
        fenced.write(FencingToken::from(7), |()| ()).unwrap_err()
    }

    fn down() -> Error {
        Error::custom("secret is down")
    }

    /// `LockError::Busy` is tested with the program itself.
    #[tokio::test]
    async fn the_status_says_whether_to_send_the_request_again() {
        let errors: [(ServiceError, u16, bool); 9] = [
            (timeout().await.into(), 503, true),
            (shut_down().await.into(), 503, true),
            (LockError::Mongo(down()).into(), 503, true),
            (ServiceError::Read(down()), 503, true),
            (stale().into(), 409, false),
            (ServiceError::NotFound, 404, false),
            (lost().await.into(), 500, false),
            (ServiceError::Write(down()), 500, false),
            (LockError::NoProvider.into(), 500, false),
        ];
        for (error, status, again) in errors {
            let shown = format!("{error:?}");
            let response = error.into_response();
            let found = (
                response.status().as_u16(),
                response.headers().contains_key(header::RETRY_AFTER),
            );
            assert_eq!(found, (status, again), "{shown}");
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let body = String::from_utf8_lossy(&body);
            assert!(!body.contains("secret"), "{shown}: {body}");
        }
    }
}
