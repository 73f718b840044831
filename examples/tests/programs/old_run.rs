#![allow(dead_code)]
//! Runs a program and reads what it says.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use mongolock_tests::{eventually, must, shared};
use tempfile::TempDir;

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

/// Its help names all of these, and nothing that is meant for the processes that it starts.
pub(crate) fn help_names(mut program: Command, named: &[&str], internal: &[&str]) {
    let output = must(program.output());
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output);
    for name in named {
        assert!(help.contains(name), "{name}: {help}");
    }
    for name in internal {
        assert!(!help.contains(name), "{name}: {help}");
    }
}

/// It refuses its command line, before anything is started, with a message that says all of this.
pub(crate) fn refuses(mut program: Command, said: &[&str]) {
    let output = must(program.output());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.iter().all(|part| message.contains(part)),
        "{said:?}: {message}"
    );
    assert!(!message.contains("Starting"), "{message}");
}

/// The beginning of the name of the database that the program of this process works in, which the processes that it
/// starts have on their command lines.
pub(crate) fn database_of(name: &str, pid: u32) -> String {
    format!("mongolock_{name}_{pid}_")
}

/// A program at work on a server of its own, in a temporary directory of its own.
pub(crate) struct Alone {
    program: Child,
    place: TempDir,
    database: String,
}

impl Alone {
    /// Starts the program of this name, and waits for the first line of its table.
    pub(crate) fn start(name: &str, program: Command) -> Self {
        Self::start_until(|line| line.starts_with(' '), name, program)
    }

    /// Starts the program of this name, and waits for such a line.
    pub(crate) fn start_until(at_work: impl Fn(&str) -> bool, name: &str, mut program: Command) -> Self {
        let place = must(tempfile::tempdir());
        let mut program = must(
            program
                .env_remove("MONGODB_URI")
                .env("TMPDIR", place.path())
                .stdout(Stdio::piped())
                .spawn(),
        );
        let output = program.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        assert!(lines.any(|line| at_work(&line)), "it did nothing");
        // A program without a reader would end by itself.
        std::thread::spawn(move || lines.count());
        let database = database_of(name, program.id());
        let alone = Self {
            program,
            place,
            database,
        };
        assert!(is_running(&alone.database) && is_running(&alone.place()));
        alone
    }

    /// Waits until a process that it has started is stopped by a signal.
    #[cfg(unix)]
    pub(crate) async fn has_one_stopped(&self) {
        let stopped = || async {
            let listing = processes("stat,args");
            let is_stopped = |line: &str| line.starts_with('T') && line.contains(&self.database);
            listing.lines().any(is_stopped).then_some(())
        };
        must(eventually(Duration::from_secs(10), "a stopped process", stopped).await);
    }

    pub(crate) async fn killed_leaves_nothing(mut self) {
        must(self.program.kill());
        must(self.program.wait());
        self.leaves_nothing().await;
    }

    #[cfg(unix)]
    pub(crate) async fn interrupted_leaves_nothing(mut self) {
        signal("INT", self.program.id());
        assert_eq!(must(self.program.wait()).code(), Some(130));
        self.leaves_nothing().await;
    }

    async fn leaves_nothing(&self) {
        let gone = || async {
            let empty = must(self.place.path().read_dir()).next().is_none();
            let running = is_running(&self.database) || is_running(&self.place());
            (empty && !running).then_some(())
        };
        let what = "end of all processes, and an empty temporary directory";
        must(eventually(Duration::from_secs(10), what, gone).await);
    }

    fn place(&self) -> String {
        self.place.path().to_string_lossy().into_owned()
    }
}

/// Whether a process has `text` on its command line.
fn is_running(text: &str) -> bool {
    processes("args").contains(text)
}

/// These columns of `ps` for all processes, a line for each.
pub(crate) fn processes(columns: &str) -> String {
    let listing = must(Command::new("ps").args(["-A", "-ww", "-o", columns]).output());
    String::from_utf8_lossy(&listing.stdout).into_owned()
}

/// Sends a signal such as `INT`.
#[cfg(unix)]
pub(crate) fn signal(name: &str, pid: u32) {
    let sent = must(Command::new("kill").args(["-s", name, &pid.to_string()]).status());
    assert!(sent.success());
}
