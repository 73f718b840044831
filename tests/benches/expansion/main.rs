//! The cost of an annotated function: the processor time that it takes to compile in release mode, the size that it adds to the
//! program and to its future, and the instructions of a call compared with the closure form `run`.
//!
//! `cargo bench -p mongolock-tests --bench expansion` generates a program below cargo's target directory and builds it
//! with annotated and with plain functions, in turns. The difference is the cost of the attribute. The instructions are
//! counted by `valgrind`, and left out without it. `MONGOLOCK=<folder>` measures another version of the library.

mod call;
mod program;

use anyhow::Context;

use crate::program::{FUNCTIONS, Form, Program};

/// The number of builds of each form; the fastest one counts, because other work on the machine only makes a build slower.
const BUILDS: usize = 5;

fn main() -> anyhow::Result<()> {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("nothing is measured: run `cargo bench` instead of `cargo test`");
        return Ok(());
    }
    let program = Program::new()?;
    let builds = program.build_in_turns(BUILDS)?;
    let per_function =
        |of: &dyn Fn(Form) -> f64| (of(Form::Annotated) - of(Form::Plain)) / f64::from(FUNCTIONS);
    row(
        "processor time to compile a function",
        per_function(&|form| builds.of(form).time * 1e3),
        "ms",
    );
    row(
        "size of a function in the program",
        per_function(&|form| builds.of(form).bytes / 1024.0),
        "KiB",
    );
    let output = program.run(&["size"]).context("the sizes of the futures")?;
    row(
        "size that a lock adds to a future",
        output.trim().parse()?,
        "bytes",
    );
    match call::instructions(&program)? {
        Some([attribute, run]) => {
            row("instructions of a call: attribute", attribute, "");
            row("instructions of a call: `run`", run, "");
            row("attribute / `run`", attribute / run, "x");
        }
        None => println!("the instructions are not counted: `valgrind` is not installed"),
    }
    Ok(())
}

fn row(label: &str, value: f64, unit: &str) {
    println!("{label:<40} {value:>10.3} {unit}");
}
