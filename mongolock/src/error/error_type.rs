//! What the attribute `error.type` of OpenTelemetry says of an error: one of few values, which are stable.

use std::borrow::Cow;

use mongodb::error::{Error, ErrorKind};

use super::driver_text::coded;
use super::failure::Failure;
use crate::LockError;

/// The value that the convention has for an error without one of its own.
const OTHER: &str = "_OTHER";

impl LockError {
    /// The value of `error.type`: for an error of the server its code, as the convention for databases says.
    pub(crate) fn error_type(&self) -> Cow<'static, str> {
        let name = match self {
            Self::Mongo(error) => return of_driver(error),
            Self::Timeout { .. } => "timeout",
            Self::Busy { .. } => "busy",
            Self::Done { .. } => "done",
            Self::Lost { .. } => "lost",
            Self::ShutDown { .. } => "shut_down",
            Self::InvalidHandle { .. } => "invalid_handle",
            Self::CorruptDocument { .. } => "corrupt_document",
            _ => OTHER,
        };
        name.into()
    }
}

fn of_driver(error: &Error) -> Cow<'static, str> {
    if let Some(failure) = Failure::of(error) {
        return of_failure(failure);
    }
    if let Some((code, ..)) = coded(error) {
        return code.to_string().into();
    }
    let name = match &*error.kind {
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => "connection",
        ErrorKind::ServerSelection { .. } => "unreachable",
        ErrorKind::Authentication { .. } => "authentication",
        _ => OTHER,
    };
    name.into()
}

fn of_failure(failure: &Failure) -> Cow<'static, str> {
    let name = match failure {
        Failure::BlockedDocument { source, .. } => return of_driver(source),
        Failure::Unended { source, .. } => return source.error_type(),
        Failure::NoReply { .. } => "no_reply",
        Failure::Overloaded { .. } => "overloaded",
        Failure::Unreachable { .. } | Failure::WrongHosts { .. } => "unreachable",
        Failure::EndedRuntime | Failure::RuntimeEnded => "runtime_ended",
        Failure::Closed => "shut_down",
        Failure::Forked => "forked",
        Failure::StreamEnded | Failure::NoStreams | Failure::ConnectionString { .. } => OTHER,
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{from_value, json};

    use super::*;
    use crate::store::driver_error::blocked;

    /// The driver makes an error of the server only from its reply.
    fn of_server(code: i32) -> Error {
        let reply = json!({ "code": code, "codeName": "Name", "errmsg": "words" });
        ErrorKind::Command(from_value(reply).unwrap()).into()
    }

    #[test]
    fn an_error_of_the_server_has_its_code() {
        assert_eq!(LockError::Mongo(of_server(13)).error_type(), "13");
        assert_eq!(blocked("n", of_server(50)).error_type(), "50");
    }

    #[test]
    fn other_errors_have_one_of_few_names() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        for (error, name) in [
            (LockError::shut_down("n"), "shut_down"),
            (LockError::no_reply("acquire request", Duration::ZERO), "no_reply"),
            (LockError::Mongo(reset.into()), "connection"),
            (LockError::Mongo(Error::custom("text")), "_OTHER"),
            (LockError::NoProvider, "_OTHER"),
        ] {
            assert_eq!(error.error_type(), name);
        }
    }
}
