//! The lines of `log`.

use std::time::Duration;

use jiff::tz::TimeZone;
use mongodb::bson::DateTime;
use serde::Serialize;

use super::times;
use super::turns::{End, Found, Turn};
use crate::columns::{Columns, Kind};
use crate::failure::Failure;
use crate::json::{self, rfc3339};
use crate::notes::{Forced, Notes};
use crate::output::Output;
use crate::text::{count, escaped, short};

/// The longest time between a forced release and its note, in milliseconds. A note that is older or younger is that of another
/// request, which has released nothing.
const NOTED_WITHIN: u64 = 5000;

/// Standard output with the turns, as a table or as JSON.
pub(super) struct Page {
    output: Output,
    as_json: bool,
    zone: TimeZone,
    columns: Columns<7>,
    /// Whether a turn was shown.
    is_begun: bool,
}

impl Page {
    pub(super) fn new(as_json: bool, zone: TimeZone) -> Self {
        Self {
            output: Output::new(),
            as_json,
            zone,
            columns: Columns::new([
                ("NAME", Kind::Long),
                ("OWNER", Kind::Long),
                ("FROM", Kind::Word),
                ("TO", Kind::Word),
                ("HELD", Kind::Number),
                ("END", Kind::Word),
                ("DETAILS", Kind::Long),
            ]),
            is_begun: false,
        }
    }

    /// The first line: how far back the server remembers, and up to when the history is complete.
    pub(super) fn begin(
        &mut self,
        earliest: Option<DateTime>,
        recorded: Option<DateTime>,
        now: DateTime,
    ) -> Result<(), Failure> {
        let line = if self.as_json {
            json::line(&First {
                remembers_since: earliest.map(rfc3339),
                recorded_until: recorded.map(rfc3339),
            })
        } else {
            let remembers = match earliest {
                Some(time) => self.time(Some(time)),
                None => "it was set up".to_owned(),
            };
            let recorded =
                recorded.map(|time| format!(", and turns are recorded until {}", self.time(Some(time))));
            let zone = times::name(&self.zone, now);
            format!(
                "the server remembers since {remembers}{} (times of {zone})",
                recorded.unwrap_or_default()
            )
        };
        self.output.line(line)?;
        self.output.flush()
    }

    /// Shows a part of the log, and sends it to the reader.
    pub(super) fn show(&mut self, found: &[Found], notes: &Notes, now: DateTime) -> Result<(), Failure> {
        if self.as_json {
            for found in found {
                let line = Line::of(found, notes, now);
                self.output.line(json::line(&line))?;
            }
            return self.output.flush();
        }
        let rows: Vec<[String; 7]> = found.iter().map(|found| self.row(found, notes, now)).collect();
        for row in &rows {
            self.columns.widen(row);
        }
        let widths = self.columns.widths(self.output.columns());
        if !rows.is_empty() && !std::mem::replace(&mut self.is_begun, true) {
            let headings = self.columns.headings();
            self.output.line(self.columns.line(&headings, &widths))?;
        }
        for row in &rows {
            self.output.line(self.columns.line(row, &widths))?;
        }
        self.output.flush()
    }

    /// A person sees that nothing was found; a program finds no lines.
    pub(super) fn nothing(&mut self, place: &str) -> Result<(), Failure> {
        if !self.is_begun && self.output.is_terminal() && !self.as_json {
            self.output.line(format!("no turns in {}", escaped(place)))?;
        }
        self.output.flush()
    }

    fn row(&self, found: &Found, notes: &Notes, now: DateTime) -> [String; 7] {
        let turn = match found {
            Found::Turn(turn) => turn,
            Found::Gap(from, to) => {
                let none = || "-".to_owned();
                let (from, to) = (self.time(Some(*from)), self.time(Some(*to)));
                return [none(), none(), from, to, none(), "not known".to_owned(), none()];
            }
        };
        let name = escaped(&turn.key.name);
        [
            match turn.key.permit {
                Some(number) => format!("{name} #{number}"),
                None => name.into_owned(),
            },
            turn.hold
                .owner
                .as_deref()
                .map_or("?".into(), escaped)
                .into_owned(),
            self.time(turn.hold.acquired_at),
            if turn.end == End::Held {
                "-".to_owned()
            } else {
                self.time(turn.to)
            },
            held(turn, now).map_or_else(|| "?".to_owned(), short),
            match turn.end {
                End::Held => "held",
                End::Released => "released",
                End::Done => "done",
                End::Expired => "expired",
                End::ExpiredBy => "expired by then",
                End::Unknown => "unknown",
            }
            .to_owned(),
            details(turn, notes),
        ]
    }

    fn time(&self, time: Option<DateTime>) -> String {
        time.map_or_else(|| "?".to_owned(), |time| times::shown(time, &self.zone))
    }
}

/// How long the lock was held, or was at most.
fn held(turn: &Turn, now: DateTime) -> Option<Duration> {
    let to = if turn.end == End::Held { now } else { turn.to? };
    let millis = to
        .timestamp_millis()
        .saturating_sub(turn.hold.acquired_at?.timestamp_millis());
    Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}

/// The note of a forced release that has ended the turn.
fn forced<'a>(turn: &Turn, notes: &'a Notes) -> Option<&'a Forced> {
    let forced = notes.forced(turn.hold.lock_id.as_deref()?)?;
    let (at, released) = (forced.at.timestamp_millis(), turn.to?.timestamp_millis());
    (matches!(turn.end, End::Released | End::Done) && at.abs_diff(released) <= NOTED_WITHIN).then_some(forced)
}

/// What else is known of a turn, for people.
fn details(turn: &Turn, notes: &Notes) -> String {
    let mut details = Vec::new();
    if let Some(forced) = forced(turn, notes) {
        let reason = forced
            .reason
            .as_deref()
            .map(|reason| format!(": {}", escaped(reason)));
        let by = escaped(&forced.by);
        details.push(format!("released by force by {by}{}", reason.unwrap_or_default()));
    }
    if !turn.renewals.is_empty() {
        let renewals = count(turn.renewals.len() as u64, "renewal");
        let pause = turn
            .longest_pause()
            .map(|pause| u64::try_from(pause).unwrap_or(0));
        let pause = pause.map(|pause| format!(", longest pause {}", short(Duration::from_millis(pause))));
        details.push(format!("{renewals}{}", pause.unwrap_or_default()));
    }
    let note = turn.hold.lock_id.as_deref().and_then(|id| notes.note(id));
    details.extend(note.map(|note| escaped(note).into_owned()));
    details.join("; ")
}

/// The first line of `--json`.
#[derive(Debug, Serialize)]
struct First {
    remembers_since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded_until: Option<String>,
}

/// A line of `--json`. The help lists the fields.
#[derive(Debug, Default, Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permit: Option<u32>,
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fencing_token: Option<i64>,
    from: Option<String>,
    to: Option<String>,
    held_ms: Option<u64>,
    end: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    renewals: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_pause_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forced_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn of(found: &'a Found, notes: &'a Notes, now: DateTime) -> Self {
        let turn = match found {
            Found::Turn(turn) => turn,
            Found::Gap(from, to) => {
                return Self {
                    from: Some(rfc3339(*from)),
                    to: Some(rfc3339(*to)),
                    end: "gap",
                    ..Self::default()
                };
            }
        };
        let forced = forced(turn, notes);
        let lock_id = turn.hold.lock_id.as_deref();
        let is_renewed = !turn.renewals.is_empty();
        Self {
            name: &turn.key.name,
            permit: turn.key.permit,
            owner: turn.hold.owner.as_deref(),
            fencing_token: turn.hold.token.filter(|_| turn.key.permit.is_none()),
            from: turn.hold.acquired_at.map(rfc3339),
            to: turn.to.map(rfc3339),
            held_ms: held(turn, now).map(json::millis),
            end: turn.end.as_str(),
            renewals: is_renewed.then_some(turn.renewals.len()),
            longest_pause_ms: turn.longest_pause().filter(|_| is_renewed),
            note: lock_id.and_then(|id| notes.note(id)),
            forced_by: forced.map(|forced| forced.by.as_str()),
            reason: forced.and_then(|forced| forced.reason.as_deref()),
        }
    }
}
