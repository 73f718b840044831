//! The server, and the clients and providers of the groups.

use std::path::PathBuf;
use std::time::Duration;

use mongodb::bson::{DateTime, doc};
use mongodb::{Client, Database};
use mongolock::{LockProvider, LockProviderBuilder};
use mongolock_tests::{Deployment, Direction, Proxy, Server};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The time that a message takes more on its way to or from a process that is far away.
const FAR: Duration = Duration::from_millis(3);

/// Where the benchmark runs, and how thoroughly.
pub(crate) struct Setting {
    deployment: Deployment,
    access: Access,
    pub(crate) options: Options,
}

/// What the command line says about all groups.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) quick: bool,
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
}

impl Access {
    /// The same database at another address.
    pub(crate) fn at(&self, uri: impl Into<String>) -> Self {
        let (uri, database) = (uri.into(), self.database.clone());
        Self { uri, database }
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

    /// The same for seconds.
    pub(crate) fn seconds(&self, exact: u64, quick: u64) -> Duration {
        Duration::from_secs(self.pick(exact, quick))
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

    /// The server, if this program has started it.
    pub(crate) fn own_server(&self) -> Option<&Server> {
        self.deployment.server()
    }

    /// A proxy before the server, with a delay of 3 ms for each message, if this program has started the server.
    pub(crate) async fn far_proxy(&self) -> anyhow::Result<Option<Proxy>> {
        let Some(server) = self.own_server() else {
            return Ok(None);
        };
        let proxy = Proxy::start(server.node().address()).await?;
        proxy.set_delay(Direction::ToServer, FAR);
        proxy.set_delay(Direction::ToClient, FAR);
        Ok(Some(proxy))
    }

    pub(crate) async fn database(&self) -> anyhow::Result<Database> {
        self.access.database().await
    }

    /// Drops the database of the benchmark on a server that goes on after it.
    pub(crate) async fn clean_up(&self) {
        if self.own_server().is_none()
            && let Ok(database) = self.database().await
        {
            // An error changes none of the figures.
            let _ = database.drop().await;
        }
    }

    /// The date, the server and the machine, without which no figure can be repeated.
    pub(crate) async fn describe(&self) -> anyhow::Result<Value> {
        let admin = self.database().await?.client().database("admin");
        let build = admin.run_command(doc! { "buildInfo": 1 }).await?;
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processors.lines().find(|line| line.starts_with("model name"));
        Ok(json!({
            "date": DateTime::now().try_to_rfc3339_string()?,
            "server": build.get_str("version")?,
            "processor": processor,
            "cores": std::thread::available_parallelism()?.get(),
            "load": std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
            "quick": self.options.quick,
        }))
    }
}

/// Acquires and releases this number of locks at the same time, so that connections and background tasks are there.
pub(crate) async fn warm_up(provider: &LockProvider, count: usize) -> anyhow::Result<()> {
    let mut cycles = JoinSet::new();
    for index in 0..count {
        let lock = provider.lock(format_args!("warm-up:{}:{index}", std::process::id()));
        cycles.spawn(async move { lock.acquire().await?.release().await });
    }
    while let Some(cycle) = cycles.join_next().await {
        cycle??;
    }
    Ok(())
}
