//! Why a server takes no requests: what the driver's words for it mean, and what to do.

/// What to do about a server of which nothing else is known.
pub(super) const CHECK: &str = "Check the host and the port in the connection string, that MongoDB runs, and that this host may connect \
                                to it (firewall, bind address, TLS).";

/// A reason that the driver's words hide.
struct Known {
    /// What stands in the driver's text.
    words: &'static str,
    /// What it means for the server; `None` if the server was not reached, and the driver's words say why.
    said: Option<&'static str>,
    help: &'static str,
}

const KNOWN: [Known; 9] = [
    Known {
        words: "reports wire version",
        said: Some("it is older than MongoDB 4.4"),
        help: "Use MongoDB 4.4 or newer.",
    },
    Known {
        words: "apiVersion parameter is required",
        said: Some("it requires an API version"),
        help: "Set the server parameter `requireApiVersion` to false. A Rust program can also make a client with \
               `ServerApi` of its own.",
    },
    Known {
        words: "tls handshake eof",
        said: Some("it does not answer in TLS"),
        help: "Remove `tls=true` from the connection string if the server has no TLS, or else look into the server's log.",
    },
    Known {
        words: "unexpected end of file",
        said: Some("it closed the connection"),
        help: "Add `tls=true` to the connection string if the server requires TLS, or else look into the server's log.",
    },
    Known {
        words: "without sending TLS close_notify",
        said: Some("it closed the connection after the TLS handshake"),
        help: "If the server requires a client certificate, name a file with a certificate and its key with `tlsCertificateKeyFile` in the \
               connection string. Its log says more.",
    },
    Known {
        words: "UnknownIssuer",
        said: Some("its certificate is from an authority that is not trusted here"),
        help: "Name the file with the certificate of that authority with `tlsCAFile` in the connection string.",
    },
    Known {
        words: "not valid for name",
        said: Some("its certificate is for other host names"),
        help: "Connect to a host name that the certificate has, or give the server a certificate for this name.",
    },
    Known {
        words: "invalid peer certificate",
        said: Some("its certificate is refused"),
        help: "Give the server a certificate that is valid, from the authority that `tlsCAFile` names.",
    },
    Known {
        words: "failed to lookup address",
        said: None,
        help: "Make the host name resolve on this host. The members of a replica set are found by the names in its \
               configuration (`rs.conf()`), whatever hosts the connection string names.",
    },
];

fn known(text: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| text.contains(known.words))
}

/// What is said about a server whose last heartbeat failed for a reason in the driver's words, and that so many others have failed.
pub(super) fn said(address: &str, reason: &str, others: usize) -> String {
    let also = match others {
        0 => String::new(),
        1 => " (nor can the other server)".to_owned(),
        others => format!(" (nor can the {others} other servers)"),
    };
    match known(reason).and_then(|known| known.said) {
        Some(said) => format!("MongoDB at {address} cannot be used: {said}{also}"),
        None => format!("MongoDB at {address} cannot be reached: {reason}{also}"),
    }
}

/// What to do about a server for which the driver has these words; `None` if they are not known.
pub(super) fn help(text: &str) -> Option<&'static str> {
    known(text).map(|known| known.help)
}

#[cfg(test)]
mod tests {
    use super::*;

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
