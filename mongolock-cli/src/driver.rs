//! The driver: all documents of a query, and the texts of its errors: one sentence, and the whole text with
//! `--verbose`.

use std::sync::atomic::{AtomicBool, Ordering};

use mongodb::Cursor;
use mongodb::bson::Document;
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongolock::LockError;

use crate::text::cut;

/// The longest sentence of a server that is shown, in columns: with its name and code it fits on two lines.
const LONGEST: usize = 120;

/// Whether the command line has `--verbose`.
static IS_VERBOSE: AtomicBool = AtomicBool::new(false);

/// Appends the whole text of the driver to each text from now on.
pub(crate) fn be_verbose() {
    IS_VERBOSE.store(true, Ordering::Relaxed);
}

/// The text of an error of the driver: the code, its name, and one sentence.
pub(crate) fn text(error: &Error) -> String {
    let short = short(error);
    if IS_VERBOSE.load(Ordering::Relaxed) {
        return format!("{short}; the driver says: {error}");
    }
    short
}

/// The first sentence of a text of the library, which may have a text of the driver in it.
pub(crate) fn brief(text: &str) -> String {
    if IS_VERBOSE.load(Ordering::Relaxed) {
        return text.to_owned();
    }
    sentence(text)
}

/// All documents of a query.
pub(crate) async fn all(found: Result<Cursor<Document>, Error>) -> Result<Vec<Document>, Error> {
    let (mut found, mut documents) = (found?, Vec::new());
    while found.advance().await? {
        documents.push(found.deserialize_current()?);
    }
    Ok(documents)
}

fn short(error: &Error) -> String {
    let said = LockError::from(error.clone());
    let words = match &*error.kind {
        ErrorKind::ServerSelection { .. } => return said.to_string(),
        ErrorKind::Command(error) => &error.message,
        ErrorKind::Write(WriteFailure::WriteError(error)) => &error.message,
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => &error.message,
        ErrorKind::Authentication { message, .. } => message,
        ErrorKind::DnsResolve { message, .. } => return without_records(message),
        kind => return sentence(&kind.to_string()),
    };
    format!("{said}: {}", sentence(words))
}

/// The text for a host name that was not resolved. The message has it inside the query.
fn without_records(message: &str) -> String {
    let sentence = sentence(message);
    let sentence = sentence.trim_end_matches(" for Query");
    let name = message
        .split_once("Name(\"")
        .and_then(|(_, rest)| rest.split_once('"'));
    match name {
        Some((name, _)) => format!(
            "the DNS lookup of {} failed: {sentence}",
            name.trim_end_matches('.')
        ),
        None => format!("the DNS lookup failed: {sentence}"),
    }
}

/// The first sentence of a message, without the documents that a server or the driver appends to it. A command that was
/// refused is named instead of shown.
fn sentence(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.split_once(", labels: ").map_or(line, |(line, _)| line);
    let line = line.replace("Kind: ", "");
    // The last cause is the reason, unless it is a document.
    let line = match line.rsplit_once(" :: caused by :: ") {
        Some((before, cause)) => if cause.starts_with('{') { before } else { cause }.to_owned(),
        None => line,
    };
    let sentence = match line.split_once('{') {
        Some((before, document)) if before.trim_end().ends_with("command") => {
            let name = document.split(':').next().unwrap_or_default().trim();
            format!("{before}`{name}`")
        }
        Some((before, _)) => before.to_owned(),
        None => line,
    };
    cut(sentence.trim_end_matches([' ', ':', ',', ';', '.', '(']), LONGEST).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server repeats the refused command with all of its documents.
    #[test]
    fn a_message_is_one_sentence() {
        for (message, wanted) in [
            (
                "not authorized on app to execute command { find: \"locks\", filter: { _id: \"a\" }, lsid: { id: UUID(\"1\") } }",
                "not authorized on app to execute command `find`",
            ),
            ("Authentication failed., labels: {\"x\"}", "Authentication failed"),
            ("PlanExecutor error :: caused by :: { a }", "PlanExecutor error"),
            ("one\ntwo", "one"),
        ] {
            assert_eq!(sentence(message), wanted);
        }
        let missing = "DNS error: no records found for Query { name: Name(\"_mongodb._tcp.db.invalid.\"), query_type: SRV }";
        let said = "the DNS lookup of _mongodb._tcp.db.invalid failed: DNS error: no records found";
        assert_eq!(without_records(missing), said);
        let late = without_records("DNS error: request timed out");
        assert_eq!(late, "the DNS lookup failed: DNS error: request timed out");
        let long = sentence(&"word ".repeat(100));
        let is_cut = long.contains('\u{2026}') && long.chars().count() == LONGEST;
        assert!(is_cut, "{long}");
    }
}
