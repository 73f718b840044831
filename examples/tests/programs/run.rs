//! Runs a program, and reads what it prints.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use mongolock_tests::{eventually, must, shared};
use tempfile::TempDir;

use crate::executables::executable;

/// The program of this name with its arguments, which spaces separate.
pub(crate) fn program(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(executable(words.next().unwrap_or_default()));
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs a program on the server of this test process (starting another server takes longer). Its own verdict must be that all
/// checks have passed, and it must print each of these parts. Returns what it has printed.
pub(crate) async fn passes(line: &str, parts: &[&str]) -> String {
    verdict(line, 0, "All checks passed.", parts).await
}

/// Runs a program in the same way, whose own verdict must be that a check has failed.
pub(crate) async fn fails(line: &str, parts: &[&str]) -> String {
    verdict(line, 1, "FAILED: ", parts).await
}

async fn verdict(line: &str, code: i32, verdict: &str, parts: &[&str]) -> String {
    let uri = must(shared().await).uri();
    let output = must(program(line).env("MONGODB_URI", uri).output());
    let text = text(&output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.starts_with(verdict), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
    text
}

/// What was printed, with a single space between words. The errors come first, because the verdict is the last line.
pub(crate) fn text(output: &Output) -> String {
    let printed = [&output.stderr[..], &output.stdout].concat();
    let printed = String::from_utf8_lossy(&printed);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    printed.lines().map(words).collect::<Vec<_>>().join("\n")
}

/// The beginning of the name of the database of a program with this process id. It is on the command lines of the processes
/// that the program starts.
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
    /// Starts a program, and waits for a line with this text.
    pub(crate) fn start(line: &str, at_work: &str) -> Self {
        let place = must(tempfile::tempdir());
        let mut command = program(line);
        command.env_remove("MONGODB_URI").env("TMPDIR", place.path());
        let mut program = must(command.stdout(Stdio::piped()).spawn());
        let output = program.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let is_at_work = lines.any(|line| line.contains(at_work));
        assert!(is_at_work, "{line} did nothing");
        // A program without a reader would end by itself.
        std::thread::spawn(move || lines.count());
        let name = line.split(' ').next().unwrap_or_default();
        let database = database_of(name, program.id());
        let alone = Self {
            program,
            place,
            database,
        };
        let listing = processes("args");
        assert!(listing.contains(&alone.database) && listing.contains(&alone.place()));
        alone
    }

    /// Waits until a process that it has started is stopped by a signal.
    pub(crate) async fn has_one_stopped(&self) {
        let is_stopped = |line: &str| line.starts_with('T') && line.contains(&self.database);
        let stopped = || async { processes("stat,args").lines().any(is_stopped).then_some(()) };
        must(eventually(Duration::from_secs(10), "a stopped process", stopped).await);
    }

    /// Sends a signal to the program, and waits until nothing of it is left. Returns its exit code.
    pub(crate) async fn leaves_nothing_after(mut self, name: &str) -> Option<i32> {
        signal(name, self.program.id());
        let status = must(self.program.wait());
        // A killed program cannot remove the files of its own, and the directory of its server is removed for it.
        let has_files = name == "KILL" && self.database.contains("queue_workers");
        let gone = || async {
            let left = must(self.place.path().read_dir()).count();
            let listing = processes("args");
            let is_running = listing.contains(&self.database) || listing.contains(&self.place());
            (left == usize::from(has_files) && !is_running).then_some(())
        };
        let what = "end of all processes, and an empty temporary directory";
        must(eventually(Duration::from_secs(10), what, gone).await);
        status.code()
    }

    fn place(&self) -> String {
        self.place.path().to_string_lossy().into_owned()
    }
}

/// These columns of `ps` for all processes, a line for each.
fn processes(columns: &str) -> String {
    let listing = must(Command::new("ps").args(["-A", "-ww", "-o", columns]).output());
    String::from_utf8_lossy(&listing.stdout).into_owned()
}

/// The id of the worker with this number of a running program.
pub(crate) fn worker(name: &str, program: u32, number: &str) -> Option<u32> {
    let own = format!("--worker {number} --database {}", database_of(name, program));
    let processes = processes("pid,args");
    let line = processes.lines().find(|line| line.contains(&own))?;
    Some(must(line.split_whitespace().next()?.parse()))
}

/// Sends a signal such as `INT`.
pub(crate) fn signal(name: &str, pid: u32) {
    let sent = must(Command::new("kill").args(["-s", name, &pid.to_string()]).status());
    assert!(sent.success());
}
