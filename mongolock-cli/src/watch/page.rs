//! The lines of `watch`, and when they are written.

use std::cell::{Cell, RefCell};

use serde::Serialize;

use super::ServerClock;
use super::changes::{Change, Kind};
use crate::failure::Failure;
use crate::json::{self, rfc3339};
use crate::output::Output;
use crate::text::escaped;

/// Standard output with the lines of `watch`, and the clock of the server that dates them.
pub(super) struct Page {
    output: RefCell<Output>,
    clock: Cell<ServerClock>,
    as_json: bool,
}

impl Page {
    pub(super) fn new(as_json: bool) -> Self {
        Self {
            output: RefCell::new(Output::new()),
            clock: Cell::new(ServerClock::unknown()),
            as_json,
        }
    }

    pub(super) fn clock(&self) -> ServerClock {
        self.clock.get()
    }

    pub(super) fn set_clock(&self, clock: ServerClock) {
        self.clock.set(clock);
    }

    pub(super) fn show(&self, change: &Change) -> Result<(), Failure> {
        let at = rfc3339(self.clock().now());
        let line = if self.as_json {
            json::line(&Line::of(change, &at))
        } else {
            text(change, &at)
        };
        let mut output = self.output.borrow_mut();
        let written = output.line(line).and_then(|()| output.flush());
        // What comes after it would not be seen.
        written.map_err(Failure::finally)
    }
}

/// A line of `--json`. The help lists the fields.
#[derive(Debug, Serialize)]
struct Line<'a> {
    at: &'a str,
    event: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fencing_token: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn of(change: &'a Change, at: &'a str) -> Self {
        Self {
            at,
            event: change.kind.as_str(),
            name: &change.name,
            permit: change.permit,
            owner: change.owner.as_deref(),
            previous_owner: change.before.as_deref(),
            fencing_token: change.token,
            problem: change.problem.as_deref(),
        }
    }
}

/// A line for people.
fn text(change: &Change, at: &str) -> String {
    let problem = change.problem.as_deref().map_or_else(|| "".into(), escaped);
    let notice = match change.kind {
        Kind::Gap => "events were missed; the locks were read again".to_owned(),
        Kind::Gone => format!("no events arrive: {problem}"),
        Kind::Back => "events arrive again".to_owned(),
        _ => return of_lock(change, at),
    };
    format!("{at}  -- {notice} --")
}

fn of_lock(change: &Change, at: &str) -> String {
    let name = match change.permit {
        Some(number) => format!("{} #{number}", escaped(&change.name)),
        None => escaped(&change.name).into_owned(),
    };
    let owner = change.owner.as_deref().map_or_else(|| "-".into(), escaped);
    let before = match change.before.as_deref() {
        Some(before) => format!(" from {}", escaped(before)),
        None => String::new(),
    };
    let kind = change.kind.as_str().replace('_', " ");
    format!("{at}  {kind:<10}  {name}  {owner}{before}")
}
