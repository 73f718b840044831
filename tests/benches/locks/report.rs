//! The figures: each is printed as a row of the table when it is measured, and all of them are written as JSON at the
//! end.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongodb::bson::doc;
use serde_json::{Value, json};

use crate::setting::Setting;

/// All figures of a run.
pub(crate) struct Report {
    group: &'static str,
    setting: Value,
    figures: Vec<Value>,
    met: usize,
    missed: Vec<String>,
}

impl Report {
    pub(crate) async fn new(setting: &Setting) -> anyhow::Result<Self> {
        let described = describe(setting).await?;
        println!("{described:#}\n");
        println!(
            "{:<12} {:<62} {:>10} {:<8} {:<11} met",
            "group", "figure", "value", "unit", "goal"
        );
        Ok(Self {
            group: "",
            setting: described,
            figures: Vec::new(),
            met: 0,
            missed: Vec::new(),
        })
    }

    pub(crate) fn begin(&mut self, group: &'static str) {
        self.group = group;
    }

    /// Adds a figure without a goal.
    pub(crate) fn figure(&mut self, name: impl AsRef<str>, value: f64, unit: &str) {
        self.add(name.as_ref(), value, unit, None);
    }

    /// Adds a figure that must not be greater than its goal.
    pub(crate) fn at_most(&mut self, goal: f64, name: impl AsRef<str>, value: f64, unit: &str) {
        self.add(name.as_ref(), value, unit, Some(goal));
    }

    pub(crate) fn micros(&mut self, name: impl AsRef<str>, value: Duration) {
        self.figure(name, micros(value), "us");
    }

    pub(crate) fn millis(&mut self, name: impl AsRef<str>, value: Duration) {
        self.figure(name, value.as_secs_f64() * 1e3, "ms");
    }

    fn add(&mut self, name: &str, value: f64, unit: &str, goal: Option<f64>) {
        let met = goal.map(|goal| value <= goal);
        let shown = goal.map_or(String::new(), |goal| format!("<= {goal}"));
        let verdict = met.map_or("", |met| if met { "yes" } else { "NO" });
        println!(
            "{:<12} {name:<62} {value:>10.3} {unit:<8} {shown:<11} {verdict}",
            self.group
        );
        self.figures.push(json!({
            "group": self.group, "figure": name, "value": value, "unit": unit, "goal": goal, "met": met,
        }));
        match met {
            Some(true) => self.met += 1,
            Some(false) => self.missed.push(format!("{}: {name}", self.group)),
            None => {}
        }
    }

    /// Writes the JSON file and prints a summary.
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let path = target_directory().join("mongolock-bench.json");
        let all = json!({ "setting": self.setting, "figures": self.figures });
        std::fs::write(&path, serde_json::to_string_pretty(&all)?)?;
        println!("\n{} goals met, {} missed", self.met, self.missed.len());
        for missed in &self.missed {
            println!("  missed: {missed}");
        }
        println!("written: {}", path.display());
        Ok(())
    }
}

pub(crate) fn micros(value: Duration) -> f64 {
    value.as_secs_f64() * 1e6
}

/// The date, the server and the machine of the run, which are needed to repeat it.
async fn describe(setting: &Setting) -> anyhow::Result<Value> {
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
        "quick": setting.is_quick(),
    }))
}

fn line_of(file: &str, key: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(key));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

/// The date in UTC for a number of seconds since 1970, as `year-month-day`
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

/// Cargo's target directory: the ancestor of this program with cargo's tag file.
fn target_directory() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let tagged = executable
        .ancestors()
        .find(|directory| directory.join("CACHEDIR.TAG").is_file());
    tagged.map_or_else(|| PathBuf::from("."), Path::to_owned)
}
