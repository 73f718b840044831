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

/// The running processes of this machine: a line for each, with its id and its command line.
pub(crate) fn processes() -> String {
    let listing = must(Command::new("ps").args(["-A", "-ww", "-o", "pid,args"]).output());
    String::from_utf8_lossy(&listing.stdout).into_owned()
}

/// Sends a signal such as `-INT`.
#[cfg(unix)]
pub(crate) fn signal(signal: &str, pid: &str) {
    assert!(must(Command::new("kill").args([signal, pid]).status()).success());
}
