//! The privileges of the user, one by one.

use mongodb::bson::{Bson, Document, doc};

use super::{Finding, READ_LIMIT};
use crate::codes::{UNAUTHORIZED, code};
use crate::connection::Collections;
use crate::driver;

/// The privileges that the library needs on the collection of the locks, and their purposes.
const ON_LOCKS: [(&str, &str); 6] = [
    ("find", "reading locks"),
    ("insert", "acquiring"),
    ("update", "acquiring, renewing and releasing"),
    ("createIndex", "the TTL index"),
    ("listIndexes", "looking at the TTL index"),
    ("changeStream", "waking waiters"),
];

pub(super) async fn rights(collections: &Collections) -> Vec<Finding> {
    let check = "privileges";
    let status = doc! { "connectionStatus": 1, "showPrivileges": true };
    let reply = match collections.database.run_command(status).await {
        Ok(reply) => reply,
        Err(error) => return vec![Finding::unknown(check, driver::text(&error))],
    };
    let info = reply.get_document("authInfo").cloned().unwrap_or_default();
    let list = |key: &str| info.get_array(key).map(Vec::as_slice).unwrap_or_default();
    if list("authenticatedUsers").is_empty() {
        return vec![without_user(collections).await];
    }
    let privileges = list("authenticatedUserPrivileges");
    let locks = collections.locks.name();
    let found = ON_LOCKS.map(|(action, purpose)| finding(collections, privileges, locks, action, purpose));
    found.into()
}

/// No user has logged in. The server either allows everything or refuses everything.
async fn without_user(collections: &Collections) -> Finding {
    let check = "privileges";
    let found = collections.locks.find_one(doc! { "_id": Bson::Null });
    match found.max_time(READ_LIMIT).await {
        Ok(_) => {
            let said = "the server has no access control: every client may do everything";
            Finding::ok(check, said)
        }
        Err(error) if code(&error) == Some(UNAUTHORIZED) => {
            let said = "no user is named, and the server has access control";
            let mend = "at the shell: put a user into the connection string of MONGODB_URI or --uri-file";
            Finding::wrong(check, said, mend)
        }
        Err(error) => Finding::unknown(check, driver::text(&error)),
    }
}

fn finding(
    collections: &Collections,
    privileges: &[Bson],
    collection: &str,
    action: &str,
    purpose: &str,
) -> Finding {
    let (check, database) = ("privileges", collections.database.name());
    let has_it = privileges
        .iter()
        .filter_map(Bson::as_document)
        .any(|privilege| covers(privilege, database, collection) && permits(privilege, action));
    let said = format!("{action} on {database}.{collection} ({purpose})");
    if has_it {
        Finding::ok(check, said)
    } else {
        let mend = grant(collections, collection, &[action]);
        Finding::wrong(check, format!("missing: {said}"), mend)
    }
}

/// Whether a privilege is one for this collection.
fn covers(privilege: &Document, database: &str, collection: &str) -> bool {
    let Ok(resource) = privilege.get_document("resource") else {
        return false;
    };
    let fits = |key: &str, value: &str| matches!(resource.get_str(key), Ok(given) if given.is_empty() || given == value);
    resource.get_bool("anyResource") == Ok(true) || (fits("db", database) && fits("collection", collection))
}

fn permits(privilege: &Document, action: &str) -> bool {
    let is_it = |given: &Bson| {
        given
            .as_str()
            .is_some_and(|given| given == action || given == "anyAction")
    };
    privilege
        .get_array("actions")
        .is_ok_and(|actions| actions.iter().any(is_it))
}

/// The command that grants actions on a collection to a role.
pub(super) fn grant(collections: &Collections, collection: &str, actions: &[&str]) -> String {
    let database = collections.database.name();
    format!(
        "db.getSiblingDB({database:?}).grantPrivilegesToRole(\"<role>\", \
         [{{ resource: {{ db: {database:?}, collection: {collection:?} }}, actions: {actions:?} }}])"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privilege_covers_its_resource() {
        let privilege = |resource: Document| doc! { "resource": resource, "actions": ["find"] };
        for resource in [
            doc! { "db": "app", "collection": "locks" },
            doc! { "db": "app", "collection": "" },
            doc! { "db": "", "collection": "locks" },
            doc! { "db": "", "collection": "" },
            doc! { "anyResource": true },
        ] {
            let privilege = privilege(resource);
            assert!(covers(&privilege, "app", "locks"), "{privilege}");
            assert!(permits(&privilege, "find") && !permits(&privilege, "update"));
        }
        for resource in [
            doc! { "db": "other", "collection": "locks" },
            doc! { "db": "app", "collection": "others" },
            doc! { "cluster": true },
        ] {
            assert!(!covers(&privilege(resource), "app", "locks"));
        }
    }
}
