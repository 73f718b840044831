//! Which errors of the driver pass, and which are final.

use std::time::Duration;

use mongodb::bson::Document;
use mongodb::error::{Error, ErrorKind, RETRYABLE_ERROR, WriteFailure};
use tokio::time::Instant;

use crate::error::codes::{
    self, DUPLICATE_KEY, Final, HISTORY_LOST, ILLEGAL_OPERATION, MAX_TIME_EXPIRED, NO_BRANCH,
    NO_CHANGE_STREAMS, OVERLOADED, UNAUTHORIZED, WRITE_CONFLICT, WRONG_TYPE,
};
pub(crate) use crate::error::driver_text::sentence;
use crate::error::driver_text::{coded, is_refused_connection, is_refused_elsewhere, says_overloaded};
use crate::error::failure::Failure;
use crate::store::reply::may_be_applied;
use crate::timing::REFUSAL_LIMIT;
use crate::{LockError, permit_id};

/// The label of an error of a command that has written nothing.
pub(crate) const NO_WRITES_PERFORMED: &str = "NoWritesPerformed";
/// The label of an error after which a change stream goes on if it is opened again.
const RESUMABLE: &str = "ResumableChangeStreamError";

/// The first and the last refusal of the user by the server, with no other reply and no long pause in between.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Refusals(Option<(Instant, Instant)>);

impl Refusals {
    /// Notes the error of a request, and returns whether it is useless to repeat the request: the error is final, or the server has
    /// refused the user for [`REFUSAL_LIMIT`].
    pub(crate) fn end(&mut self, now: Instant, error: &LockError) -> bool {
        self.note(now, error);
        is_useless(error, self.last_for(now))
    }

    /// Notes the error of a request.
    pub(crate) fn note(&mut self, now: Instant, error: &LockError) {
        self.0 = is_refusal(error).then(|| (now.checked_sub(self.last_for(now)).unwrap_or(now), now));
    }

    /// For how long the server has refused the user. After a pause as long as [`REFUSAL_LIMIT`] the time begins anew.
    pub(crate) fn last_for(self, now: Instant) -> Duration {
        let goes_on = |(_, last): &(Instant, Instant)| now.saturating_duration_since(*last) < REFUSAL_LIMIT;
        let first = self.0.filter(goes_on).map(|(first, _)| first);
        first.map_or(Duration::ZERO, |first| now.saturating_duration_since(first))
    }
}

/// Whether it is useless to repeat a request that has ended with this error, if the server has refused the user for this time.
pub(crate) fn is_useless(error: &LockError, refused_for: Duration) -> bool {
    if is_refusal(error) {
        refused_for >= REFUSAL_LIMIT
    } else {
        !is_transient(error)
    }
}

/// Whether another attempt may succeed without intervention.
pub(crate) fn is_transient(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(error) if is_transient_kind(error))
}

fn is_transient_kind(error: &Error) -> bool {
    match Failure::of(error) {
        Some(failure) => failure.is_transient(),
        None => !is_final(error),
    }
}

/// Whether the driver or the server refuses a request in a way that does not pass by itself. Everything else passes.
fn is_final(error: &Error) -> bool {
    let is_final = match &*error.kind {
        // The write was made but may be rolled back: a repetition with the same id finds out.
        ErrorKind::Write(WriteFailure::WriteConcernError(_)) => false,
        ErrorKind::InvalidArgument { .. }
        | ErrorKind::InvalidTlsConfig { .. }
        | ErrorKind::IncompatibleServer { .. }
        | ErrorKind::SessionsNotSupported
        | ErrorKind::BsonSerialization(_)
        | ErrorKind::Custom(_)
        | ErrorKind::Shutdown => true,
        _ if is_refused_log_in(error) => true,
        _ => code(error).is_some_and(|code| codes::finality(code).is_some()),
    };
    is_final && !was_partly_applied(error)
}

/// The error of the driver that caused this one. The driver may keep it in a box, which is an error type of its own.
fn cause(error: &Error) -> Option<&Error> {
    let source = std::error::Error::source(error)?;
    source
        .downcast_ref::<Box<Error>>()
        .map(AsRef::as_ref)
        .or_else(|| source.downcast_ref())
}

/// Whether the server has refused the command: then nothing was written, and a repetition is useless.
pub(crate) fn is_permanent(error: &LockError) -> bool {
    let LockError::Mongo(error) = error else {
        return false;
    };
    let refused = match &*error.kind {
        _ if is_refused_log_in(error) => true,
        ErrorKind::InvalidArgument { .. } => true,
        // After a write concern error the write was made.
        ErrorKind::Write(WriteFailure::WriteConcernError(_)) => false,
        _ => code(error) == Some(UNAUTHORIZED),
    };
    refused && !was_partly_applied(error)
}

/// Whether the command was ended by a shutdown, after which this process sends no more commands of its own.
pub(crate) fn is_closed(error: &LockError) -> bool {
    matches!(failure(error), Some(Failure::Closed))
}

/// Whether the server cannot have applied the command: it has refused it, or has never received it.
pub(crate) fn was_not_applied(error: &LockError) -> bool {
    let LockError::Mongo(driver_error) = error else {
        return false;
    };
    match &*driver_error.kind {
        ErrorKind::ServerSelection { .. } | ErrorKind::Authentication { .. } => true,
        _ if is_refused_connection(driver_error) => true,
        _ => {
            let is_unsent = Failure::of(driver_error).is_some_and(Failure::is_unsent);
            is_unsent || wrote_nothing(error) || is_permanent(error)
        }
    }
}

/// The failure that this library has found itself.
fn failure(error: &LockError) -> Option<&Failure> {
    match error {
        LockError::Mongo(error) => Failure::of(error),
        _ => None,
    }
}

/// The error of the driver, unless it is a failure that this library has found itself.
pub(crate) fn of_driver(error: &LockError) -> Option<&Error> {
    match error {
        LockError::Mongo(error) if Failure::of(error).is_none() => Some(error),
        _ => None,
    }
}

/// Whether the server has refused the user, on this connection or on another one. The driver wraps every error during
/// authentication in one kind; the cause says whether it passes.
pub(crate) fn is_refused_log_in(error: &Error) -> bool {
    match &*error.kind {
        ErrorKind::Authentication { .. } => !cause(error).is_some_and(is_transient_kind),
        _ => is_refused_elsewhere(error),
    }
}

/// Whether the server refuses the user or the command for a missing right.
pub(crate) fn is_refusal(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(error) if is_refused_log_in(error)
            || code(error).and_then(codes::finality) == Some(Final::User))
}

/// Whether the server has replied, be it with an error.
pub(crate) fn is_reply<T>(reply: &Result<T, LockError>) -> bool {
    match reply {
        Err(LockError::Mongo(error)) => match Failure::of(error) {
            Some(failure) => matches!(failure, Failure::BlockedDocument { .. }),
            None => code(error).is_some(),
        },
        // Other errors are about the document in a reply.
        Ok(_) | Err(_) => true,
    }
}

fn was_partly_applied(error: &Error) -> bool {
    let reply = error.server_response();
    let reply = reply.and_then(|reply| Document::try_from(&**reply).ok());
    reply.is_some_and(|reply| may_be_applied(&reply))
}

/// Whether the time limit of a command has passed at the server, before its write or while that waited for a majority.
pub(crate) fn is_max_time_expired(error: &Error) -> bool {
    code(error) == Some(MAX_TIME_EXPIRED)
}

/// Whether the server has refused one statement of a command, and not the command.
pub(crate) fn is_of_statement(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(error)
        if matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(_))))
}

/// Whether the server has ended a command because another operation blocks its document.
pub(crate) fn is_blocked(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Command(command) if [MAX_TIME_EXPIRED, WRITE_CONFLICT].contains(&command.code))
}

/// [`is_blocked`] for one update of several in a command.
pub(crate) fn is_blocked_update(error: &Error) -> bool {
    let is_write = matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(_)));
    is_blocked(error) || is_write && matches!(code(error), Some(MAX_TIME_EXPIRED | WRITE_CONFLICT))
}

/// The error for a command that ran out of time or into a conflict at the document of a lock: MongoDB works, and a foreign
/// transaction or another long operation has to end first.
pub(crate) fn blocked(name: &str, source: Error) -> LockError {
    let name = permit_id::shown(name).to_owned();
    Failure::BlockedDocument { name, source }.into_error()
}

/// Whether the server says that the command has written nothing.
pub(crate) fn wrote_nothing(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(error)
        if code(error) == Some(OVERLOADED) || error.contains_label(NO_WRITES_PERFORMED))
}

/// Whether the server has rejected the command for overload, or others while the reply was missing.
pub(crate) fn is_overload(error: &LockError) -> bool {
    match failure(error) {
        Some(Failure::Overloaded { .. }) => true,
        Some(Failure::Unended { source, .. }) => is_overload(source),
        _ => error.is_rejection(),
    }
}

/// Whether the server has rejected the command before it ran it, so that a repetition is harmless. The driver gives the label also
/// to a command that it has not sent, because no connection could be made.
pub(crate) fn is_rejected(error: &Error) -> bool {
    says_overloaded(error) || error.contains_label(RETRYABLE_ERROR)
}

/// Whether an error is one of [`blocked`].
pub(crate) fn is_blocked_document(error: &LockError) -> bool {
    matches!(failure(error), Some(Failure::BlockedDocument { .. }))
}

/// Whether the server has ended a request while another operation blocked the document, or at its limit: a majority had not
/// confirmed the write by then.
pub(crate) fn is_delayed(error: &LockError) -> bool {
    is_blocked_document(error) || of_driver(error).is_some_and(is_max_time_expired)
}

/// Whether there was no reply to the request.
pub(crate) fn is_no_reply(error: &LockError) -> bool {
    matches!(
        failure(error),
        Some(Failure::NoReply { .. } | Failure::Overloaded { .. })
    )
}

/// Whether no server can be reached and serve requests by what the driver's heartbeats say.
pub(crate) fn is_unreachable(error: &LockError) -> bool {
    matches!(failure(error), Some(Failure::Unreachable { .. }))
}

/// Whether the reply to a request is not trusted, because it may come from one of two replica sets.
pub(crate) fn is_untrusted(error: &LockError) -> bool {
    matches!(failure(error), Some(Failure::WrongHosts { is_unsent: false, .. }))
}

/// Whether the server has no change streams (a standalone), or the user may not open one.
pub(crate) fn is_unavailable_stream(error: &LockError) -> bool {
    matches!(failure(error), Some(Failure::NoStreams))
        || matches!(error, LockError::Mongo(error) if matches!(code(error), Some(UNAUTHORIZED | NO_CHANGE_STREAMS)))
}

pub(crate) fn is_duplicate_key(error: &Error) -> bool {
    code(error) == Some(DUPLICATE_KEY)
}

/// Whether a `$switch` had no branch for a document.
pub(crate) fn is_without_branch(error: &Error) -> bool {
    code(error) == Some(NO_BRANCH)
}

/// Whether an expression found a value that it cannot compute with.
pub(crate) fn is_wrong_type(error: &Error) -> bool {
    code(error).is_some_and(|code| WRONG_TYPE.contains(&code))
}

/// The values of the unique index in which two documents are equal, if the reply has them.
pub(crate) fn colliding_values(error: &Error) -> Option<Document> {
    let reply = Document::try_from(&**error.server_response()?).ok()?;
    let refused = reply.get_array("writeErrors").ok()?.first()?.as_document()?;
    refused.get_document("keyValue").ok().cloned()
}

/// Whether two transactions, or a transaction and a single write, have changed one document.
pub(crate) fn is_conflict(error: &Error) -> bool {
    code(error) == Some(WRITE_CONFLICT)
}

/// Whether the session has no transaction, or the server does not know it.
pub(crate) fn is_no_transaction(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Transaction { .. }) || code(error) == Some(ILLEGAL_OPERATION)
}

pub(crate) fn code(error: &Error) -> Option<i32> {
    coded(error).map(|(code, ..)| code)
}

/// The error for a change stream of locks in memory.
pub(crate) fn no_streams() -> LockError {
    Failure::NoStreams.into_error()
}

/// Whether the server no longer has the events at which a stream shall begin.
pub(crate) fn is_history_lost(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(error) if code(error).is_some_and(|code| HISTORY_LOST.contains(&code)))
}

/// Whether a change stream goes on if it is opened again at once: its connection or its cursor was lost, or the member is no
/// primary any more. A server that cannot be reached, or that rejects commands for overload, needs a pause.
pub(crate) fn is_resumable(error: &LockError) -> bool {
    of_driver(error).is_some_and(|error| match &*error.kind {
        ErrorKind::ServerSelection { .. } | ErrorKind::Authentication { .. } => false,
        _ if code(error).is_some_and(|code| code == NO_CHANGE_STREAMS || HISTORY_LOST.contains(&code)) => {
            false
        }
        _ => !is_rejected(error) && (error.contains_label(RESUMABLE) || is_transient_kind(error)),
    })
}

/// The error for a change stream whose collection was dropped or renamed.
pub(crate) fn ended() -> LockError {
    Failure::StreamEnded.into_error()
}

/// Whether a change stream has ended with its collection: the next one goes on after that.
pub(crate) fn is_ended(error: &LockError) -> bool {
    matches!(failure(error), Some(Failure::StreamEnded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acquire_request_without_a_reply_is_a_transient_error() {
        let error = LockError::no_reply("acquire request", std::time::Duration::from_secs(3));
        assert!(is_transient(&error));
        assert!(error.to_string().contains("within 3.0 s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_the_user_is_final_after_ten_seconds_without_a_pause() {
        let said = serde_json::json!({ "code": UNAUTHORIZED, "codeName": "", "errmsg": "refused" });
        let refused: LockError =
            Error::from(ErrorKind::Command(serde_json::from_value(said).unwrap())).into();
        let mut refusals = Refusals::default();
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert!(!refusals.end(at(0), &refused) && !refusals.end(at(9), &refused));
        assert!(refusals.end(at(10), &refused));
        assert!(!refusals.end(at(20), &refused), "it was not refused for 10 s");
        let passes = LockError::no_reply("release", REFUSAL_LIMIT);
        assert!(!refusals.end(at(25), &passes) && !refusals.end(at(31), &refused));
    }

    #[test]
    fn errors_of_the_library_are_not_transient() {
        assert!(!is_transient(&LockError::NoProvider));
        assert!(!is_transient(&Error::custom("no").into()));
    }
}
