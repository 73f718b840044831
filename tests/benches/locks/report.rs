//! The figures: a line of the table as soon as one is known, and files with all of them at the end.

use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::describe::describe;
use crate::samples::{Turns, number};
use crate::setting::Setting;

/// All figures of a run.
pub(crate) struct Report {
    group: &'static str,
    setting: Value,
    json: PathBuf,
    figures: Vec<Figure>,
}

struct Figure {
    group: &'static str,
    name: String,
    value: f64,
    /// The smallest and the greatest value of the turns.
    spread: Option<(f64, f64)>,
    unit: &'static str,
    goal: Option<Goal>,
    /// The goal of the figure, divided by that of another build.
    beside: Option<Goal>,
}

/// The bound that a figure shall keep.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    pub(crate) fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(goal) => value <= goal,
            Self::AtLeast(goal) => value >= goal,
        }
    }
}

impl Display for Goal {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(goal) => write!(f, "<= {goal}"),
            Self::AtLeast(goal) => write!(f, ">= {goal}"),
        }
    }
}

/// What is a figure: a value, a count, or the median of turns.
pub(crate) trait Quantity {
    /// The value, with the smallest and the greatest one of turns.
    fn measured(self) -> (f64, Option<(f64, f64)>);
}

impl Quantity for f64 {
    fn measured(self) -> (f64, Option<(f64, f64)>) {
        (self, None)
    }
}

impl Quantity for usize {
    fn measured(self) -> (f64, Option<(f64, f64)>) {
        (number(self), None)
    }
}

impl Quantity for &Turns {
    fn measured(self) -> (f64, Option<(f64, f64)>) {
        (self.median(), Some((self.min(), self.max())))
    }
}

impl Report {
    pub(crate) async fn new(setting: &Setting) -> anyhow::Result<Self> {
        let json = setting.options().json.clone();
        let setting = describe(setting).await?;
        println!("{setting:#}\n");
        println!(
            "{:<13} {:<66} {:>10} {:<9} {:<19} {:<8} met",
            "group", "figure", "value", "unit", "least to greatest", "goal"
        );
        Ok(Self {
            group: "",
            setting,
            json: json.unwrap_or_else(|| target_directory().join("mongolock-bench.json")),
            figures: Vec::new(),
        })
    }

    pub(crate) fn begin(&mut self, group: &'static str) {
        self.group = group;
    }

    /// A figure without a goal.
    pub(crate) fn figure(&mut self, name: impl Into<String>, value: impl Quantity, unit: &'static str) {
        self.add(name.into(), value, unit, None, None);
    }

    /// A figure that is compared with that of another build: divided by it, it shall not be less than this goal, if there is
    /// one.
    pub(crate) fn beside(
        &mut self,
        goal: impl Into<Option<f64>>,
        name: impl Into<String>,
        value: impl Quantity,
        unit: &'static str,
    ) {
        self.add(name.into(), value, unit, None, goal.into().map(Goal::AtLeast));
    }

    /// A figure that shall not be greater than its goal, if it has one.
    pub(crate) fn at_most(
        &mut self,
        goal: impl Into<Option<f64>>,
        name: impl Into<String>,
        value: impl Quantity,
        unit: &'static str,
    ) {
        self.add(name.into(), value, unit, goal.into().map(Goal::AtMost), None);
    }

    /// A figure that shall not be less than its goal, if it has one.
    pub(crate) fn at_least(
        &mut self,
        goal: impl Into<Option<f64>>,
        name: impl Into<String>,
        value: impl Quantity,
        unit: &'static str,
    ) {
        self.add(name.into(), value, unit, goal.into().map(Goal::AtLeast), None);
    }

    pub(crate) fn micros(&mut self, name: impl Into<String>, value: Duration) {
        self.figure(name, micros(value), "us");
    }

    pub(crate) fn millis(&mut self, name: impl Into<String>, value: Duration) {
        self.figure(name, value.as_secs_f64() * 1e3, "ms");
    }

    fn add(
        &mut self,
        name: String,
        quantity: impl Quantity,
        unit: &'static str,
        goal: Option<Goal>,
        beside: Option<Goal>,
    ) {
        let (value, spread) = quantity.measured();
        let figure = Figure {
            group: self.group,
            name,
            value,
            spread,
            unit,
            goal,
            beside,
        };
        figure.print();
        self.figures.push(figure);
    }

    /// Prints the table for a document, writes the JSON, and sums up.
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        println!("\n| work | figure | measured | goal |\n|---|---|---|---|");
        for figure in &self.figures {
            println!("{}", figure.row());
        }
        let figures: Vec<Value> = self.figures.iter().map(Figure::to_json).collect();
        let all = json!({ "setting": self.setting, "figures": figures });
        std::fs::write(&self.json, serde_json::to_string_pretty(&all)?)?;
        let with = |met| {
            self.figures
                .iter()
                .filter(move |figure| figure.is_met() == Some(met))
        };
        println!(
            "\n{} goals met, {} missed",
            with(true).count(),
            with(false).count()
        );
        for missed in with(false) {
            println!("  missed: {}: {}", missed.group, missed.name);
        }
        println!("written: {}", self.json.display());
        Ok(())
    }
}

impl Figure {
    fn is_met(&self) -> Option<bool> {
        self.goal.map(|goal| goal.is_met_by(self.value))
    }

    fn goal(&self) -> String {
        self.goal.map_or(String::new(), |goal| goal.to_string())
    }

    fn print(&self) {
        let spread = self.spread.map_or(String::new(), |(min, max)| {
            format!("{} to {}", short(min), short(max))
        });
        println!(
            "{:<13} {:<66} {:>10} {:<9} {spread:<19} {:<8} {}",
            self.group,
            self.name,
            short(self.value),
            self.unit,
            self.goal(),
            verdict(self.is_met())
        );
    }

    /// The figure as a row of a Markdown table.
    fn row(&self) -> String {
        let spread = self.spread.map_or(String::new(), |(min, max)| {
            format!(" ({} to {})", short(min), short(max))
        });
        let missed = if self.is_met() == Some(false) {
            ", missed"
        } else {
            ""
        };
        format!(
            "| {} | {} | {} {}{spread}{missed} | {} |",
            self.group,
            self.name,
            short(self.value),
            self.unit,
            self.goal()
        )
    }

    fn to_json(&self) -> Value {
        let (min, max) = self.spread.unzip();
        json!({
            "group": self.group, "figure": self.name, "value": self.value, "unit": self.unit,
            "min": min, "max": max, "goal": self.goal(), "met": self.is_met(),
            "beside": self.beside,
        })
    }
}

/// The word for a goal that is met or missed, if there is one.
pub(crate) fn verdict(is_met: Option<bool>) -> &'static str {
    match is_met {
        Some(true) => "yes",
        Some(false) => "missed",
        None => "",
    }
}

/// A number with three digits, or with all of those before its point.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

pub(crate) fn micros(value: Duration) -> f64 {
    value.as_secs_f64() * 1e6
}

/// Cargo's target directory, wherever it is.
fn target_directory() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let tagged = executable
        .ancestors()
        .find(|directory| directory.join("CACHEDIR.TAG").is_file());
    tagged.map_or_else(|| PathBuf::from("."), Path::to_owned)
}
