//! What the server does: the time of its processor, and its commands.

use std::time::{Duration, Instant};

use anyhow::Context;
use mongodb::bson::{Bson, Document, doc};
use mongodb::{Client, Database};
use tokio::time::sleep;

use crate::samples::{number, per_second, ratio};

/// The server's own counters.
pub(crate) struct Server {
    admin: Database,
    /// The id of the `mongod` process if it runs on this machine.
    process: Option<i64>,
}

/// The counters at one moment.
struct Counters {
    at: Instant,
    processor: Duration,
    commands: u64,
}

/// What the server did during a stretch of time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Load {
    /// The processor's time divided by the length of the stretch: 1 is one core.
    pub(crate) cores: f64,
    /// The commands of all clients for locks a second, without those that were rejected and those that read a change stream.
    pub(crate) commands: f64,
    /// The length of the stretch.
    pub(crate) time: Duration,
}

impl Load {
    /// The commands of the whole stretch.
    pub(crate) fn all_commands(&self) -> f64 {
        self.commands * self.time.as_secs_f64()
    }

    /// The processor's time of one cycle in microseconds.
    pub(crate) fn of_each(&self, cycles: impl TryInto<u64>) -> f64 {
        self.cores * self.time.as_secs_f64() * 1e6 / number(cycles)
    }
}

impl Server {
    pub(crate) async fn of(client: &Client) -> anyhow::Result<Self> {
        let admin = client.database("admin");
        let status = admin.run_command(doc! { "serverStatus": 1 }).await?;
        let process = status.get("pid").and_then(integer);
        let is_here = |process: &i64| {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm"));
            name.is_ok_and(|name| name.trim() == "mongod")
        };
        Ok(Self {
            admin,
            process: process.filter(is_here),
        })
    }

    /// Measures the server while a future runs.
    pub(crate) async fn during<T>(
        &self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<(T, Load)> {
        let before = self.counters().await?;
        let output = work.await?;
        let after = self.counters().await?;
        let time = after.at - before.at;
        let processor = after.processor.saturating_sub(before.processor);
        let load = Load {
            cores: ratio(processor, time),
            commands: per_second(after.commands - before.commands, time),
            time,
        };
        Ok((output, load))
    }

    /// Measures the server for this time.
    pub(crate) async fn for_some_time(&self, time: Duration) -> anyhow::Result<Load> {
        let pause = async {
            sleep(time).await;
            Ok(())
        };
        Ok(self.during(pause).await?.1)
    }

    async fn counters(&self) -> anyhow::Result<Counters> {
        let status = self.admin.run_command(doc! { "serverStatus": 1 }).await?;
        Ok(Counters {
            at: Instant::now(),
            processor: self.process.map_or(Ok(Duration::ZERO), processor_time)?,
            commands: commands(status.get_document("metrics")?.get_document("commands")?),
        })
    }
}

/// The time that a process has used so far, in user code and in the system.
fn processor_time(process: i64) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The second field is a name in parentheses, which may have spaces in it.
    let (_, fields) = stat.rsplit_once(") ").context("a name in parentheses")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<Result<u64, _>>()?;
    Ok(Duration::from_secs_f64(
        number(ticks) / number(rustix::param::clock_ticks_per_second()),
    ))
}

fn commands(counted: &Document) -> u64 {
    let names = ["findAndModify", "update", "find", "aggregate", "insert", "delete"];
    let totals = names
        .iter()
        .filter_map(|name| counted.get_document(name).ok()?.get("total").and_then(integer));
    totals.map(|total| u64::try_from(total).unwrap_or_default()).sum()
}

fn integer(value: &Bson) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}
