//! What is wrong with a connection string, and what to do: by the driver's words, which are its only sign for the wrong part, and by
//! the files that the string names.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use mongodb::error::{Error, ErrorKind};
use mongodb::options::{AuthMechanism, ClientOptions, Credential, Tls};

use super::failure::Failure;
use super::known::{self, Known};
use crate::LockError;

const TLS_IS_OFF: &str = "`tls=false` stands beside other options of TLS";
const TLS_OPTIONS: &str = "Remove `tls=false`: the other options are those of a connection with TLS.";

const DECRYPT: &str = "Decrypt the key into a file that only the program can read: `openssl pkey -in FILE -out FILE.key`, and put the \
                       certificate behind it. The feature `cert-key-password` of the crate `mongodb` reads encrypted keys in a Rust \
                       program.";

/// The refusals of the driver, those first whose words stand in the words of another one as well.
const KNOWN: [Known; 13] = [
    Known {
        words: &["compressors is an invalid option"],
        meaning: Some("`compressors` is not built in"),
        help: "Remove `compressors`: nothing of a lock needs it. A feature of the crate `mongodb`, such as \
               `zstd-compression`, adds it to a Rust program.",
    },
    Known {
        words: &["tlsallowinvalidhostnames is an invalid option"],
        meaning: Some("`tlsAllowInvalidHostnames` is not supported"),
        help: "Remove it, and connect to a host name that the server's certificate has.",
    },
    Known {
        words: &["timeoutms is an invalid option. An option with a similar name exists: wtimeoutms"],
        meaning: Some("`timeoutMS` is not supported"),
        help: "Remove it: the requests of mongolock have limits of their own, and `serverSelectionTimeoutMS` says how long a \
               server is looked for.",
    },
    Known {
        words: &[
            "if other TLS options are set",
            "TLS is disabled",
            "can't be set if tls=false",
        ],
        meaning: Some(TLS_IS_OFF),
        help: TLS_OPTIONS,
    },
    Known {
        words: &["maxPoolSize=0"],
        meaning: Some("`maxPoolSize` is 0"),
        help: "Set `maxPoolSize` to 1 or more, or remove it: the driver's default is 10.",
    },
    Known {
        words: &["aws-auth feature"],
        meaning: Some("the mechanism MONGODB-AWS is not built in"),
        help: "Log in with a password or with MONGODB-X509. The feature `aws-auth` of the crate `mongodb` adds MONGODB-AWS to a \
               Rust program.",
    },
    Known {
        words: &["cert-key-password feature"],
        meaning: Some("`tlsCertificateKeyFilePassword` is not built in, and encrypted keys cannot be used"),
        help: DECRYPT,
    },
    Known {
        words: &["'dns-resolver' feature"],
        meaning: None,
        help: "Switch on the feature `dns-resolver`, or name the servers in a string that begins with `mongodb://`.",
    },
    Known {
        words: &["scheme"],
        meaning: None,
        help: "Begin the connection string with `mongodb://` or `mongodb+srv://`.",
    },
    Known {
        words: &["URL encoded", "unescaped %"],
        meaning: None,
        help: "Percent-encode special characters in the user name, the password and the name of the database.",
    },
    Known {
        words: &["database name"],
        meaning: None,
        help: "Correct the name of the database, which stands between the hosts and the options.",
    },
    Known {
        words: &[
            "server address",
            "a port cannot",
            "exactly one host",
            "unix sockets",
        ],
        meaning: None,
        help: "Correct the hosts: `host` or `host:port`, separated by commas. A `mongodb+srv` string has one host without a port.",
    },
    Known {
        words: &["username", "password", "mechanism", "authSource"],
        meaning: None,
        help: "Correct the user name, the password, or the options `authSource` and `authMechanism` of the connection string.",
    },
];

/// Refuses a text that is no single line, or begins with a mark of its encoding: the driver would not say so.
pub(crate) fn check_text(uri: &str) -> Result<(), LockError> {
    if uri.starts_with('\u{feff}') {
        let help = "Save the text as UTF-8 without a byte order mark.";
        return Err(invalid("it begins with a byte order mark", help));
    }
    if uri.trim().contains(['\n', '\r']) {
        let help = "Write the connection string on one line, and nothing else beside it.";
        return Err(invalid("it has more than one line", help));
    }
    Ok(())
}

/// The error for a connection string that cannot be used.
fn invalid(reason: impl Into<String>, help: &'static str) -> LockError {
    let reason = reason.into();
    Failure::ConnectionString { reason, help }.into_error()
}

/// The error for a connection string that the driver has refused. Its message may quote a part of the string, and a part
/// of a string that is not valid may belong to the password.
pub(crate) fn refused(uri: &str, error: Error) -> LockError {
    let ErrorKind::InvalidArgument { message, .. } = &*error.kind else {
        return error.into();
    };
    let known = known::find(&KNOWN, message);
    if let Some(Known {
        meaning: Some(meaning),
        help,
        ..
    }) = known
    {
        return invalid(*meaning, help);
    }
    let secret = secret_words(uri);
    if words(message).any(|word| secret.contains(&word)) {
        return invalid(
            "the driver's message is left out, because it quotes a part of the string that may be secret",
            "Correct the connection string: percent-encode special characters in the user name and the password; a port is \
             a number from 1 to 65535, and an option is `name=value`.",
        );
    }
    let other = "Correct or remove the option of the connection string that the message names.";
    invalid(message.as_str(), known.map_or(other, |known| known.help))
}

/// The words of a connection string that may be secret: those before the hosts, and those of some options.
fn secret_words(uri: &str) -> HashSet<String> {
    let (_, rest) = uri.split_once("://").unwrap_or(("", uri));
    // The user name and the password may stand in the place of the host; a number there is a part of an address.
    let is_host = !rest.contains('@');
    let (user, rest) = rest
        .rsplit_once('@')
        .or_else(|| rest.split_once(['/', '?']))
        .unwrap_or((rest, ""));
    let all_words = |text: &str| -> Vec<String> { words(text).chain(words(&decoded(text))).collect() };
    let is_number = |word: &String| word.chars().all(|c| c.is_ascii_digit());
    let user = all_words(user)
        .into_iter()
        .filter(|word| !(is_host && is_number(word)));
    let options = rest.split_once('?').map_or("", |(_, options)| options);
    let secrets = options.split(['&', ';']).filter(|option| is_secret(option));
    secrets.flat_map(all_words).chain(user).collect()
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

/// Refuses options that only a log-in would refuse.
pub(crate) fn check_options(options: &ClientOptions) -> Result<(), LockError> {
    let is_incomplete = |credential: &Credential| {
        credential.mechanism == Some(AuthMechanism::MongoDbOidc) && credential.mechanism_properties.is_none()
    };
    if !options.credential.as_ref().is_some_and(is_incomplete) {
        return Ok(());
    }
    Err(invalid(
        "MONGODB-OIDC needs `authMechanismProperties`",
        "Add `authMechanismProperties=ENVIRONMENT:k8s`. A Rust program can also make a client with a callback of its own, or \
         switch on the features `azure-oidc` and `gcp-oidc` of the crate `mongodb`.",
    ))
}

/// The error for a file of the TLS options that cannot be used.
pub(crate) fn of_files(options: &ClientOptions) -> Option<LockError> {
    let Some(Tls::Enabled(tls)) = &options.tls else {
        return None;
    };
    let authority = tls.ca_file_path.as_deref();
    let key = tls.cert_key_file_path.as_deref();
    let authority = authority.and_then(|path| of_file("tlsCAFile", path, "CERTIFICATE"));
    authority.or_else(|| of_file("tlsCertificateKeyFile", key?, "PRIVATE KEY"))
}

/// Why a file cannot be used that must have this kind of part; `None` if it has one.
fn of_file(option: &str, path: &Path, part: &str) -> Option<LockError> {
    let shown = path.display();
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let (reason, help) = match text {
        Err(error) => (
            format!("the file {shown} of `{option}` cannot be read: {error}"),
            "Correct the path, and let this user read the file.",
        ),
        Ok(text) if text.contains("ENCRYPTED") => (
            format!("the key in the file {shown} of `{option}` is encrypted"),
            DECRYPT,
        ),
        Ok(text) if text.contains(part) => return None,
        Ok(_) => (
            format!("the file {shown} of `{option}` has no {}", part.to_lowercase()),
            "Name a file in PEM format. That of `tlsCertificateKeyFile` has the certificate and its key.",
        ),
    };
    Some(invalid(reason, help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockProvider;

    /// The words are those of the driver, which an update may change.
    #[tokio::test]
    async fn the_help_for_a_connection_string_names_the_wrong_part() {
        for (uri, wanted) in [
            ("host/app", "Begin the connection string"),
            ("mongo://host", "Begin the connection string"),
            ("mongodb://anna:p@ss@host", "Percent-encode"),
            ("mongodb://anna:p%zz@host", "Percent-encode"),
            ("mongodb://host/a%ffb", "Percent-encode"),
            ("mongodb://host/a b", "Correct the name of the database"),
            ("mongodb://", "Correct the hosts"),
            ("mongodb://one,", "Correct the hosts"),
            ("mongodb://anna@one:x", "Correct the hosts"),
            ("mongodb://one:99999", "a port is a number"),
            ("mongodb://host/?tls", "an option is `name=value`"),
            ("mongodb://@host", "Correct the user name"),
            ("mongodb://host/?authMechanism=none", "Correct the user name"),
            ("mongodb://host/?replicaset", "an option is `name=value`"),
            ("mongodb://host/?foo=1", "remove the option"),
            ("mongodb://host/?tls=perhaps", "remove the option"),
            ("mongodb://host/?maxPoolSize=-1", "remove the option"),
            ("mongodb://one,two/?directConnection=true", "remove the option"),
        ] {
            let error = LockProvider::connect(uri).await.expect_err(uri);
            assert!(error.help().contains(wanted), "{uri}: {error}: {}", error.help());
        }
    }

    /// What the driver says of these hides the reason, names a wrong one or leads to less security.
    #[tokio::test]
    async fn what_the_driver_says_wrongly_has_words_of_its_own() {
        for (uri, reason, help) in [
            ("?compressors=zstd", "`compressors` is not built in", "Remove"),
            (
                "?tls=true&tlsAllowInvalidHostnames=true",
                "`tlsAllowInvalidHostnames` is not supported",
                "Remove it",
            ),
            (
                "?timeoutMS=5000",
                "`timeoutMS` is not supported",
                "`serverSelectionTimeoutMS`",
            ),
            ("?maxPoolSize=0", "`maxPoolSize` is 0", "1 or more"),
            ("?tlsCAFile=/x&tls=false", TLS_IS_OFF, TLS_OPTIONS),
            ("?tls=false&tlsCAFile=/x", TLS_IS_OFF, TLS_OPTIONS),
            (
                "?authMechanism=MONGODB-AWS",
                "the mechanism MONGODB-AWS is not built in",
                "a password",
            ),
            (
                "?authMechanism=MONGODB-OIDC",
                "MONGODB-OIDC needs `authMechanismProperties`",
                "ENVIRONMENT",
            ),
            (
                "?tls=true&tlsCertificateKeyFilePassword=a",
                "encrypted keys cannot be used",
                "openssl pkey",
            ),
            (
                "?tls=true&tlsCAFile=/none/x",
                "the file /none/x of `tlsCAFile` cannot be read",
                "path",
            ),
            (
                "?tls=true&tlsCertificateKeyFile=/none/x",
                "the file /none/x of `tlsCertificateKeyFile`",
                "path",
            ),
            ("\nmongodb://host/b", "it has more than one line", "on one line"),
        ] {
            let error = LockProvider::connect(format!("mongodb://127.0.0.1/app{uri}"))
                .await
                .expect_err(uri);
            let text = error.to_string();
            assert!(text.contains(reason), "{uri}: {text}");
            assert!(error.help().contains(help), "{uri}: {}", error.help());
        }
        let marked = LockProvider::connect("\u{feff}mongodb://host")
            .await
            .expect_err("the mark");
        assert!(marked.to_string().contains("a byte order mark"), "{marked}");
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
            let error = LockProvider::connect(uri).await.expect_err(uri);
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
            ("mongodb://127.0.0.1:27017/?heartbeatFrequencyMS=1", "500"),
        ] {
            let error = LockProvider::connect(uri).await.expect_err(uri).to_string();
            assert!(error.contains(message), "{uri}: {error}");
        }
    }

    #[test]
    fn a_file_without_what_is_needed_is_named() {
        let directory = std::env::temp_dir().join(format!("mongolock-pem-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("key.pem");
        for (text, wanted) in [
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----", Some("is encrypted")),
            ("-----BEGIN CERTIFICATE-----", Some("has no private key")),
            ("-----BEGIN PRIVATE KEY-----", None),
        ] {
            fs::write(&path, text).unwrap();
            let found = of_file("tlsCertificateKeyFile", &path, "PRIVATE KEY").map(|error| error.to_string());
            assert_eq!(found.is_some(), wanted.is_some(), "{text}");
            assert!(
                found.is_none_or(|found| found.ends_with(wanted.unwrap_or_default())),
                "{text}"
            );
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[cfg(not(feature = "dns-resolver"))]
    #[tokio::test]
    async fn a_string_that_needs_a_feature_names_it() {
        let error = LockProvider::connect("mongodb+srv://host")
            .await
            .expect_err("the feature is off");
        assert!(error.help().contains("`dns-resolver`"), "{}", error.help());
    }
}
