//! Documents that are no locks, or damaged ones.

use mongodb::bson::{Bson, doc};
use mongolock::{LockError, LockFilter};

use super::{Finding, UNAUTHORIZED, code};
use crate::cli::ConnectionArguments;
use crate::connection::Place;
use crate::failure::Failure;

/// So many documents are named; the others are counted.
const NAMED: usize = 5;

pub(super) async fn documents(
    place: &Place,
    connection: &ConnectionArguments,
) -> Result<Vec<Finding>, Failure> {
    let check = "documents";
    let foreign = doc! { "_id": { "$not": { "$type": "string" } } };
    let foreign = match place.locks.find(foreign).limit(1).await {
        Ok(mut found) => match found.advance().await {
            Ok(is_there) => is_there,
            Err(error) => return Ok(vec![Finding::unknown(check, error.kind.to_string())]),
        },
        Err(error) if code(&error) == Some(UNAUTHORIZED) => {
            return Ok(vec![Finding::unknown(check, "this user may not read them")]);
        }
        Err(error) => return Ok(vec![Finding::unknown(check, error.kind.to_string())]),
    };
    let (number, damaged) = match damaged(connection).await {
        Ok(found) => found,
        Err(error) => return Ok(vec![Finding::unknown(check, error.to_string())]),
    };
    let mut findings = Vec::new();
    if foreign {
        let mend = format!(
            "db.getCollection({:?}).find({{ _id: {{ $not: {{ $type: \"string\" }} }} }}); give other data a collection of its own",
            place.locks.name()
        );
        findings.push(Finding::wrong(
            check,
            "there are documents whose _id is no text: they are no locks",
            mend,
        ));
    }
    for (name, problem) in damaged.iter().take(NAMED) {
        let id = Bson::String(name.clone()).into_relaxed_extjson();
        let mend = format!(
            "db.getCollection({:?}).deleteOne({{ _id: {id} }})",
            place.locks.name()
        );
        findings.push(Finding::wrong(
            check,
            format!("{name} is damaged: {problem}"),
            mend,
        ));
    }
    if damaged.len() > NAMED {
        let rest = damaged.len() - NAMED;
        let said = format!("{rest} other documents are damaged");
        findings.push(Finding::wrong(
            check,
            said,
            "at the shell: mongolock ls | grep ^damaged",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(check, format!("{number} locks, none damaged")));
    }
    Ok(findings)
}

/// The number of locks that can be read, and the names and problems of those that cannot.
async fn damaged(connection: &ConnectionArguments) -> Result<(u64, Vec<(String, String)>), Failure> {
    let provider = connection.provider().await?;
    let mut locks = provider.admin().stream(LockFilter::new());
    let (mut number, mut damaged) = (0, Vec::new());
    while let Some(found) = locks.next().await {
        match found {
            Ok(_) => number += 1,
            Err(LockError::CorruptDocument { name, problem, .. }) => damaged.push((name, problem)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok((number, damaged))
}
