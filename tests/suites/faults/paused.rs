//! A holder is stopped between reading and writing, and continues after a rival has acquired the lock and has written
//! (S1.20). Its stale write is a plain one, a fenced one, or one in a guarded transaction.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::{Collection, Database};
use mongolock::{FencedExt, FencingToken, LockContext, LockError, LockGuard, LockProvider};
use mongolock_tests::{
    Actor, Event, History, Step, Verdict, change_lock, monotonic_now, order, say, tell, test_db,
};
use rustix::process::Signal;
use tokio::task::{JoinSet, LocalSet};

use crate::act::{acquired, ended};
use crate::actor::{Part, start};
use crate::noted::{acquire, release};
use crate::{LONG_EXPIRY, until_indexed};

/// The number of processes at a time. Each plays [`SCENES`] scenes, so there are fifty scenes in total.
const LANES: usize = 10;
/// The number of scenes that each process plays, one after the other.
const SCENES: usize = 5;

/// The lease that ends while its holder is stopped. Beside other work, the holder must reach its read before that.
const SHORT: Duration = Duration::from_secs(2);

/// The number of the test process in histories.
const RIVAL: usize = 0;

/// The environment variable that selects how the writer writes.
const WAY: &str = "MONGOLOCK_ACTOR_WAY";

/// How the holder writes back the document that it has read.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Fenced,
    /// In a guarded transaction that begins with the write.
    Guarded,
    /// In a guarded transaction that has also read the document.
    GuardedFromTheRead,
}

impl Way {
    const ALL: [Self; 4] = [Self::Plain, Self::Fenced, Self::Guarded, Self::GuardedFromTheRead];

    fn from_name(name: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|way| format!("{way:?}") == name).unwrap()
    }
}

fn documents(database: &Database) -> Collection<Document> {
    database.collection("documents")
}

/// Adds an entry to the document that has the name of the lock: reads it, pauses, and writes it back as a whole.
async fn add(
    entry: &str,
    way: Way,
    database: &Database,
    lock: &LockContext,
    pause: impl Future<Output = ()>,
) -> Result<(), LockError> {
    if let Way::GuardedFromTheRead = way {
        return add_in_a_transaction(entry, database, lock, pause).await;
    }
    let (documents, same) = (documents(database), doc! { "_id": lock.name() });
    let found = documents.find_one(same.clone()).await?;
    pause.await;
    let changed = with(entry, found);
    match way {
        Way::Plain => drop(documents.replace_one(same, changed).await?),
        Way::Fenced => {
            let fenced = documents.fenced(lock.fencing_token());
            fenced.replace_one(same, changed).await?;
        }
        Way::Guarded | Way::GuardedFromTheRead => {
            let mut session = database.client().start_session().await?;
            session
                .start_transaction()
                .and_run2(async |session| {
                    let write = documents.replace_one(same.clone(), &changed);
                    write.session(&mut *session).await?;
                    Ok(lock.commit(session).await?)
                })
                .await?;
        }
    }
    Ok(())
}

/// A write of the rival after the read is a conflict: the driver repeats the transaction, including the read.
async fn add_in_a_transaction(
    entry: &str,
    database: &Database,
    lock: &LockContext,
    pause: impl Future<Output = ()>,
) -> Result<(), LockError> {
    let (documents, same) = (documents(database), doc! { "_id": lock.name() });
    let mut pause = Some(Box::pin(pause));
    let mut session = database.client().start_session().await?;
    session
        .start_transaction()
        .and_run2(async |session| {
            let found = documents.find_one(same.clone()).session(&mut *session).await?;
            if let Some(pause) = pause.take() {
                pause.await;
            }
            let write = documents.replace_one(same.clone(), with(entry, found));
            write.session(&mut *session).await?;
            Ok(lock.commit(session).await?)
        })
        .await?;
    Ok(())
}

fn with(entry: &str, found: Option<Document>) -> Document {
    let mut document = found.expect("the document exists");
    document.get_array_mut("entries").unwrap().push(entry.into());
    document
}

/// The part of the writer that is stopped, and not a test. After it continues, it writes without checking its lock.
#[tokio::test]
async fn write() {
    let Some(part) = Part::given().await else {
        return;
    };
    let way = Way::from_name(&std::env::var(WAY).unwrap());
    let provider = part.provider();
    while let Some(name) = order().await {
        tell(&Event::now(0, Step::Invoke));
        let guard = provider.lock(name).await.unwrap();
        let context = guard.context();
        tell(&acquired(&context).expect("the lock was held"));
        let mut sent = None;
        let pause = async {
            say(format_args!("read {}", guard.fencing_token()));
            order().await;
            say(format_args!("goes_on {}", guard.is_lost()));
            sent = Some(monotonic_now());
        };
        let added = add("late", way, &part.database, &context, pause).await;
        if added.is_ok() {
            tell(&written(&context, way, sent.unwrap()));
        }
        tell(&ended(&context));
        match added {
            Ok(()) => say("written"),
            Err(LockError::Stale { token, seen, .. }) => say(format_args!("stale {token} {seen}")),
            Err(LockError::Lost { token, .. }) => say(format_args!("lost {token}")),
            Err(other) => say(format_args!("failed {other}")),
        }
    }
}

/// The step of a write that has just been confirmed. A guarded transaction is refused as a fenced write is.
fn written(context: &LockContext, way: Way, sent: Duration) -> Event {
    let step = Step::Written {
        token: context.fencing_token().get(),
        is_fenced: !matches!(way, Way::Plain),
        sent,
    };
    Event::now(0, step)
}

/// How the rival gets the lock while its holder is stopped.
#[derive(Clone, Copy)]
enum Takeover {
    /// The lease ends.
    Expiry,
    /// The document is changed by hand, long before the lease ends. By its own clock the holder still has the lock, as
    /// after the suspension of a machine, during which the monotonic clock does not advance.
    Hand,
}

/// The outcome of the two writes.
#[derive(Debug)]
struct Scene {
    late: FencingToken,
    other: FencingToken,
    /// Whether the writer noticed its loss when it continued.
    knew: bool,
    said: (String, String),
    entries: Vec<String>,
    /// What the history of the two processes says.
    verdict: Verdict,
}

impl Scene {
    fn entries(&self) -> Vec<&str> {
        self.entries.iter().map(String::as_str).collect()
    }

    /// Asserts that the stale write was refused with this word and these tokens, and that the rival's update is stored.
    fn is_refused(&self, word: &str, tokens: &[FencingToken]) {
        let tokens: Vec<String> = tokens.iter().map(ToString::to_string).collect();
        assert_eq!(self.said, (word.to_owned(), tokens.join(" ")), "{self:?}");
        assert_eq!(self.entries(), ["other"], "{self:?}");
        assert!(self.other > self.late, "{self:?}");
    }
}

/// Plays the scene fifty times.
async fn play(way: Way, takeover: Takeover) -> Vec<Scene> {
    let db = Arc::new(test_db().await);
    let rival = LockProvider::new(db.database());
    until_indexed(&rival).await;
    db.database().create_collection("documents").await.unwrap();
    let (mut lanes, local) = (JoinSet::new(), LocalSet::new());
    for lane in 0..LANES {
        let (db, rival) = (Arc::clone(&db), rival.clone());
        let lane = async move {
            let expiry = match takeover {
                Takeover::Expiry => SHORT,
                Takeover::Hand => LONG_EXPIRY,
            };
            let mut writer = start("paused::write", &db, expiry, &[(WAY, format!("{way:?}"))]);
            let mut scenes = Vec::new();
            for number in 0..SCENES {
                let name = format!("{lane}:{number}");
                scenes.push(scene(&name, way, takeover, &mut writer, db.database(), &rival).await);
            }
            scenes
        };
        lanes.spawn_local_on(lane, &local);
    }
    let played = local.run_until(lanes.join_all()).await;
    let scenes: Vec<Scene> = played.into_iter().flatten().collect();
    assert_eq!(scenes.len(), 50);
    scenes
}

async fn scene(
    name: &str,
    way: Way,
    takeover: Takeover,
    writer: &mut Actor,
    database: &Database,
    rival: &LockProvider,
) -> Scene {
    let none: [&str; 0] = [];
    let documents = documents(database);
    let empty = doc! { "_id": name, "entries": none.as_slice() };
    documents.insert_one(empty).await.unwrap();

    writer.send(name).await;
    let late: FencingToken = writer.until("read").await.parse().unwrap();
    writer.signal(Signal::STOP);
    let mut history = History::default();
    let guard = take_over(name, takeover, database, rival, &mut history).await;
    let context = guard.context();
    let sent = monotonic_now();
    add("other", way, database, &context, async {}).await.unwrap();
    history.add(written(&context, way, sent).of(RIVAL));
    // The writer reads this line when it continues, so it writes after that.
    writer.send("go on").await;
    writer.signal(Signal::CONT);
    let knew = writer.until("goes_on").await.parse().unwrap();
    let said = writer.next().await;

    let found = documents.find_one(doc! { "_id": name }).await.unwrap().unwrap();
    let other = guard.fencing_token();
    release(&mut history, RIVAL, guard)
        .await
        .expect("the stale write changed nothing of its claim");
    writer.tell_so_far(&mut history);
    let entries = found.get_array("entries").unwrap().iter();
    Scene {
        late,
        other,
        knew,
        said,
        entries: entries.map(|entry| entry.as_str().unwrap().to_owned()).collect(),
        verdict: history.judge(),
    }
}

async fn take_over(
    name: &str,
    takeover: Takeover,
    database: &Database,
    rival: &LockProvider,
    history: &mut History,
) -> LockGuard {
    if let Takeover::Hand = takeover {
        let freed = doc! { "$set": { "lockId": "", "expiresAt": DateTime::from_millis(0) } };
        change_lock(database, name, freed).await;
    }
    // This succeeds when the lease is over, which shows that the holder is stopped: it would renew the lease otherwise.
    acquire(history, RIVAL, rival.lock(name).expiry(LONG_EXPIRY)).await
}

/// Asserts that the processes kept to the lock as far as a lock can see to it, and returns for how long the writes without
/// a fence were late.
fn late_writes(scenes: &[Scene]) -> Vec<Duration> {
    let late = |scene: &Scene| {
        assert_eq!(scene.verdict.breaches(), [""; 0], "{scene:?}");
        assert_eq!(
            (scene.verdict.holds, scene.verdict.lost.len()),
            (2, 1),
            "{scene:?}"
        );
        assert_eq!(scene.verdict.late_sections.len(), 1, "{scene:?}");
        scene
            .verdict
            .late_writes
            .iter()
            .map(|late| late.time)
            .collect::<Vec<_>>()
    };
    scenes.iter().flat_map(late).collect()
}

/// The lock alone cannot prevent a stale write, even if the holder notices its loss.
#[tokio::test]
async fn a_plain_stale_write_overwrites_the_rivals_update() {
    let scenes = play(Way::Plain, Takeover::Expiry).await;
    for scene in &scenes {
        assert!(scene.knew, "{scene:?}");
        assert_eq!(scene.said.0, "written", "{scene:?}");
        assert_eq!(scene.entries(), ["late"], "{scene:?}");
    }
    let late = late_writes(&scenes);
    assert_eq!(late.len(), scenes.len(), "every one of them is late");
    let (number, latest) = (late.len(), late.iter().max().unwrap());
    println!("{number} unfenced writes were stored after the rival had begun, up to {latest:?} after it");
}

/// Asserts that the stale writes are refused with this word, whatever the holder knows.
async fn assert_refused(way: Way, takeover: Takeover, word: &str) {
    let scenes = play(way, takeover).await;
    for scene in &scenes {
        let tokens = [scene.late, scene.other];
        scene.is_refused(word, if word == "stale" { &tokens } else { &tokens[..1] });
    }
    match takeover {
        Takeover::Expiry => {
            assert!(scenes.iter().all(|scene| scene.knew), "{scenes:?}");
            assert!(late_writes(&scenes).is_empty());
        }
        Takeover::Hand => {
            for scene in scenes {
                assert!(!scene.knew, "{scene:?}");
                // The rules were broken by hand: both hold the lock, and the data are right all the same.
                assert_eq!(scene.verdict.overlaps.len(), 1, "{scene:?}");
                assert_eq!(scene.verdict.stale_writes, [], "{scene:?}");
            }
        }
    }
}

/// The document rejects the write. The holder does not check whether it still has the lock.
#[tokio::test]
async fn a_fenced_stale_write_is_refused() {
    assert_refused(Way::Fenced, Takeover::Expiry, "stale").await;
}

/// A transaction that begins after the takeover. The holder's own clock refuses the commit first. The tests in
/// `behaviour::commit` and below show that the server refuses it as well.
#[tokio::test]
async fn a_guarded_stale_write_is_refused() {
    assert_refused(Way::Guarded, Takeover::Expiry, "lost").await;
}

#[tokio::test]
async fn a_transaction_begun_before_the_pause_is_refused() {
    assert_refused(Way::GuardedFromTheRead, Takeover::Expiry, "lost").await;
}

/// The holder's clock did not advance: only the fence can reject the write.
#[tokio::test]
async fn the_fence_does_not_rely_on_the_clock_of_the_holder() {
    assert_refused(Way::Fenced, Takeover::Hand, "stale").await;
}

/// The holder's clock did not advance: only the document of the lock shows the takeover.
#[tokio::test]
async fn the_guard_of_a_commit_does_not_rely_on_the_clock_of_the_holder() {
    assert_refused(Way::Guarded, Takeover::Hand, "lost").await;
}
