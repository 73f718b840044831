//! Runs a program and reads what it says.

use std::process::{Command, Output, Stdio};

use mongolock_tests::{must, shared};

/// The program behind `CARGO_BIN_EXE_..` with these arguments.
pub(crate) fn program(path: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(path);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs it on the server of this test process, which saves the start of another one.
pub(crate) async fn on_shared(mut program: Command) -> Output {
    let uri = must(shared().await).uri();
    must(program.env("MONGODB_URI", uri).output())
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a line of the output has these words, whatever the spaces of its columns.
pub(crate) fn has_line(output: &Output, wanted: &str) -> bool {
    text(output)
        .lines()
        .any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == wanted)
}

/// Whether a process has `text` on its command line.
pub(crate) fn is_running(text: &str) -> bool {
    processes("args").contains(text)
}

/// These columns of all processes of this machine, a line for each.
pub(crate) fn processes(columns: &str) -> String {
    let listing = must(Command::new("ps").args(["-A", "-ww", "-o", columns]).output());
    String::from_utf8_lossy(&listing.stdout).into_owned()
}
