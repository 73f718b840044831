//! `log`: who had which lock, from when to when.

mod earliest;
mod history;
mod page;
mod source;
mod steps;
mod times;
mod turns;

use jiff::tz::TimeZone;
use mongodb::bson::DateTime;

use self::earliest::earliest;
use self::history::recorded;
pub(crate) use self::history::{POSITION, position};
use self::page::Page;
use self::source::Source;
pub(crate) use self::source::{is_history_lost, of_event, refused};
use self::steps::{Step, Steps};
pub(crate) use self::times::{Time, parse as parse_time};
pub(crate) use self::turns::{End, Event, What};
use self::turns::{Found, Turns};
#[cfg(test)]
pub(crate) use self::turns::{Hold, Key};
use crate::cli::{ConnectionArguments, LogArguments};
use crate::connection::Collections;
pub(crate) use crate::connection::now;
use crate::exit::{self, Ending};
use crate::failure::Failure;
use crate::notes::Notes;

pub(crate) async fn log(
    arguments: LogArguments,
    connection: &ConnectionArguments,
) -> Result<Ending, Failure> {
    let collections = connection.collections().await?;
    let zone = TimeZone::system();
    let read_at = now(&collections).await?;
    let (since, until) = window(&arguments, read_at, &zone)?;
    let source = Source::new(&collections, arguments.name.as_deref()).await?;
    let present = source.present(steps::farthest(since)).await?;
    // What happens from now on is left out, and the documents show nothing later.
    let now = now(&collections).await?;
    let until = until.unwrap_or(now);
    let earliest = earliest(&collections.locks, now).await.map_err(refused)?;
    // Without the right to read it there is no history, and it is of no use where the server remembers more.
    let recorded = position(&collections).await.unwrap_or_default();
    let recorded = recorded.filter(|(since, _)| earliest.is_some_and(|earliest| earliest > *since));
    let recorded = recorded.map(|(_, until)| until);
    // The history has no renewals.
    let read_to = if source.has_renewals() {
        earliest
    } else {
        earliest.max(recorded)
    };
    let mut log = Log {
        page: Page::new(arguments.json, zone),
        turns: Turns::new(present, read_at, source.has_renewals()),
        steps: Steps::new(now, since, read_to),
        collections: &collections,
        recorded,
        since,
        until,
        now,
    };
    log.page.begin(earliest, recorded, now)?;
    log.read(&source).await?;
    log.page.nothing(&collections.name())?;
    Ok(Ending::OK)
}

/// The times that the turns shall touch.
fn window(
    arguments: &LogArguments,
    now: DateTime,
    zone: &TimeZone,
) -> Result<(DateTime, Option<DateTime>), Failure> {
    let at = |time: Time| {
        time.at(now, zone)
            .ok_or_else(|| Failure::new("this time is too far away").code(exit::USAGE))
    };
    let since = at(arguments.at.unwrap_or(arguments.since))?;
    let until = arguments.at.or(arguments.until).map(at).transpose()?;
    let wrong = if since > now {
        "this time is later than the present"
    } else if until.is_some_and(|until| since > until) {
        "--since is later than --until"
    } else {
        return Ok((since, until));
    };
    Err(Failure::new(wrong).code(exit::USAGE))
}

/// A log that is read, the latest turns first.
struct Log<'a> {
    page: Page,
    turns: Turns,
    steps: Steps,
    collections: &'a Collections,
    /// The time up to which the history is complete; `None` if there is none, or once it was read.
    recorded: Option<DateTime>,
    since: DateTime,
    until: DateTime,
    now: DateTime,
}

impl Log<'_> {
    async fn read(&mut self, source: &Source<'_>) -> Result<(), Failure> {
        while !self.steps.are_enough()
            && let Some(step) = self.steps.next_step()
        {
            self.step(source, step).await?;
        }
        if !self.steps.are_enough() {
            self.history(source).await?;
        }
        self.turns.only_missing();
        let found = self.turns.since(self.steps.reached());
        self.show(found).await?;
        // The events of other locks are not read any more.
        while self.turns.are_missing()
            && let Some(step) = self.steps.next_step()
        {
            let narrowed = source.narrowed(&self.turns.missing());
            self.step(&narrowed, step).await?;
        }
        if self.turns.are_missing() {
            let narrowed = source.narrowed(&self.turns.missing());
            self.history(&narrowed).await?;
        }
        let rest = self.turns.rest();
        self.show(rest).await
    }

    async fn step(&mut self, source: &Source<'_>, step: Step) -> Result<(), Failure> {
        let Some(events) = source.events(step).await.map_err(refused)? else {
            // The oplog has moved on meanwhile.
            let earliest = earliest(&self.collections.locks, self.now).await;
            self.steps.lose(step, earliest.map_err(refused)?);
            return Ok(());
        };
        self.steps.had(step, events.len());
        let mut found = self.turns.step(events.into_iter());
        found.extend(self.turns.since(step.since));
        self.show(found).await
    }

    /// Goes on with the history, where the steps have ended.
    async fn history(&mut self, source: &Source<'_>) -> Result<(), Failure> {
        let Some(complete) = self.recorded.take() else {
            return Ok(());
        };
        let reached = self.steps.reached();
        let step = Step {
            since: steps::farthest(self.since),
            until: reached.min(complete),
        };
        let mut events = recorded(self.collections, source.names(), step).await;
        events.retain(|event| source.has(&event.key));
        events.extend((complete < reached).then(|| Event::gap(complete, reached)));
        let found = self.turns.step(events.into_iter());
        self.show(found).await
    }

    async fn show(&mut self, mut found: Vec<Found>) -> Result<(), Failure> {
        found.retain(|found| match found {
            Found::Turn(turn) => turn.is_within(self.since, self.until),
            Found::Gap(from, to) => *from <= self.until && *to >= self.since,
        });
        let lock_ids = found.iter().filter_map(|found| match found {
            Found::Turn(turn) => turn.hold.lock_id.as_deref(),
            Found::Gap(..) => None,
        });
        let lock_ids: Vec<&str> = lock_ids.collect();
        let notes = Notes::of(&self.collections.waiters, &lock_ids).await;
        self.page.show(&found, &notes, self.now)
    }
}
