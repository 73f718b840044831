//! The instructions of one call in memory.

use std::io::ErrorKind;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::program::Program;

/// The numbers of calls in the two runs whose difference is counted: the rest of the program is the same in both.
const CALLS: [u32; 2] = [1_000, 4_000];

/// The instructions of a call with the attribute and with `run`; `None` without `valgrind`.
pub(crate) fn instructions(program: &Program) -> anyhow::Result<Option<[f64; 2]>> {
    let mut counted = [0.0; 2];
    for (form, of_form) in ["attribute", "run"].into_iter().zip(&mut counted) {
        let [Some(few), Some(many)] = [count(program, form, CALLS[0])?, count(program, form, CALLS[1])?]
        else {
            return Ok(None);
        };
        *of_form = (many - few) / f64::from(CALLS[1] - CALLS[0]);
    }
    Ok(Some(counted))
}

fn count(program: &Program, form: &str, calls: u32) -> anyhow::Result<Option<f64>> {
    let counting = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program.binary())
        .args([form, &calls.to_string()])
        .output();
    let output = match counting {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    ensure!(output.status.success(), "valgrind failed: {output:?}");
    let text = String::from_utf8(output.stderr)?;
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    let (_, instructions) = collected.context("valgrind has counted nothing")?;
    Ok(Some(instructions.trim().parse()?))
}
