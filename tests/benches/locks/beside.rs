//! Two builds of this program in turns: the same group in both, and the figures of this one divided by those of the other.
//!
//! Each turn is a process with a server of its own and one turn of each comparison. The builds take turns in the order.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use serde::Deserialize;
use tokio::process::Command;

use crate::report::{Goal, short, verdict};
use crate::samples::Turns;
use crate::setting::Options;

/// The figures of one process, as it has written them.
#[derive(Deserialize)]
struct Figures {
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Figure {
    #[serde(rename = "figure")]
    name: String,
    /// It may be missing: a value that is no number.
    value: Option<f64>,
    unit: String,
    beside: Option<Goal>,
}

/// Runs a group in turns in this build and the other one, and prints the figures that both have.
pub(crate) async fn run(group: &str, other: &Path, options: &Options) -> anyhow::Result<()> {
    let builds = [std::env::current_exe()?, other.to_owned()];
    let mut turns = Vec::new();
    for turn in 0..options.turns.unwrap_or(if options.quick { 3 } else { 5 }) {
        let mut of_turn = [None, None];
        for step in 0..2 {
            let index = (turn + step) % 2;
            of_turn[index] = Some(measure(&builds[index], group, options).await?);
        }
        if let [Some(this), Some(other)] = of_turn {
            turns.push([this, other]);
        }
    }
    println!(
        "{group}, {} turns\n{:<66} {:>10} {:>10} {:<9} {:>7} {:<19} {:<8} met",
        turns.len(),
        "figure",
        "this",
        "other",
        "unit",
        "ratio",
        "least to greatest",
        "goal"
    );
    let first = turns.first().map(|[this, _]| this.figures.as_slice());
    first
        .unwrap_or_default()
        .iter()
        .for_each(|figure| print(figure, &turns));
    Ok(())
}

/// The figures of one turn of one build.
async fn measure(build: &Path, group: &str, options: &Options) -> anyhow::Result<Figures> {
    let json = std::env::temp_dir().join(format!("mongolock-bench-{}.json", std::process::id()));
    let mut command = Command::new(build);
    command
        .args(["--bench", "--only", group, "--turns", "1", "--json"])
        .arg(&json);
    for (is_set, word) in [(options.quick, "--quick"), (options.is_new, "--new")] {
        command.args(is_set.then_some(word));
    }
    eprintln!("{group} in {}", build.display());
    let output = command.stderr(Stdio::inherit()).output().await;
    let output = output.with_context(|| format!("cannot run {}", build.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{} has failed: {said}", build.display());
    let figures = serde_json::from_slice(&std::fs::read(&json)?)?;
    std::fs::remove_file(json)?;
    Ok(figures)
}

fn print(figure: &Figure, turns: &[[Figures; 2]]) {
    let of = |figures: &Figures| {
        let same = figures.figures.iter().find(|one| one.name == figure.name);
        same.and_then(|same| same.value)
    };
    let pairs = turns
        .iter()
        .filter_map(|[this, other]| Some((of(this)?, of(other)?)));
    let (mut this, mut other, mut ratios) = (Turns::default(), Turns::default(), Turns::default());
    for (own, others) in pairs {
        this.add(own);
        other.add(others);
        // Two zeros have no ratio.
        if own != 0.0 || others != 0.0 {
            ratios.add(own / others);
        }
    }
    if ratios.is_empty() {
        return;
    }
    let is_met = figure.beside.map(|goal| goal.is_met_by(ratios.median()));
    println!(
        "{:<66} {:>10} {:>10} {:<9} {:>7} {:<19} {:<8} {}",
        figure.name,
        short(this.median()),
        short(other.median()),
        figure.unit,
        short(ratios.median()),
        format!("{} to {}", short(ratios.min()), short(ratios.max())),
        figure.beside.map_or(String::new(), |goal| goal.to_string()),
        verdict(is_met)
    );
}
