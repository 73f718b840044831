//! Documents that are no locks, damaged ones, and those with times that no lease can have.

use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{LockError, LockFilter, LockInfo, LockState};

use super::clocks::TOLERATED;
use super::{Finding, READ_LIMIT};
use crate::codes::{UNAUTHORIZED, code};
use crate::connection::Collections;
use crate::damaged::{DamagedDocument, release_of};
use crate::driver;
use crate::failure::Failure;
use crate::json::rfc3339;
use crate::output::name_of;
use crate::text::count;

/// The number of documents that are named; the others are counted.
const NAMED: usize = 5;

/// The longest expiry, time of a detached lease and minimum hold; and the time by which a late renewal may end later.
const LONGEST_LEASE: Duration = Duration::from_secs(7 * 24 * 60 * 60 + 60);

/// The longest period of work that may succeed once. Other marks are kept for the retention.
const LONGEST_PERIOD: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How to see all of them.
const LIST: &str = "at the shell: mongolock ls | grep ' damaged '";

pub(super) async fn documents(collections: &Collections, retention: Duration) -> Vec<Finding> {
    let check = "documents";
    let foreign = doc! { "_id": { "$not": { "$type": "string" } } };
    let foreign = match collections.locks.find_one(foreign).max_time(READ_LIMIT).await {
        Ok(found) => found.is_some(),
        Err(error) if code(&error) == Some(UNAUTHORIZED) => {
            return vec![Finding::unknown(check, "this user may not read them")];
        }
        Err(error) => return vec![Finding::unknown(check, driver::text(&error))],
    };
    let AllDocuments {
        number,
        damaged,
        others,
        wrong_times,
    } = match found(collections, retention).await {
        Ok(found) => found,
        Err(error) => return vec![Finding::unknown(check, error.to_string())],
    };
    let mut findings: Vec<Finding> = wrong_times.iter().take(NAMED).cloned().collect();
    if foreign {
        let mend = format!(
            "db.getCollection({:?}).find({{ _id: {{ $not: {{ $type: \"string\" }} }} }}); give other data a collection of its own",
            collections.locks.name()
        );
        findings.push(Finding::wrong(
            check,
            "there are documents whose _id is no text: they are no locks",
            mend,
        ));
    }
    for (at, (name, problem)) in damaged.iter().enumerate() {
        let before = damaged[..at]
            .iter()
            .filter(|(earlier, _)| earlier == name)
            .count();
        let said = format!("{name} is damaged: {problem}");
        findings.push(match DamagedDocument::of(collections, name).await {
            Ok(documents) => match documents.get(before) {
                Some(document) => {
                    Finding::wrong(check, format!("{said}; {}", document.holder()), document.mend())
                }
                None => Finding::wrong(check, said, LIST),
            },
            Err(error) => Finding::unknown(check, format!("{said}; {error}")),
        });
    }
    if others > 0 {
        let verb = if others == 1 { "is" } else { "are" };
        let said = format!("{} {verb} damaged, too", count(others, "other document"));
        findings.push(Finding::wrong(check, said, LIST));
    }
    if let Some(more @ 1..) = wrong_times.len().checked_sub(NAMED) {
        let said = format!(
            "{} with times that only a wrong clock can have set",
            count(more as u64, "other lock")
        );
        findings.push(Finding::wrong(check, said, "at the shell: mongolock ls"));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            check,
            format!("{}, none damaged", count(number, "lock")),
        ));
    }
    findings
}

/// What the documents of all locks show.
#[derive(Default)]
struct AllDocuments {
    /// The number of locks that can be read.
    number: u64,
    /// The names and problems of the first ones that cannot.
    damaged: Vec<(String, String)>,
    /// The number of others that cannot.
    others: u64,
    /// The locks that are taken until times that only a wrong clock can have set.
    wrong_times: Vec<Finding>,
}

async fn found(collections: &Collections, retention: Duration) -> Result<AllDocuments, Failure> {
    let mut locks = collections.provider.admin().stream(LockFilter::new());
    let mut all = AllDocuments::default();
    while let Some(found) = locks.next().await {
        match found {
            Ok(lock) => {
                all.number += 1;
                all.wrong_times.extend(wrong_time(&lock, retention));
            }
            Err(LockError::CorruptDocument { .. }) if all.damaged.len() == NAMED => all.others += 1,
            Err(LockError::CorruptDocument { name, problem, .. }) => all.damaged.push((name, problem)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// A lock that is taken by a hold or a mark that begins in the future, or ends later than any can: the clock of the primary
/// was wrong, or another program has written it.
fn wrong_time(lock: &LockInfo, retention: Duration) -> Option<Finding> {
    if lock.remaining.is_zero() {
        return None;
    }
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let (begin, end) = (
        lock.acquired_at.timestamp_millis(),
        lock.expires_at.timestamp_millis(),
    );
    let ahead = begin.saturating_sub(end.saturating_sub(millis(lock.remaining)));
    let most = match lock.state {
        LockState::Done => LONGEST_PERIOD.max(retention),
        _ => LONGEST_LEASE,
    };
    let name = name_of(lock);
    let said = if ahead > millis(TOLERATED) {
        format!("{name} begins in the future, at {}", rfc3339(lock.acquired_at))
    } else if lock.remaining > most + TOLERATED {
        format!(
            "{name} ends later than any lease or mark can, at {}",
            rfc3339(lock.expires_at)
        )
    } else {
        return None;
    };
    let mend = release_of(&lock.name, lock.permit, lock.state == LockState::Done);
    Some(Finding::wrong("documents", said, mend))
}
