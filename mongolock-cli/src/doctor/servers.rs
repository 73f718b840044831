//! The connection, the deployment, its write concern and its change streams.

use std::fmt::Write;
use std::time::{Duration, Instant};

use mongodb::bson::{Bson, DateTime, Document, doc};
use tokio::time::sleep;

use super::{Finding, documents_of};
use crate::codes::{NO_STREAMS, UNAUTHORIZED, code};
use crate::connection::Collections;
use crate::driver;
use crate::text::{count, short};

/// The age from which a heartbeat is too old: members send one every 2 s.
const FRESH: Duration = Duration::from_secs(2);

/// The time for which the check waits for a newer heartbeat.
const HEARTBEAT_LIMIT: Duration = Duration::from_secs(3);

/// The pause between two looks at the heartbeats.
const HEARTBEAT_PAUSE: Duration = Duration::from_millis(100);

/// The greatest delay with which a member that counts may apply writes. A majority with a greater delay confirms no
/// write within the time limits of locks.
const LATE: Duration = Duration::from_secs(5);

/// The states of members that the check distinguishes, by their numbers in `replSetGetStatus`.
const PRIMARY: i64 = 1;
const SECONDARY: i64 = 2;
const ARBITER: i64 = 7;
const DOWN: i64 = 8;

/// The server that replies, and whether the library accepts it: the library also detects a string that names another
/// set.
pub(super) async fn connection(collections: &Collections, hello: &Document) -> Finding {
    if let Some(error) = collections.provider.health().await.error {
        return Finding::refused("connection", "", error);
    }
    let server = hello.get_str("me").or_else(|_| hello.get_str("primary"));
    let at = server.map_or_else(|_| String::new(), |address| format!(" at {address}"));
    Finding::ok("connection", format!("MongoDB{at} answers"))
}

pub(super) fn deployment(hello: &Document) -> Finding {
    let check = "deployment";
    if hello.get_bool("isreplicaset") == Ok(true) {
        let said =
            "this server was started as a member of a replica set, and has none yet: it takes no writes";
        return Finding::wrong(check, said, "rs.initiate(), once");
    }
    if let Ok(name) = hello.get_str("setName") {
        if hello.get_bool("isWritablePrimary") != Ok(true) {
            let said = "this member is no primary, so that no lock can be acquired here";
            let mend = "at the shell: take `directConnection=true` out of the connection string, and name the members of the set";
            return Finding::wrong(check, said, mend);
        }
        let members = hello.get_array("hosts").map_or(0, Vec::len);
        let verb = if members == 1 { "is" } else { "can be" };
        let said = format!("replica set {name} with {} that {verb} primary", some(members));
        return Finding::ok(check, said);
    }
    if is_sharded(hello) {
        return Finding::ok(check, "sharded cluster");
    }
    let said = "standalone server, which is meant for development: locks, renewals and fencing tokens work; commits under \
                a lock and `mongolock watch` do not, waiters poll, and a crash can lose the last writes, and a lock with them";
    Finding::ok(check, said).mend(REPLICA_SET)
}

/// The advice for a standalone server. The guide calls such a server supported, so it is not reported as a problem.
const REPLICA_SET: &str =
    "for all of it, at the shell: start mongod with --replSet rs0; then rs.initiate() in mongosh";

/// Every write of the library waits for a majority of the members. A member counts by its newest heartbeat, and not if
/// that is older than [`FRESH`], because the member may have ended since.
pub(super) async fn write_concern(collections: &Collections, hello: &Document) -> Finding {
    let check = "write concern";
    if let Some(finding) = without_members(check, hello) {
        return finding;
    }
    // Fewer users may read it than the state.
    let config = collections
        .admin
        .run_command(doc! { "replSetGetConfig": 1 })
        .await;
    let config = config.unwrap_or_default();
    let begun = Instant::now();
    loop {
        let status = match status(collections).await {
            Ok(status) => status,
            Err(finding) => return finding,
        };
        let members = Members::of(&status, &config);
        // A member sends a heartbeat every 2 s, so the next one arrives soon, with the time of the last write that the
        // member has applied.
        let is_settled =
            members.old.is_empty() && (members.behind.is_empty() || members.there >= members.needed);
        if is_settled || begun.elapsed() > HEARTBEAT_LIMIT {
            return members.judge(check);
        }
        sleep(HEARTBEAT_PAUSE).await;
    }
}

/// The state of the replica set according to the connected member.
async fn status(collections: &Collections) -> Result<Document, Finding> {
    let check = "write concern";
    let status = collections.admin.run_command(doc! { "replSetGetStatus": 1 });
    status.await.map_err(|error| {
        if code(&error) != Some(UNAUTHORIZED) {
            return Finding::unknown(check, driver::text(&error));
        }
        let said = "majority; this user may not see whether a majority of the members is there";
        Finding::unknown(check, said)
            .mend("db.getSiblingDB(\"admin\").grantRolesToUser(\"<user>\", [\"clusterMonitor\"])")
    })
}

/// The members of a replica set.
struct Members {
    number: usize,
    /// The number of members that make a majority.
    needed: usize,
    /// The number of members with data that reply.
    there: usize,
    /// The addresses of the members whose last heartbeat is too old, each with the age of that heartbeat.
    old: Vec<(String, Duration)>,
    /// The addresses of the members that apply writes too late to confirm them, each with the time by which they are late.
    behind: Vec<(String, Duration)>,
}

impl Members {
    fn of(status: &Document, config: &Document) -> Self {
        let all = || documents_of(status, "members");
        let now = status.get_datetime("date").ok();
        let newest = all()
            .filter_map(|member| member.get_datetime("optimeDate").ok())
            .max();
        let (mut there, mut old, mut behind) = (0, Vec::new(), Vec::new());
        for member in all() {
            // A member that does not answer is not there, however old its last heartbeat is; an arbiter has no data.
            let state = number(member, "state");
            if let Some(DOWN | ARBITER) = state {
                continue;
            }
            let address = member.get_str("name").unwrap_or("a member");
            // The connected member has no heartbeat of its own.
            let heartbeat = member.get_datetime("lastHeartbeat").ok();
            let age_of_heartbeat = heartbeat.zip(now).map(|(heartbeat, now)| age(*heartbeat, *now));
            let applied = member.get_datetime("optimeDate").ok().zip(newest);
            let late = applied.map_or(Duration::ZERO, |(applied, newest)| age(*applied, *newest));
            let late = late.max(delay(config, address));
            match age_of_heartbeat.filter(|age| *age > FRESH) {
                Some(age) => old.push((address.to_owned(), age)),
                None if !matches!(state, Some(PRIMARY | SECONDARY)) => {}
                None if late > LATE => behind.push((address.to_owned(), late)),
                None => there += 1,
            }
        }
        let needed = number(status, "writeMajorityCount").unwrap_or(1);
        Self {
            number: all().count(),
            needed: usize::try_from(needed).unwrap_or(usize::MAX),
            there,
            old,
            behind,
        }
    }

    fn judge(&self, check: &'static str) -> Finding {
        let verb = |number: usize| if number == 1 { "is" } else { "are" };
        let mut said = format!(
            "majority ({}); {} of {} {} there",
            some(self.needed),
            self.there,
            self.number,
            verb(self.there),
        );
        for (address, age) in &self.old {
            // Writing into a string cannot fail.
            let _ = write!(said, "; no heartbeat of {address} for {}", short(*age));
        }
        for (address, late) in &self.behind {
            let _ = write!(said, "; {address} applies writes {} late", short(*late));
        }
        let mend = if self.behind.is_empty() {
            "rs.status() names the missing members; start them again"
        } else {
            "rs.printSecondaryReplicationInfo() and rs.conf() name the late members; give them no vote, no delay or more power"
        };
        if self.there >= self.needed {
            Finding::ok(check, said)
        } else if self.there + self.old.len() >= self.needed {
            Finding::unknown(check, said).mend(mend)
        } else {
            Finding::wrong(check, said, mend)
        }
    }
}

/// The delay with which the configuration has a member apply writes.
fn delay(config: &Document, address: &str) -> Duration {
    let config = config.get_document("config").ok();
    let mut members = config
        .into_iter()
        .flat_map(|config| documents_of(config, "members"));
    let member = members.find(|member| member.get_str("host") == Ok(address));
    // It has another name before MongoDB 5.0.
    let names = ["secondaryDelaySecs", "slaveDelay"];
    let seconds = member.and_then(|member| names.into_iter().find_map(|name| number(member, name)));
    Duration::from_secs(u64::try_from(seconds.unwrap_or(0)).unwrap_or(0))
}

fn some(members: usize) -> String {
    count(u64::try_from(members).unwrap_or(u64::MAX), "member")
}

/// The time between two readings of one clock.
fn age(earlier: DateTime, later: DateTime) -> Duration {
    let millis = later
        .timestamp_millis()
        .saturating_sub(earlier.timestamp_millis());
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
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
pub(super) async fn change_streams(collections: &Collections) -> Finding {
    let check = "change streams";
    let error = match collections.open_stream().await {
        Some(Ok(())) => return Finding::ok(check, "waiters are woken by releases in other processes"),
        Some(Err(error)) => error,
        None => {
            return Finding::unknown(
                check,
                "the server opens none within 5 s; perhaps it waits for a majority",
            );
        }
    };
    match code(&error) {
        Some(NO_STREAMS) => {
            let said =
                "none, as on every standalone server: waiters poll, and `mongolock watch` does not work";
            Finding::ok(check, said)
        }
        Some(UNAUTHORIZED) => {
            let said = "waiters poll: this user may not open change streams";
            let actions = ["find", "changeStream"];
            Finding::wrong(
                check,
                said,
                super::rights::grant(collections, collections.locks.name(), &actions),
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
    use super::super::CheckState;
    use super::*;

    /// The members of a set of three with these ages of their heartbeats, in milliseconds; the first one is the primary that
    /// was asked.
    fn members(ages: [i64; 2], states: [i64; 2]) -> Members {
        let now = 1_000_000;
        let mut members = vec![doc! { "name": "a", "state": PRIMARY }];
        for (at, name) in ["b", "c"].into_iter().enumerate() {
            let heartbeat = DateTime::from_millis(now - ages[at]);
            members.push(doc! { "name": name, "state": states[at], "lastHeartbeat": heartbeat });
        }
        let date = DateTime::from_millis(now);
        let reply = doc! { "date": date, "writeMajorityCount": 2, "members": members };
        Members::of(&reply, &doc! {})
    }

    #[test]
    fn an_old_heartbeat_is_no_verdict() {
        let (there, gone, recovering) = ([SECONDARY; 2], [DOWN; 2], [3; 2]);
        let one = "1 of 3 is there";
        let two = "2 of 3 are there; no heartbeat of c for 2.0s";
        let silent = "1 of 3 is there; no heartbeat of b for 5.0s; no heartbeat of c for 9.0s";
        for (ages, states, state, said) in [
            ([0, 2_000], there, CheckState::Ok, "3 of 3 are there"),
            ([0, 2_001], there, CheckState::Ok, two),
            ([5_000, 9_000], there, CheckState::Unknown, silent),
            ([99_000, 99_000], gone, CheckState::Wrong, one),
            ([5_000, 9_000], recovering, CheckState::Unknown, silent),
            ([0, 99_000], [3, ARBITER], CheckState::Wrong, one),
        ] {
            let finding = members(ages, states).judge("write concern");
            let said = format!("majority (2 members); {said}");
            assert_eq!((finding.state, finding.said), (state, said), "{ages:?}");
        }
        let single = doc! { "writeMajorityCount": 1, "members": [{ "name": "a", "state": PRIMARY }] };
        let finding = Members::of(&single, &doc! {}).judge("write concern");
        assert_eq!(finding.said, "majority (1 member); 1 of 1 is there");
    }

    /// A member that is late by its state or by its configuration confirms nothing.
    #[test]
    fn a_late_member_is_not_there() {
        let member = |name: &str, applied: i64| {
            doc! { "name": name, "state": if name == "a" { PRIMARY } else { SECONDARY }, "optimeDate": DateTime::from_millis(applied) }
        };
        let members = [member("a", 20_000), member("b", 14_999), member("c", 20_000)];
        let status = doc! { "writeMajorityCount": 2, "members": members.to_vec() };
        let found = Members::of(&status, &doc! {}).judge("write concern");
        assert_eq!(found.state, CheckState::Ok);
        let said = "majority (2 members); 2 of 3 are there; b applies writes 5.0s late";
        assert_eq!(found.said, said);
        for name in ["secondaryDelaySecs", "slaveDelay"] {
            let config = doc! { "config": { "members": [{ "host": "c", name: 3600_i64 }] } };
            let found = Members::of(&status, &config).judge("write concern");
            assert_eq!(found.state, CheckState::Wrong);
            let (said, late) = (found.said, "c applies writes 1h late");
            assert!(said.contains("1 of 3 is there") && said.ends_with(late), "{said}");
        }
    }

    /// The test `cli` has the other kinds of deployments.
    #[test]
    fn a_router_knows_no_members() {
        let router = doc! { "msg": "isdbgrid" };
        let concern = without_members("write concern", &router).map(|finding| finding.state);
        assert_eq!(deployment(&router).state, CheckState::Ok);
        assert_eq!(concern, Some(CheckState::Unknown));
    }
}
