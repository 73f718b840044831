//! How long `mongolock log` takes on a large oplog, and what it costs the programs beside it.
//!
//! `cargo bench -p mongolock-cli --bench log` fills an oplog with 250 MB of renewals, and `… -- --full` with 1,000 MB. The server is
//! one of its own.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongolock::{DistributedLock, LockProvider};
use mongolock_tests::{Server, ServerOptions, locks, must};

/// The locks that are renewed.
const LOCKS: usize = 1000;

/// A turn is written after so many renewals.
const RENEWALS_OF_A_TURN: usize = 20_000;

/// Cycles of acquire and release that are measured in each round, without the program and then beside it.
const CYCLES: usize = 500;
const ROUNDS: usize = 4;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    if !has("--bench") {
        println!("nothing is measured: run `cargo bench` instead of `cargo test`");
        return;
    }
    let megabytes = if has("--full") { 1000 } else { 250 };
    let server = must(Server::start(ServerOptions::single().oplog(megabytes * 2)).await);
    let client = must(server.client().await);
    let database = client.database("app");
    let entries = fill(&database, megabytes).await;
    println!("oplog: {megabytes} MB, {entries} entries");

    for arguments in [&["--since", "12h"][..], &["--since", "12h", &name(7)]] {
        let (first, all) = timed(&server.uri(), arguments);
        let of_a_gigabyte = all.as_secs_f64() * 1000.0 / f64::from(megabytes);
        println!(
            "log {}: first line {first:.1?}, all {all:.1?}, {of_a_gigabyte:.1} s a GB (goals 1 s, 12 s a GB)",
            arguments.join(" ")
        );
    }

    let lock = LockProvider::new(&database).lock("beside");
    let (mut without, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..CYCLES {
            without.push(cycle(&lock).await);
        }
        let mut child = start(&server.uri(), &["--since", "12h"]);
        for _ in 0..CYCLES {
            if must(child.try_wait()).is_some() {
                child = start(&server.uri(), &["--since", "12h"]);
            }
            beside.push(cycle(&lock).await);
        }
        must(child.kill());
        must(child.wait());
    }
    for (name, part, goal) in [("p50", 2, 1.2), ("p99", 100, 2.0)] {
        let at = |cycles: &mut Vec<Duration>| {
            cycles.sort_unstable();
            cycles[cycles.len() - 1 - cycles.len() / part]
        };
        let (alone, with) = (at(&mut without), at(&mut beside));
        let ratio = with.as_secs_f64() / alone.as_secs_f64();
        println!(
            "acquire and release, {name}: {alone:.1?} alone, {with:.1?} beside log: x{ratio:.2} (goal x{goal})"
        );
    }
}

/// The name of a lock, as long as those of the examples.
fn name(number: usize) -> String {
    format!("report:customer-{number:06}")
}

/// Fills the oplog with renewals, and some turns among them. Returns the number of its entries.
async fn fill(database: &Database, megabytes: u32) -> u64 {
    let provider = LockProvider::new(database);
    for number in 0..LOCKS {
        let held = must(provider.lock(name(number)).acquire().await);
        must(held.release().await);
    }
    let oplog = database.client().database("local");
    let mut renewals = 0;
    loop {
        let statements: Vec<Document> = (0..LOCKS)
            .map(|number| {
                let moved = doc! { "$set": { "expiresAt": { "$add": ["$expiresAt", 1] } } };
                doc! { "q": { "_id": name(number) }, "u": [moved] }
            })
            .collect();
        let command = doc! { "update": locks(database).name(), "updates": statements, "ordered": false };
        must(database.run_command(command).await);
        renewals += LOCKS;
        if !renewals.is_multiple_of(RENEWALS_OF_A_TURN) {
            continue;
        }
        let held = must(provider.lock("turn").acquire().await);
        must(held.release().await);
        if size(&oplog, "oplog.rs").await >> 20 >= i64::from(megabytes) {
            let count = oplog.collection::<Document>("oplog.rs");
            return must(count.estimated_document_count().await);
        }
    }
}

/// The size of a collection, in bytes.
async fn size(database: &Database, collection: &str) -> i64 {
    let stats = must(database.run_command(doc! { "collStats": collection }).await);
    let size = stats
        .get("size")
        .and_then(|size| size.as_i32().map(i64::from).or(size.as_i64()));
    size.unwrap_or_default()
}

fn program(uri: &str, database: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mongolock"));
    command
        .env("MONGODB_URI", uri)
        .args(["--database", database])
        .args(arguments);
    command
}

fn start(uri: &str, arguments: &[&str]) -> Child {
    let mut command = program(uri, "app", &["log"]);
    must(command.args(arguments).stdout(Stdio::piped()).spawn())
}

/// The time to the first line of the program, and to its end.
fn timed(uri: &str, arguments: &[&str]) -> (Duration, Duration) {
    let begun = Instant::now();
    let mut child = start(uri, arguments);
    let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
    let first = lines.next().map(|line| must(line).len());
    assert!(first.is_some(), "it says how far back the server remembers");
    let first = begun.elapsed();
    lines.for_each(|line| drop(must(line)));
    must(child.wait());
    (first, begun.elapsed())
}

async fn cycle(lock: &DistributedLock) -> Duration {
    let begun = Instant::now();
    must(must(lock.acquire().await).release().await);
    begun.elapsed()
}
