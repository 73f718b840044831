//! When and where the benchmark runs.

use std::time::{SystemTime, UNIX_EPOCH};

use mongodb::bson::doc;
use serde_json::{Value, json};

use crate::setting::Setting;

/// The date, the server and the machine, without which no figure can be repeated.
pub(crate) async fn describe(setting: &Setting) -> anyhow::Result<Value> {
    let admin = setting.database().await?.client().database("admin");
    let build = admin.run_command(doc! { "buildInfo": 1 }).await?;
    let hello = admin.run_command(doc! { "hello": 1 }).await?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    Ok(json!({
        "date": date(seconds),
        "server": build.get_str("version")?,
        "members": hello.get_array("hosts").map_or(0, Vec::len),
        "processor": line_of("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism()?.get(),
        "memory": line_of("/proc/meminfo", "MemTotal"),
        "load": std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
        "quick": setting.options().quick,
        "provider": if setting.options().is_new { "new" } else { "connect" },
    }))
}

fn line_of(file: &str, key: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(key));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

/// The date in UTC of this number of seconds since 1970
/// ([`civil_from_days`](https://howardhinnant.github.io/date_algorithms.html#civil_from_days)).
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{:02}", day - (153 * from_march + 2) / 5 + 1)
}
