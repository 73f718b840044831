//! The order between processes: how evenly the waits for one lock are spread, and what the order costs.
//!
//! Tasks ask again at once, for a fixed time, and a first second does not count. The figure for fairness is the longest wait
//! divided by the mean one. The shapes are named by the number of processes and the tasks of each.

mod alike;
mod arrivals;
mod dead;
mod unlike;

use std::time::Duration;

use mongolock_tests::{Direction, Proxy};

pub(crate) use self::alike::{busy, idle, many};
pub(crate) use self::arrivals::measure as arrivals;
pub(crate) use self::dead::measure as dead;
pub(crate) use self::unlike::{far, foreign, without_stream};
use crate::contest::{Contest, Outcome, Times};
use crate::queue::{Client, Want};
use crate::setting::{Access, Setting};

/// The time that a message takes more on its way to or from a process that is far away.
const FAR: Duration = Duration::from_millis(3);

/// A proxy that delays each message by [`FAR`].
pub(crate) async fn far_proxy(address: &str) -> anyhow::Result<Proxy> {
    let proxy = Proxy::start(address).await?;
    proxy.set_delay(Direction::ToServer, FAR);
    proxy.set_delay(Direction::ToClient, FAR);
    Ok(proxy)
}

/// The tasks of a process that want one lock.
fn tasks(name: &str, count: usize) -> Vec<Want> {
    vec![Want::Lock(name.to_owned()); count]
}

/// Processes that compete for one lock: how each of them reaches it, what it runs, and the number of its tasks.
async fn compete(
    name: &str,
    processes: impl IntoIterator<Item = (Access, Client, usize)>,
    setting: &Setting,
) -> anyhow::Result<Outcome> {
    let times = Times::of(setting);
    let jobs = processes.into_iter().map(|(access, client, count)| {
        let queueing = times.queueing(client, tasks(name, count));
        (access, queueing)
    });
    Contest::start(jobs).await?.run(times).await
}
