//! A client of this library's own, and errors about its connection string without the secrets in it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongodb::Client;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::ClientOptions;
use tokio::time::timeout;

use super::admission::DEFAULT_POOL;
use super::reachability::Reachability;
use crate::LockError;
use crate::error::connection_string;
use crate::error::failure::Failure;
use crate::timing::CLIENT_LIMIT;

/// A client that this library has made, with what its monitoring says. Providers that are made from one another share it,
/// and the last one that is shut down ends it.
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// What the driver reports about its servers, connections and log-ins.
    pub(crate) servers: Arc<Reachability>,
    /// The number of providers that use the client.
    users: AtomicUsize,
}

impl Connection {
    pub(super) fn join(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a provider no longer uses the client, and returns whether no other one does.
    pub(super) fn leave(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Ends the client: its cursors and sessions at the server, and its tasks.
    pub(super) async fn shut_down(&self) {
        self.servers.end_questions().await;
        let shutdown = |immediate| timeout(CLIENT_LIMIT, self.client.clone().shutdown().immediate(immediate));
        if shutdown(false).await.is_err() {
            // A server that does not answer must not keep the process.
            let _ = shutdown(true).await;
        }
    }
}

/// Makes a client whose monitoring tells why MongoDB cannot be reached. Nothing is awaited from a server, except for the
/// DNS records that a `mongodb+srv` string names. `selection` is how long the driver looks for a server if the string does not say.
pub(crate) async fn connect(uri: &str, selection: Option<Duration>) -> Result<Arc<Connection>, LockError> {
    let refused = |error| refused(uri, error);
    if let Some(failure) = connection_string::of_text(uri) {
        return Err(failure.into_error());
    }
    let mut options = options(uri.trim()).await.map_err(refused)?;
    if let Some(failure) = connection_string::of_options(&options) {
        return Err(failure.into_error());
    }
    options.server_selection_timeout = options.server_selection_timeout.or(selection);
    let servers = Reachability::observe(uri, &mut options);
    let made = Client::with_options(options.clone());
    // The driver names neither the option nor each file.
    let client = made.map_err(|error| match connection_string::of_files(&options) {
        Some(failure) => failure.into_error(),
        None => refused(error),
    })?;
    Ok(Arc::new(Connection {
        client,
        servers,
        users: AtomicUsize::new(0),
    }))
}

/// What the connection string says, and two options in which this library differs from the driver if they do not stand there.
async fn options(uri: &str) -> mongodb::error::Result<ClientOptions> {
    let mut options = ClientOptions::parse(uri).await?;
    // This library repeats what the server rejects for overload itself: renewals soon, and other commands later.
    options.max_adaptive_retries.get_or_insert(0);
    // The driver waits for the reply to a handshake without a limit. With its default of 2, two silent connections keep it from
    // opening others for as long as they last.
    let pool = options.max_pool_size.unwrap_or(DEFAULT_POOL);
    options.max_connecting.get_or_insert(pool.min(DEFAULT_POOL));
    Ok(options)
}

/// The error for a connection string that the driver has refused. Its message may quote a part of the string, and a part
/// of a string that is not valid may belong to the password.
fn refused(uri: &str, error: Error) -> LockError {
    let ErrorKind::InvalidArgument { message, .. } = &*error.kind else {
        return error.into();
    };
    let failure = connection_string::known(message).unwrap_or_else(|| {
        let secret = secret_words(uri);
        let reason = if words(message).any(|word| secret.contains(&word)) {
            "the driver's message is left out, because it quotes a part of the string that may be secret"
                .to_owned()
        } else {
            message.clone()
        };
        let help = connection_string::help(&reason);
        Failure::ConnectionString { reason, help }
    });
    failure.into_error()
}

/// The words of a connection string that may be secret: those before the hosts, and those of some options.
fn secret_words(uri: &str) -> HashSet<String> {
    let (_, rest) = uri.split_once("://").unwrap_or(("", uri));
    // Without an `@` the user name and the password may stand in the place of the host.
    let (user, rest) = rest
        .rsplit_once('@')
        .or_else(|| rest.split_once(['/', '?']))
        .unwrap_or((rest, ""));
    let options = rest.split_once('?').map_or("", |(_, options)| options);
    let secrets = options.split(['&', ';']).filter(|option| is_secret(option));
    let secrets: Vec<&str> = secrets.chain([user]).collect();
    let decoded: Vec<String> = secrets.iter().map(|secret| decoded(secret)).collect();
    let all = secrets.into_iter().chain(decoded.iter().map(String::as_str));
    all.flat_map(words).collect()
}

/// Whether an option may have a secret in it. Text without a `=` may be the rest of a value with an unescaped `&`.
fn is_secret(option: &str) -> bool {
    option.split_once('=').is_none_or(|(key, _)| {
        let key = key.to_lowercase();
        ["password", "username", "properties"]
            .iter()
            .any(|part| key.contains(part))
    })
}

/// The runs of letters and digits in lower case: however a message cuts the string, it quotes such words.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// The text with its percent-encoded bytes decoded.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let code = part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(b'%'));
        let rest = if code.is_some() { &part[2..] } else { part };
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn error_of(uri: &str) -> LockError {
        match connect(uri, None).await {
            Err(error) => error,
            Ok(_) => panic!("{uri} is accepted"),
        }
    }

    #[tokio::test]
    async fn the_connection_string_decides_where_it_says_something() {
        for (parameters, repeats, connecting) in [
            ("", 0, DEFAULT_POOL),
            ("?maxPoolSize=4", 0, 4),
            ("?maxPoolSize=500", 0, DEFAULT_POOL),
            ("?maxAdaptiveRetries=2&maxConnecting=3", 2, 3),
        ] {
            let options = options(&format!("mongodb://host/{parameters}")).await.unwrap();
            assert_eq!(
                (options.max_adaptive_retries, options.max_connecting),
                (Some(repeats), Some(connecting))
            );
        }
    }

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
            "mongodb://anna:%533cr3t@host:S3cr3t/",
            "mongodb://host/?tlsCertificateKeyFilePassword=a&S3cr3t",
            "mongodb://host/?authMechanismProperties=S3cr3t",
            "anna:S3cr3t@host",
            "anna://S3cr3t@host",
        ] {
            let error = error_of(uri).await;
            let shown = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
            assert!(!shown.contains("S3cr3t"), "{uri}: {shown}");
            assert!(
                error
                    .to_string()
                    .starts_with("the MongoDB connection string is invalid: "),
                "{shown}"
            );
        }
    }

    #[tokio::test]
    async fn a_message_without_a_secret_is_kept() {
        for (uri, message) in [
            ("mongodb://anna:p/w@host/", "password must be URL encoded"),
            (
                "mongodb://anna:pw@host/?retryWrites=perhaps",
                "`retrywrites` option must be a boolean",
            ),
            (
                "mongodb://anna:pw@one,two/?directConnection=true",
                "multiple seeds with directConnection=true",
            ),
            ("mongodb://anna:pw@host:port/", "host:port"),
        ] {
            let error = error_of(uri).await.to_string();
            assert!(error.contains(message), "{uri}: {error}");
        }
    }
}
