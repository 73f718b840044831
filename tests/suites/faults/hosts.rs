//! A connection string whose hosts belong to two replica sets: each process works with the set that answers it first, so that
//! two of them could hold one lock. And strings that look like one, and are none.

use std::fs;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::doc;
use mongolock::{LockError, LockFilter, LockProvider};
use mongolock_tests::{AMPLE, LentServer, Node, Proxy, Server, ServerOptions, Set, eventually, must, until};
use tokio::time::{Instant, sleep};

use crate::{CLOSED, assert_free};

/// How many starts are tried with each string: without the check 5 of 12 pairs had two holders.
const STARTS: usize = 4;

/// The time in which a call must have ended. The library promises 2 s after its first reply; without the check it would wait for
/// the minute of its timeout or acquire.
const PROMPT: Duration = Duration::from_secs(15);

/// A provider on these hosts.
async fn connect(hosts: &[&str], options: &str) -> LockProvider {
    let uri = format!("mongodb://{}/app?{options}", hosts.join(","));
    LockProvider::connect(uri).await.unwrap()
}

/// Asserts that the error says that these two hosts belong to different sets.
fn assert_two_sets(error: &LockError, of: [(&str, &str); 2]) {
    let text = error.to_string();
    let begin = "the connection string names two replica sets: ";
    assert!(text.starts_with(begin), "{text}");
    for (host, set) in of {
        let is_named = text.contains(host) && text.contains(&format!("`{set}`"));
        assert!(is_named, "{text}");
    }
    let help = error.help();
    assert!(help.contains("hosts of one replica set"), "{help}");
}

/// Starts pairs of processes with a string of both hosts, of which none may ever acquire the lock.
async fn no_process_acquires(sets: [(&str, &str); 2], options: &str) {
    let [(one, _), (other, _)] = sets;
    for start in 0..STARTS {
        let hosts = if start % 2 == 0 {
            [one, other]
        } else {
            [other, one]
        };
        let (first, second) = tokio::join!(connect(&hosts, options), connect(&hosts, options));
        let begun = Instant::now();
        let one = first.lock("nightly");
        let other = second.lock("nightly").acquire_timeout(AMPLE);
        let (tried, waited) = tokio::join!(one.try_acquire(), other.acquire());
        let errors = [
            tried.expect_err("it must not try a set"),
            waited.expect_err("it must not acquire the lock"),
        ];
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        for error in errors {
            assert_two_sets(&error, sets);
        }
        for provider in [first, second] {
            each_call_fails(&provider, sets).await;
            provider.shutdown().await;
        }
    }
}

async fn each_call_fails(provider: &LockProvider, sets: [(&str, &str); 2]) {
    let locks = provider.lock_all(["a", "b"]);
    let admin = provider.admin();
    for error in [
        provider.lock("nightly").acquire().await.unwrap_err(),
        locks.acquire().await.unwrap_err(),
        provider.semaphore("nightly", 2).try_acquire().await.unwrap_err(),
        admin.list(LockFilter::new()).await.unwrap_err(),
        admin.force_release("nightly").await.unwrap_err(),
        provider.health().await.error.expect("it has an error"),
    ] {
        assert_two_sets(&error, sets);
    }
    assert!(!provider.is_ready().await);
}

/// Sets with different names, and with one name: these are found by their members.
#[tokio::test]
async fn hosts_of_two_sets_are_an_error_of_each_call() {
    let (one, same) = tokio::join!(LentServer::single(), LentServer::single());
    let (one, same, other) = (must(one), must(same), Set::start("other", &[doc! {}]).await);
    let (one, same) = (one.node().address(), same.node().address());
    let sets = [(one, "mongolock"), (other.address(0), "other")];
    for options in ["", "replicaSet=mongolock", "replicaSet=other"] {
        no_process_acquires(sets, options).await;
    }
    for options in ["", "replicaSet=mongolock"] {
        no_process_acquires([one, same].map(|host| (host, "mongolock")), options).await;
    }
    what_is_not_checked_works_as_the_driver_does(sets.map(|(host, _)| host)).await;
    a_set_that_answers_late_ends_no_hold(sets, other.node(0)).await;
}

/// The client of an application, a direct connection and a single host are left alone.
async fn what_is_not_checked_works_as_the_driver_does(hosts: [&str; 2]) {
    let client = Client::with_uri_str(format!("mongodb://{}/", hosts.join(",")))
        .await
        .unwrap();
    assert_free(&LockProvider::new(&client.database("app")), "own").await;
    for host in hosts {
        works(&[host], "directConnection=true").await;
        works(&[host], "").await;
    }
}

/// The other set is silent, which delays no shutdown, and answers only when a lock is held: the hold goes on, and nothing is
/// acquired from then on.
async fn a_set_that_answers_late_ends_no_hold(sets: [(&str, &str); 2], other: &Node) {
    must(other.stop());
    let hosts = sets.map(|(host, _)| host);
    let brief = connect(&hosts, "").await;
    assert_free(&brief, "beside").await;
    let begun = Instant::now();
    brief.shutdown().await;
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());

    let builder = connect(&hosts, "").await.to_builder();
    let provider = builder.expiry(Duration::from_secs(4)).build().unwrap();
    let begun = Instant::now();
    let guard = provider.lock("held").await.unwrap();
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    must(other.resume());
    let refused = || async { provider.lock("next").try_acquire().await.err() };
    let error = must(eventually(AMPLE, "the finding", refused).await);
    assert_two_sets(&error, sets);
    sleep(Duration::from_secs(5)).await;
    guard.ensure_held().expect("it was renewed");
    guard.release().await.expect("it was held until then");
}

/// Neither host is the primary of its set.
#[tokio::test]
async fn secondaries_of_two_sets_are_told_apart() {
    let members = [doc! {}, doc! {}];
    let (one, other) = tokio::join!(Set::start("same", &members), Set::start("same", &members));
    let hosts = [one.address(1), other.address(1)];
    for _ in 0..STARTS {
        let provider = connect(&hosts, "").await;
        let error = provider.lock("nightly").try_acquire().await.err();
        let text = error.expect("it must not try a set").to_string();
        assert!(text.contains("names two replica sets"), "{text}");
        assert!(text.contains("to another set, `same`"), "{text}");
        provider.shutdown().await;
    }
}

/// Asserts that a string of these hosts has locks, at each start.
async fn works(hosts: &[&str], options: &str) {
    for start in 0..hosts.len().max(2) {
        let mut hosts = hosts.to_vec();
        let first = start % hosts.len();
        hosts.rotate_left(first);
        let provider = connect(&hosts, options).await;
        assert_free(&provider, "job").await;
        // By now the hosts have answered.
        assert_free(&provider, "job").await;
        assert!(provider.is_ready().await && provider.health().await.error.is_none());
        provider.shutdown().await;
    }
}

/// Other names and other ways to the same servers, such as those of a cluster of containers or behind an address translation.
#[tokio::test]
async fn other_names_of_the_same_servers_are_no_finding() {
    let server = must(Server::start(ServerOptions::three_members()).await);
    a_healthy_start_asks_no_host(&server).await;
    let nodes = server.nodes();
    let (mut proxies, mut aliases) = (Vec::new(), Vec::new());
    for node in nodes {
        proxies.push(must(Proxy::start(node.address()).await));
        aliases.push(node.address().replace("127.0.0.1", "localhost"));
    }
    let behind: Vec<&str> = proxies.iter().map(Proxy::address).collect();
    let named: Vec<&str> = aliases.iter().map(String::as_str).collect();
    let own: Vec<&str> = nodes.iter().map(Node::address).collect();
    for hosts in [
        vec![own[0], named[0]],
        vec![named[0], behind[1], own[2]],
        named.clone(),
        behind.clone(),
        [behind, named, own].concat(),
    ] {
        works(&hosts, "").await;
        works(&hosts, "replicaSet=mongolock").await;
    }
}

/// Members that a client may name and the set does not list among its `hosts`: a hidden one, an arbiter, and one that cannot be
/// primary and is listed as passive.
#[tokio::test]
async fn members_of_each_kind_are_no_finding() {
    let hidden = doc! { "hidden": true };
    let arbiter = doc! { "arbiterOnly": true };
    let set = Set::start("kinds", &[doc! {}, doc! {}, hidden, arbiter]).await;
    let hosts: Vec<&str> = (0..4).map(|member| set.address(member)).collect();
    works(&hosts, "").await;
    for member in 1..4 {
        works(&[hosts[0], hosts[member]], "replicaSet=kinds").await;
    }
    hosts_that_are_no_members_any_more_are_no_finding(&set, &hosts).await;
}

/// Members that were removed, one that knows it, and one that was away and still has the configuration of before. A server
/// without a set, and one that does not answer.
async fn hosts_that_are_no_members_any_more_are_no_finding(set: &Set, hosts: &[&str]) {
    // A change of the members closes connections, also those of the commands here.
    let remain = async |version, members: usize| {
        let config = set.config(version, &vec![doc! {}; members]);
        let command = doc! { "replSetReconfig": config, "force": true };
        let changed = || async { set.admin(0).await.run_command(command.clone()).await.ok() };
        must(eventually(AMPLE, "the change of the members", changed).await);
    };
    // The implicit concern of a set with an arbiter is another one, and a configuration must not change it.
    let majority = doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": { "w": "majority" } };
    set.run(0, majority).await;
    remain(10, 2).await;
    let is_removed = || async {
        let hello = set.admin(2).await.run_command(doc! { "hello": 1 }).await;
        hello.ok()?.get_str("setName").is_err().then_some(())
    };
    must(eventually(AMPLE, "the removed member", is_removed).await);
    works(&[hosts[0], hosts[2]], "").await;

    must(set.node(1).kill().await);
    remain(100_000, 1).await;
    must(set.node(1).restart().await);
    works(&[hosts[0], hosts[1]], "").await;

    let uninitiated = Set::uninitiated("never", 1).await;
    let standalone = must(LentServer::standalone().await);
    for other in [uninitiated.address(0), standalone.node().address(), CLOSED] {
        works(&[hosts[0], other], "").await;
        works(&[hosts[0], other], "replicaSet=kinds").await;
    }
}

/// The number of questions that these servers were asked, by their logs.
fn questions<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> usize {
    let asked = nodes.into_iter().map(|node| {
        let log = fs::read_to_string(node.directory().join("log")).unwrap();
        let lines = log.lines().filter(|line| line.contains("client metadata"));
        lines
            .filter(|line| line.contains("mongolock: which replica set"))
            .count()
    });
    asked.sum()
}

/// No host is asked at a healthy start; one that the driver has removed is asked once, and no other one.
async fn a_healthy_start_asks_no_host(server: &Server) {
    let nodes = server.nodes();
    let primary = must(server.primary().await).address();
    let hosts: Vec<&str> = nodes.iter().map(Node::address).collect();
    for options in ["", "replicaSet=mongolock"] {
        works(&hosts, options).await;
    }
    assert_eq!(questions(nodes), 0);
    let alias = primary.replace("127.0.0.1", "localhost");
    let hosts = hosts
        .iter()
        .map(|host| if *host == primary { &alias } else { *host });
    works(&hosts.collect::<Vec<_>>(), "").await;
    until("the question", async || questions(nodes) > 0).await;
}
