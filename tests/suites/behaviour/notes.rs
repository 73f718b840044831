//! The documents of notes on a server: what is sent for them, what they look like, and what their absence costs.

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{Bson, Document, doc};
use mongolock::{LockError, LockProvider};
use mongolock_tests::{
    AMPLE, BEFORE_EXPIRY, Commands, FailPoint, Server, ServerOptions, eventually, must, recorded,
    stable_client,
};
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{Fixture, patient, renewing, restricted};

/// The interval of the renewals: no renewal comes before a command that follows the acquisition at once.
const RENEWAL: Duration = Duration::from_secs(1);

fn waiters(fixture: &Fixture) -> Collection<Document> {
    fixture.database().collection("distributed_locks.waiters")
}

/// The commands that write notes.
fn written(commands: &Commands) -> Vec<Document> {
    let mut sent = commands.all();
    sent.retain(|command| command.get_str("update") == Ok("distributed_locks.waiters"));
    sent
}

async fn until_noted(provider: &LockProvider, name: &str) -> String {
    let noted = || async { provider.admin().get(name).await.ok()??.note };
    must(eventually(AMPLE, "the note", noted).await)
}

/// The only document of a note or of a forced release.
async fn only(fixture: &Fixture, prefix: &str) -> Document {
    let query = doc! { "_id": { "$regex": format!("^{prefix}:") } };
    let found = waiters(fixture).find_one(query).await.unwrap();
    found.expect("there is a document")
}

/// How far two dates of a document are apart.
fn apart(document: &Document, from: &str, to: &str) -> i64 {
    let date = |field| document.get_datetime(field).unwrap().timestamp_millis();
    date(to) - date(from)
}

const DAY: i64 = 24 * 60 * 60 * 1000;

#[tokio::test]
async fn a_hold_without_a_note_sends_nothing_for_one() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let often = renewing(&provider, RENEWAL / 10);
    let guard = often.lock("n").await.unwrap();
    let renewed = || async { (commands.count("update") > 2).then_some(()) };
    must(eventually(AMPLE, "renewals", renewed).await);
    guard.release().await.unwrap();
    let with_note = provider.to_builder().note("a").build().unwrap();
    with_note.lock("short").await.unwrap().release().await.unwrap();
    assert_eq!(
        written(&commands),
        [],
        "and neither does a hold that is not renewed"
    );
}

#[tokio::test]
async fn the_notes_of_leases_that_are_renewed_together_are_one_command() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let noting = provider
        .to_builder()
        .owner("web-1")
        .note("$note")
        .renew_interval(RENEWAL)
        .build()
        .unwrap();
    let mut guards = Vec::new();
    for name in 0..30 {
        guards.push(noting.lock(name).await.unwrap());
    }
    assert_eq!(until_noted(&provider, "29").await, "$note");
    assert_eq!(until_noted(&provider, "0").await, "$note");
    sleep(RENEWAL * 3).await;
    let written = written(&commands);
    assert!(written.len() <= 2, "{written:?}");
    let command = &written[0];
    assert_eq!(command.get_document("writeConcern"), Ok(&doc! { "w": 1 }));
    assert!(command.contains_key("maxTimeMS"), "{command}");

    let document = only(&fixture, "note").await;
    let mut keys: Vec<&str> = document.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        ["_id", "at", "note", "until"],
        "no name: earlier versions do not see it"
    );
    assert!(document.get_str("_id").unwrap().starts_with("note:web-1#"));
    assert_eq!(apart(&document, "at", "until"), DAY);
    let indexes = waiters(&fixture).list_index_names().await.unwrap();
    assert!(indexes.contains(&"until_ttl".to_owned()), "{indexes:?}");

    drop(guards);
    noting.shutdown().await;
    let count = waiters(&fixture).count_documents(doc! {}).await.unwrap();
    assert_eq!(count, 30, "a release leaves the note");
}

#[tokio::test]
async fn a_detached_lease_keeps_its_note_to_its_end() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.provider.to_builder().note("draft").build().unwrap();
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    let _handle = provider.lock("n").await.unwrap().detach(week).await.unwrap();
    provider.shutdown().await;
    let document = only(&fixture, "note").await;
    assert_eq!(
        apart(&document, "at", "until"),
        7 * DAY,
        "a shutdown waits for it"
    );
}

#[tokio::test]
async fn a_forced_release_is_a_document_that_says_whether_the_holder_has_noticed_it() {
    let fixture = Fixture::mongodb().await;
    let provider = renewing(&fixture.process("web-1"), RENEWAL);
    let guard = provider.lock("n").await.unwrap();
    let lease = fixture.document("n").await.unwrap();
    let admin = fixture.process("anna").admin();
    assert!(admin.force_release("n").reason("$$NOW").await.unwrap());

    let noted = only(&fixture, "forced").await;
    let lock_id = lease.get_str("lockId").unwrap();
    assert_eq!(noted.get_str("_id"), Ok(&*format!("forced:{lock_id}")));
    assert_eq!(
        (noted.get_str("by"), noted.get_str("reason")),
        (Ok("anna"), Ok("$$NOW"))
    );
    assert_eq!(noted.get_datetime("expiresAt"), lease.get_datetime("expiresAt"));
    assert_eq!(apart(&noted, "at", "until"), DAY);
    assert!(!noted.get_str("host").unwrap().is_empty());
    assert!(
        !noted.contains_key("seen") && !noted.contains_key("name"),
        "{noted}"
    );

    timeout(BEFORE_EXPIRY, guard.lost())
        .await
        .expect("the next renewal finds out");
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
    let short = fixture
        .provider
        .lock("short")
        .min_hold(AMPLE)
        .acquire()
        .await
        .unwrap();
    short.release().await.unwrap();
    assert!(admin.force_release("short").await.unwrap());
    assert_eq!(waiters(&fixture).count_documents(doc! {}).await.unwrap(), 1);
}

/// The holders ask for the notes soon, and no command is large.
#[tokio::test]
async fn each_hold_of_an_owner_is_noted() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.process("web-1");
    let mut guards = Vec::new();
    for name in 0..40 {
        guards.push(provider.lock(name).await.unwrap());
    }
    let mut ids = Vec::new();
    for name in 0..40 {
        let document = fixture.document(&name.to_string()).await.unwrap();
        ids.push(Bson::from(format!(
            "forced:{}",
            document.get_str("lockId").unwrap()
        )));
    }
    let (database, commands) = recorded(fixture.db(), &[]).await;
    assert_eq!(
        patient(&database).admin().release_owner("web-1").await.unwrap(),
        40
    );
    let sent = commands.all();
    let is_note = |command: &&Document| command.get_str("update") == Ok("distributed_locks.waiters");
    let sizes = sent.iter().filter(is_note);
    let sizes = sizes.map(|command| command.get_array("updates").unwrap().len());
    assert_eq!(sizes.collect::<Vec<_>>(), [16, 16, 8]);
    let before = sent.iter().take_while(|command| !is_note(command));
    let released = before.filter(|command| command.contains_key("findAndModify"));
    assert_eq!(
        released.count(),
        16,
        "each group is noted before the next one is released"
    );
    let noted = waiters(&fixture)
        .count_documents(doc! { "_id": { "$in": ids } })
        .await
        .unwrap();
    assert_eq!(noted, 40);
}

/// The loss itself is known at once, and a server that does not reply costs the caller 200 ms at most.
#[tokio::test]
async fn a_slow_reply_about_a_forced_release_delays_no_error() {
    let fixture = Fixture::mongodb().await;
    let database = must(fixture.db().connect_again().await);
    let guard = patient(&database).lock("n").await.unwrap();
    assert!(fixture.rival().admin().force_release("n").await.unwrap());
    let slow = FailPoint::on(&["find"]).always().block(Duration::from_secs(2));
    let collection = format!("{}.distributed_locks.waiters", database.name());
    let point = must(slow.collection(&collection).enable_for(fixture.db()).await);
    let begun = Instant::now();
    let lost = guard.release().await.unwrap_err();
    let waited = begun.elapsed();
    assert!(
        matches!(&lost, LockError::Lost { forced: None, .. }),
        "{lost:?} {waited:?}"
    );
    assert!(
        (Duration::from_millis(200)..Duration::from_secs(2)).contains(&waited),
        "{waited:?}"
    );
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
    let builder = fixture.provider.to_builder().note("at work");
    let holder = builder.renew_interval(Duration::from_millis(50)).build().unwrap();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut held = Vec::new();
    for name in names {
        held.push(holder.lock(name).await.unwrap());
        until_noted(&holder, name).await;
    }
    let database = must(fixture.db().connect_again().await);
    let (rival, collection) = (
        patient(&database),
        format!("{}.distributed_locks.waiters", database.name()),
    );
    let slow = FailPoint::on(&["find"]).always().block(Duration::from_millis(60));
    let point = must(slow.collection(&collection).enable_for(fixture.db()).await);
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
    let server = must(Server::start(ServerOptions::single().auth()).await);
    let uri = restricted(
        &server,
        &["find", "insert", "update", "createIndex", "changeStream"],
    )
    .await;
    let commands = Commands::default();
    let mut options = must(mongolock_tests::stable_options(&uri).await);
    commands.record(&mut options);
    let client = mongodb::Client::with_options(options).unwrap();
    let builder = LockProvider::builder(&client.database("app"));
    let provider = builder
        .note("secret")
        .renew_interval(Duration::from_millis(50))
        .build()
        .unwrap();
    let first = provider.lock("first").await.unwrap();
    let refused = || async { (!written(&commands).is_empty()).then_some(()) };
    must(eventually(AMPLE, "the attempt to write the note", refused).await);
    let second = provider.lock("second").await.unwrap();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(written(&commands).len(), 1);
    assert_eq!(provider.admin().get("first").await.unwrap().unwrap().note, None);
    assert!(!first.is_lost() && !second.is_lost());

    let rival = LockProvider::new(&must(stable_client(&uri).await).database("app"));
    assert!(
        rival
            .admin()
            .force_release("first")
            .reason("stuck")
            .await
            .unwrap()
    );
    let lost = first.release().await.unwrap_err();
    assert!(matches!(lost, LockError::Lost { forced: None, .. }), "{lost:?}");
    let waiting = rival
        .lock("second")
        .acquire_timeout(Duration::from_millis(700))
        .acquire()
        .await;
    assert!(
        matches!(waiting, Err(LockError::Timeout { note: None, .. })),
        "{:?}",
        waiting.err()
    );
    second.release().await.unwrap();
}
