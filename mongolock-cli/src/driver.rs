//! The driver: all documents of a query, and what its errors say: one sentence, and all of it with `--verbose`.

use std::sync::atomic::{AtomicBool, Ordering};

use mongodb::Cursor;
use mongodb::bson::Document;
use mongodb::error::{CommandError, Error, ErrorKind, WriteFailure};

use crate::text::cut;

/// The longest sentence of a server that is shown, in columns: with its name and code it fits on two lines.
const LONGEST: usize = 120;

/// Whether the command line has `--verbose`.
static IS_VERBOSE: AtomicBool = AtomicBool::new(false);

/// Has each text followed by all that the driver says.
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
    match &*error.kind {
        ErrorKind::ServerSelection { message, .. } => without_server(message),
        ErrorKind::Command(error) => refused("refused an operation", error),
        ErrorKind::Write(WriteFailure::WriteError(error)) => {
            let name = error.code_name.as_deref().unwrap_or_default();
            coded("refused a write", error.code, name, &error.message)
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => coded(
            "did not confirm a write",
            error.code,
            &error.code_name,
            &error.message,
        ),
        ErrorKind::Authentication { message, .. } => match cause(error).map(|error| &*error.kind) {
            Some(ErrorKind::Command(error)) => refused("refused the login", error),
            _ => format!("the login at MongoDB failed: {}", sentence(message)),
        },
        ErrorKind::DnsResolve { message, .. } => without_records(message),
        kind => sentence(&kind.to_string()),
    }
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

/// The error of the driver that caused this one. The driver may keep it in a box, which is an error type of its own.
fn cause(error: &Error) -> Option<&Error> {
    let source = std::error::Error::source(error)?;
    let boxed = source.downcast_ref::<Box<Error>>().map(AsRef::as_ref);
    boxed.or_else(|| source.downcast_ref())
}

fn refused(what: &str, error: &CommandError) -> String {
    coded(what, error.code, &error.code_name, &error.message)
}

fn coded(what: &str, code: i32, name: &str, message: &str) -> String {
    let name = if name.is_empty() {
        String::new()
    } else {
        format!(", {name}")
    };
    format!("MongoDB {what} (error {code}{name}): {}", sentence(message))
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

/// The text for a deployment in which no server was found: the driver shows all that it knows of all servers, and this text
/// names their addresses, and why each one does not serve.
fn without_server(message: &str) -> String {
    let servers: Vec<String> = servers(message).collect();
    if servers.is_empty() {
        return match set_name(message) {
            Some(name) => format!("none of the servers belongs to the replica set `{name}`"),
            None => "no MongoDB server can be reached".to_owned(),
        };
    }
    let servers = servers.join(", ");
    if message.contains("No available servers") {
        format!("MongoDB cannot be reached: {servers}")
    } else {
        format!("MongoDB has no primary: {servers}")
    }
}

/// The servers that the driver's message describes, each with what is wrong with it.
fn servers(message: &str) -> impl Iterator<Item = String> {
    message.split("{ Address: ").skip(1).filter_map(|server| {
        let (address, rest) = server.split_once(", Type: ")?;
        let reason = rest.split_once("Error: Kind: ").map(|(_, error)| reason(error));
        let reason = reason.unwrap_or_else(|| {
            let end = rest.find([',', ' ']).unwrap_or(rest.len());
            kind(&rest[..end])
        });
        Some(format!("{address} ({reason})"))
    })
}

/// The cause of an error, without its labels and numbers.
fn reason(error: &str) -> &str {
    let reason = error.split_once(", labels: ").map_or(error, |(reason, _)| reason);
    let reason = reason
        .split_once(" (os error ")
        .map_or(reason, |(reason, _)| reason);
    reason.strip_prefix("I/O error: ").unwrap_or(reason)
}

/// Why a server of this kind, as the driver calls it, does not serve.
fn kind(name: &str) -> &str {
    match name {
        "Unknown" => "no answer",
        "RsSecondary" => "secondary",
        "RsArbiter" => "arbiter",
        "RsGhost" => "its replica set is not initiated",
        "RsOther" => "not ready",
        other => other,
    }
}

/// The replica set that the connection string names, or that the servers have named.
fn set_name(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(", Set Name: ")?;
    let end = rest.find([',', ' ']).unwrap_or(rest.len());
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use mongodb::Client;
    use mongodb::bson::doc;

    use super::*;

    /// The server repeats the refused command with all of its documents.
    #[test]
    fn a_message_is_one_sentence() {
        let refused = "not authorized on app to execute command { find: \"locks\", filter: { _id: \"a\" }, \
            lsid: { id: UUID(\"1\") }, $clusterTime: { clusterTime: Timestamp(1, 1) }, $db: \"app\" }";
        assert_eq!(
            coded("refused an operation", 13, "Unauthorized", refused),
            "MongoDB refused an operation (error 13, Unauthorized): not authorized on app to execute command `find`"
        );
        for (message, wanted) in [
            ("Authentication failed., labels: {\"x\"}", "Authentication failed"),
            (
                "PlanExecutor error :: caused by :: { a: 1 }",
                "PlanExecutor error",
            ),
            ("one\ntwo", "one"),
        ] {
            assert_eq!(sentence(message), wanted);
        }
        let missing = "DNS error: no records found for Query { name: Name(\"_mongodb._tcp.db.invalid.\"), query_type: SRV }";
        assert_eq!(
            without_records(missing),
            "the DNS lookup of _mongodb._tcp.db.invalid failed: DNS error: no records found"
        );
        assert_eq!(
            without_records("DNS error: request timed out"),
            "the DNS lookup failed: DNS error: request timed out"
        );
        let long = sentence(&"word ".repeat(100));
        assert!(
            long.contains('\u{2026}') && long.chars().count() == LONGEST,
            "{long}"
        );
        assert_eq!(
            coded("refused a write", 7, "", "no"),
            "MongoDB refused a write (error 7): no"
        );
    }

    /// The form of the driver's own messages: an update of the driver may change it.
    #[tokio::test]
    async fn a_server_that_refuses_connections_is_named_with_the_reason() {
        let uri = "mongodb://127.0.0.1:1,127.0.0.1:2/?serverSelectionTimeoutMS=200";
        let client = Client::with_uri_str(uri).await.unwrap();
        let error = client.database("a").run_command(doc! { "hello": 1 }).await;
        let text = text(&error.unwrap_err());
        let (said, servers) = text.split_once(": ").unwrap();
        assert_eq!(said, "MongoDB cannot be reached");
        let mut servers: Vec<&str> = servers.split(", ").collect();
        servers.sort_unstable();
        let refused = ["127.0.0.1:1", "127.0.0.1:2"].map(|address| format!("{address} (Connection refused)"));
        assert_eq!(servers, refused);
    }

    #[test]
    fn servers_without_an_error_are_named_with_their_kind() {
        let message = "Server selection timeout: None of the available servers suitable for criteria \
            ReadPreference(Primary). Topology: { Type: ReplicaSetNoPrimary, Set Name: rs, Servers: [ { Address: a:1, \
            Type: RsSecondary, Average RTT: 1ms, Tags: {} }, { Address: b:2, Type: Unknown }, { Address: [::1]:3, \
            Type: Unknown, Error: Kind: Server selection timeout: late, labels: {} } ] }";
        let servers: Vec<String> = servers(message).collect();
        let wanted = [
            "a:1 (secondary)",
            "b:2 (no answer)",
            "[::1]:3 (Server selection timeout: late)",
        ];
        assert_eq!(servers, wanted);
        assert_eq!(set_name(message), Some("rs"));
        assert_eq!(set_name("Topology: { Type: Unknown }"), None);
    }
}
