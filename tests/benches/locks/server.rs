//! The server's commands, and the memory of this process.

use std::time::{Duration, Instant};

use anyhow::Context;
use mongodb::Database;
use mongodb::bson::doc;
use tokio::time::sleep;

use crate::samples::{number, per_second};
use crate::setting::Access;

/// The server's own counters.
pub(crate) struct Server(Database);

/// What the server did during a stretch of time.
pub(crate) struct Load {
    /// The commands of all clients for locks a second, without those that were rejected and those that read a change stream.
    pub(crate) commands: f64,
    /// The length of the stretch.
    pub(crate) time: Duration,
}

impl Server {
    pub(crate) async fn of(access: &Access) -> anyhow::Result<Self> {
        Ok(Self(access.database().await?.client().database("admin")))
    }

    /// Measures the server for this time.
    pub(crate) async fn for_some_time(&self, time: Duration) -> anyhow::Result<Load> {
        let (before, begun) = (self.commands().await?, Instant::now());
        sleep(time).await;
        let (after, time) = (self.commands().await?, begun.elapsed());
        let commands = per_second(after - before, time);
        Ok(Load { commands, time })
    }

    async fn commands(&self) -> anyhow::Result<u64> {
        let status = self.0.run_command(doc! { "serverStatus": 1 }).await?;
        let counted = status.get_document("metrics")?.get_document("commands")?;
        let names = ["findAndModify", "update", "find", "aggregate", "insert", "delete"];
        let total = |name| counted.get_document(name)?.get_i64("total");
        let totals = names.into_iter().filter_map(|name| total(name).ok());
        Ok(totals.map(i64::cast_unsigned).sum())
    }
}

/// The resident set of this process in bytes. It counts whole pages and memory that the allocator keeps for later, so that
/// only differences over many thousand things mean something.
pub(crate) fn resident() -> anyhow::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).context("the second field of statm")?;
    let page = u64::try_from(rustix::param::page_size())?;
    Ok(pages.parse::<u64>()? * page)
}

/// The memory that each of this number of things takes, in bytes.
pub(crate) fn each(before: u64, after: u64, count: usize) -> f64 {
    number(after.saturating_sub(before)) / number(count.max(1))
}
