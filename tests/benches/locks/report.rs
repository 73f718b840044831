//! The figures: a line of the table as soon as one is known, and a file with all of them at the end.

use std::path::PathBuf;

use mongolock_tests::target_directory;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::samples::{Samples, short};
use crate::setting::Setting;

/// All figures of a run.
pub(crate) struct Report {
    part: &'static str,
    /// What the figures are about.
    who: String,
    setting: Value,
    json: PathBuf,
    figures: Vec<Figure>,
}

/// A figure, as the file of the figures has it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Figure {
    group: String,
    #[serde(rename = "figure")]
    pub(crate) name: String,
    /// It is missing if the value is no number.
    pub(crate) value: Option<f64>,
    pub(crate) unit: String,
    /// The smallest and the greatest value of the turns.
    min: Option<f64>,
    max: Option<f64>,
    pub(crate) bound: Option<Goal>,
}

/// The bound that a figure shall keep.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// The least figure, divided by that of another build.
    Beside(f64),
}

impl Goal {
    pub(crate) fn text(self) -> String {
        match self {
            Self::AtMost(goal) => format!("<= {goal}"),
            Self::AtLeast(goal) => format!(">= {goal}"),
            Self::Beside(goal) => format!("(>= {goal})"),
        }
    }

    /// Whether a figure of this build meets it; `None` if that takes another build.
    pub(crate) fn is_met_by(self, value: f64) -> Option<bool> {
        match self {
            Self::AtMost(goal) => Some(value <= goal),
            Self::AtLeast(goal) => Some(value >= goal),
            Self::Beside(_) => None,
        }
    }
}

impl Report {
    pub(crate) async fn new(setting: &Setting) -> anyhow::Result<Self> {
        let json = setting.options.json.clone();
        let setting = setting.describe().await?;
        println!("{setting:#}\n");
        println!(
            "{:<13} {:<66} {:>10} {:<9} {:<19} {:<9} met",
            "part", "figure", "value", "unit", "least to greatest", "goal"
        );
        Ok(Self {
            part: "",
            who: String::new(),
            setting,
            json: json.unwrap_or_else(|| target_directory().join("mongolock-bench.json")),
            figures: Vec::new(),
        })
    }

    pub(crate) fn begin(&mut self, part: &'static str) {
        (self.part, self.who) = (part, String::new());
    }

    /// The next figures are about this; their names begin with it.
    pub(crate) fn about(&mut self, who: impl Into<String>) {
        self.who = format!("{}: ", who.into());
    }

    pub(crate) fn figure(
        &mut self,
        name: &str,
        value: impl Into<Samples>,
        unit: &str,
        goal: impl Into<Option<Goal>>,
    ) {
        let (value, goal) = (value.into(), goal.into());
        let figure = Figure {
            group: self.part.to_owned(),
            name: format!("{}{name}", self.who),
            value: Some(value.p50()),
            unit: unit.to_owned(),
            min: Some(value.min()),
            max: Some(value.max()),
            bound: goal,
        };
        println!(
            "{:<13} {:<66} {:>10} {unit:<9} {:<19} {:<9} {}",
            self.part,
            figure.name,
            short(value.p50()),
            value.range(),
            goal.map(Goal::text).unwrap_or_default(),
            verdict(figure.is_met())
        );
        self.figures.push(figure);
    }

    /// Writes the file of the figures, and sums up.
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let all = json!({ "setting": self.setting, "figures": self.figures });
        std::fs::write(&self.json, serde_json::to_string_pretty(&all)?)?;
        let figures = || self.figures.iter();
        let with = |met| figures().filter(move |figure| figure.is_met() == Some(met));
        let (met, missed) = (with(true).count(), with(false).count());
        println!("\n{met} goals met, {missed} missed");
        for missed in with(false) {
            println!("  missed: {}: {}", missed.group, missed.name);
        }
        println!("written: {}", self.json.display());
        Ok(())
    }
}

impl Figure {
    fn is_met(&self) -> Option<bool> {
        self.bound?.is_met_by(self.value.unwrap_or(f64::NAN))
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
