//! The texts of the driver's errors, without the commands and replies that they quote.

use mongodb::error::{Error, ErrorKind, WriteFailure};

use super::no_server;
use crate::one_line::shortened;

/// The longest text of the server that is repeated, in characters.
const MOST: usize = 300;

/// The code of an error of the server, and the code's name and message.
pub(crate) fn coded(error: &Error) -> Option<(i32, &str, &str)> {
    match &*error.kind {
        ErrorKind::Command(error) => Some((error.code, &error.code_name, &error.message)),
        ErrorKind::Write(WriteFailure::WriteError(error)) => {
            let name = error.code_name.as_deref().unwrap_or_default();
            Some((error.code, name, &error.message))
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => {
            Some((error.code, &error.code_name, &error.message))
        }
        _ => None,
    }
}

/// The code of an error with which the server has replied.
pub(crate) fn code(error: &Error) -> Option<i32> {
    coded(error).map(|(code, ..)| code)
}

/// The code of an error of the server with its name, as text.
pub(crate) fn shown_code(error: &Error) -> Option<String> {
    Some(match coded(error)? {
        (code, "", _) => format!("error {code}"),
        (code, name, _) => format!("error {code}, {name}"),
    })
}

/// The words of an error, without its code. Commands, replies and causes that the driver or the server quotes are cut.
pub(crate) fn words(error: &Error) -> String {
    if let Some((.., message)) = coded(error) {
        // The last part says what is wrong; the others name steps in the server.
        let (_, message) = message.rsplit_once(" :: caused by :: ").unwrap_or(("", message));
        return shortened(&without_command(message), MOST);
    }
    let words = match &*error.kind {
        ErrorKind::ConnectionPoolCleared { message, .. } => cause_of_clearing(message).to_owned(),
        ErrorKind::InvalidArgument { message, .. } => message.clone(),
        ErrorKind::ServerSelection { message, .. } => no_server::of_selection(message),
        kind => kind.to_string(),
    };
    shortened(&words, MOST)
}

/// If a message quotes a whole command, only its name and the collection are kept. Other quotations, such as that of an
/// index, are the cause.
fn without_command(message: &str) -> String {
    let quoted = message.split_once("execute command { ");
    match quoted.and_then(|(before, command)| Some((before, command.split_once(", ")?.0))) {
        Some((before, first)) => format!("{before}execute command {{ {first}, … }}"),
        None => message.to_owned(),
    }
}

/// The error for which a pool was cleared, without its labels and causes.
fn cause_of_clearing(message: &str) -> &str {
    let (_, cause) = message
        .split_once("failed with: Meaning: ")
        .unwrap_or(("", message));
    cause.split_once(", labels: ").map_or(cause, |(cause, _)| cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_command_is_cut_after_its_collection() {
        let refused =
            "not authorized on app to execute command { findAndModify: \"locks\", query: { _id: \"a\" } }";
        let short = "not authorized on app to execute command { findAndModify: \"locks\", … }";
        assert_eq!(without_command(refused), short);
        for kept in [
            "no quotation",
            "dup key: { _id: \"a\" }",
            "Requested index: { v: 2, name: \"b\" }",
        ] {
            assert_eq!(without_command(kept), kept);
        }
    }

    #[test]
    fn the_cause_of_a_cleared_pool_is_named() {
        let cleared = "Connection pool for a:1 cleared because another operation failed with: Meaning: SCRAM failure: no., \
                       labels: {}, source: Some(Error { kind: Command(CommandError { code: 18, code_name: \"A\" }) })";
        assert_eq!(cause_of_clearing(cleared), "SCRAM failure: no.");
    }
}
