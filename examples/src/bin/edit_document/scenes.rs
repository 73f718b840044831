//! The scenes, each with items of its own.

use std::time::{Duration, Instant};

use anyhow::Context;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongolock::{LockError, LockState};
use mongolock_examples::demo::Stage;
use mongolock_examples::duration::show;
use mongolock_examples::print;
use mongolock_examples::summary::Summary;
use mongolock_examples::workers::Processes;
use mongolock_tests::eventually;
use tokio::task::JoinSet;

use crate::edit_session::{EditSession, Opened, end_session, item_of, lock_name};
use crate::items::Items;
use crate::play::Play;
use crate::terminal::{LAST_COMMAND, ended};

const HEADING: &str =
    "Several users edit work items, each in a session of their own. An arrow precedes each result.";

const ITEMS: u32 = 12;

/// Sessions that open an item at the same time.
const CROWD: usize = 12;

/// The expiry and the `max_hold` of the scene in which an item is left open.
const SHORT: Duration = Duration::from_secs(2);

/// Each wait here is far shorter, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Plays all scenes.
pub(crate) async fn play(stage: &Stage) -> anyhow::Result<Summary> {
    let mut play = Play::new(stage)?;
    play.items.create(ITEMS).await?;
    print(HEADING)?;
    an_open_item_is_locked(&mut play).await?;
    one_of_many_gets_an_item(&mut play).await?;
    the_item_is_not_touched(&mut play).await?;
    the_end_of_a_session(&mut play).await?;
    a_crash(&mut play).await?;
    an_item_is_left_open(&mut play).await?;
    an_operator_releases_a_lock(&mut play).await?;
    a_lock_is_lost_without_a_successor(&mut play).await?;
    Ok(play.end())
}

async fn an_open_item_is_locked(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("An open item is locked: other sessions see which one has it, and saving releases it")?;
    let (mut anna, mut bert) = play.sessions()?;
    play.gets(&mut anna, 1).await?;
    play.is_refused(&mut bert, 1, &anna).await?;
    play.saves(&mut anna, 1, "Anna's text").await?;
    play.gets(&mut bert, 1).await?;
    play.closes(&mut bert, 1).await?;
    play.gets(&mut anna, 1).await
}

async fn one_of_many_gets_an_item(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("If many sessions open an item at the same time, one gets it")?;
    let id = play.items.id(2).await?;
    let mut crowd = JoinSet::new();
    for number in 1..=CROWD {
        let mut session = play.session(&format!("editor-{number}"))?;
        crowd.spawn(async move {
            let opened = session.open(id).await;
            (session, opened)
        });
    }
    let (mut winners, mut owners) = (Vec::new(), Vec::new());
    for (session, opened) in crowd.join_all().await {
        match opened? {
            Opened::Yours(_) => winners.push(session),
            Opened::Taken(lock) => owners.push(lock.owner),
        }
    }
    let (one, others) = (winners.len(), owners.len());
    let result = format!("{one} got it, {others} saw which session has it");
    play.step("all at once", &format!("{CROWD} sessions open item 2"), &result)?;
    play.check(winners.len() == 1, "exactly one session gets the item");
    let is_winner = |owner: &Option<String>| winners.iter().any(|it| owner.as_deref() == Some(it.id()));
    play.check(owners.iter().all(is_winner), "all others see that session");
    Ok(())
}

async fn the_item_is_not_touched(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("Locking does not change an item: the locks have a collection of their own")?;
    let id = play.items.id(3).await?;
    let raw = play.database().collection::<RawDocumentBuf>(Items::COLLECTION);
    let read = async || raw.find_one(doc! { "_id": id }).await;
    let (mut anna, mut bert) = play.sessions()?;
    let before = read().await?;
    play.gets(&mut anna, 3).await?;
    let locked = read().await?;
    play.is_refused(&mut bert, 3, &anna).await?;
    play.releases(3).await?;
    play.gets(&mut bert, 3).await?;
    play.closes(&mut bert, 3).await?;
    let after = read().await?;
    let is_equal = before.is_some() && before == locked && before == after;
    let result = if is_equal { "identical" } else { "DIFFERENT" };
    let does = "compares the bytes of item 3 before, while locked, and after";
    play.step("the check", does, result)?;
    play.check(is_equal, "the item has the same bytes");
    let locks = play.database().collection::<Document>("distributed_locks");
    let name = lock_name(id);
    let lock = locks.find_one(doc! { "_id": &name }).await?;
    let result = format!("its name is `{name}`, in the collection distributed_locks");
    play.step("the check", "reads the lock", &result)?;
    let is_named = lock.is_some() && item_of(&name) == Some(id);
    play.check(is_named, "the name of the lock contains the item's ObjectId");
    Ok(())
}

async fn the_end_of_a_session(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("The end of a session releases all its items at once")?;
    let (mut anna, mut bert) = play.sessions()?;
    let mut annas_other = play.session("anna@desk-3")?;
    play.gets(&mut anna, 4).await?;
    play.gets(&mut anna, 5).await?;
    play.gets(&mut annas_other, 6).await?;
    play.ends(anna, 2).await?;
    play.gets(&mut bert, 4).await?;
    play.gets(&mut bert, 5).await?;
    // Another session of the same user keeps its item.
    play.is_refused(&mut bert, 6, &annas_other).await
}

async fn a_crash(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("The session of a crashed process is ended from another process")?;
    let (mut anna, mut bert) = play.sessions()?;
    play.gets(&mut anna, 12).await?;
    let mut cleo = cleos_process(play, &[7, 8]).await?;
    cleo.kill(1)?;
    play.step("cleo@laptop", "is killed", "its locks are not released")?;
    let Opened::Taken(lock) = play.open(&mut bert, 7).await? else {
        play.check(false, "the locks remain after the end of the process");
        return Ok(());
    };
    let session = lock.owner.context("the lock has no owner")?;
    let is_cleos = session.starts_with("cleo@laptop#");
    play.check(is_cleos, "bert@desk-5 sees that cleo@laptop has item 7");
    let released = end_session(&play.locks, &session).await?;
    let does = format!("ends the session {session}");
    play.step("the server", &does, &ended(released))?;
    play.check(released == 2, "both items are released");
    let again = end_session(&play.locks, &session).await?;
    play.check(again == 0, "a session that has ended has no items");
    play.gets(&mut bert, 7).await?;
    play.gets(&mut bert, 8).await?;
    // Other sessions keep their items.
    play.is_refused(&mut bert, 12, &anna).await
}

/// Starts a process with a session of Cleo, in which it opens these items. It ends with its standard input.
async fn cleos_process(play: &mut Play<'_>, items: &[u32]) -> anyhow::Result<Processes> {
    let (stage, database) = (play.stage, play.database().name());
    let mut process = Processes::start(1..=1, |_| {
        let mut command = stage.program()?;
        command.args(["--database", database, "--editor", "cleo@laptop"]);
        Ok(command)
    })?;
    let ended = "the process has ended";
    let mut line = String::new();
    while !line.starts_with(LAST_COMMAND) {
        line = process.next_line().await?.context(ended)?;
    }
    for item in items {
        process.write_line(&format!("open {item}"))?;
        let result = process.next_line().await?.context(ended)?;
        let step = format!("opens item {item}, in another process");
        play.step("cleo@laptop", &step, &result)?;
        let is_locked = result.starts_with("locked for you");
        play.check(is_locked, &format!("cleo@laptop gets item {item}"));
    }
    Ok(process)
}

async fn an_item_is_left_open(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("An item that was left open is free after a time")?;
    // The session renews its lease, which only `max_hold` ends.
    let short = play.locks.to_builder().expiry(SHORT).max_hold(SHORT).build()?;
    let mut anna = EditSession::begin(&short, &play.items, "anna@desk-3")?;
    let mut bert = play.session("bert@desk-5")?;
    let begun = Instant::now();
    play.gets(&mut anna, 9).await?;
    play.is_refused(&mut bert, 9, &anna).await?;
    let name = lock_name(play.items.id(9).await?);
    let admin = play.locks.admin();
    let ended = async || match admin.get(&name).await {
        Ok(lock) => lock.filter(|lock| lock.state != LockState::Held).map(Ok),
        Err(error) => Some(Err(error)),
    };
    let lock = eventually(LIMIT, "end of the lease", ended).await??;
    let lasted = begun.elapsed();
    let result = format!("the lease expired {} after the item was opened", show(lasted));
    play.step("anna@desk-3", "leaves item 9 open", &result)?;
    play.check(lock.state == LockState::Expired, "the lock was not released");
    play.check(lasted >= SHORT, "the lease lasted for at least one expiry");
    play.gets(&mut bert, 9).await?;
    play.saves(&mut bert, 9, "Bert's text").await?;
    play.conflicts(&mut anna, (9, "Anna's text"), (is_lost, "Bert's text"))
        .await
}

fn is_lost(error: &LockError) -> bool {
    matches!(error, LockError::Lost { .. })
}

fn is_stale(error: &LockError) -> bool {
    matches!(error, LockError::Stale { token, seen, .. } if token < seen)
}

async fn an_operator_releases_a_lock(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("After a release by an operator the next session may save, and the earlier one may not")?;
    let (mut anna, mut bert) = play.sessions()?;
    play.gets(&mut anna, 10).await?;
    play.is_refused(&mut bert, 10, &anna).await?;
    play.releases(10).await?;
    play.gets(&mut bert, 10).await?;
    play.saves(&mut bert, 10, "Bert's text").await?;
    play.conflicts(&mut anna, (10, "Anna's text"), (is_stale, "Bert's text"))
        .await?;
    play.gets(&mut anna, 10).await?;
    play.saves(&mut anna, 10, "Bert's text, and Anna's").await
}

async fn a_lock_is_lost_without_a_successor(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("A session that saves after losing its lock sees that, even if no other session has saved")?;
    let mut anna = play.session("anna@desk-3")?;
    play.gets(&mut anna, 11).await?;
    play.releases(11).await?;
    play.conflicts(&mut anna, (11, "Anna's text"), (is_lost, "Anna's text"))
        .await
}
