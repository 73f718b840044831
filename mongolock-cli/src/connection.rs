//! The connection to the locks: the connection string and its sources.

use std::env;
use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::Error;
use mongodb::options::{
    ClientOptions, DatabaseOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern,
};
use mongodb::{Client, Collection, Database};
use mongolock::{LockProvider, LockProviderBuilder};
use tokio::time::timeout;

use crate::cli::{COLLECTION, ConnectionArguments};
use crate::failure::Failure;
use crate::input;
use crate::text::quoted;

/// The environment variable with the connection string.
const VARIABLE: &str = "MONGODB_URI";

/// The time for which a command that acquires nothing looks for a server. A person waits for its result.
const SELECTION: Duration = Duration::from_secs(5);

/// How long a server may take to open a change stream.
const STREAM: Duration = Duration::from_secs(5);

impl ConnectionArguments {
    /// A builder for the locks of a command that acquires, which waits for a server as long as the library does. Nothing is sent
    /// to a server.
    pub(crate) async fn builder(&self) -> Result<LockProviderBuilder, Failure> {
        Ok(self.connecting(&self.string()?, None).await?.0)
    }

    /// A builder for the locks, and their database. The driver looks for a server for this time unless the string says how long.
    async fn connecting(
        &self,
        uri: &str,
        selection: Option<Duration>,
    ) -> Result<(LockProviderBuilder, Database), Failure> {
        let (builder, database) = LockProvider::connecting(uri, selection).await?;
        let builder = builder.collection(&self.collection);
        let (builder, name) = match &self.database {
            Some(name) => (builder.database(name), name.as_str()),
            None => (builder, database.name()),
        };
        Ok((builder, of_primary(database.client(), name)))
    }

    /// The locks, for commands that hold none. Such commands fail soon if no server can be reached. Nothing is sent to
    /// a server here.
    pub(crate) async fn collections(&self) -> Result<Collections, Failure> {
        let uri = self.string()?;
        // The driver's error about a string may repeat a password, and the library's, which is found first, does not.
        let (builder, database) = self.connecting(&uri, Some(SELECTION)).await?;
        let mut options = ClientOptions::parse(uri.as_str()).await?;
        options.server_selection_timeout.get_or_insert(SELECTION);
        Ok(Collections {
            provider: builder.build()?,
            locks: database.collection(&self.collection),
            admin: of_primary(database.client(), "admin"),
            database,
            options,
        })
    }

    /// The options that name the same locks in a command of the user, each after a space. `MONGODB_URI` is left as it is.
    pub(crate) fn as_options(&self) -> String {
        let file = self.uri_file.as_ref().map(|path| path.to_string_lossy());
        let collection = (self.collection != COLLECTION).then_some(self.collection.as_str());
        let options = [
            ("--uri", self.uri.as_deref()),
            ("--uri-file", file.as_deref()),
            ("--database", self.database.as_deref()),
            ("--collection", collection),
        ];
        let given = options
            .into_iter()
            .filter_map(|(option, value)| Some((option, value?)));
        let words: Vec<String> = given
            .map(|(option, value)| format!(" {option} {}", quoted(value)))
            .collect();
        words.concat()
    }

    /// The connection string.
    pub(crate) fn string(&self) -> Result<String, Failure> {
        if let Some(uri) = &self.uri {
            return without_password(uri);
        }
        if let Some(path) = &self.uri_file {
            return input::text(path);
        }
        match env::var(VARIABLE) {
            Ok(uri) if !uri.trim().is_empty() => Ok(uri.trim().to_owned()),
            Ok(_) | Err(env::VarError::NotPresent) => Err(Failure::new("no MongoDB is named").help(
                "Set MONGODB_URI, for instance to mongodb://localhost/app, or use --uri or --uri-file.",
            )),
            Err(env::VarError::NotUnicode(_)) => Err(Failure::new("MONGODB_URI is not valid UTF-8")),
        }
    }
}

/// A database for the program's own commands: of the primary and confirmed by a majority, whatever the connection string says.
fn of_primary(client: &Client, name: &str) -> Database {
    let options = DatabaseOptions::builder()
        .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
        .read_concern(ReadConcern::majority())
        .write_concern(WriteConcern::majority())
        .build();
    client.database_with_options(name, options)
}

/// A string of the command line, which every user of the machine can read.
fn without_password(uri: &str) -> Result<String, Failure> {
    if has_secret(uri) {
        let refused = "--uri is refused, because it has a password, which `ps` shows to every user";
        return Err(Failure::new(refused).help("Put it into MONGODB_URI, or into a file for --uri-file."));
    }
    Ok(uri.trim().to_owned())
}

/// Whether the string has a password: behind the user name, or in an option. The text before an `@` counts even if the
/// string is not valid.
fn has_secret(uri: &str) -> bool {
    let (_, rest) = uri.split_once("://").unwrap_or(("", uri));
    // A password may contain an unescaped `/`, `?` or `@`, so everything up to the last `@` counts. An option such as
    // `appName=a@b:c` is then refused needlessly, which is the safe side.
    let has_password = rest.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    let options = rest
        .split_once('?')
        .map_or("", |(_, options)| options)
        .to_lowercase();
    let mut options = options.split(['&', ';']);
    has_password || options.any(|option| option.contains("password=") || option.contains("aws_session_token"))
}

/// The collection and the databases of the locks.
pub(crate) struct Collections {
    pub(crate) provider: LockProvider,
    pub(crate) database: Database,
    /// The database `admin`.
    pub(crate) admin: Database,
    pub(crate) locks: Collection<Document>,
    /// The options of the client.
    pub(crate) options: ClientOptions,
}

impl Collections {
    /// The name of another database that differs from this one in upper and lower case only: the locks may be there.
    pub(crate) async fn other_spelling(&self) -> Option<String> {
        let names = self
            .admin
            .client()
            .list_database_names()
            .authorized_databases(true)
            .await
            .ok()?;
        let own = self.database.name();
        let is_there = names.iter().any(|name| name == own);
        let other = names.into_iter().find(|name| name.eq_ignore_ascii_case(own));
        other.filter(|_| !is_there)
    }

    /// Opens a change stream on the locks and closes it; `None` if the server does not open it in time: it waits for a majority.
    pub(crate) async fn open_stream(&self) -> Option<Result<(), Error>> {
        let opened = timeout(STREAM, self.locks.watch().into_future()).await.ok()?;
        Some(opened.map(drop))
    }

    /// The database and the collection of the locks, for messages.
    pub(crate) fn name(&self) -> String {
        self.locks.namespace().to_string()
    }
}

/// The present time of the server.
pub(crate) async fn now(collections: &Collections) -> Result<DateTime, Failure> {
    let reply = collections.database.run_command(doc! { "hello": 1 }).await?;
    let now = reply.get_datetime("localTime");
    now.copied().map_err(Failure::io("the server tells no time"))
}

/// How long a command may take to end its connections.
pub(crate) const CLOSING_LIMIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_found_wherever_it_stands() {
        for secret in [
            "mongodb://anna:secret@host/",
            "mongodb://anna:a/b@host/",
            "mongodb://anna:a@b@host/",
            "anna:secret@host",
            "mongodb://host/?tlsCertificateKeyFilePassword=x",
            "mongodb://host/?proxyPassword=x",
            "mongodb://host/?authMechanismProperties=AWS_SESSION_TOKEN:x",
        ] {
            assert!(without_password(secret).is_err(), "{secret}");
        }
        for plain in [
            "mongodb://host/",
            "mongodb://one:1,two:2/app?replicaSet=rs",
            "mongodb://anna@host/?authMechanism=MONGODB-X509",
            "mongodb+srv://host/app",
        ] {
            assert!(without_password(plain).is_ok(), "{plain}");
        }
    }
}
