//! The scenes, each with items of its own.

use std::time::{Duration, Instant};

use anyhow::Context;
use mongodb::Database;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongolock::{LockError, LockState};
use mongolock_examples::duration::show;
use mongolock_examples::output::println;
use mongolock_tests::{Deployment, eventually};
use tokio::task::JoinSet;

use crate::edit_session::{EditSession, Opened, Saved, end_session, lock_name};
use crate::items::Items;
use crate::other_process;
use crate::play::Play;
use crate::wording;

const HEADING: &str =
    "Several people edit work items, each in a session of their own. After an arrow: what they are told.";

const ITEMS: u32 = 12;

/// People who click at the same time.
const CROWD: usize = 12;

/// The times of the scene in which somebody goes away.
const AWAY_EXPIRY: Duration = Duration::from_secs(2);
const AWAY_MAX_HOLD: Duration = Duration::from_secs(2);

/// Nothing here takes nearly as long, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Plays them all, and says whether all went as expected.
pub(crate) async fn play(deployment: &Deployment, database: &Database) -> anyhow::Result<bool> {
    let mut play = Play::new(deployment.uri(), database)?;
    play.items.create(ITEMS).await?;
    println(HEADING)?;
    told_who_has_it(&mut play).await?;
    only_one_of_many(&mut play).await?;
    the_item_is_not_touched(&mut play).await?;
    the_end_of_a_session(&mut play).await?;
    a_crash(&mut play).await?;
    gone_for_lunch(&mut play).await?;
    released_by_an_operator(&mut play).await?;
    saved_before_the_successor(&mut play).await?;
    play.end()
}

async fn told_who_has_it(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("An open item is locked, others are told who has it, saving frees it")?;
    let (mut anna, mut bert) = (play.arrives("anna@desk-3")?, play.arrives("bert@desk-5")?);
    let opened = play.open(&mut anna, 1).await?;
    play.check("Anna gets the item", matches!(opened, Opened::Yours(_)));
    let told = play.open(&mut bert, 1).await?;
    play.check(
        "Bert is told that Anna's session has it",
        is_told_of(&told, &anna),
    );
    let saved = play.save(&mut anna, 1, "Anna's text").await?;
    play.check("Anna has saved", matches!(saved, Saved::Yes));
    let opened = play.open(&mut bert, 1).await?;
    let reads_it = matches!(opened, Opened::Yours(item) if item.text == "Anna's text");
    play.check("Bert gets the item as Anna has left it", reads_it);
    let was_locked = play.close(&mut bert, 1).await?;
    play.check("Bert had it until he closed it", was_locked);
    let opened = play.open(&mut anna, 1).await?;
    play.check("Anna gets it again", matches!(opened, Opened::Yours(_)));
    Ok(())
}

async fn only_one_of_many(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("Of many who open an item at the same moment, one gets it")?;
    let id = play.items.id(2).await?;
    let mut crowd = JoinSet::new();
    for number in 1..=CROWD {
        let mut session = play.arrives(&format!("editor-{number}"))?;
        crowd.spawn(async move {
            let opened = session.open(id).await;
            (session, opened)
        });
    }
    let (mut winners, mut told) = (Vec::new(), Vec::new());
    for (session, opened) in crowd.join_all().await {
        match opened? {
            Opened::Yours(_) => winners.push(session),
            Opened::Taken(lock) => told.push(lock.owner),
        }
    }
    let answer = format!("{} got it, {} were told who has it", winners.len(), told.len());
    play.tell("all at once", &format!("{CROWD} sessions open item 2"), &answer)?;
    play.check("exactly one gets the item", winners.len() == 1);
    let the_same = |owner: &Option<String>| winners.iter().any(|it| owner.as_deref() == Some(it.id()));
    play.check("all others are told of that one", told.iter().all(the_same));
    Ok(())
}

async fn the_item_is_not_touched(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("Locking changes nothing in an item: locks have their own collection")?;
    let id = play.items.id(3).await?;
    let raw = play.database.collection::<RawDocumentBuf>(Items::COLLECTION);
    let before = raw.find_one(doc! { "_id": id }).await?;
    let (mut anna, mut bert) = (play.arrives("anna@desk-3")?, play.arrives("bert@desk-5")?);
    play.open(&mut anna, 3).await?;
    let locked = raw.find_one(doc! { "_id": id }).await?;
    play.open(&mut bert, 3).await?;
    play.release(3).await?;
    play.open(&mut bert, 3).await?;
    play.close(&mut bert, 3).await?;
    let after = raw.find_one(doc! { "_id": id }).await?;
    let is_equal = before.is_some() && before == locked && before == after;
    let answer = if is_equal {
        "equal to the byte"
    } else {
        "NOT equal"
    };
    play.tell(
        "the check",
        "compares item 3 before, while locked, and after",
        answer,
    )?;
    play.check("the item is equal to the byte", is_equal);
    let locks = play.database.collection::<Document>("distributed_locks");
    let name = lock_name(id);
    let lock = locks.find_one(doc! { "_id": &name }).await?;
    play.tell(
        "the check",
        "looks for the lock",
        &format!("it is `{name}` in distributed_locks"),
    )?;
    play.check("the lock is named after the item's ObjectId", lock.is_some());
    Ok(())
}

async fn the_end_of_a_session(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("A session may have several items; they are free at once when it ends")?;
    let (mut anna, mut bert) = (play.arrives("anna@desk-3")?, play.arrives("bert@desk-5")?);
    for item in [4, 5] {
        let opened = play.open(&mut anna, item).await?;
        play.check("Anna gets each item", matches!(opened, Opened::Yours(_)));
    }
    let mut annas_other = play.arrives("anna@desk-3")?;
    play.open(&mut annas_other, 6).await?;
    let ended = play.leaves(anna).await?;
    play.check("both items are given back", ended == 2);
    for item in [4, 5] {
        let opened = play.open(&mut bert, item).await?;
        play.check("Bert gets each of them", matches!(opened, Opened::Yours(_)));
    }
    let told = play.open(&mut bert, 6).await?;
    play.check(
        "another session of the same person keeps its item",
        is_told_of(&told, &annas_other),
    );
    Ok(())
}

async fn a_crash(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("A session whose process has crashed is ended from elsewhere")?;
    let opening = other_process::opens(play.uri, play.database.name(), "cleo@laptop", &[7, 8]);
    let (mut process, answers) = opening.await?;
    for (item, answer) in [7, 8].into_iter().zip(&answers) {
        play.tell(
            "cleo@laptop",
            &format!("opens item {item}, in another process"),
            answer,
        )?;
    }
    let locked = |answer: &String| answer.starts_with("locked for you");
    play.check(
        "Cleo gets each item",
        answers.len() == 2 && answers.iter().all(locked),
    );
    process.kill(1)?;
    play.tell("cleo@laptop", "is killed", "none of her locks is released")?;
    let (mut anna, mut bert) = (play.arrives("anna@desk-3")?, play.arrives("bert@desk-5")?);
    play.open(&mut anna, 12).await?;
    let Opened::Taken(lock) = play.open(&mut bert, 7).await? else {
        play.check("the locks outlive the process", false);
        return Ok(());
    };
    let session = lock.owner.context("the lock has no owner")?;
    play.check(
        "Bert is told that Cleo's session has it",
        session.starts_with("cleo@laptop#"),
    );
    let ended = end_session(&play.locks, &session).await?;
    let answer = wording::given_back(ended);
    play.tell("the server", &format!("ends the session {session}"), &answer)?;
    play.check("both items are given back", ended == 2);
    for item in [7, 8] {
        let opened = play.open(&mut bert, item).await?;
        play.check("Bert gets each of them", matches!(opened, Opened::Yours(_)));
    }
    let told = play.open(&mut bert, 12).await?;
    play.check("other sessions keep their items", is_told_of(&told, &anna));
    Ok(())
}

async fn gone_for_lunch(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("An item that somebody has left open is free after a time")?;
    // The session lives and renews its lease: only `max_hold` ends that.
    let impatient = play
        .locks
        .to_builder()
        .expiry(AWAY_EXPIRY)
        .max_hold(AWAY_MAX_HOLD);
    let mut anna = EditSession::begin(&impatient.build()?, &play.items, "anna@desk-3")?;
    let mut bert = play.arrives("bert@desk-5")?;
    let begun = Instant::now();
    play.open(&mut anna, 9).await?;
    let told = play.open(&mut bert, 9).await?;
    play.check(
        "Bert is told that Anna's session has it",
        is_told_of(&told, &anna),
    );
    let id = play.items.id(9).await?;
    let ended = async || match play.look(id).await {
        Ok(lock) => lock.filter(|lock| lock.state != LockState::Held).map(Ok),
        Err(error) => Some(Err(error)),
    };
    let lock = eventually(LIMIT, "end of the lock by time", ended).await??;
    let answer = format!(
        "it has ended by itself, {} after it was opened",
        show(begun.elapsed())
    );
    play.tell("anna@desk-3", "is at lunch", &answer)?;
    play.check("nobody has released the lock", lock.state == LockState::Expired);
    play.check(
        "it has lasted for one expiry at least",
        begun.elapsed() >= AWAY_EXPIRY,
    );
    play.open(&mut bert, 9).await?;
    let saved = play.save(&mut bert, 9, "Bert's text").await?;
    play.check("Bert has saved", matches!(saved, Saved::Yes));
    let saved = play.save(&mut anna, 9, "Anna's text").await?;
    let told =
        matches!(saved, Saved::TooLate { why: LockError::Lost { .. }, now, .. } if now.text == "Bert's text");
    play.check("Anna is told that she is too late, and of Bert's text", told);
    play.check("Bert's text stays", play.text(9).await? == "Bert's text");
    Ok(())
}

async fn released_by_an_operator(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("After a release by hand the next may save, and the first one not")?;
    let (mut anna, mut bert) = (play.arrives("anna@desk-3")?, play.arrives("bert@desk-5")?);
    play.open(&mut anna, 10).await?;
    play.open(&mut bert, 10).await?;
    let was_held = play.release(10).await?;
    play.check("the lock was held", was_held);
    let opened = play.open(&mut bert, 10).await?;
    play.check("Bert gets the item", matches!(opened, Opened::Yours(_)));
    let saved = play.save(&mut bert, 10, "Bert's text").await?;
    play.check("Bert has saved", matches!(saved, Saved::Yes));
    let saved = play.save(&mut anna, 10, "Anna's text").await?;
    let refused = matches!(saved, Saved::TooLate { why: LockError::Stale { .. }, now, .. } if now.text == "Bert's text");
    play.check("Anna is refused, and told of Bert's text", refused);
    play.check("Bert's text stays", play.text(10).await? == "Bert's text");
    play.open(&mut anna, 10).await?;
    let saved = play.save(&mut anna, 10, "Bert's text, and Anna's").await?;
    play.check("Anna compares, and saves both", matches!(saved, Saved::Yes));
    play.check(
        "nothing is lost",
        play.text(10).await? == "Bert's text, and Anna's",
    );
    Ok(())
}

async fn saved_before_the_successor(play: &mut Play<'_>) -> anyhow::Result<()> {
    play.scene("Whoever saves after losing the lock is told, also if nobody else has")?;
    let mut anna = play.arrives("anna@desk-3")?;
    play.open(&mut anna, 11).await?;
    play.release(11).await?;
    let saved = play.save(&mut anna, 11, "Anna's text").await?;
    let told =
        matches!(saved, Saved::TooLate { why: LockError::Lost { .. }, now, .. } if now.text == "Anna's text");
    play.check("Anna is told that her lock had ended", told);
    Ok(())
}

/// Whether somebody was told that this session has the item.
fn is_told_of(opened: &Opened, session: &EditSession) -> bool {
    matches!(opened, Opened::Taken(lock) if lock.owner.as_deref() == Some(session.id()))
}
