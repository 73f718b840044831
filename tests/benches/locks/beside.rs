//! Two builds of this program in turns: the same in both, and the figures of this one divided by those of the other.
//!
//! Each turn is a process with a server of its own and one turn of each comparison. The builds take turns in the order.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use serde::Deserialize;
use tokio::process::Command;

use crate::report::{Figure, Goal, verdict};
use crate::samples::{Samples, short};
use crate::setting::Options;

/// The file of the figures of one process.
#[derive(Deserialize)]
struct Figures {
    figures: Vec<Figure>,
}

impl Figures {
    fn of(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name)?.value
    }
}

/// Runs a group or a part in turns in this build and the other one, and prints the figures that both have.
pub(crate) async fn run(only: &str, other: &Path, options: &Options) -> anyhow::Result<()> {
    let this = std::env::current_exe()?;
    let mut turns = Vec::new();
    for turn in 0..options.turns.unwrap_or(if options.quick { 3 } else { 5 }) {
        turns.push(if turn % 2 == 0 {
            let of_this = measure(&this, only, options).await?;
            [of_this, measure(other, only, options).await?]
        } else {
            let of_other = measure(other, only, options).await?;
            [measure(&this, only, options).await?, of_other]
        });
    }
    let number = turns.len();
    println!("{only}, {number} turns: figure, this, other, unit, ratio, least to greatest, goal, met");
    if let Some([first, _]) = turns.first() {
        first.figures.iter().for_each(|figure| print(figure, &turns));
    }
    Ok(())
}

/// The figures of one turn of one build.
async fn measure(build: &Path, only: &str, options: &Options) -> anyhow::Result<Figures> {
    let json = std::env::temp_dir().join(format!("mongolock-bench-{}.json", std::process::id()));
    let mut command = Command::new(build);
    command.args(["--bench", "--only", only, "--turns", "1", "--json"]);
    command.arg(&json).args(options.quick.then_some("--quick"));
    eprintln!("{only} in {}", build.display());
    let output = command.stderr(Stdio::inherit()).output().await;
    let output = output.with_context(|| format!("cannot run {}", build.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{} has failed: {said}", build.display());
    let figures = serde_json::from_slice(&std::fs::read(&json)?)?;
    std::fs::remove_file(json)?;
    Ok(figures)
}

fn print(figure: &Figure, turns: &[[Figures; 2]]) {
    let of = |[this, other]: &[Figures; 2]| Some([this.of(&figure.name)?, other.of(&figure.name)?]);
    let pairs: Vec<[f64; 2]> = turns.iter().filter_map(of).collect();
    // Two zeros have no ratio.
    let with_ratio = pairs.iter().filter(|pair| **pair != [0.0, 0.0]);
    let ratios: Vec<f64> = with_ratio.map(|[this, other]| this / other).collect();
    if ratios.is_empty() {
        return;
    }
    let [this, other] = [0, 1].map(|build| pairs.iter().map(|pair| pair[build]).collect::<Samples>());
    let ratios: Samples = ratios.into_iter().collect();
    let goal = match figure.bound {
        Some(Goal::Beside(least)) => Some(Goal::AtLeast(least)),
        _ => None,
    };
    let is_met = goal.and_then(|goal| goal.is_met_by(ratios.p50()));
    println!(
        "{:<66} {:>10} {:>10} {:<9} {:>7} {:<19} {:<9} {}",
        figure.name,
        short(this.p50()),
        short(other.p50()),
        figure.unit,
        short(ratios.p50()),
        ratios.range(),
        goal.map(Goal::text).unwrap_or_default(),
        verdict(is_met)
    );
}
