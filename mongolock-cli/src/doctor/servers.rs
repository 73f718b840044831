//! The connection, the deployment, its write concern and its change streams.

use mongodb::bson::{Bson, Document, doc};

use super::{Finding, UNAUTHORIZED, code};
use crate::connection::Place;
use crate::driver;

/// The server's code of a deployment without change streams.
const NO_STREAMS: i32 = 40573;

pub(super) fn connection(hello: &Document) -> Finding {
    let server = hello.get_str("me").or_else(|_| hello.get_str("primary"));
    let server = server.map_or_else(
        |_| "MongoDB".to_owned(),
        |address| format!("MongoDB at {address}"),
    );
    Finding::ok("connection", format!("{server} answers"))
}

pub(super) fn deployment(hello: &Document) -> Finding {
    let check = "deployment";
    if let Ok(name) = hello.get_str("setName") {
        let members = hello.get_array("hosts").map_or(0, Vec::len);
        let said = format!("replica set {name} with {members} members that can be primary");
        return Finding::ok(check, said);
    }
    if is_sharded(hello) {
        return Finding::ok(check, "sharded cluster");
    }
    let said = "standalone server, which is meant for development: locks, renewals and fencing tokens work; commits under \
                a lock and `mongolock watch` do not, waiters poll, and a crash can lose the last writes, and a lock with them";
    Finding::ok(check, said).mend(REPLICA_SET)
}

/// What adds the rest to a standalone server. The guide calls it supported, so that it is no finding of something wrong.
const REPLICA_SET: &str =
    "for all of it, at the shell: start mongod with --replSet rs0; then rs.initiate() in mongosh";

/// Every write of the library waits for a majority: so many members must be there.
pub(super) async fn write_concern(place: &Place, hello: &Document) -> Finding {
    let check = "write concern";
    if let Some(finding) = without_members(check, hello) {
        return finding;
    }
    let admin = place.database.client().database("admin");
    let status = match admin.run_command(doc! { "replSetGetStatus": 1 }).await {
        Ok(status) => status,
        Err(error) if code(&error) == Some(UNAUTHORIZED) => {
            let said = "majority; this user may not see whether a majority of the members is there";
            return Finding::unknown(check, said)
                .mend("db.getSiblingDB(\"admin\").grantRolesToUser(\"<user>\", [\"clusterMonitor\"])");
        }
        Err(error) => return Finding::unknown(check, driver::text(&error)),
    };
    let needed = number(&status, "writeMajorityCount").unwrap_or(1);
    let members = status.get_array("members").map(Vec::as_slice).unwrap_or_default();
    let has_data = |member: &&Bson| {
        let state = member
            .as_document()
            .and_then(|member| member.get_str("stateStr").ok());
        matches!(state, Some("PRIMARY" | "SECONDARY"))
    };
    let there = members.iter().filter(has_data).count();
    let said = format!(
        "majority, which is {needed} members; {there} of {} are there",
        members.len()
    );
    if i64::try_from(there).unwrap_or(i64::MAX) >= needed {
        Finding::ok(check, said)
    } else {
        Finding::wrong(
            check,
            said,
            "rs.status() names the missing members; start them again",
        )
    }
}

/// The write concern where the connected server is no member of a replica set.
fn without_members(check: &'static str, hello: &Document) -> Option<Finding> {
    if hello.get_str("setName").is_ok() {
        return None;
    }
    Some(if is_sharded(hello) {
        let said = "majority; mongos does not tell whether a majority of each shard's members is there";
        Finding::unknown(check, said).mend("on the primary of each shard: rs.status()")
    } else {
        Finding::ok(
            check,
            "majority; this is no replica set, so no member can be missing",
        )
    })
}

/// Whether the connected server is the router of a sharded cluster.
pub(super) fn is_sharded(hello: &Document) -> bool {
    hello.get_str("msg") == Ok("isdbgrid")
}

/// Opens a stream as `watch` and the waiters do, and closes it.
pub(super) async fn change_streams(place: &Place) -> Finding {
    let check = "change streams";
    let Err(error) = place.locks.watch().await else {
        return Finding::ok(check, "waiters are woken by releases in other processes");
    };
    match code(&error) {
        Some(NO_STREAMS) => {
            let said =
                "none, as on every standalone server: waiters poll, and `mongolock watch` does not work";
            Finding::ok(check, said)
        }
        Some(UNAUTHORIZED) => {
            let said = "waiters poll: this user may not open change streams";
            Finding::wrong(
                check,
                said,
                super::rights::grant(place, place.locks.name(), &["find", "changeStream"]),
            )
        }
        _ => Finding::unknown(check, driver::text(&error)),
    }
}

fn number(document: &Document, key: &str) -> Option<i64> {
    match document.get(key)? {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn each_kind_of_deployment_is_told_apart() {
        let states = |hello: Document| {
            let concern = without_members("write concern", &hello).map(|finding| finding.state);
            (deployment(&hello).state, concern)
        };
        let set = doc! { "setName": "rs", "hosts": ["a", "b", "c"] };
        assert_eq!(states(set), (State::Ok, None));
        let router = doc! { "msg": "isdbgrid" };
        assert_eq!(states(router), (State::Ok, Some(State::Unknown)));
        assert_eq!(states(doc! {}), (State::Ok, Some(State::Ok)));
    }
}
