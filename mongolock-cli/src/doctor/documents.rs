//! Documents that are no locks, or damaged ones.

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongolock::{LockError, LockFilter};

use super::Finding;
use crate::codes::{UNAUTHORIZED, code};
use crate::connection::Collections;
use crate::driver;
use crate::failure::Failure;
use crate::ids;
use crate::json::rfc3339;
use crate::text::count;

/// So many documents are named; the others are counted.
const NAMED: usize = 5;

/// How to see all of them.
const LIST: &str = "at the shell: mongolock ls | grep ' damaged '";

pub(super) async fn documents(collections: &Collections) -> Vec<Finding> {
    let check = "documents";
    let foreign = doc! { "_id": { "$not": { "$type": "string" } } };
    let foreign = match collections.locks.find(foreign).limit(1).await {
        Ok(mut found) => match found.advance().await {
            Ok(is_there) => is_there,
            Err(error) => return vec![Finding::unknown(check, driver::text(&error))],
        },
        Err(error) if code(&error) == Some(UNAUTHORIZED) => {
            return vec![Finding::unknown(check, "this user may not read them")];
        }
        Err(error) => return vec![Finding::unknown(check, driver::text(&error))],
    };
    let (number, damaged, others) = match damaged(collections).await {
        Ok(found) => found,
        Err(error) => return vec![Finding::unknown(check, error.to_string())],
    };
    let mut findings = Vec::new();
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
        findings.push(match nth_damaged(collections, name, before).await {
            Ok(Some(document)) => Finding::wrong(
                check,
                format!("{said}; {}", holder(&document)),
                removal(collections.locks.name(), &document),
            ),
            Ok(None) => Finding::wrong(check, said, LIST),
            Err(error) => Finding::unknown(check, format!("{said}; {}", driver::text(&error))),
        });
    }
    if others > 0 {
        let verb = if others == 1 { "is" } else { "are" };
        let said = format!("{} {verb} damaged, too", count(others, "other document"));
        findings.push(Finding::wrong(check, said, LIST));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            check,
            format!("{}, none damaged", count(number, "lock")),
        ));
    }
    findings
}

/// A damaged document of this name, after this number of others. The library names a permit as its semaphore.
async fn nth_damaged(
    collections: &Collections,
    name: &str,
    before: usize,
) -> Result<Option<Document>, Error> {
    let permits = doc! { "$gt": ids::any_permit(name), "$lt": ids::after_permits(name) };
    let unlike = |field: &str, wanted: &str| doc! { field: { "$not": { "$type": wanted } } };
    let is_damaged = [
        unlike("lockId", "string"),
        unlike("acquiredAt", "date"),
        unlike("expiresAt", "date"),
        unlike("fencingToken", "long"),
    ];
    let wanted = doc! { "$and": [
        { "$or": [{ "_id": name }, { "_id": permits }] },
        { "$or": is_damaged.to_vec() },
    ] };
    let before = u64::try_from(before).unwrap_or(u64::MAX);
    collections
        .locks
        .find_one(wanted)
        .sort(doc! { "_id": 1 })
        .skip(before)
        .await
}

/// What a damaged document says about its holder: a process may still work under the lock.
fn holder(document: &Document) -> String {
    let shown = |key: &str| match document.get(key) {
        None => "none".to_owned(),
        Some(Bson::DateTime(time)) => rfc3339(*time),
        Some(value) => value.clone().into_relaxed_extjson().to_string(),
    };
    format!("lockId {}, expiresAt {}", shown("lockId"), shown("expiresAt"))
}

/// The command that deletes a damaged document, unless another holder has taken the lock meanwhile.
fn removal(collection: &str, document: &Document) -> String {
    let id = document
        .get("_id")
        .unwrap_or(&Bson::Null)
        .clone()
        .into_relaxed_extjson();
    let lock_id = document
        .get("lockId")
        .map(|value| value.clone().into_relaxed_extjson());
    let lock_id = match lock_id {
        None => "{ $exists: false }".to_owned(),
        // In this form it may be a date, for instance, which a filter would take for an operator.
        Some(value) if value.is_object() || value.is_array() => {
            format!("{{ $eq: EJSON.deserialize({value}) }}")
        }
        Some(value) => value.to_string(),
    };
    format!(
        "/* only if no process works under it */ db.getCollection({collection:?}).deleteOne({{ _id: {id}, lockId: {lock_id} }})"
    )
}

/// The number of locks that can be read, the names and problems of the first ones that cannot, and the number of others
/// that cannot.
async fn damaged(collections: &Collections) -> Result<(u64, Vec<(String, String)>, u64), Failure> {
    let mut locks = collections.provider.admin().stream(LockFilter::new());
    let (mut number, mut damaged, mut others) = (0, Vec::new(), 0);
    while let Some(found) = locks.next().await {
        match found {
            Ok(_) => number += 1,
            Err(LockError::CorruptDocument { .. }) if damaged.len() == NAMED => others += 1,
            Err(LockError::CorruptDocument { name, problem, .. }) => damaged.push((name, problem)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok((number, damaged, others))
}

#[cfg(test)]
mod tests {
    use mongodb::bson::DateTime;

    use super::*;

    #[test]
    fn the_command_deletes_only_what_was_seen() {
        let command = |lock_id: Option<Bson>| {
            let mut document = doc! { "_id": "a\"b" };
            document.extend(lock_id.map(|lock_id| ("lockId".to_owned(), lock_id)));
            removal("locks", &document)
        };
        let begin = r#"/* only if no process works under it */ db.getCollection("locks").deleteOne({ _id: "a\"b", lockId: "#;
        let filter = |lock_id| {
            let command = command(lock_id);
            let rest = command.strip_prefix(begin).map(str::to_owned);
            rest.and_then(|rest| rest.strip_suffix(" })").map(str::to_owned))
        };
        assert_eq!(filter(Some("anna#1".into())).as_deref(), Some(r#""anna#1""#));
        assert_eq!(filter(Some(7.into())).as_deref(), Some("7"));
        assert_eq!(filter(None).as_deref(), Some("{ $exists: false }"));
        let date = filter(Some(DateTime::from_millis(0).into()));
        let wanted = r#"{ $eq: EJSON.deserialize({"$date":"1970-01-01T00:00:00Z"}) }"#;
        assert_eq!(date.as_deref(), Some(wanted));
    }

    #[test]
    fn the_holder_is_shown() {
        let document = doc! { "lockId": "anna#1", "expiresAt": "soon" };
        assert_eq!(holder(&document), r#"lockId "anna#1", expiresAt "soon""#);
        let document = doc! { "expiresAt": DateTime::from_millis(0) };
        assert_eq!(
            holder(&document),
            "lockId none, expiresAt 1970-01-01T00:00:00.000Z"
        );
    }
}
