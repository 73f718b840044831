//! What the errors say: `Display` is one short fact, and the advice is in [`help`](LockError::help).

use std::error::Error as StdError;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use mongodb::error::{Error, ErrorKind, WriteFailure};

use super::failure::Failure;
use super::{LockError, LossReason};
use crate::FencingToken;
use crate::duration::Rounded;

impl Display for LockError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout {
                name,
                waited,
                holder,
                remaining,
            } => {
                write!(f, "lock `{name}` not acquired within {}: ", Rounded(*waited))?;
                write_holder(f, holder.as_deref(), *remaining)
            }
            Self::Busy {
                name,
                holder,
                remaining,
            } => {
                write!(f, "lock `{name}` is busy: ")?;
                write_holder(f, holder.as_deref(), *remaining)
            }
            Self::Done { name, by, until } => {
                write!(f, "the work of lock `{name}` is done by {by}, until ")?;
                match until.try_to_rfc3339_string() {
                    Ok(until) => f.write_str(&until),
                    Err(_) => write!(f, "{until}"),
                }
            }
            Self::Lost { name, token, reason } if *token == FencingToken::NONE => {
                write!(f, "a permit of `{name}` was lost: {reason}")
            }
            Self::Lost { name, token, reason } => {
                write!(f, "lock `{name}` was lost (fencing token {token}): {reason}")
            }
            Self::Stale { token, seen } => write!(
                f,
                "write with fencing token {token} refused: a newer lock holder has written with token {seen}"
            ),
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
            Self::CorruptDocument { name, problem } => {
                write!(f, "the document of lock `{name}` is damaged: {problem}")
            }
            Self::Mongo(error) => write_mongo(f, error),
        }
    }
}

impl LockError {
    /// The text with that of the driver's error behind it, for events: they have no other place for the source.
    pub(crate) fn with_cause(&self) -> impl Display {
        let cause = self.source().and_then(|cause| cause.downcast_ref::<Error>());
        match cause {
            Some(cause) => format!("{self}: {}", cause.kind),
            None => self.to_string(),
        }
    }
}

impl StdError for LockError {
    /// The driver's error behind [`Mongo`](Self::Mongo). For a failure that mongolock has found itself, `Display` is
    /// complete, and the source is the cause of that failure, if there is one.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let Self::Mongo(error) = self else { return None };
        match Failure::of(error) {
            Some(failure) => failure.source(),
            None => Some(error),
        }
    }
}

impl Display for LossReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease expired before a renewal was confirmed",
            Self::Gone => "the server no longer has its claim",
            Self::ShutDown => "its provider was shut down",
        })
    }
}

fn write_holder(f: &mut Formatter<'_>, owner: Option<&str>, remaining: Option<Duration>) -> fmt::Result {
    match (owner, remaining) {
        (Some(owner), Some(Duration::ZERO)) => write!(f, "{owner} was the last known holder"),
        (Some(owner), Some(left)) => write!(f, "the lease of {owner} runs for {} more", Rounded(left)),
        (Some(owner), None) => write!(f, "{owner} holds it"),
        (None, Some(left)) if !left.is_zero() => write!(f, "it is taken for {} more", Rounded(left)),
        (None, _) => f.write_str("another holder has it"),
    }
}

/// Writes a fact that repeats nothing of the driver's own text, because an error report prints that as the source.
fn write_mongo(f: &mut Formatter<'_>, error: &Error) -> fmt::Result {
    if let Some(failure) = Failure::of(error) {
        return failure.fmt(f);
    }
    match &*error.kind {
        ErrorKind::Authentication { .. } => f.write_str("MongoDB refused the login"),
        ErrorKind::ServerSelection { .. } => f.write_str("no suitable MongoDB server is available"),
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => {
            f.write_str("the connection to MongoDB failed")
        }
        ErrorKind::DnsResolve { .. } => f.write_str("the host name of MongoDB was not resolved"),
        ErrorKind::InvalidTlsConfig { .. } => f.write_str("the TLS configuration for MongoDB is invalid"),
        ErrorKind::InvalidArgument { .. } => f.write_str("the MongoDB driver refused an argument"),
        ErrorKind::Transaction { .. } => f.write_str("the MongoDB transaction failed"),
        ErrorKind::Command(error) => write_code(f, "refused an operation", error.code, &error.code_name),
        ErrorKind::Write(WriteFailure::WriteError(error)) => {
            let name = error.code_name.as_deref().unwrap_or_default();
            write_code(f, "refused a write", error.code, name)
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => {
            write_code(f, "did not confirm a write", error.code, &error.code_name)
        }
        _ => f.write_str("a MongoDB operation failed"),
    }
}

fn write_code(f: &mut Formatter<'_>, what: &str, code: i32, name: &str) -> fmt::Result {
    if name.is_empty() {
        write!(f, "MongoDB {what} (error {code})")
    } else {
        write!(f, "MongoDB {what} (error {code}, {name})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout(holder: Option<&str>, remaining: Option<Duration>) -> LockError {
        LockError::Timeout {
            name: "report:42".to_owned(),
            waited: Duration::from_millis(2001),
            holder: holder.map(str::to_owned),
            remaining,
        }
    }

    #[test]
    fn a_timeout_names_the_holder_as_far_as_it_is_known() {
        let left = Some(Duration::from_millis(26_900));
        for (error, end) in [
            (
                timeout(Some("billing-1"), left),
                "the lease of billing-1 runs for 27 s more",
            ),
            (timeout(Some("billing-1"), None), "billing-1 holds it"),
            (
                timeout(Some("billing-1"), Some(Duration::ZERO)),
                "billing-1 was the last known holder",
            ),
            (timeout(None, left), "it is taken for 27 s more"),
            (timeout(None, None), "another holder has it"),
        ] {
            let text = format!("lock `report:42` not acquired within 2.0 s: {end}");
            assert_eq!(error.to_string(), text);
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
        assert_eq!(
            texts[0],
            "lock `a` was lost (fencing token 7): its lease expired before a renewal was confirmed"
        );
        assert!(texts[0] != texts[1] && texts[1] != texts[2]);
        let help = errors.each_ref().map(LockError::help);
        assert!(help[0] != help[1] && help[1] != help[2]);
    }

    #[test]
    fn a_failure_of_the_library_itself_is_told_once() {
        let error = LockError::no_reply("acquire request", Duration::from_millis(10_001));
        assert_eq!(
            error.to_string(),
            "MongoDB did not answer the acquire request within 10 s"
        );
        assert!(error.source().is_none());
        assert_eq!(error.with_cause().to_string(), error.to_string());
    }

    #[test]
    fn an_error_of_the_driver_is_the_source_and_not_in_the_text() {
        let reset = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "reset by peer");
        let error = LockError::Mongo(reset.into());
        assert_eq!(error.to_string(), "the connection to MongoDB failed");
        let source = error.source().expect("the driver's error");
        assert!(source.downcast_ref::<Error>().is_some());
        let event = "the connection to MongoDB failed: I/O error: reset by peer";
        assert_eq!(error.with_cause().to_string(), event);
    }
}
