//! The clocks of the members: after a fail-over the new primary decides by its own when a lease has ended.

use std::time::{Duration, Instant};

use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{ClientOptions, ServerAddress};
use tokio::time::timeout;

use super::Finding;
use super::servers::is_sharded;
use crate::text::difference;

/// The largest difference that is well within the usual expiry of 30 s.
pub(super) const TOLERATED: Duration = Duration::from_secs(1);

/// The time within which a member must reply.
const LIMIT: Duration = Duration::from_secs(3);

/// A reading of a clock, in milliseconds against this process's monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Reading {
    offset: i64,
    /// Half of the time that the reading took.
    error: i64,
}

pub(super) async fn clocks(hello: &Document, options: &ClientOptions) -> Vec<Finding> {
    let check = "clocks";
    if is_sharded(hello) {
        let said = "mongos does not name the members of the shards; check each shard by itself";
        return vec![Finding::unknown(check, said)];
    }
    let hosts = hello.get_array("hosts").map(Vec::as_slice).unwrap_or_default();
    let hosts: Vec<&str> = hosts.iter().filter_map(Bson::as_str).collect();
    if hosts.len() < 2 {
        return vec![Finding::ok(check, "one server, so one clock")];
    }
    let base = Instant::now();
    let (mut readings, mut findings) = (Vec::new(), Vec::new());
    for host in hosts {
        if let Ok(Ok(reading)) = timeout(LIMIT, read(options.clone(), host, base)).await {
            readings.push((host, reading));
        } else {
            let said = format!("{host} cannot be reached from here");
            findings.push(Finding::unknown(check, said));
        }
    }
    findings.push(judge(check, &readings));
    findings
}

async fn read(
    mut options: ClientOptions,
    host: &str,
    base: Instant,
) -> Result<Reading, mongodb::error::Error> {
    options.hosts = vec![ServerAddress::parse(host)?];
    options.direct_connection = Some(true);
    options.repl_set_name = None;
    options.server_selection_timeout = Some(LIMIT);
    let client = Client::with_options(options)?;
    let admin = client.database("admin");
    // The first command connects.
    admin.run_command(doc! { "hello": 1 }).await?;
    let before = base.elapsed();
    let reply = admin.run_command(doc! { "hello": 1 }).await?;
    let after = base.elapsed();
    let time = reply
        .get_datetime("localTime")
        .map_err(mongodb::error::Error::custom)?;
    let middle = millis((before + after) / 2);
    Ok(Reading {
        offset: time.timestamp_millis().saturating_sub(middle),
        error: millis(after.saturating_sub(before) / 2) + 1,
    })
}

fn judge(check: &'static str, readings: &[(&str, Reading)]) -> Finding {
    let ahead = readings.iter().max_by_key(|(_, reading)| reading.offset);
    let behind = readings.iter().min_by_key(|(_, reading)| reading.offset);
    let (Some(ahead), Some(behind), 2..) = (ahead, behind, readings.len()) else {
        let said = "fewer than two members could be read, so nothing was compared";
        return Finding::unknown(check, said);
    };
    let apart = ahead.1.offset.saturating_sub(behind.1.offset);
    let error = ahead.1.error + behind.1.error;
    let time = |millis: i64| difference(Duration::from_millis(millis.unsigned_abs()));
    let said = format!(
        "{} apart, read to within {} ({} members)",
        time(apart),
        time(error),
        readings.len()
    );
    // A slow reading proves nothing.
    if apart.saturating_sub(error) > millis(TOLERATED) {
        let said = format!("{said}: {} is ahead of {}", ahead.0, behind.0);
        let mend = "at the shell, on the members: chronyc tracking; run chrony or another NTP client";
        return Finding::wrong(check, said, mend);
    }
    Finding::ok(check, said)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::CheckState;
    use super::*;

    #[test]
    fn a_difference_counts_only_beyond_the_error() {
        let state = |one: i64, other: i64, error: i64| {
            let readings = [
                ("a", Reading { offset: one, error }),
                ("b", Reading { offset: other, error }),
            ];
            judge("clocks", &readings).state
        };
        assert_eq!(state(0, 900, 1), CheckState::Ok);
        assert_eq!(state(5_000, 0, 1), CheckState::Wrong);
        assert_eq!(state(5_000, 0, 3_000), CheckState::Ok);
        assert_eq!(judge("clocks", &[]).state, CheckState::Unknown);
        let one = ("a", Reading { offset: 0, error: 1 });
        assert_eq!(judge("clocks", &[one]).state, CheckState::Unknown);
    }
}
