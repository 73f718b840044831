//! Connection strings that the driver refuses.

use std::collections::HashSet;

use mongodb::error::{Error, ErrorKind};

use super::driver_text;
use super::meaning::OwnFailure;
use crate::LockError;

/// The text that replaces a message which may contain a secret.
const LEFT_OUT: &str =
    "the driver's message is left out, because it quotes a part of the string that may be secret";

/// Parts of the names of options whose values may be secret.
const SECRET: [&str; 3] = ["password", "username", "properties"];

/// The error for a connection string that the driver has refused. Its message may quote a part of the string, and a part
/// of a string that is not valid may belong to the password.
pub(crate) fn refused(uri: &str, error: Error) -> LockError {
    if let ErrorKind::DnsResolve { .. } = &*error.kind {
        return error.into();
    }
    let message = driver_text::words(&error);
    let is_secret = may_quote_a_secret(&message, uri);
    OwnFailure::connection_string(if is_secret { LEFT_OUT } else { &message })
}

/// Whether a message may quote the part before the hosts, or an option with a secret.
fn may_quote_a_secret(message: &str, uri: &str) -> bool {
    let quoted: HashSet<String> = words(message).collect();
    let is_quoted = |word: String| quoted.contains(&word);
    let (_, rest) = uri.split_once("://").unwrap_or(("", uri));
    // Without `@` the user name and the password may be in the position of the host; a number there is a part of an
    // address.
    let has_user = rest.contains('@');
    let (user, rest) = rest
        .rsplit_once('@')
        .or_else(|| rest.split_once(['/', '?']))
        .unwrap_or((rest, ""));
    let mut user = words(user).filter(|word| has_user || word.parse::<u64>().is_err());
    let (_, options) = rest.split_once('?').unwrap_or_default();
    let mut options = options
        .split(['&', ';'])
        .map(|option| option.split_once('=').ok_or(option));
    user.any(is_quoted)
        || options.any(|option| match option {
            // The driver may quote the value in another form.
            Ok((key, _)) => SECRET.iter().any(|part| key.to_lowercase().contains(part)),
            // It may be the rest of a value with an unescaped `&`.
            Err(text) => words(text).any(is_quoted),
        })
}

/// The runs of letters and digits in lower case: however a message cuts the string, it quotes such words.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use crate::LockProvider;

    #[tokio::test]
    async fn no_error_about_a_connection_string_quotes_a_secret() {
        for uri in [
            "mongodb://anna:S3cr3t",
            "mongodb://anna:S3cr3t/",
            "mongodb://anna:S3cr3t?x@host/",
            "mongodb://anna:12?S3cr3t@host/",
            "mongodb://anna:a/S3cr3t@host/",
            "mongodb://anna:a@S3cr3t@host/",
            "mongodb://anna:%S3cr3t@host/",
            "mongodb://anna:S3cr3t@host:x/",
            "mongodb://host/?tlsCertificateKeyFilePassword=a&S3cr3t",
            "mongodb://host/?authMechanismProperties=S3cr3t",
            "anna:S3cr3t@host",
            "anna://S3cr3t@host",
        ] {
            let error = LockProvider::connect(uri).await.expect_err(uri);
            let shown = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
            assert!(!shown.contains("S3cr3t"), "{uri}: {shown}");
            let begin = "the MongoDB connection string is invalid: ";
            assert!(shown.starts_with(begin), "{shown}");
        }
    }

    #[tokio::test]
    async fn a_message_without_a_secret_is_kept() {
        let rows = "anna:p/w@host/ => password must be URL encoded
            anna:pw@host/?retryWrites=perhaps => `retrywrites` option must be a boolean
            anna:pw@one,two/?directConnection=true => multiple seeds with directConnection=true
            anna:pw@host:port/ => host:port
            127.0.0.1:27017/?heartbeatFrequencyMS=1 => 500";
        for row in rows.lines() {
            let (uri, message) = row.trim().split_once(" => ").expect("two fields");
            let connected = LockProvider::connect(format!("mongodb://{uri}")).await;
            let error = connected.expect_err(uri).to_string();
            assert!(error.contains(message), "{uri}: {error}");
        }
    }

    #[cfg(not(feature = "dns-resolver"))]
    #[tokio::test]
    async fn a_string_that_needs_a_feature_names_it() {
        let error = LockProvider::connect("mongodb+srv://host")
            .await
            .expect_err("the feature is off");
        assert!(error.to_string().contains("'dns-resolver'"), "{error}");
    }
}
