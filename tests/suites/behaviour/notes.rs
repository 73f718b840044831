//! The documents of notes on a server: what is sent for them, what they look like, and what their absence costs.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongolock::{LockError, LockProvider};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, Commands, FailPoint, FailPointGuard, eventually, must};
use tokio::time::{Instant, sleep};

use crate::fixture::{Fixture, acquire_and_release, patient, renewing};
use crate::observer::{fields, millis};
use crate::servers::{WITHOUT_WAITERS, guarded};
use crate::waiter_documents::{count, on_waiters, waiters};
use crate::waiting::{hold_all, until_lost};

/// The interval of the renewals: no renewal comes before a command that follows the acquisition at once.
const RENEWAL: Duration = Duration::from_secs(1);

/// The commands that write notes.
fn written(commands: &Commands) -> Vec<Document> {
    let mut sent = on_waiters(commands);
    sent.retain(|command| command.contains_key("update"));
    sent
}

async fn until_noted(provider: &LockProvider, name: &str) -> String {
    let noted = || async { provider.admin().get(name).await.ok()??.note };
    must(eventually(AMPLE, "the note", noted).await)
}

/// The only document of a note or of a forced release.
async fn only(fixture: &Fixture, prefix: &str) -> Document {
    let query = doc! { "_id": { "$regex": format!("^{prefix}:") } };
    let found = waiters(fixture.database()).find_one(query).await.unwrap();
    found.expect("there is a document")
}

/// How far two dates of a document are apart.
fn apart(document: &Document, from: &str, to: &str) -> i64 {
    millis(document, to) - millis(document, from)
}

/// Queries for notes take at least this time.
async fn slow_queries(fixture: &Fixture, time: Duration) -> FailPointGuard {
    let namespace = waiters(fixture.database()).namespace().to_string();
    let slow = FailPoint::on(&["find"]).always().block(time);
    must(slow.collection(&namespace).enable_for(fixture.db()).await)
}

const DAY: i64 = 24 * 60 * 60 * 1000;

#[tokio::test]
async fn a_hold_without_a_note_sends_nothing_for_one() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let guard = renewing(&provider, RENEWAL / 10).lock("n").await.unwrap();
    let renewed = || async { (commands.count("update") > 2).then_some(()) };
    must(eventually(AMPLE, "renewals", renewed).await);
    guard.release().await.unwrap();
    let with_note = provider.to_builder().note("a").build().unwrap();
    acquire_and_release(&with_note.lock("short")).await;
    assert_eq!(written(&commands), [], "nor does a hold that is not renewed");
}

#[tokio::test]
async fn the_notes_of_leases_that_are_renewed_together_are_one_command() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let noting = provider.to_builder().owner("web-1").note("$note");
    // All are acquired before the first renewal, also on a slow machine.
    let interval = RENEWAL * 3;
    let noting = noting.renew_interval(interval).build().unwrap();
    let guards = hold_all(&noting, 0..30).await;
    assert_eq!(until_noted(&provider, "29").await, "$note");
    assert_eq!(until_noted(&provider, "0").await, "$note");
    sleep(interval).await;
    let written = written(&commands);
    assert!(written.len() <= 2, "{written:?}");
    let command = &written[0];
    assert_eq!(command.get_document("writeConcern"), Ok(&doc! { "w": 1 }));
    assert!(command.contains_key("maxTimeMS"), "{command}");

    let document = only(&fixture, "note").await;
    let no_name = "earlier versions do not see a document without a name";
    assert_eq!(fields(&document), ["_id", "at", "note", "until"], "{no_name}");
    assert!(document.get_str("_id").unwrap().starts_with("note:web-1#"));
    assert_eq!(apart(&document, "at", "until"), DAY);
    let waiters = waiters(fixture.database());
    let indexes = waiters.list_index_names().await.unwrap();
    assert!(indexes.contains(&"until_ttl".to_owned()), "{indexes:?}");

    drop(guards);
    noting.shutdown().await;
    assert_eq!(count(&waiters).await, 30, "a release leaves the note");
}

#[tokio::test]
async fn a_detached_lease_keeps_its_note_to_its_end() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.with(|builder| builder.note("draft"));
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    let _handle = provider.lock("n").await.unwrap().detach(week).await.unwrap();
    provider.shutdown().await;
    let document = only(&fixture, "note").await;
    let kept = apart(&document, "at", "until");
    assert_eq!(kept, 7 * DAY, "a shutdown waits for it");
}

#[tokio::test]
async fn a_forced_release_is_a_document_that_says_whether_the_holder_has_noticed_it() {
    let fixture = Fixture::mongodb().await;
    // The note is read before the holder notices the loss, also on a slow machine.
    let holder = renewing(&fixture.process("web-1"), RENEWAL * 5);
    let guard = holder.lock("n").await.unwrap();
    let lease = fixture.document("n").await.unwrap();
    let admin = fixture.process("anna").admin();
    assert!(admin.force_release("n").reason("$$NOW").await.unwrap());

    let noted = only(&fixture, "forced").await;
    let lock_id = lease.get_str("lockId").unwrap();
    assert_eq!(noted.get_str("_id"), Ok(&*format!("forced:{lock_id}")));
    let said = (noted.get_str("by"), noted.get_str("reason"));
    assert_eq!(said, (Ok("anna"), Ok("$$NOW")));
    assert_eq!(noted.get_datetime("expiresAt"), lease.get_datetime("expiresAt"));
    assert_eq!(apart(&noted, "at", "until"), DAY);
    assert!(!noted.get_str("host").unwrap().is_empty());
    let later_or_never = ["seen", "name"].map(|field| noted.contains_key(field));
    assert_eq!(later_or_never, [false; 2], "{noted}");

    until_lost(&guard, BEFORE_EXPIRY).await;
    guard.release().await.unwrap_err();
    // A slow server may get it after the 200 ms for which the release waits.
    let seen = || async {
        let noted = only(&fixture, "forced").await;
        noted.contains_key("seen").then_some(noted)
    };
    let seen = must(eventually(AMPLE, "it is seen", seen).await);
    assert!(apart(&seen, "at", "seen") >= 0, "{seen}");

    // Nothing was ended, and the rest of a minimum hold has no holder.
    assert!(!admin.force_release("n").await.unwrap());
    acquire_and_release(&fixture.provider.lock("short").min_hold(AMPLE)).await;
    assert!(admin.force_release("short").await.unwrap());
    assert_eq!(count(&waiters(fixture.database())).await, 1);
}

/// The holders ask for the notes soon, and no command is large.
#[tokio::test]
async fn each_hold_of_an_owner_is_noted() {
    let fixture = Fixture::mongodb().await;
    let _guards = hold_all(&fixture.process("web-1"), 0..40).await;
    let mut ids = Vec::new();
    for name in 0..40 {
        ids.push(format!("forced:{}", fixture.lock_id(&name.to_string()).await));
    }
    let (provider, commands) = fixture.recorded(|builder| builder).await;
    assert_eq!(provider.admin().release_owner("web-1").await.unwrap(), 40);
    let sent = commands.all();
    let is_note = |command: &&Document| command.get_str("update") == Ok("distributed_locks.waiters");
    let notes = sent.iter().filter(is_note);
    let sizes = notes.map(|command| command.get_array("updates").unwrap().len());
    assert_eq!(sizes.collect::<Vec<_>>(), [16, 16, 8]);
    let before = sent.iter().take_while(|command| !is_note(command));
    let released = before.filter(|command| command.contains_key("findAndModify"));
    assert_eq!(
        released.count(),
        16,
        "a group is noted before the next is released"
    );
    let these = doc! { "_id": { "$in": ids } };
    let stored = waiters(fixture.database()).count_documents(these).await.unwrap();
    assert_eq!(stored, 40);
}

/// The loss itself is known at once, and a server that does not reply costs the caller 200 ms at most.
#[tokio::test]
async fn a_slow_reply_about_a_forced_release_delays_no_error() {
    let fixture = Fixture::mongodb().await;
    let database = must(fixture.db().connect_again().await);
    let guard = patient(&database).lock("n").await.unwrap();
    assert!(fixture.rival().admin().force_release("n").await.unwrap());
    let point = slow_queries(&fixture, Duration::from_secs(2)).await;
    let begun = Instant::now();
    let lost = guard.release().await.unwrap_err();
    let waited = begun.elapsed();
    assert!(matches!(&lost, LockError::Lost { forced: None, .. }), "{lost:?}");
    let (at_least, below) = (Duration::from_millis(200), Duration::from_secs(2));
    assert!((at_least..below).contains(&waited), "{waited:?}");
    must(point.clear().await);
}

/// Each holder has 200 ms, and they ask together.
#[tokio::test]
async fn many_holders_learn_at_once_who_has_released_their_locks() {
    const LOCKS: usize = 400;
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let builder = provider.to_builder().owner("web-1").renew_interval(RENEWAL);
    let owner = builder.build().unwrap();
    let all_learn = || async {
        let locks = (0..LOCKS).map(|name| {
            let lock = owner.lock(name);
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        });
        let mut guards = Vec::new();
        for lock in locks.collect::<Vec<_>>() {
            guards.push(lock.await.unwrap());
        }
        let release = fixture.provider.admin().release_owner("web-1").reason("gone");
        assert_eq!(release.await.unwrap(), LOCKS as u64);
        let questions = || commands.count("find") + commands.count("findAndModify");
        let before = questions();
        let mut told = 0;
        for guard in guards {
            // One renewal finds that all are gone.
            guard.lost().await;
            let lost = guard.release().await.unwrap_err();
            told += usize::from(matches!(lost, LockError::Lost { forced: Some(_), .. }));
        }
        let asked = questions() - before;
        (told == LOCKS && asked < LOCKS / 10).then_some(())
    };
    must(eventually(AMPLE, "a round in which all learn it", all_learn).await);
}

/// Together they have 200 ms, and the server needs 60 ms for each query.
#[tokio::test]
async fn calls_that_wait_for_different_holders_learn_their_notes_together() {
    let fixture = Fixture::mongodb().await;
    let holder = fixture.with(|b| b.note("at work").renew_interval(RENEWAL / 20));
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut held = Vec::new();
    for name in names {
        held.push(holder.lock(name).await.unwrap());
        until_noted(&holder, name).await;
    }
    let database = must(fixture.db().connect_again().await);
    let rival = patient(&database);
    let point = slow_queries(&fixture, Duration::from_millis(60)).await;
    let all_noted = || async {
        let waiting = names.map(|name| {
            let lock = rival.lock(name).acquire_timeout(Duration::from_millis(700));
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        });
        let mut noted = 0;
        for waiting in waiting {
            let error = waiting.await.ok()?.err()?;
            noted += usize::from(matches!(error, LockError::Timeout { note: Some(_), .. }));
        }
        (noted == names.len()).then_some(())
    };
    must(eventually(AMPLE, "a round in which all learn the note", all_noted).await);
    must(point.clear().await);
}

/// Without the rights on the documents all works as without notes, and they are not tried again soon.
#[tokio::test]
async fn without_the_rights_there_is_no_note_and_no_error() {
    let (_server, database, commands) = guarded(&WITHOUT_WAITERS).await;
    let builder = LockProvider::builder(&database).note("secret");
    let provider = builder.renew_interval(RENEWAL / 20).build().unwrap();
    let first = provider.lock("first").await.unwrap();
    let refused = || async { (!written(&commands).is_empty()).then_some(()) };
    must(eventually(AMPLE, "the attempt to write the note", refused).await);
    let second = provider.lock("second").await.unwrap();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(written(&commands).len(), 1);
    assert_eq!(provider.admin().get("first").await.unwrap().unwrap().note, None);
    assert!(!first.is_lost() && !second.is_lost());

    let rival = LockProvider::new(&database);
    let release = rival.admin().force_release("first").reason("stuck");
    assert!(release.await.unwrap());
    let lost = first.release().await.unwrap_err();
    assert!(matches!(lost, LockError::Lost { forced: None, .. }), "{lost:?}");
    let waiting = rival.lock("second").acquire_timeout(Duration::from_millis(700));
    let error = waiting.acquire().await.unwrap_err();
    assert!(
        matches!(error, LockError::Timeout { note: None, .. }),
        "{error:?}"
    );
    second.release().await.unwrap();
}
