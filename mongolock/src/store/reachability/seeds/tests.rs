use std::time::Duration;

use mongodb::bson::doc;
use mongodb::bson::oid::ObjectId;
use tokio::time::advance;

use super::*;

const PRIMARY: TopologyType = TopologyType::ReplicaSetWithPrimary;

fn host(address: &str) -> ServerAddress {
    ServerAddress::parse(address).unwrap()
}

/// The reply of a member of a set with these members.
fn hello(set: &str, members: &[&str]) -> Document {
    doc! { "setName": set, "hosts": members, "me": members[0] }
}

/// The hosts of a string, after the driver has found the members of a set and removed all others.
fn found(hosts: &[&str], members: &[&str]) -> (Seeds, Vec<String>) {
    let options =
        ClientOptions::builder().hosts(hosts.iter().map(|address| host(address)).collect::<Vec<_>>());
    let mut seeds = Seeds::of("mongodb://", &options.build());
    let all: Vec<ServerAddress> = hosts.iter().map(|address| host(address)).collect();
    let removed = seeds.topology(TopologyType::Unknown, &all.iter().collect::<Vec<_>>());
    assert!(removed.is_empty(), "nothing is known yet");
    let members: Vec<ServerAddress> = members.iter().map(|address| host(address)).collect();
    let removed = seeds.topology(PRIMARY, &members.iter().collect::<Vec<_>>());
    (seeds, removed.iter().map(ToString::to_string).collect())
}

fn text(seeds: &Seeds) -> Option<String> {
    seeds.failure(true).map(|failure| failure.to_string())
}

#[test]
fn only_removed_hosts_of_a_list_are_asked() {
    let (_, removed) = found(&["a:1", "b:1", "c:1"], &["a:1", "b:1"]);
    assert_eq!(removed, ["c:1"]);
    let (_, removed) = found(&["a:1"], &["b:1"]);
    assert!(removed.is_empty(), "one host has one set");
    let (mut seeds, _) = found(&["a:1", "b:1"], &["a:1", "b:1"]);
    // The end of the client.
    assert!(seeds.topology(TopologyType::Unknown, &[]).is_empty());
    let all = vec![host("a:1"), host("b:1")];
    let list = || ClientOptions::builder().hosts(all.clone()).build();
    let (mut direct, mut balanced) = (list(), list());
    direct.direct_connection = Some(true);
    balanced.load_balanced = Some(true);
    for options in [direct, balanced] {
        assert!(!Seeds::of("mongodb://", &options).is_watching());
    }
    assert!(!Seeds::of("mongodb+srv://", &list()).is_watching());
    assert!(Seeds::of("mongodb://", &list()).is_watching());
}

#[test]
fn another_name_is_another_set() {
    let (mut seeds, _) = found(&["a:1", "b:1"], &["a:1", "c:1"]);
    seeds.answered("b:1", Some(&hello("two", &["b:1"])));
    assert_eq!(text(&seeds), None, "no member has answered");
    seeds.heartbeat("a:1", Some(&hello("one", &["a:1", "c:1"])));
    let said = "the connection string names two replica sets: a:1 belongs to `one`, and b:1 to `two`";
    assert_eq!(text(&seeds).as_deref(), Some(said));
}

#[test]
fn one_name_with_other_members_is_another_set_as_soon_as_all_have_answered() {
    for silent in [None, Some(doc! { "isreplicaset": true })] {
        let (mut seeds, _) = found(&["a:1", "b:1"], &["a:1", "c:1"]);
        seeds.heartbeat("a:1", Some(&hello("one", &["a:1", "c:1"])));
        seeds.answered("b:1", Some(&hello("one", &["b:1"])));
        assert_eq!(text(&seeds), None, "c:1 may be the same server");
        seeds.heartbeat("c:1", silent.as_ref());
        let said = "the connection string names two replica sets: a:1 belongs to `one`, and b:1 to another set of that name";
        assert_eq!(text(&seeds).as_deref(), Some(said));
    }
}

#[test]
fn a_member_in_common_or_the_same_process_is_the_same_set() {
    let process = ObjectId::new();
    let version = doc! { "processId": process, "counter": 6_i64 };
    let with_process = |mut reply: Document| {
        reply.insert("topologyVersion", &version);
        reply
    };
    for (member, removed) in [
        (hello("one", &["a:1"]), hello("one", &["a:1"])),
        // The removed host is an arbiter, a passive member, or has an old configuration.
        (
            hello("one", &["a:1"]),
            doc! { "setName": "one", "me": "x:1", "hosts": ["y:1", "a:1"] },
        ),
        (
            doc! { "setName": "one", "hosts": ["a:1"], "arbiters": ["x:1"] },
            hello("one", &["x:1"]),
        ),
        (
            doc! { "setName": "one", "hosts": ["a:1"], "passives": ["x:1"] },
            hello("one", &["x:1"]),
        ),
        // The same server has other names where it is reached from elsewhere.
        (
            with_process(hello("one", &["in:1"])),
            with_process(hello("one", &["out:1"])),
        ),
    ] {
        let (mut seeds, _) = found(&["a:1", "b:1"], &["a:1"]);
        seeds.heartbeat("a:1", Some(&member));
        seeds.answered("b:1", Some(&removed));
        assert_eq!((text(&seeds), seeds.is_open()), (None, false), "{removed}");
    }
}

/// The driver says of a server that it has removed what it has heard before, and perhaps after that.
#[test]
fn only_servers_that_the_driver_knows_are_compared() {
    let (mut seeds, _) = found(&["a:1", "b:1"], &["a:1"]);
    seeds.heartbeat("b:1", Some(&hello("one", &["b:1"])));
    seeds.heartbeat("a:1", Some(&hello("one", &["a:1"])));
    seeds.answered("b:1", Some(&hello("one", &["b:1"])));
    assert!(text(&seeds).is_some());
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_answers_and_not_for_long() {
    let (mut seeds, _) = found(&["a:1", "b:1", "c:1"], &["a:1"]);
    seeds.heartbeat("a:1", Some(&hello("one", &["a:1"])));
    assert_eq!(seeds.wait_until(), Some(Instant::now() + SEED_WAIT));
    advance(Duration::from_millis(10)).await;
    seeds.answered("b:1", None);
    assert!(seeds.wait_until().is_some(), "c:1 has not answered");
    seeds.answered("c:1", Some(&doc! { "isreplicaset": true }));
    assert_eq!((seeds.wait_until(), text(&seeds)), (None, None));
}
