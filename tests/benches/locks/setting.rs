//! The server, and the clients that the groups use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use mongolock_tests::Deployment;

/// The server of the run, and how long the groups measure.
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

    /// The first value in an exact run, the second one in a quick run.
    pub(crate) fn pick<T>(&self, exact: T, quick: T) -> T {
        if self.quick { quick } else { exact }
    }

    pub(crate) fn is_quick(&self) -> bool {
        self.quick
    }

    pub(crate) fn uri(&self) -> &str {
        self.deployment.uri()
    }

    pub(crate) fn database_name(&self) -> &str {
        &self.database
    }

    /// The database through a new client, as another process has it.
    pub(crate) async fn database(&self) -> anyhow::Result<Database> {
        database(self.uri(), &self.database).await
    }

    /// The database through a new client whose commands are counted.
    pub(crate) async fn counted(&self) -> anyhow::Result<(Database, Sent)> {
        let sent = Sent::default();
        let count = Arc::clone(&sent.0);
        let mut options = ClientOptions::parse(self.uri()).await?;
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if matches!(event, CommandEvent::Started(_)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }));
        let client = Client::with_options(options)?;
        Ok((client.database(&self.database), sent))
    }

    /// Drops the database on a server that this program has not started.
    pub(crate) async fn clean_up(&self) {
        if self.deployment.server().is_none()
            && let Ok(database) = self.database().await
        {
            // Best effort: the figures are measured, and the next run uses another database.
            let _ = database.drop().await;
        }
    }
}

pub(crate) async fn database(uri: &str, name: &str) -> anyhow::Result<Database> {
    Ok(Client::with_uri_str(uri).await?.database(name))
}
