//! The reason why no server accepts a request, from the driver's text about all servers, and the advice.

/// The advice for a text of the driver about its servers.
pub(super) fn help(text: &str) -> &'static str {
    let says = |words: &str| text.contains(words);
    match () {
        () if says("wire version") => {
            "Use MongoDB 4.4.2 or newer, and a mongolock whose driver knows its version."
        }
        () if says("apiVersion parameter is required") => {
            "Set the server parameter `requireApiVersion` to false, or make a client with `ServerApi` of your own."
        }
        () if says("handshake eof") || says("end of file") || says("close_notify") => {
            "Check TLS at both ends: `tls=true` in the connection string, `net.tls.mode` at the server, and a certificate in \
             `tlsCertificateKeyFile` if the server requires one. The server's log says more."
        }
        () if says("invalid peer certificate") => {
            "Name the file of the authority of the server's certificate with `tlsCAFile`, and connect to a host name that the \
             certificate has."
        }
        () if says("failed to lookup address") => {
            "Make the host name resolve on this host. The members of a replica set are found by the names in its \
             configuration (`rs.conf()`), whatever hosts the connection string names."
        }
        () if says("RsGhost") => {
            "Run `rs.initiate()` in `mongosh` once: the server was started with `--replSet`."
        }
        () => {
            "Check the host and the port in the connection string, that MongoDB runs and has a primary, and that this host may \
             connect to it (firewall, bind address, TLS)."
        }
    }
}

/// The addresses of the servers, and why each one does not serve.
pub(super) fn of_selection(text: &str) -> String {
    let mut servers: Vec<_> = text.split("{ Address: ").skip(1).filter_map(server).collect();
    servers.sort_unstable();
    let what = if text.contains(", Type: Rs") {
        "has no primary"
    } else {
        "cannot be reached"
    };
    match (servers.as_slice(), text.split_once(", Set Name: ")) {
        ([], Some((_, set))) => format!(
            "none of the servers belongs to the replica set `{}`",
            before(set, ",")
        ),
        ([], None) => text.to_owned(),
        ([(address, reason)], _) => format!("MongoDB at {address} {what}: {reason}"),
        (servers, _) => {
            let servers: Vec<_> = servers
                .iter()
                .map(|(address, reason)| format!("{address} ({reason})"))
                .collect();
            format!("MongoDB {what}: {}", servers.join(", "))
        }
    }
}

/// The address of a server, and the cause of its last failure, or its type.
fn server(text: &str) -> Option<(&str, &str)> {
    let (address, rest) = text.split_once(", Type: ")?;
    let reason = match rest.split_once("Error: Kind: ") {
        Some((_, error)) => {
            before(before(error, ", labels: "), " (os error ").trim_start_matches("I/O error: ")
        }
        None => match before(before(rest, ","), " ") {
            "Unknown" => "no answer yet",
            "RsGhost" => "no replica set yet",
            other => other,
        },
    };
    Some((address, reason))
}

/// The text before this mark.
fn before<'a>(text: &'a str, mark: &str) -> &'a str {
    text.split(mark).next().unwrap_or(text)
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
        let text = "MongoDB has no primary: [::1]:3 (Server selection timeout: late), a:1 (RsSecondary), b:2 (no answer yet)";
        assert_eq!(of_selection(message), text);
        let one = "No available servers. Topology: { Type: Unknown, Servers: [ { Address: a:1, Type: RsGhost, Average RTT: 1 } ] }";
        assert_eq!(
            of_selection(one),
            "MongoDB at a:1 has no primary: no replica set yet"
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
    fn what_the_drivers_words_hide_is_in_the_help() {
        for (words, help_has) in [
            ("Connection refused (os error 111)", "the host and the port"),
            ("unexpected end of file", "`tls=true`"),
            ("tls handshake eof", "`net.tls.mode`"),
            ("invalid peer certificate: UnknownIssuer", "`tlsCAFile`"),
            ("failed to lookup address information", "`rs.conf()`"),
        ] {
            let text =
                format!("{{ Address: a:1, Type: Unknown, Error: Kind: I/O error: {words}, labels: {{}} }}");
            let words = words.trim_end_matches(" (os error 111)");
            assert_eq!(
                of_selection(&text),
                format!("MongoDB at a:1 cannot be reached: {words}")
            );
            assert!(help(&text).contains(help_has), "{}", help(&text));
        }
    }
}
