//! `log`: who had which lock, from when to when.

mod earliest;
mod events;
mod page;
mod turns;

use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use mongodb::bson::{DateTime, doc};
use mongolock::{LockAdmin, LockError, LockEventKind, LockFilter};
use tokio::time::{sleep, timeout};

use self::earliest::earliest;
use self::page::LogPage;
use self::turns::{PresentDocument, Turns};
use crate::cli::{ConnectionArguments, LogArguments};
use crate::codes::{HISTORY_LOST, code};
use crate::connection::{Collections, now};
use crate::exit::{self, Exit};
use crate::failure::{Failure, warn};
use crate::json::rfc3339;
use crate::show;
use crate::text::short;
use crate::times::WrittenTime;

/// The milliseconds before the earliest requested time from which events are read: most turns in progress at that time
/// have begun within them.
const LEAD: i64 = 10 * 60 * 1000;

const SECOND: i64 = 1000;

/// The time without an event after which a line says that the past is still being read.
const SILENCE: Duration = Duration::from_secs(10);

/// The time without an event after which reading the past is given up: the router of a sharded cluster does not report
/// what a majority has.
const LONGEST_SILENCE: Duration = Duration::from_secs(10 * 60);

/// The time within which a majority must confirm the latest writes, and the pause between two checks.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);

pub(crate) async fn log(arguments: LogArguments, connection: &ConnectionArguments) -> Result<Exit, Failure> {
    let collections = connection.collections().await?;
    let admin = collections.provider.admin();
    let zone = TimeZone::system();
    let read_at = now(&collections).await?;
    let (since, until) = window(&arguments, read_at, &zone)?;
    let filter = filter(&admin, arguments.name.as_deref()).await?;
    let begin = later(since, -LEAD);
    let present = present(&admin, &filter, begin).await?;
    // Later events are left out, and the documents show no later state.
    let now = now(&collections).await?;
    until_confirmed(&collections).await?;
    let earliest = earliest(&collections, now).await.map_err(refused)?;
    let mut page = LogPage::new(arguments.json, zone);
    page.begin(earliest, now)?;
    let begin = earliest.map_or(begin, |earliest| earliest.max(begin));
    let mut turns = read_all(&collections, &filter, begin, now).await?;
    turns.complete(present, read_at);
    let turns = turns.latest_first(since, until.unwrap_or(now));
    page.show(&turns, now, &collections.name())?;
    Ok(Exit::OK)
}

/// The time range of the turns.
fn window(
    arguments: &LogArguments,
    now: DateTime,
    zone: &TimeZone,
) -> Result<(DateTime, Option<DateTime>), Failure> {
    let at = |time: WrittenTime| {
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

/// The lock or the semaphore of this name if there is one, else all whose names begin with it.
async fn filter(admin: &LockAdmin, name: Option<&str>) -> Result<LockFilter, Failure> {
    let Some(name) = name else {
        return Ok(LockFilter::new());
    };
    let is_one = match admin.get(name).await {
        // A damaged document does not hide the past of its lock.
        Ok(Some(_)) | Err(LockError::CorruptDocument { .. }) => true,
        Ok(None) => !show::permits(admin, name).await?.is_empty(),
        Err(error) => return Err(error.into()),
    };
    Ok(if is_one {
        LockFilter::new().name(name)
    } else {
        LockFilter::new().prefix(name)
    })
}

/// The documents of turns that may have been in progress after this time.
async fn present(
    admin: &LockAdmin,
    filter: &LockFilter,
    since: DateTime,
) -> Result<Vec<PresentDocument>, Failure> {
    let mut locks = admin.stream(filter.clone());
    let mut present = Vec::new();
    while let Some(found) = locks.next().await {
        match found {
            Ok(info) if info.expires_at >= since => present.push(events::of_document(info)),
            // A damaged document belongs to no turn.
            Ok(_) | Err(LockError::CorruptDocument { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(present)
}

/// The turns from a time on. Events that the server removes during the read are left out.
async fn read_all(
    collections: &Collections,
    filter: &LockFilter,
    mut since: DateTime,
    now: DateTime,
) -> Result<Turns, Failure> {
    loop {
        if let Some(turns) = read(collections, filter, since).await? {
            return Ok(turns);
        }
        let earliest = earliest(collections, now).await.map_err(refused)?;
        since = later(since, SECOND).max(earliest.unwrap_or(since));
    }
}

/// The turns from a time on; `None` if the server has removed some of their events, before or during the read.
async fn read(
    collections: &Collections,
    filter: &LockFilter,
    since: DateTime,
) -> Result<Option<Turns>, Failure> {
    let admin = collections.provider.admin();
    let mut events = admin.events(filter.clone()).since(since).to_present();
    let mut turns = Turns::default();
    let (begun, mut silent) = (Instant::now(), Duration::ZERO);
    loop {
        let event = match timeout(SILENCE, events.next()).await {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(Some(turns)),
            // The server is reading events of other documents, or it waits for a majority.
            Err(_) => {
                until_confirmed(collections).await?;
                silent += SILENCE;
                if silent > LONGEST_SILENCE {
                    return Err(Failure::new("the server sends no event, and no end of the past"));
                }
                warn(format_args!("reading the past for {}", short(begun.elapsed())));
                continue;
            }
        };
        silent = Duration::ZERO;
        match event {
            Ok(event) if event.kind == LockEventKind::Gap => return Ok(None),
            Err(error) if is_history_lost(&error) => return Ok(None),
            event => {
                if let Some(event) = events::of_event(event.map_err(refused)?) {
                    turns.add(event);
                }
            }
        }
    }
}

/// Waits until a majority has confirmed the primary's latest write, because a change stream has only confirmed writes.
async fn until_confirmed(collections: &Collections) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut wanted = None;
    loop {
        let hello = collections.database.run_command(doc! { "hello": 1 }).await?;
        // The router of a sharded cluster does not report it.
        let Ok(last) = hello.get_document("lastWrite") else {
            return Ok(());
        };
        let at = |key: &str| {
            last.get_document(key)
                .and_then(|time| time.get_timestamp("ts"))
                .ok()
        };
        let wanted = *wanted.get_or_insert(at("opTime"));
        if at("majorityOpTime") >= wanted {
            return Ok(());
        }
        if begun.elapsed() > CONFIRMED_WITHIN {
            let since = last
                .get_datetime("majorityWriteDate")
                .map_or_else(|_| String::new(), |time| rfc3339(*time));
            let said = format!(
                "no majority of the replica set has confirmed a write since {since}, and the past is read from what it has"
            );
            return Err(Failure::new(said).help("`mongolock doctor` says which members are missing or late."));
        }
        sleep(LOOK).await;
    }
}

/// Whether a stream would have begun before the oldest event of the oplog.
fn is_history_lost(error: &LockError) -> bool {
    matches!(error, LockError::Mongo(error) if code(error) == Some(HISTORY_LOST))
}

/// Why the past cannot be read.
fn refused(error: impl Into<LockError>) -> Failure {
    Failure::of_stream(
        error.into(),
        "read the past of the locks",
        "the collection of the locks",
    )
}

/// The time, this number of milliseconds later.
fn later(time: DateTime, millis: i64) -> DateTime {
    DateTime::from_millis(time.timestamp_millis().saturating_add(millis))
}
