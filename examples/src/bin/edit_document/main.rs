//! Users edit documents on the web. A document is locked while a page has it open: over many requests, which go to three
//! instances of a service, and no instance keeps a lock between two of them.
//!
//! ```text
//! cargo run --bin edit_document
//! ```
//!
//! `service.rs` is the code to copy; this file plays the users and checks. The guide's page "editing sessions" has the rules.

mod service;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use clap::Parser;
use mongolock::LockProvider;
use mongolock_examples::browser::{self, Browser, Instance};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::{print, summary::Summary, worker::Worker};
use serde_json::json;
use tokio::task::JoinSet;

use crate::service::{EXPIRY, lock_name};

const PROVED: &str = "\
Proved below: nobody writes without the lock, no confirmed save is lost, and between two requests a lock needs no instance. It
ends with its session, after its ttl, or, if an instance is killed during a save, after the expiry of the provider.\n";

/// The number of users who edit one document at the same time, twice each.
const USERS: usize = 8;

/// Users edit documents on the web. Each document is locked over many requests to three instances of a service.
#[derive(Debug, Parser)]
#[command(name = "edit_document", after_help = AFTER_HELP)]
struct Options {
    #[command(flatten)]
    worker: Option<Worker>,
}

fn main() -> ExitCode {
    match Options::parse().worker {
        Some(worker) => demo::run(service::run(&worker)),
        None => demo::demonstrate("edit_document", demonstrate),
    }
}

async fn demonstrate(stage: &Stage) -> anyhow::Result<Summary> {
    print(PROVED)?;
    let mut processes = stage.start_workers(1..=3)?;
    let [a, b, c] = browser::instances(&mut processes).await?;
    let admin = LockProvider::new(stage.database()).admin();
    let (anna, bert) = (Browser::new("anna/1", true)?, Browser::new("bert/1", true)?);
    let page = json!({ "ttl": 300 });
    anna.expect(a, "1/open", &page, (200, "")).await?;
    anna.expect(a, "2/open", &page, (200, "")).await?;
    bert.expect(b, "1/open", &page, (423, "locked by anna/1")).await?;
    anna.expect(b, "1/heartbeat", &page, (200, "")).await?;
    // During the save a heartbeat finds that its handle is used up: the page goes on with the cookie of the save.
    let save = json!({ "text": "anna\n", "work": 2, "ttl": 300 });
    let saving = anna.expect(c, "1/save", &save, (200, ""));
    tokio::try_join!(saving, anna.until(b, "1/heartbeat", &page, (409, "lost")))?;
    anna.expect(b, "1/heartbeat", &page, (200, "")).await?;

    // Instance 3 is killed during a save. Only the expiry ends its lease.
    let (begun, save) = (Instant::now(), json!({ "text": "never", "work": 60, "ttl": 300 }));
    let lock = async || admin.get(lock_name(1)).await.ok().flatten();
    tokio::select! {
        saved = anna.post(c, "1/save", &save) => bail!("it was not killed: {saved:?}"),
        () = async { while lock().await.is_none_or(|lock| lock.detached) {} } => processes.kill(3)?,
    }
    bert.until(a, "1/open", &page, (200, "anna\n")).await?;
    ensure!(begun.elapsed() >= EXPIRY, "two had the lock");
    anna.expect(b, "1/save", &save, (409, "lost")).await?;
    // Bert closes his browser without ending the session.
    let (begun, save) = (Instant::now(), json!({ "text": "anna\nbert\n", "ttl": 2 }));
    bert.expect(b, "1/save", &save, (200, "")).await?;
    anna.until(a, "1/open", &page, (200, "anna\nbert\n")).await?;
    ensure!(begun.elapsed() >= Duration::from_secs(2), "two had the lock");
    bert.expect(a, "1/save", &save, (409, "lost")).await?;
    anna.expect(b, "1/end", &page, (200, "2")).await?;

    let users: JoinSet<_> = (1..=USERS).map(|user| edit(user, [a, b])).collect();
    let saved = users.join_all().await;
    check(saved, &anna.expect(b, "1/open", &page, (200, "")).await?)
}

/// Opens the document twice, saves a line three times each, and ends. Returns the tokens and the lines of the saves.
async fn edit(user: usize, instances: [Instance; 2]) -> anyhow::Result<Vec<(u64, String)>> {
    let (session, page) = (format!("user/{user}"), json!({ "ttl": 300 }));
    let browser = Browser::new(session, false)?;
    let (mut saved, mut next) = (Vec::new(), instances.into_iter().cycle().skip(user));
    let mut at = || next.next().expect("a cycle does not end");
    for (how, released) in [("1/close", "true"), ("1/end", "1")] {
        let mut text = browser.until(at(), "1/open", &page, (200, "")).await?;
        for number in 1..=3 {
            let line = format!("user {user}, {how}, {number}\n");
            text += &line;
            browser.expect(at(), "1/heartbeat", &page, (200, "")).await?;
            let save = json!({ "text": text, "ttl": 300 });
            let token = browser.expect(at(), "1/save", &save, (200, "")).await?;
            saved.push((token.parse()?, line));
        }
        browser.expect(at(), how, &page, (200, released)).await?;
        browser.expect(at(), "1/save", &page, (409, "lost")).await?;
    }
    Ok(saved)
}

fn check(users: Vec<anyhow::Result<Vec<(u64, String)>>>, text: &str) -> anyhow::Result<Summary> {
    let users = users.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let mut saved: Vec<(u64, String)> = users.into_iter().flatten().collect();
    saved.sort_unstable();
    let lines = saved.iter().map(|(_, line)| line.as_str());
    let expected: String = ["anna\n", "bert\n"].into_iter().chain(lines).collect();
    let wrong = format!("these are not the lines of all saves in the order of their tokens: {text:?}");
    let mut summary = Summary::default();
    summary.row("confirmed saves", saved.len() + 2);
    summary.row("lines in the document", text.lines().count());
    summary.check(text == expected, wrong);
    summary.row("saves refused without the lock", 2 + USERS * 2);
    Ok(summary)
}
