//! The texts of the errors: `Display` is one short fact, and the advice is in [`help`](LockError::help). Spans have the value of
//! OpenTelemetry's attribute `error.type`: one of few values, which are stable.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use mongodb::error::{Error, ErrorKind, WriteFailure};

use super::meaning::{Meaning, OwnFailure};
use super::{Busy, LockError, LossReason, driver_text, no_server};
use crate::FencingToken;
use crate::duration::Rounded;
use crate::one_line::OneLine;

impl Display for LockError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { name, waited, .. } => {
                let waited = Rounded(*waited);
                write!(f, "lock `{name}` not acquired within {waited}: {}", held(self))
            }
            Self::Busy { name, .. } => write!(f, "lock `{name}` is {}", held(self)),
            Self::Done { name, by, until } => {
                let (by, end) = (OneLine(by), until.try_to_rfc3339_string());
                let end = end.unwrap_or_else(|_| until.to_string());
                write!(f, "the work of lock `{name}` is done by {by}, until {end}")
            }
            Self::Lost { name, token, reason } => {
                match *token {
                    FencingToken::NONE => write!(f, "a permit of `{name}` was lost: ")?,
                    token => write!(f, "lock `{name}` was lost (fencing token {token}): ")?,
                }
                reason.fmt(f)
            }
            Self::Stale { token, seen } => write!(
                f,
                "write with fencing token {token} refused: a newer lock holder has written with token {seen}"
            ),
            Self::NoFencingToken => f.write_str("fenced write refused: a permit has no fencing token"),
            Self::InvalidFence { field, reason } => {
                write!(f, "fence field `{field}` cannot be used: {reason}")
            }
            Self::NoTransaction { name, reason } => {
                write!(f, "lock `{name}` cannot guard the commit: {reason}")
            }
            Self::NoProvider => f.write_str("no lock provider is set"),
            Self::ProviderAlreadySet => f.write_str("a global lock provider is already set"),
            Self::InvalidName { name, reason } => write!(f, "lock name {name:?} is invalid: {reason}"),
            Self::InvalidOption { option, value, bound } => {
                write!(f, "option `{option}` is {value}: {bound}")
            }
            Self::Reentrant { name } => write!(f, "lock `{name}` is already held by the current task"),
            Self::ShutDown { name } => {
                write!(f, "lock `{name}` was not acquired: its provider is shut down")
            }
            Self::InvalidHandle { reason } => write!(f, "the handle of a lease cannot be used: {reason}"),
            Self::CorruptDocument { name, problem } => {
                write!(f, "the document of lock `{name}` is damaged: {problem}")
            }
            Self::Mongo(error) => write_mongo(f, error),
        }
    }
}

impl LockError {
    /// The text followed by the text of the driver's error, for events, which have no other field for the source.
    pub(crate) fn with_cause(&self) -> impl Display {
        let cause = self.source().and_then(|cause| cause.downcast_ref::<Error>());
        match cause {
            Some(cause) => format!("{self}: {}", driver_text::words(cause)),
            None => self.to_string(),
        }
    }
}

impl StdError for LockError {
    /// The driver's error in [`Mongo`](Self::Mongo). If the driver finds no server, `Display` has what the driver knows
    /// about the servers, and there is no source. For a failure that mongolock has found itself, `Display` is complete
    /// as well, and the source is the cause of that failure, if there is one.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let Self::Mongo(error) = self else { return None };
        match OwnFailure::of(error) {
            Some(failure) => failure.source(),
            None if matches!(&*error.kind, ErrorKind::ServerSelection { .. }) => None,
            None => Some(error),
        }
    }
}

impl Display for LossReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease expired",
            Self::Gone => "the server no longer has its claim",
            Self::ShutDown => "its provider was shut down",
        })
    }
}

/// Who has the lock and what is known of the hold: `held by web-1:2283 (for 12 s, 4.9 s left of its lease)`.
fn held(error: &LockError) -> String {
    let Some(lock) = Busy::of(error) else {
        return String::new();
    };
    let holder = match lock.holder {
        _ if lock.in_this_process => "held by this process".to_owned(),
        Some(owner) => format!("held by {}", OneLine(&owner)),
        None => "held by an unknown holder".to_owned(),
    };
    let held_for = lock.held_for.map(|held| format!("for {}", Rounded(held)));
    let remaining = lock.remaining.map(|left| match left {
        Duration::ZERO => "its last known lease has ended".to_owned(),
        left => format!("{} left of its lease", Rounded(left)),
    });
    let known: Vec<String> = held_for.into_iter().chain(remaining).collect();
    match known.join(", ") {
        known if known.is_empty() => holder,
        known => format!("{holder} ({known})"),
    }
}

/// Writes a fact that repeats nothing of the driver's own text, because an error report prints that as the source.
fn write_mongo(f: &mut Formatter<'_>, error: &Error) -> fmt::Result {
    if let Some(failure) = OwnFailure::of(error) {
        return failure.fmt(f);
    }
    f.write_str(match &*error.kind {
        ErrorKind::ServerSelection { message, .. } => return f.write_str(&no_server::of_selection(message)),
        _ if Meaning::of(error) == Meaning::Overloaded => Meaning::Overloaded.fact(),
        ErrorKind::Command(_) => "MongoDB refused an operation",
        ErrorKind::Write(WriteFailure::WriteError(_)) => "MongoDB refused a write",
        ErrorKind::Write(WriteFailure::WriteConcernError(_)) => "MongoDB did not confirm a write",
        ErrorKind::DnsResolve { .. } => "the host name of MongoDB was not resolved",
        _ => Meaning::of(error).fact(),
    })?;
    driver_text::shown_code(error).map_or(Ok(()), |code| write!(f, " ({code})"))
}

impl Meaning {
    /// The fact for this kind, if the error has no other one.
    pub(super) fn fact(self) -> &'static str {
        match self {
            Self::LogIn => "MongoDB refused the login",
            Self::Connection | Self::NoConnection => "the connection to MongoDB failed",
            Self::Unsent => "the MongoDB driver refused an operation",
            Self::NoTransaction => "the MongoDB transaction failed",
            Self::Overloaded => "MongoDB is overloaded",
            Self::EndedRuntime => "the MongoDB client belongs to a tokio runtime that has ended",
            Self::RuntimeEnded => "the tokio runtime ended before MongoDB answered",
            Self::Closed => "the provider was shut down before MongoDB answered",
            Self::Forked => "the provider belongs to the process that has forked this one",
            Self::StreamEnded => "the change stream ended with its collection",
            Self::NoStreams => "locks in memory have no change streams",
            _ => "a MongoDB operation failed",
        }
    }
}

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
    if let Some(code) = driver_text::code(cause.unwrap_or(error)) {
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
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_busy_lock_names_its_holder_as_far_as_it_is_known() {
        let rows = "anna|12|26.9|anna (for 12 s, 27 s left of its lease)
            anna||26.9|anna (27 s left of its lease)
            anna|12||anna (for 12 s)
            anna|||anna
            anna|35|0|anna (for 35 s, its last known lease has ended)
            ||4.9|an unknown holder (4.9 s left of its lease)
            |||an unknown holder";
        for row in rows.lines() {
            let fields: Vec<&str> = row.trim().split('|').collect();
            let [holder, held_for, remaining, text] = fields[..] else {
                panic!("four fields: {row}")
            };
            let seconds = |text: &str| text.parse().ok().map(Duration::from_secs_f64);
            let mut lock = Busy::new("report:42");
            lock.holder = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
            (lock.held_for, lock.remaining) = (seconds(held_for), seconds(remaining));
            let busy = LockError::busy(lock.clone()).to_string();
            assert_eq!(busy, format!("lock `report:42` is held by {text}"));
            let timeout = LockError::timeout(lock.clone(), Duration::from_millis(2001)).to_string();
            let not_acquired = "lock `report:42` not acquired within 2.0 s";
            assert_eq!(timeout, format!("{not_acquired}: held by {text}"));
            lock.in_this_process = true;
            let own = LockError::busy(lock).to_string();
            let by_this = own.starts_with("lock `report:42` is held by this process");
            assert!(by_this, "{own}");
        }
    }

    /// These texts come from documents that other programs have written.
    #[test]
    fn what_others_have_written_stays_on_the_line() {
        let (text, safe) = ("a\u{202e}b\u{2028}c\n", r"a\u{202e}b\u{2028}c\n");
        let mut lock = Busy::new("n");
        lock.holder = Some(text.to_owned());
        let timeout = LockError::timeout(lock.clone(), Duration::from_secs(10));
        let done = LockError::done("n", text, mongodb::bson::DateTime::MAX);
        for error in [timeout, LockError::busy(lock), done] {
            let shown = error.to_string();
            assert_eq!(shown.matches(safe).count(), 1, "{shown:?}");
            assert!(!shown.contains(text), "{shown:?}");
        }
    }

    #[test]
    fn a_loss_tells_its_reason() {
        let reasons = [LossReason::Expired, LossReason::Gone, LossReason::ShutDown];
        let errors = reasons.map(|reason| LockError::Lost {
            name: "a".to_owned(),
            token: FencingToken::from(7),
            reason,
        });
        let texts = errors.each_ref().map(ToString::to_string);
        assert_eq!(texts[0], "lock `a` was lost (fencing token 7): its lease expired");
        assert!(texts[0] != texts[1] && texts[1] != texts[2]);
        let help = errors.each_ref().map(LockError::help);
        assert!(help[0] != help[1] && help[1] != help[2]);
    }

    #[test]
    fn a_failure_of_the_library_itself_is_told_once() {
        let error = LockError::no_reply("acquire request", Duration::from_millis(10_001));
        let text = "MongoDB did not answer the acquire request within 10 s";
        assert_eq!(error.to_string(), text);
        assert!(error.source().is_none());
        assert_eq!(error.with_cause().to_string(), error.to_string());
    }

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
