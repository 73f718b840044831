//! The server, and the clients and providers of the groups.

use std::path::PathBuf;

use mongodb::{Client, Database};
use mongolock::{LockProvider, LockProviderBuilder};
use mongolock_tests::{Deployment, Server};
use serde::{Deserialize, Serialize};

/// Where the benchmark runs, and how thoroughly.
pub(crate) struct Setting {
    deployment: Deployment,
    access: Access,
    options: Options,
}

/// What the command line says about all groups.
#[derive(Clone, Default)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    /// Whether providers use a client of the application instead of their own one.
    pub(crate) is_new: bool,
    /// The number of turns of each comparison, instead of the one that the group has.
    pub(crate) turns: Option<usize>,
    /// The file of the figures, instead of the one in cargo's target directory.
    pub(crate) json: Option<PathBuf>,
}

/// How a process reaches the locks.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Access {
    /// The address of the server, which may be a proxy.
    uri: String,
    database: String,
    is_new: bool,
}

impl Access {
    /// The same database at another address.
    pub(crate) fn at(&self, uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            ..self.clone()
        }
    }

    /// The same for providers of `connect`, or of `new`.
    pub(crate) fn with_new(&self, is_new: bool) -> Self {
        Self {
            is_new,
            ..self.clone()
        }
    }

    /// The database through a client of its own, as another process would have it.
    pub(crate) async fn database(&self) -> anyhow::Result<Database> {
        Ok(Client::with_uri_str(&self.uri).await?.database(&self.database))
    }

    /// A provider with the defaults and a client of its own.
    pub(crate) async fn provider(&self) -> anyhow::Result<LockProvider> {
        Ok(self.builder().await?.build()?)
    }

    pub(crate) async fn builder(&self) -> anyhow::Result<LockProviderBuilder> {
        if self.is_new {
            return Ok(LockProvider::builder(&self.database().await?));
        }
        let connected = LockProvider::connect(&self.uri).await?;
        Ok(connected.to_builder().database(&self.database))
    }
}

impl Setting {
    pub(crate) async fn new(options: Options) -> anyhow::Result<Self> {
        let deployment = Deployment::from_env_or_start().await?;
        let access = Access {
            uri: deployment.uri().to_owned(),
            database: format!("mongolock_bench_{}", std::process::id()),
            is_new: options.is_new,
        };
        Ok(Self {
            deployment,
            access,
            options,
        })
    }

    /// The first value for an exact run, the second one for a quick run.
    pub(crate) fn pick<T>(&self, exact: T, quick: T) -> T {
        if self.options.quick { quick } else { exact }
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The number of turns of a comparison, which is one of these unless the command line says another one.
    pub(crate) fn turns(&self, exact: usize, quick: usize) -> usize {
        self.options.turns.unwrap_or_else(|| self.pick(exact, quick))
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
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

    pub(crate) async fn database(&self) -> anyhow::Result<Database> {
        self.access.database().await
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
