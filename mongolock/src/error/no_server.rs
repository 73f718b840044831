//! Why a server takes no requests: what the driver's words for it mean, and what to do.

use super::known::{self, Known};

/// What to do about a server of which nothing else is known.
pub(super) const CHECK: &str = "Check the host and the port in the connection string, that MongoDB runs, and that this host may connect \
                                to it (firewall, bind address, TLS).";

const KNOWN: [Known; 10] = [
    Known {
        words: &["reports wire version"],
        meaning: Some("it is older than MongoDB 4.4"),
        help: "Use MongoDB 4.4.2 or newer.",
    },
    Known {
        words: &["requires wire version"],
        meaning: Some("it is newer than this version of the driver"),
        help: "Update mongolock and the driver.",
    },
    Known {
        words: &["apiVersion parameter is required"],
        meaning: Some("it requires an API version"),
        help: "Set the server parameter `requireApiVersion` to false. A Rust program can also make a client with \
               `ServerApi` of its own.",
    },
    Known {
        words: &["tls handshake eof"],
        meaning: Some("it does not answer in TLS"),
        help: "Switch on TLS at the server (`net.tls.mode`), or look into its log: without `tls=true` all data can be read on the way.",
    },
    Known {
        words: &["unexpected end of file"],
        meaning: Some("it closed the connection"),
        help: "Add `tls=true` to the connection string if the server requires TLS, or else look into the server's log.",
    },
    Known {
        words: &["without sending TLS close_notify"],
        meaning: Some("it closed the connection after the TLS handshake"),
        help: "If the server requires a client certificate, name a file with a certificate and its key with `tlsCertificateKeyFile` in the \
               connection string. Its log says more.",
    },
    Known {
        words: &["UnknownIssuer"],
        meaning: Some("its certificate is from an authority that is not trusted here"),
        help: "Name the file with the certificate of that authority with `tlsCAFile` in the connection string.",
    },
    Known {
        words: &["not valid for name"],
        meaning: Some("its certificate is for other host names"),
        help: "Connect to a host name that the certificate has, or give the server a certificate for this name.",
    },
    Known {
        words: &["invalid peer certificate"],
        meaning: Some("its certificate is refused"),
        help: "Give the server a certificate that is valid, from the authority that `tlsCAFile` names.",
    },
    Known {
        words: &["failed to lookup address"],
        meaning: None,
        help: "Make the host name resolve on this host. The members of a replica set are found by the names in its \
               configuration (`rs.conf()`), whatever hosts the connection string names.",
    },
];

/// What the driver's words say of a server that was reached; `None` if it was not, or they are not known.
fn meaning(text: &str) -> Option<&'static str> {
    known::find(&KNOWN, text)?.meaning
}

/// What is said about a server whose last heartbeat failed for a reason in the driver's words, and that so many others have failed.
pub(super) fn said(address: &str, reason: &str, others: usize) -> String {
    let also = match others {
        0 => String::new(),
        1 => " (nor can the other server)".to_owned(),
        others => format!(" (nor can the {others} other servers)"),
    };
    match meaning(reason) {
        Some(meaning) => format!("MongoDB at {address} cannot be used: {meaning}{also}"),
        None => format!("MongoDB at {address} cannot be reached: {reason}{also}"),
    }
}

/// Why no server was selected: the driver shows all that it knows of all servers, and this text names their addresses and why each
/// one does not serve.
pub(super) fn of_selection(message: &str) -> String {
    // The driver refuses to use this server.
    let unusable = message
        .strip_prefix("Server at ")
        .and_then(|server| server.split_once(' '));
    if let Some((address, reason)) = unusable {
        return said(address, reason, 0);
    }
    let servers: Vec<(&str, &str)> = servers(message).collect();
    let is_outage = message.contains("No available servers");
    match servers.as_slice() {
        [] => match after(message, ", Set Name: ") {
            Some(name) => format!("none of the servers belongs to the replica set `{name}`"),
            None => "no suitable MongoDB server is available".to_owned(),
        },
        [(address, reason)] if is_outage => said(address, reason, 0),
        servers => {
            let each = servers
                .iter()
                .map(|(address, reason)| format!("{address} ({})", meaning(reason).unwrap_or(reason)));
            let each = each.collect::<Vec<_>>().join(", ");
            let what = if is_outage {
                "cannot be reached"
            } else {
                "has no primary"
            };
            format!("MongoDB {what}: {each}")
        }
    }
}

/// The addresses of the servers that the driver's message describes, each with what is wrong with it.
fn servers(message: &str) -> impl Iterator<Item = (&str, &str)> {
    message.split("{ Address: ").skip(1).filter_map(|server| {
        let (address, rest) = server.split_once(", Type: ")?;
        let error = rest.split_once("Error: Kind: ").map(|(_, error)| reason(error));
        Some((address, error.unwrap_or_else(|| kind(rest))))
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

/// Why a server does not serve whose description begins with its type, as the driver calls it.
fn kind(description: &str) -> &str {
    match description.split([',', ' ']).next().unwrap_or_default() {
        "Unknown" => "no answer",
        "RsSecondary" => "secondary",
        "RsArbiter" => "arbiter",
        "RsGhost" => "its replica set is not initiated",
        "RsOther" => "not ready",
        other => other,
    }
}

/// The word that follows a text.
fn after<'a>(message: &'a str, text: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(text)?;
    let end = rest.find([',', ' ']).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// What to do about a server for which the driver has these words; `None` if they are not known.
pub(super) fn help(text: &str) -> Option<&'static str> {
    known::find(&KNOWN, text).map(|known| known.help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_do_not_serve_are_named_with_the_reason() {
        let message = "Server selection timeout: None of the available servers suitable for criteria \
            ReadPreference(Primary). Topology: { Type: ReplicaSetNoPrimary, Set Name: rs, Servers: [ { Address: a:1, \
            Type: RsSecondary, Average RTT: 1ms, Tags: {} }, { Address: b:2, Type: Unknown }, { Address: [::1]:3, \
            Type: Unknown, Error: Kind: Server selection timeout: late, labels: {} } ] }";
        let text = "MongoDB has no primary: a:1 (secondary), b:2 (no answer), [::1]:3 (Server selection timeout: late)";
        assert_eq!(of_selection(message), text);
        let one = "No available servers. Topology: { Type: Unknown, Servers: [ { Address: a:1, Type: RsGhost, Average RTT: 1 } ] }";
        assert_eq!(
            of_selection(one),
            "MongoDB at a:1 cannot be reached: its replica set is not initiated"
        );
        assert_eq!(
            of_selection("Topology: { Type: Unknown, Set Name: rs, Servers: [ ] }"),
            "none of the servers belongs to the replica set `rs`"
        );
    }

    /// The form of the driver's own messages: an update of the driver may change it.
    #[tokio::test]
    async fn a_server_that_refuses_connections_is_named_with_the_reason() {
        let uri = "mongodb://127.0.0.1:1,127.0.0.1:2/?serverSelectionTimeoutMS=200";
        let client = mongodb::Client::with_uri_str(uri).await.unwrap();
        let error = client
            .database("a")
            .run_command(mongodb::bson::doc! { "hello": 1 })
            .await;
        let text = crate::LockError::from(error.unwrap_err()).to_string();
        let (said, servers) = text.split_once(": ").unwrap();
        assert_eq!(said, "MongoDB cannot be reached");
        let mut servers: Vec<&str> = servers.split(", ").collect();
        servers.sort_unstable();
        let refused = ["127.0.0.1:1", "127.0.0.1:2"].map(|address| format!("{address} (Connection refused)"));
        assert_eq!(servers, refused);
    }

    #[test]
    fn a_server_that_answers_was_reached() {
        for (reason, text) in [
            (
                "Connection refused",
                "MongoDB at a:1 cannot be reached: Connection refused",
            ),
            (
                "unexpected end of file",
                "MongoDB at a:1 cannot be used: it closed the connection",
            ),
            (
                "invalid peer certificate: UnknownIssuer",
                "MongoDB at a:1 cannot be used: its certificate is from an authority that is not trusted here",
            ),
        ] {
            assert_eq!(said("a:1", reason, 0), text);
        }
        assert_eq!(
            said("a:1", "refused", 2),
            "MongoDB at a:1 cannot be reached: refused (nor can the 2 other servers)"
        );
        assert!(help("invalid peer certificate: Expired").is_some() && help("refused").is_none());
    }
}
