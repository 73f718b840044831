//! Runs a program, and reads what it prints.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mongolock_tests::{eventually, must, shared};
use tempfile::TempDir;

/// The last line of a run without failures.
pub(crate) const PASSED: &str = "All checks passed.";

/// The program behind `CARGO_BIN_EXE_...` with these arguments.
pub(crate) fn program(path: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(path);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a program on the server of this test process (starting another server takes longer). Its checks must pass.
pub(crate) async fn passes(program: Command) -> Text {
    let (code, text) = on_shared(program).await;
    assert_eq!((code, text.last_line()), (Some(0), PASSED), "{text:?}");
    text
}

/// Runs a program in the same way, whose checks must fail.
pub(crate) async fn fails(program: Command) -> Text {
    let (code, text) = on_shared(program).await;
    let is_verdict = text.last_line().starts_with("FAILED: ");
    assert!(code == Some(1) && is_verdict, "{code:?}: {text:?}");
    text
}

async fn on_shared(mut program: Command) -> (Option<i32>, Text) {
    let uri = must(shared().await).uri();
    let output = must(program.env("MONGODB_URI", uri).output());
    // The harness shows it if the test fails.
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout);
    let text = Text(lines.lines().map(str::to_owned).collect());
    (output.status.code(), text)
}

/// Runs a program that ends with an error before it prints anything, and returns the message.
pub(crate) fn error_of(program: &mut Command) -> String {
    let output = must(program.output());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && output.stdout.is_empty(),
        "{output:?}"
    );
    assert!(
        message.contains("Error: ") && !message.contains("panicked"),
        "{message}"
    );
    message
}

/// The lines that a program has printed.
#[derive(Debug)]
pub(crate) struct Text(Vec<String>);

impl Text {
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub(crate) fn last_line(&self) -> &str {
        self.lines().last().unwrap_or_default()
    }

    /// The lines of a table: those that begin with a space, as words.
    pub(crate) fn table(&self) -> impl Iterator<Item = Vec<&str>> {
        let table = self.lines().filter(|line| line.starts_with(' '));
        table.map(|line| line.split_whitespace().collect())
    }

    /// Asserts that each of these is a line, whatever the spaces between its words.
    #[track_caller]
    pub(crate) fn has_lines(&self, wanted: &[&str]) {
        for wanted in wanted {
            assert!(
                self.lines().any(|line| words(line) == *wanted),
                "{wanted}: {self:?}"
            );
        }
    }

    /// How many lines contain a text.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.lines().filter(|line| line.contains(part)).count()
    }
}

/// The words of a line with one space between them.
pub(crate) fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The beginning of the name of the database of a program with this process id. It is on the command lines of the
/// processes that the program starts.
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
