//! The lines of `watch`, and when they are written.

use std::cell::RefCell;

use mongodb::bson::DateTime;
use mongolock::{LockEvent, LockEventKind};
use serde::Serialize;

use crate::failure::Failure;
use crate::json::{self, rfc3339};
use crate::output::StandardOutput;
use crate::text::escaped;

/// Standard output with the lines of `watch`.
pub(super) struct WatchPage {
    output: RefCell<StandardOutput>,
    as_json: bool,
}

/// Whether a primary replies.
pub(super) enum Pulse {
    /// No primary replies, with the reason.
    Gone(String),
    /// A primary replies again.
    Back,
}

impl WatchPage {
    pub(super) fn new(as_json: bool) -> Self {
        Self {
            output: RefCell::new(StandardOutput::new()),
            as_json,
        }
    }

    /// Shows a change. The present holds are not changes.
    pub(super) fn show(&self, event: &LockEvent) -> Result<(), Failure> {
        if event.kind == LockEventKind::Held {
            return Ok(());
        }
        self.write(if self.as_json {
            json::line(event)
        } else {
            text(event)
        })
    }

    pub(super) fn show_pulse(&self, pulse: &Pulse) -> Result<(), Failure> {
        let (event, problem) = match pulse {
            Pulse::Gone(problem) => ("gone", Some(problem.as_str())),
            Pulse::Back => ("back", None),
        };
        // No server reports the time of this event.
        let at = rfc3339(DateTime::now());
        self.write(match (self.as_json, problem) {
            (true, problem) => json::line(&PulseLine { at, event, problem }),
            (false, Some(problem)) => notice(&at, &format!("no events arrive: {}", escaped(problem))),
            (false, None) => notice(&at, "events arrive again"),
        })
    }

    fn write(&self, line: String) -> Result<(), Failure> {
        let mut output = self.output.borrow_mut();
        output.line(line)?;
        output.flush()
    }
}

/// A line of `--json` that is not about a lock. The help lists the fields.
#[derive(Debug, Serialize)]
struct PulseLine<'a> {
    at: String,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

fn notice(at: &str, text: &str) -> String {
    format!("{at}  -- {text} --")
}

/// A line for people.
fn text(event: &LockEvent) -> String {
    let at = rfc3339(event.at);
    if let (LockEventKind::Gap, Some(since)) = (event.kind, event.since) {
        let since = rfc3339(since);
        return notice(
            &at,
            &format!("events since {since} were missed; the locks were read again"),
        );
    }
    if event.name.is_empty() {
        return notice(&at, "the collection was dropped or renamed");
    }
    let name = match event.permit {
        Some(number) => format!("{} #{number}", escaped(&event.name)),
        None => escaped(&event.name).into_owned(),
    };
    let owner = event.owner.as_deref().map_or_else(|| "-".into(), escaped);
    let before = match event.previous_owner.as_deref() {
        Some(before) => format!(" from {}", escaped(before)),
        None => String::new(),
    };
    let kind = event.kind.as_str().replace('_', " ");
    format!("{at}  {kind:<10}  {name}  {owner}{before}")
}
