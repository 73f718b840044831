//! Users edit documents on the web. A document is locked while a page has it open.
//!
//! **Scene** (`cargo run --bin edit_document`). The requests of a page go to three instances of a service (`service.rs`, the
//! code to copy). One is killed during a save.
//!
//! **What it proves.** Nobody writes without the lock, and no confirmed save is lost.
//!
//! **How it is checked.** Each answer is the expected one, and the text has the lines of all confirmed saves in the order of
//! their fencing tokens.

mod service;

use std::{process::ExitCode, time::Duration, time::Instant};

use anyhow::{bail, ensure};
use clap::Parser;
use mongolock::LockProvider;
use mongolock_example_services::browser::{self, Browser, Instance};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::{print, summary::Summary, worker::Worker};
use mongolock_tests::eventually;
use serde_json::json;
use tokio::task::JoinSet;

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
    print("To be proved: nobody writes without the lock, and no confirmed save is lost.\n")?;
    let mut processes = stage.start_workers(1..=3, &[])?;
    let [a, b, c] = browser::instances(&mut processes).await?;
    let (page, admin) = (json!({}), LockProvider::new(stage.database()).admin());
    let (anna, bert) = (Browser::new("anna/1", true), Browser::new("bert/1", true));
    anna.expect(a, "1/open", &page, (200, "")).await?;
    anna.expect(a, "2/open", &page, (200, "")).await?;
    bert.expect(b, "1/open", &page, (423, "locked by anna/1")).await?;
    print("Anna reloads the page: her session opens the document anew.")?;
    anna.expect(b, "1/open", &page, (200, "")).await?;
    print("She saves. A heartbeat meanwhile finds its handle used up; the next one has that of the save.")?;
    let save = json!({ "text": "anna\n", "work": 2 });
    let saving = anna.expect(c, "1/save", &save, (200, ""));
    let (saved, _) = tokio::try_join!(saving, anna.until(b, "1/heartbeat", &page, (409, "lost")))?;
    let mut answers = vec![saved + " anna\n"];
    anna.expect(b, "1/heartbeat", &page, (200, "")).await?;

    print("Instance 3 is killed while she saves. Bert waits for the expiry, 4 s; her next save is refused.")?;
    let (begun, save) = (Instant::now(), json!({ "text": "never", "work": 60 }));
    let saving = || async { admin.get("document:1").await.ok()?.filter(|lock| !lock.detached) };
    tokio::select! {
        saved = anna.post(c, "1/save", &save) => bail!("it was not killed: {saved:?}"),
        lock = eventually(browser::LIMIT, "the save", saving) => lock.map(|_| processes.kill(3))??,
    }
    bert.until(a, "1/open", &page, (200, "anna\n")).await?;
    ensure!(begun.elapsed() >= service::EXPIRY, "two had the lock");
    answers.push(anna.expect(b, "1/save", &save, (409, "lost")).await?);

    print("Bert saves, and closes his browser without a request. Anna waits for his ttl, 2 s here.")?;
    let (begun, save) = (Instant::now(), json!({ "text": "anna\nbert\n", "ttl": 2 }));
    answers.push(bert.expect(b, "1/save", &save, (200, "")).await? + " bert\n");
    anna.until(a, "1/open", &page, (200, "anna\nbert\n")).await?;
    ensure!(begun.elapsed() >= Duration::from_secs(2), "two had the lock");
    answers.push(bert.expect(a, "1/save", &save, (409, "lost")).await?);
    anna.expect(b, "1/end", &page, (200, "2")).await?;

    print("Eight users open the document twice each, and save three lines each time.")?;
    let users: JoinSet<_> = (1..=8).map(|user| edit(user, [a, b])).collect();
    for user in users.join_all().await {
        answers.extend(user?);
    }
    let reader = Browser::new("reader/1", false);
    let text = reader.expect(a, "1/open", &page, (200, "")).await?;
    Ok(check(answers, &text))
}

/// Opens the document twice, saves a line three times each, and ends. Returns what [`check`] takes.
async fn edit(user: usize, instances: [Instance; 2]) -> anyhow::Result<Vec<String>> {
    let (browser, page) = (Browser::new(format!("user/{user}"), false), json!({}));
    let (mut answers, mut next) = (Vec::new(), instances.into_iter().cycle().skip(user));
    let mut at = || next.next().expect("a cycle does not end");
    for (how, released) in [("1/close", "true"), ("1/end", "1")] {
        let mut text = browser.until(at(), "1/open", &page, (200, "")).await?;
        for number in 1..=3 {
            let line = format!(" user {user}, {how}, {number}\n");
            text += &line[1..];
            browser.expect(at(), "1/heartbeat", &page, (200, "")).await?;
            let save = json!({ "text": text });
            answers.push(browser.expect(at(), "1/save", &save, (200, "")).await? + &line);
        }
        browser.expect(at(), how, &page, (200, released)).await?;
        answers.push(browser.expect(at(), "1/save", &page, (409, "lost")).await?);
    }
    Ok(answers)
}

/// Compares the text with the answers to all saves: a fencing token, to which the line that was saved is added, or `lost`.
fn check(answers: Vec<String>, text: &str) -> Summary {
    let (refused, mut saved): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer == "lost");
    saved.sort_unstable();
    let lines = saved.iter().filter_map(|answer| answer.split_once(' '));
    let expected: String = lines.map(|(_, line)| line).collect();
    let wrong = format!("these are not the lines of all saves in the order of their tokens: {text:?}");
    let mut summary = Summary::default();
    summary.row("confirmed saves", saved.len());
    summary.row("lines in the document", text.lines().count());
    summary.fail((text != expected).then_some(wrong));
    summary.row("saves refused without the lock", refused.len());
    summary
}
