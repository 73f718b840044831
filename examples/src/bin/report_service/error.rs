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
/// The answer has a fixed text. The errors of mongolock and of the driver name locks, hosts and processes: they are
/// logged, and not sent.
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
    fn answer(&self) -> (StatusCode, Reason, &'static str) {
        match self {
            // There are too many requests for one report, and soon there will be fewer. The client has waited, so this
            // is not a conflict (409); and it has not sent more than others, so it is not 429 either.
            Self::Lock(LockError::Timeout { .. }) => (
                StatusCode::SERVICE_UNAVAILABLE,
                Reason::LockTimeout,
                "other requests are changing this report: nothing was changed, try again later",
            ),
            // The client asked to be told about the conflict, and not to wait.
            Self::Lock(LockError::Busy { .. }) => (
                StatusCode::CONFLICT,
                Reason::LockBusy,
                "another request is changing this report: nothing was changed",
            ),
            Self::Lock(LockError::Stale { .. }) => (
                StatusCode::CONFLICT,
                Reason::Stale,
                "another request has changed this report meanwhile: nothing was changed",
            ),
            // The body was dropped at some await point, perhaps between the write and its reply.
            Self::Lock(LockError::Lost { .. }) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                Reason::LockLost,
                "the change was interrupted: read the report to see whether it was made",
            ),
            Self::Lock(LockError::ShutDown { .. }) => (
                StatusCode::SERVICE_UNAVAILABLE,
                Reason::ShuttingDown,
                "this instance is shutting down: nothing was changed, try again",
            ),
            // Not a busy lock: trying again soon does not help, an operator can. The attribute returns this error only
            // before it runs the body.
            Self::Lock(LockError::Mongo(_)) | Self::Read(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                Reason::NoDatabase,
                "the database is unreachable: nothing was changed, try again later",
            ),
            Self::Write(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                Reason::WriteFailed,
                "the database failed: read the report to see whether it was changed",
            ),
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                Reason::NotFound,
                "this report does not exist",
            ),
            // A defect, such as a name that is too long.
            Self::Lock(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                Reason::Internal,
                "the service has failed",
            ),
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

impl IntoResponse for ServiceError {
    fn into_response(self) -> Response {
        let (status, error, message) = self.answer();
        let problem = Problem {
            error,
            message: message.to_owned(),
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

    /// The status, whether there is a `Retry-After`, and the body.
    async fn answer(error: impl Into<ServiceError>) -> (u16, bool, String) {
        let response = error.into().into_response();
        let again = response.headers().contains_key(header::RETRY_AFTER);
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, again, String::from_utf8(body.to_vec()).unwrap())
    }

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
        for (error, status, again) in [
            (timeout().await.into(), 503, true),
            (shut_down().await.into(), 503, true),
            (LockError::Mongo(down()).into(), 503, true),
            (ServiceError::Read(down()), 503, true),
            (stale().into(), 409, false),
            (ServiceError::NotFound, 404, false),
            (lost().await.into(), 500, false),
            (ServiceError::Write(down()), 500, false),
            (LockError::NoProvider.into(), 500, false),
        ] {
            let shown = format!("{error:?}");
            let (found_status, found_again, body) = answer(error).await;
            assert_eq!((found_status, found_again), (status, again), "{shown}");
            assert!(!body.contains("secret"), "{shown}: {body}");
        }
    }
}
