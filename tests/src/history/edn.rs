//! Histories as text for other checkers: a map in EDN for each step, as those of Jepsen write them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{End, Event, History, Outcome, Step};

/// The environment variable that names the directory of the histories.
const DIRECTORY: &str = "MONGOLOCK_HISTORIES";

/// The number of histories that this process has written, so that each has a file of its own.
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

type Task = (usize, usize);
/// The operations while the steps are read.
#[derive(Default)]
struct Writing {
    text: String,
    /// The number of each task in the text. After an operation without an outcome the task gets another one.
    numbers: HashMap<Task, usize>,
    last_number: usize,
    /// What a task does that has no outcome yet.
    open: HashMap<Task, &'static str>,
    holding: BTreeSet<Task>,
    killed: HashSet<usize>,
}

impl History {
    /// Writes the history to a file of its own in the directory that `MONGOLOCK_HISTORIES` names, if it names one.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn save(&self, title: &str) {
        let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
            return;
        };
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let file = directory.join(format!("{title}-{number}.edn"));
        let written = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&file, self.edn()));
        written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// The operations on the lock in the order of time. A lease that ends at the server is a release without an outcome, which
    /// begins when its process is killed, is stopped, or notices the loss.
    pub(super) fn edn(&self) -> String {
        let (mut writing, holds) = (Writing::default(), self.holds());
        for event in &self.events() {
            let loses = |task: &Task| {
                let mut of_task = holds.iter().filter(|hold| (hold.process, hold.task) == *task);
                of_task.any(|hold| hold.end == End::Lost && (hold.begun..=hold.ended).contains(&event.at))
            };
            writing.read(event, loses);
        }
        writing.text
    }
}

impl Writing {
    fn read(&mut self, event: &Event, loses: impl Fn(&Task) -> bool) {
        let (task, at) = ((event.process, event.task), event.at);
        // A kill is noted before it, so the last steps of its process may come a little later.
        if self.killed.contains(&event.process) {
            return;
        }
        match &event.step {
            Step::Invoke => self.begin(task, at, "acquire"),
            Step::Acquired { token, .. } => {
                self.holding.insert(task);
                self.end(task, at, "ok", *token, None);
            }
            Step::NotAcquired { error, is_unknown } => {
                let how = if *is_unknown { "info" } else { "fail" };
                self.end(task, at, how, None, Some(error));
            }
            Step::Ended { is_lost: true } => self.lose(at, |holder| *holder == task),
            Step::Ended { is_lost: false } => {
                self.holding.remove(&task);
                self.begin(task, at, "release");
            }
            Step::Released(Outcome::Ok) => self.end(task, at, "ok", None, None),
            // The lock was free already, or may be.
            Step::Released(Outcome::Failed(error) | Outcome::Unknown(error)) => {
                self.end(task, at, "info", None, Some(error));
            }
            Step::Stopped => self.lose(at, |holder| holder.0 == event.process && loses(holder)),
            Step::Killed => {
                self.lose(at, |holder| holder.0 == event.process);
                self.killed.insert(event.process);
            }
            Step::Written { .. } | Step::Continued => {}
        }
    }

    /// The leases of these tasks end at the server from now on.
    fn lose(&mut self, at: Duration, is_meant: impl Fn(&Task) -> bool) {
        let lost: Vec<Task> = self.holding.iter().copied().filter(is_meant).collect();
        for task in lost {
            self.holding.remove(&task);
            self.begin(task, at, "release");
            self.end(task, at, "info", None, Some("the lease ends"));
        }
    }

    fn begin(&mut self, task: Task, at: Duration, what: &'static str) {
        if self.open.insert(task, what).is_some() {
            self.numbers.remove(&task);
        }
        self.line(task, at, ("invoke", what), None, None);
    }

    fn end(&mut self, task: Task, at: Duration, how: &str, token: Option<i64>, error: Option<&str>) {
        let Some(what) = self.open.remove(&task) else {
            return;
        };
        self.line(task, at, (how, what), token, error);
        if how == "info" {
            self.numbers.remove(&task);
        }
    }

    fn line(&mut self, task: Task, at: Duration, op: (&str, &str), token: Option<i64>, error: Option<&str>) {
        let next = self.last_number;
        let number = *self.numbers.entry(task).or_insert(next);
        self.last_number += usize::from(number == next);
        let value = token.map_or("nil".to_owned(), |token| token.to_string());
        let error = error.map_or(String::new(), |error| format!(", :error {}", quoted(error)));
        let ((how, what), time) = (op, at.as_nanos());
        let map =
            format!("{{:process {number}, :type :{how}, :f :{what}, :value {value}, :time {time}{error}}}");
        let _ = writeln!(self.text, "{map}");
    }
}

/// A text as a string of EDN.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|part| match part {
        '"' | '\\' => format!("\\{part}"),
        control if control.is_control() => format!("\\u{:04x}", u32::from(control)),
        other => other.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests;
