//! Users edit documents on the web. A document is locked while a page has it open: for minutes, and over many requests, which
//! go to three instances of a service.
//!
//! ```text
//! cargo run --bin edit_document
//! ```
//!
//! No instance keeps a lock between two requests. Opening *detaches* the lock, and the page gets the handle as a cookie: a
//! heartbeat extends the lease, and a save resumes it, writes, and detaches it with a new handle. The file `service.rs` has the
//! code to copy. This one plays the users, kills an instance, and checks. The page "editing sessions" of the guide has the rules.

mod service;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Parser;
use mongolock::{LockFilter, LockProvider, LockState};
use mongolock_examples::browser::{Browser, Instance};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::{print, summary::Summary, worker::Worker};
use tokio::task::JoinSet;

use crate::service::{Body, EXPIRY, lock_name};

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
    let mut instances: Vec<Instance> = Vec::new();
    while instances.len() < 3 {
        instances.push(processes.next().await?.context("an instance has ended")?);
    }
    instances.sort_unstable();
    let (a, b, c) = (instances[0], instances[1], instances[2]);
    let (anna, bert) = (Browser::new("anna/1", true)?, Browser::new("bert/1", true)?);
    let (page, admin) = (body("", 0, 300), LockProvider::new(stage.database()).admin());

    anna.expect(a, "1/open", &page, 200).await?;
    anna.expect(a, "2/open", &page, 200).await?;
    let holder = bert.expect(b, "1/open", &page, 423).await?;
    ensure!(holder == "locked by anna/1", "{holder}");
    anna.expect(b, "1/heartbeat", &page, 200).await?;
    // During the save a heartbeat finds that its handle is used up. The page goes on with the cookie of the save.
    let save = body("anna\n", 2, 300);
    tokio::try_join!(
        anna.expect(c, "1/save", &save, 200),
        anna.until(b, "1/heartbeat", &page, 409)
    )?;
    anna.expect(b, "1/heartbeat", &page, 200).await?;

    let (killed, begun) = (body("anna\nnever written\n", 60, 300), Instant::now());
    tokio::select! {
        saved = anna.post(c, "1/save", &killed) => bail!("it was not killed: {saved:?}"),
        () = async { while admin.get(lock_name(1)).await.is_ok_and(|it| it.is_some_and(|it| it.detached)) {} } => {}
    }
    processes.kill(3)?;
    let text = bert.until(a, "1/open", &page, 200).await?;
    ensure!(text == "anna\n" && begun.elapsed() >= EXPIRY, "{text:?}");
    anna.expect(b, "1/save", &killed, 409).await?;

    // Bert closes his browser without ending the session.
    let (last, begun) = (body("anna\nbert\n", 0, 2), Instant::now());
    bert.expect(b, "1/save", &last, 200).await?;
    let text = anna.until(a, "1/open", &page, 200).await?;
    ensure!(text == "anna\nbert\n" && begun.elapsed() >= last.ttl, "{text:?}");
    bert.expect(a, "1/save", &page, 409).await?;
    // The session has documents 1 and 2.
    let released = anna.expect(b, "1/end", &page, 200).await?;
    ensure!(released == "2", "{released}");

    let mut users = JoinSet::new();
    (1..=USERS).for_each(|user| drop(users.spawn(edit(user, [a, b]))));
    let mut saved = Vec::new();
    for user in users.join_all().await {
        saved.extend(user?);
    }
    saved.sort_unstable();
    let text = bert.expect(b, "1/open", &page, 200).await?;
    bert.expect(a, "1/close", &page, 200).await?;
    let expected = saved.iter().map(|(_, line)| line.as_str());
    let expected: String = ["anna\n", "bert\n"].into_iter().chain(expected).collect();
    let held = admin.list(LockFilter::new().state(LockState::Held)).await?;

    let mut summary = Summary::default();
    summary.row("confirmed saves", saved.len() + 2);
    summary.row("lines in the document", text.lines().count());
    summary.check(
        text == expected,
        format!("the text has not the lines of all saves: {text:?}"),
    );
    summary.row("saves refused without the lock", 2 + USERS * 2);
    summary.zero("locks that are left", held.len(), format!("{held:?}"));
    Ok(summary)
}

/// Opens the document twice, saves a line three times each, and ends. Returns the tokens and the lines of the saves.
async fn edit(user: usize, instances: [Instance; 2]) -> anyhow::Result<Vec<(u64, String)>> {
    let (browser, page) = (Browser::new(format!("user/{user}"), false)?, body("", 0, 300));
    let (mut saved, mut next) = (Vec::new(), instances.into_iter().cycle().skip(user));
    let mut at = || next.next().expect("a cycle does not end");
    for how in ["close", "end"] {
        let mut text = browser.until(at(), "1/open", &page, 200).await?;
        for save in 1..=3 {
            let line = format!("{user}, {how}, {save}\n");
            text += &line;
            browser.expect(at(), "1/heartbeat", &page, 200).await?;
            let token = browser.expect(at(), "1/save", &body(&text, 0, 300), 200).await?;
            saved.push((token.parse()?, line));
        }
        browser.expect(at(), &format!("1/{how}"), &page, 200).await?;
        browser.expect(at(), "1/save", &page, 409).await?;
    }
    Ok(saved)
}

fn body(text: &str, work: u64, ttl: u64) -> Body {
    let [work, ttl] = [work, ttl].map(Duration::from_secs);
    Body {
        text: text.to_owned(),
        work,
        ttl,
    }
}
