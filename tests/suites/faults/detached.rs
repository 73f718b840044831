//! Detached leases whose messages are lost or late, and whose processes are killed.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::ReturnDocument;
use mongodb::{Collection, Database};
use mongolock::{Detach, LeaseHandle, LockError, LockProvider, LossReason};
use mongolock_tests::{AMPLE, Fault, Purpose, TestDb, eventually, must, rounds, say, test_db};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::act::{Act, Held, tokens};
use crate::actor::{Part, of, start};
use crate::{DEFAULT_EXPIRY, Standalone, patient};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// The lease of a killed process.
const LEASE: Duration = Duration::from_secs(2);

/// The environment variable with the name of what a process passes on.
const NAME: &str = "MONGOLOCK_ACTOR_NAME";

/// Resumes what the handle stands for.
pub(crate) async fn resume(provider: &LockProvider, handle: &LeaseHandle) -> Result<Held, LockError> {
    Ok(match handle.permit() {
        Some(_) => Held::Permit(provider.resume_permit(handle).await?),
        None => Held::Lock(provider.resume(handle).await?),
    })
}

pub(crate) fn detach(held: Held, ttl: Duration) -> Detach {
    match held {
        Held::Lock(guard) => guard.detach(ttl),
        Held::Permit(permit) => permit.detach(ttl),
    }
}

/// A resumption is given up, and its request arrives after that.
#[tokio::test]
async fn a_late_resumption_is_given_back() {
    let (server, provider) = Standalone::with_provider(DEFAULT_EXPIRY).await;
    let direct = patient(&server.direct);
    for is_tried_again_here in [true, false] {
        let handle = direct.lock("n").await.unwrap().detach(HOUR).await.unwrap();
        let late = server
            .proxy
            .inject(Fault::late_request(Duration::from_secs(1)).command(Purpose::Resume));
        let given_up = timeout(Duration::from_millis(300), provider.resume(&handle)).await;
        assert!(given_up.is_err());
        must(late.happened(AMPLE).await);
        let is_taken = async || {
            let info = direct.admin().get("n").await.unwrap()?;
            (!info.detached).then_some(())
        };
        must(eventually(AMPLE, "the request has resumed the lease", is_taken).await);
        if is_tried_again_here {
            // This provider knows the id that it has given up.
            provider.resume(&handle).await.unwrap().release().await.unwrap();
            continue;
        }
        let resuming = async || direct.resume(&handle).await.ok();
        // The late releases come 10 s after the request.
        let guard = must(eventually(Duration::from_secs(20), "the lease is given back", resuming).await);
        guard.release().await.unwrap();
    }
}

/// A detachment is given up, and its request arrives after that: nobody has the handle.
#[tokio::test]
async fn a_late_detachment_leaves_no_lease() {
    let (server, provider) = Standalone::with_provider(DEFAULT_EXPIRY).await;
    let direct = LockProvider::new(&server.direct);
    let detaching = provider.lock("n").await.unwrap().detach(HOUR);
    let handle = detaching.handle();
    let late = server
        .proxy
        .inject(Fault::late_request(Duration::from_millis(700)).command(Purpose::Detach));
    assert!(timeout(Duration::from_millis(300), detaching).await.is_err());
    must(late.happened(AMPLE).await);
    let begun = Instant::now();
    let free = async || direct.lock("n").try_acquire().await.unwrap();
    let guard = must(eventually(Duration::from_secs(25), "the lock is free", free).await);
    assert!(begun.elapsed() < Duration::from_secs(25));
    guard.release().await.unwrap();
    match direct.resume(&handle).await {
        Err(LockError::Lost {
            reason: LossReason::Gone,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}

/// A process that passes a lock, a set or a permit on to itself again and again is killed at a random moment. The last handle
/// that it has stored is good, or the lock is free when the lease of the process has ended.
#[tokio::test]
async fn a_killed_process_leaves_a_handle_or_a_free_lock() {
    let db = Arc::new(test_db().await);
    let (mut killed, mut resumed, mut left) = (JoinSet::new(), 0, rounds(12));
    let mut total = 0;
    while left > 0 || !killed.is_empty() {
        while left > 0 && killed.len() < 6 {
            let act = [Act::Lock, Act::Set, Act::Permit(1)][left % 3];
            let (name, db) = (left.to_string(), Arc::clone(&db));
            killed.spawn(async move { kill_one(&db, act, &name).await });
            left -= 1;
        }
        let outcome: Option<Result<bool, _>> = killed.join_next().await;
        resumed += usize::from(outcome.expect("one is left").unwrap());
        total += 1;
    }
    println!("{total} processes were killed, {resumed} handles were good");
    assert!(resumed > 0 && resumed <= total, "{resumed} of {total}");
}

/// Whether the last handle of the killed process was good.
async fn kill_one(db: &TestDb, act: Act, name: &str) -> bool {
    let environment = [of(act), (NAME, name.to_owned())];
    let mut process = start("detached::pass_on", db, LEASE, &environment);
    let mut last: LeaseHandle = process.until("handle").await.parse().unwrap();
    process.until("detached").await;
    sleep(Duration::from_micros(fastrand::u64(0..30_000))).await;
    process.signal(Signal::KILL);
    let killed = Instant::now();
    while let Some((word, text)) = process.next_unless_ended().await {
        assert_ne!(word, "breach", "{text}");
        if word == "handle" {
            // A killed process may have printed a part of it.
            last = text.parse().unwrap_or(last);
        }
    }
    let provider = patient(db.database());
    // The last request of the killed process may arrive after that: then the handle is good although it was not at first.
    let (held, is_good) = loop {
        match resume(&provider, &last).await {
            Ok(held) => break (held, true),
            Err(LockError::Lost { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
        if let Ok(held) = timeout(LEASE, act.acquire(&provider, name)).await {
            break (held.unwrap(), false);
        }
        let waited = killed.elapsed();
        assert!(
            waited <= LEASE + Duration::from_secs(3),
            "{act:?} was held {waited:?} after the end of its holder"
        );
    };
    note_hold(db.database(), name, &held).await;
    held.release().await.unwrap();
    is_good
}

/// Notes a hold, whose token must be greater than all before. Permits have none.
async fn note_hold(database: &Database, name: &str, held: &Held) {
    let Some(token) = tokens(&held.context()).next() else {
        return;
    };
    let holds: Collection<Document> = database.collection("holds");
    let set = doc! { "$max": { "token": token } };
    let before = holds
        .find_one_and_update(doc! { "_id": name }, set)
        .upsert(true)
        .return_document(ReturnDocument::Before)
        .await
        .unwrap();
    let before = before.map_or(0, |before| before.get_i64("token").unwrap());
    if before >= token {
        say(format_args!("breach {name} has token {token} after {before}"));
        panic!("{name} has token {token} after {before}");
    }
}

/// The part of the child process, and not a test: in the test process it returns at once.
#[tokio::test]
async fn pass_on() {
    let Some(part) = Part::given().await else {
        return;
    };
    let (provider, name) = (part.provider(), std::env::var(NAME).unwrap());
    let mut held = part.act.acquire(&provider, &name).await.unwrap();
    loop {
        note_hold(&part.database, &name, &held).await;
        let detaching = detach(held, HOUR);
        say(format_args!("handle {}", detaching.handle().text()));
        let handle = detaching.await.unwrap();
        say("detached");
        // Here its user would send the handle to somebody else. Every second process is killed meanwhile for the most part, and
        // the others at any other moment.
        if name.ends_with(['1', '3', '5', '7', '9']) {
            sleep(Duration::from_micros(fastrand::u64(0..60_000))).await;
        }
        held = resume(&provider, &handle).await.unwrap();
    }
}
