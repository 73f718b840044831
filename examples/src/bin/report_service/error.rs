//! Everything that can go wrong in a handler, and what HTTP says of it.

use std::fmt::Display;
use std::io::{self, Write};

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mongolock::LockError;

use crate::answer::{Problem, Reason, millis};

/// Seconds. How long the present holder still works cannot be known (its lease is renewed as long as it does), so
/// this is what a change of a report usually takes, rounded up.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// The one error of all handlers. Its status says what the client may do:
///
/// - 503 with `Retry-After`: nothing was changed, and the request is not at fault. It may be sent again as it is; a
///   load balancer may send it to another instance.
/// - 409: nothing was changed, because somebody else changes this very report, or just has. Whether the request still
///   makes sense is for the client to decide.
/// - 500: the service failed, perhaps after the report was changed. Whoever repeats the request must look at the report
///   first, so there is no `Retry-After`.
#[derive(Debug)]
pub(crate) enum ServiceError {
    Lock(LockError),
    /// The report could not be read.
    Read(mongodb::error::Error),
    /// The report could not be written; perhaps only the answer to the write is missing.
    Write(mongodb::error::Error),
    /// The write was refused: a later holder of this lock has written before.
    TooLate {
        lock: String,
    },
    NotFound,
}

/// All that the attribute asks of the error type.
impl From<LockError> for ServiceError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl ServiceError {
    /// The status, the reason for programs, and the message for people. What the errors of mongolock and of the driver
    /// say is for those who run the service: it is logged, and not sent.
    fn answer(&self) -> (StatusCode, Reason, &'static str) {
        match self {
            // Too many requests for one report, and soon there will be fewer. The client waited and did what it
            // could, so it is not told of a conflict (409); and it sent no more than others, so it is no 429 either.
            Self::Lock(LockError::Timeout { .. }) => (
                StatusCode::SERVICE_UNAVAILABLE,
                Reason::LockTimeout,
                "others are changing this report: nothing was changed, try again later",
            ),
            // The client wanted to hear of the conflict rather than to wait for its end.
            Self::Lock(LockError::Busy { .. }) => (
                StatusCode::CONFLICT,
                Reason::LockBusy,
                "somebody else is changing this report: nothing was changed",
            ),
            Self::TooLate { .. } => (
                StatusCode::CONFLICT,
                Reason::TooLate,
                "somebody else has changed this report meanwhile: nothing was changed",
            ),
            // The body was dropped somewhere, perhaps between the write and its answer.
            Self::Lock(LockError::Lost { .. }) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                Reason::LockLost,
                "the change was broken off: read the report to see whether it was made",
            ),
            Self::Lock(LockError::ShutDown { .. }) => (
                StatusCode::SERVICE_UNAVAILABLE,
                Reason::ShuttingDown,
                "this instance is shutting down: nothing was changed, try again",
            ),
            // MongoDB does not answer, and that is another matter than a lock that is held: a client that is told to
            // try again soon will not help, but an operator can. The attribute returns this before the body only.
            Self::Lock(LockError::Mongo(_)) | Self::Read(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                Reason::NoDatabase,
                "the database is out of reach: nothing was changed, try again later",
            ),
            Self::Write(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                Reason::WriteFailed,
                "the database failed: read the report to see whether it was changed",
            ),
            Self::NotFound => (StatusCode::NOT_FOUND, Reason::NotFound, "there is no such report"),
            // Bugs, such as a name that is too long.
            Self::Lock(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                Reason::Internal,
                "the service is at fault",
            ),
        }
    }

    fn lock(&self) -> Option<&str> {
        match self {
            Self::Lock(
                LockError::Timeout { name, .. }
                | LockError::Busy { name, .. }
                | LockError::Lost { name, .. }
                | LockError::ShutDown { name, .. },
            )
            | Self::TooLate { lock: name } => Some(name),
            _ => None,
        }
    }

    fn waited_ms(&self) -> Option<u64> {
        match self {
            Self::Lock(LockError::Timeout { waited, .. }) => Some(millis(*waited)),
            _ => None,
        }
    }

    /// A refusal is an answer like any other; what fails is for the operator.
    fn log(&self) {
        match self {
            Self::Lock(LockError::Timeout { .. } | LockError::Busy { .. } | LockError::ShutDown { .. })
            | Self::TooLate { .. }
            | Self::NotFound => {}
            Self::Lock(error) => log(error),
            Self::Read(error) | Self::Write(error) => log(error),
        }
    }
}

/// A service has a logger for this.
fn log(error: &dyn Display) {
    // Nobody may read it: the answer goes out all the same.
    let _ = writeln!(io::stderr(), "{error}");
}

impl IntoResponse for ServiceError {
    fn into_response(self) -> Response {
        self.log();
        let (status, error, message) = self.answer();
        let problem = Problem {
            error,
            message: message.to_owned(),
            lock: self.lock().map(ToOwned::to_owned),
            waited_ms: self.waited_ms(),
        };
        let mut response = (status, Json(problem)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mongodb::error::Error;
    use mongolock::{LockProvider, distributed_lock};

    use super::*;

    #[distributed_lock(name = "report:1", on_busy = "fail")]
    async fn unless_busy() -> Result<(), LockError> {
        Ok(())
    }

    /// The errors of a lock that is held, is lost, and belongs to a provider that is shut down.
    async fn lock_errors() -> [LockError; 4] {
        let provider = LockProvider::in_memory();
        let lock = provider.lock("report:1").acquire_timeout(Duration::ZERO);
        let held = lock.acquire().await.unwrap();
        let timeout = lock.acquire().await.unwrap_err();
        let busy = provider.scope(unless_busy()).await.unwrap_err();
        provider.shutdown().await;
        let lost = held.release().await.unwrap_err();
        [timeout, busy, lost, lock.acquire().await.unwrap_err()]
    }

    fn status(error: ServiceError) -> (u16, bool) {
        let response = error.into_response();
        let again = response.headers().contains_key(header::RETRY_AFTER);
        (response.status().as_u16(), again)
    }

    #[tokio::test]
    async fn who_may_send_the_request_again_is_told_so() {
        let name = || "report:1".to_owned();
        let [timeout, busy, lost, shut_down] = lock_errors().await;
        assert_eq!(status(timeout.into()), (503, true));
        assert_eq!(status(shut_down.into()), (503, true));
        assert_eq!(
            status(LockError::Mongo(Error::custom("down")).into()),
            (503, true)
        );
        assert_eq!(status(ServiceError::Read(Error::custom("down"))), (503, true));

        assert_eq!(status(busy.into()), (409, false));
        assert_eq!(status(ServiceError::TooLate { lock: name() }), (409, false));
        assert_eq!(status(ServiceError::NotFound), (404, false));

        assert_eq!(status(lost.into()), (500, false));
        assert_eq!(status(ServiceError::Write(Error::custom("down"))), (500, false));
        assert_eq!(status(LockError::NoProvider.into()), (500, false));
    }
}
