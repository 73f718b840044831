//! The reason why no server accepts a request, from the driver's text about all servers, and the advice.

/// The advice for a text of the driver about its servers.
pub(super) fn help(text: &str) -> &'static str {
    let has = |words| text.contains(words);
    match () {
        () if has("wire version") => "Use MongoDB 4.4.2 or newer, and a mongolock that knows its version.",
        () if has("apiVersion parameter is required") => {
            "Set the server parameter `requireApiVersion` to false, or make a client with `ServerApi` of your own."
        }
        () if has("handshake eof") || has("end of file") || has("close_notify") => {
            "Check TLS at both ends: `tls=true` in the connection string, `net.tls.mode` at the server, and a certificate in \
             `tlsCertificateKeyFile` if the server requires one. The server's log says more."
        }
        () if has("invalid peer certificate") => {
            "Name the authority of the server's certificate with `tlsCAFile`, and a host name that the certificate has."
        }
        () if has("failed to lookup") => "Make the hosts' names resolve here, also those in `rs.conf()`.",
        () if has("RsGhost") => "Run `rs.initiate()` in `mongosh`: the server was started with `--replSet`.",
        () => {
            "Check the host and the port, that MongoDB runs and has a primary, and that this host may connect to it."
        }
    }
}

/// The addresses of the servers, and why each one does not serve.
pub(super) fn of_selection(text: &str) -> String {
    let mut servers: Vec<_> = text.split("{ Address: ").skip(1).filter_map(server).collect();
    servers.sort_unstable();
    let (servers, set) = (servers.join(", "), text.split_once(", Set Name: "));
    match set {
        _ if servers.is_empty() && set.is_none() => text.to_owned(),
        Some((_, set)) if servers.is_empty() => {
            format!(
                "none of the servers belongs to the replica set `{}`",
                before(set, ",")
            )
        }
        _ if text.contains(", Type: Rs") => format!("MongoDB has no primary: {servers}"),
        _ => format!("MongoDB cannot be reached: {servers}"),
    }
}

/// The address of a server, and the cause of its last failure, or its type.
fn server(text: &str) -> Option<String> {
    let (address, rest) = text.split_once(", Type: ")?;
    let reason = match rest.split_once("Error: Kind: ") {
        Some((_, error)) => {
            let error = error.trim_start_matches("I/O error: ");
            before(before(error, ", labels: "), " (os error ")
        }
        None => match before(before(rest, ","), " ") {
            "Unknown" => "no answer yet",
            "RsGhost" => "no replica set yet",
            other => other,
        },
    };
    Some(format!("{address} ({reason})"))
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
        let text = "MongoDB has no primary: a:1 (no replica set yet)";
        assert_eq!(of_selection(one), text);
        let none = "Topology: { Type: Unknown, Set Name: rs, Servers: [ ] }";
        let text = "none of the servers belongs to the replica set `rs`";
        assert_eq!(of_selection(none), text);
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
            let shown = format!("MongoDB cannot be reached: a:1 ({words})");
            assert_eq!(of_selection(&text), shown);
            assert!(help(&text).contains(help_has), "{}", help(&text));
        }
    }
}
