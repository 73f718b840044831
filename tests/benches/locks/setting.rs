//! The server, and the clients of the groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use mongolock_tests::{Deployment, Server};

/// Where the benchmark runs, and how thoroughly.
pub(crate) struct Setting {
    deployment: Deployment,
    database: String,
    quick: bool,
}

/// The number of commands that a client has sent.
#[derive(Clone, Default)]
pub(crate) struct Sent(Arc<AtomicU64>);

impl Sent {
    pub(crate) fn so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Setting {
    pub(crate) async fn new(quick: bool) -> anyhow::Result<Self> {
        Ok(Self {
            deployment: Deployment::from_env_or_start().await?,
            database: format!("mongolock_bench_{}", std::process::id()),
            quick,
        })
    }

    /// The first value for an exact run, the second one for a quick run.
    pub(crate) fn pick<T>(&self, exact: T, quick: T) -> T {
        if self.quick { quick } else { exact }
    }

    pub(crate) fn is_quick(&self) -> bool {
        self.quick
    }

    /// The number of turns of a comparison.
    pub(crate) fn turns(&self) -> usize {
        self.pick(7, 3)
    }

    pub(crate) fn uri(&self) -> &str {
        self.deployment.uri()
    }

    /// The address of the server, if this program has started it.
    pub(crate) fn address(&self) -> Option<&str> {
        Some(self.deployment.server()?.node().address())
    }

    /// The server, if this program has started it.
    pub(crate) fn own_server(&self) -> Option<&Server> {
        self.deployment.server()
    }

    pub(crate) fn database_name(&self) -> &str {
        &self.database
    }

    /// The database through a client of its own, as another process would have it.
    pub(crate) async fn database(&self) -> anyhow::Result<Database> {
        database(self.uri(), &self.database).await
    }

    /// Drops the database of the benchmark on a server that goes on after it.
    pub(crate) async fn clean_up(&self) {
        if self.deployment.server().is_none()
            && let Ok(database) = self.database().await
        {
            // An error changes none of the figures.
            let _ = database.drop().await;
        }
    }
}

/// The database of this name through a client of its own.
pub(crate) async fn database(uri: &str, name: &str) -> anyhow::Result<Database> {
    Ok(Client::with_uri_str(uri).await?.database(name))
}

/// The same through a client whose commands are counted by the driver's monitoring.
pub(crate) async fn counted(uri: &str, name: &str) -> anyhow::Result<(Database, Sent)> {
    counted_if(uri, name, |_| true).await
}

/// The same for commands whose names count.
pub(crate) async fn counted_if(
    uri: &str,
    name: &str,
    counts: fn(&str) -> bool,
) -> anyhow::Result<(Database, Sent)> {
    let sent = Sent::default();
    let count = Arc::clone(&sent.0);
    let mut options = ClientOptions::parse(uri).await?;
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        if let CommandEvent::Started(started) = event
            && counts(&started.command_name)
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }));
    Ok((Client::with_options(options)?.database(name), sent))
}
