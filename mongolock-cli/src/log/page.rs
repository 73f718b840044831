//! The lines of `log`.

use std::time::Duration;

use jiff::tz::TimeZone;
use mongodb::bson::DateTime;
use serde::Serialize;

use super::turns::{Turn, TurnEnd};
use crate::columns::{ColumnKind, Columns};
use crate::failure::Failure;
use crate::json::{self, rfc3339};
use crate::output::StandardOutput;
use crate::text::{escaped, short};
use crate::times;

/// Standard output with the turns, as a table or as JSON.
pub(super) struct LogPage {
    output: StandardOutput,
    as_json: bool,
    zone: TimeZone,
}

impl LogPage {
    pub(super) fn new(as_json: bool, zone: TimeZone) -> Self {
        Self {
            output: StandardOutput::new(),
            as_json,
            zone,
        }
    }

    /// The first line: how far back the oplog goes. It is written before the past is read.
    pub(super) fn begin(&mut self, earliest: Option<DateTime>, now: DateTime) -> Result<(), Failure> {
        self.output.line(if self.as_json {
            let remembers_since = earliest.map(rfc3339);
            json::line(&First { remembers_since })
        } else {
            let remembers = match earliest {
                Some(time) => times::shown(time, &self.zone),
                None => "it was set up".to_owned(),
            };
            let zone = times::name(&self.zone, now);
            format!("the server remembers since {remembers} (times of {zone})")
        })?;
        self.output.flush()
    }

    /// Shows the turns. If there are none, a table says in which collection; JSON has no lines.
    pub(super) fn show(&mut self, turns: &[Turn], now: DateTime, place: &str) -> Result<(), Failure> {
        if self.as_json {
            for turn in turns {
                self.output.line(json::line(&TurnLine::of(turn, now)))?;
            }
        } else if !turns.is_empty() {
            self.table(turns, now)?;
        } else if self.output.is_terminal() {
            self.output.line(format!("no turns in {}", escaped(place)))?;
        }
        self.output.flush()
    }

    fn table(&mut self, turns: &[Turn], now: DateTime) -> Result<(), Failure> {
        let mut columns = Columns::new([
            ("NAME", ColumnKind::Long),
            ("OWNER", ColumnKind::Long),
            ("FROM", ColumnKind::Word),
            ("TO", ColumnKind::Word),
            ("HELD", ColumnKind::Number),
            ("END", ColumnKind::Word),
        ]);
        let rows: Vec<[String; 6]> = turns.iter().map(|turn| self.row(turn, now)).collect();
        for row in &rows {
            columns.widen(row);
        }
        let widths = columns.widths(self.output.columns());
        for row in [columns.headings()].iter().chain(&rows) {
            self.output.line(columns.line(row, &widths))?;
        }
        Ok(())
    }

    fn row(&self, turn: &Turn, now: DateTime) -> [String; 6] {
        let unknown = || "?".to_owned();
        let time = |time: Option<DateTime>| time.map_or_else(unknown, |time| times::shown(time, &self.zone));
        let name = escaped(&turn.key.name);
        [
            match turn.key.permit {
                Some(number) => format!("{name} #{number}"),
                None => name.into_owned(),
            },
            turn.hold
                .owner
                .as_deref()
                .map_or_else(unknown, |owner| escaped(owner).into_owned()),
            time(turn.hold.acquired_at),
            if turn.end == TurnEnd::Held {
                "-".to_owned()
            } else {
                time(turn.to)
            },
            held(turn, now).map_or_else(unknown, short),
            match turn.end {
                TurnEnd::ExpiredBy => "expired by then",
                end => end.as_str(),
            }
            .to_owned(),
        ]
    }
}

/// How long the lock was held, or was at most.
fn held(turn: &Turn, now: DateTime) -> Option<Duration> {
    let to = if turn.end == TurnEnd::Held { now } else { turn.to? };
    let millis = to
        .timestamp_millis()
        .saturating_sub(turn.hold.acquired_at?.timestamp_millis());
    Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}

/// The first line of `--json`: from when on the oplog has the events.
#[derive(Debug, Serialize)]
struct First {
    remembers_since: Option<String>,
}

/// The line of a turn in `--json`. The help lists the fields.
#[derive(Debug, Serialize)]
struct TurnLine<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permit: Option<u32>,
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fencing_token: Option<i64>,
    from: Option<String>,
    to: Option<String>,
    held_ms: Option<u64>,
    end: &'static str,
}

impl<'a> TurnLine<'a> {
    fn of(turn: &'a Turn, now: DateTime) -> Self {
        Self {
            name: &turn.key.name,
            permit: turn.key.permit,
            owner: turn.hold.owner.as_deref(),
            fencing_token: turn.hold.token,
            from: turn.hold.acquired_at.map(rfc3339),
            to: turn.to.map(rfc3339),
            held_ms: held(turn, now).map(json::millis),
            end: turn.end.as_str(),
        }
    }
}
