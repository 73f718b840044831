//! What the driver's errors say, in a short form.

use mongodb::error::{Error, ErrorKind};

/// The text of an error of the driver. If no server was found, the driver shows all that it knows of all servers; this
/// text names their addresses, and why each one does not serve.
pub(crate) fn text(error: &Error) -> String {
    let ErrorKind::ServerSelection { message, .. } = &*error.kind else {
        return error.kind.to_string();
    };
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
