//! The value of OpenTelemetry's attribute `error.type` for an error: one of few values, which are stable.

use std::borrow::Cow;

use mongodb::error::Error;

use super::driver_text::code;
use super::meaning::{Meaning, OwnFailure};
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
    // A failure that the library has found itself may be caused by an error of the server.
    let cause = OwnFailure::of(error).and_then(|failure| failure.source.as_deref()?.downcast_ref());
    if let Some(code) = code(cause.unwrap_or(error)) {
        return code.to_string().into();
    }
    let name = match Meaning::of(error) {
        Meaning::Connection | Meaning::NoConnection => "connection",
        Meaning::NoServer | Meaning::Unreachable | Meaning::WrongServer | Meaning::WrongHosts => {
            "unreachable"
        }
        Meaning::LogIn => "authentication",
        Meaning::NoReply => "no_reply",
        Meaning::Overloaded => "overloaded",
        Meaning::EndedRuntime | Meaning::RuntimeEnded => "runtime_ended",
        Meaning::Closed => "shut_down",
        _ => OTHER,
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mongodb::error::ErrorKind;
    use serde_json::{from_value, json};

    use super::*;

    /// The driver makes an error of the server only from its reply.
    fn of_server(code: i32) -> Error {
        let reply = json!({ "code": code, "codeName": "Name", "errmsg": "words" });
        ErrorKind::Command(from_value(reply).unwrap()).into()
    }

    #[test]
    fn an_error_of_the_server_has_its_code() {
        assert_eq!(LockError::Mongo(of_server(13)).error_type(), "13");
        assert_eq!(OwnFailure::blocked("n", of_server(50)).error_type(), "50");
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
