//! The commands that locks send: how many, and with which concerns.

use std::time::Duration;

use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongolock::{IndexState, LockError, LockProvider};
use mongolock_tests::{AMPLE, FailPoint, Purpose, eventually, must, names, recorded};
use tokio::time::{Instant, sleep};

use crate::fixture::{Fixture, acquire_and_release, renewing};
use crate::waiting::hold_all;

/// S0.7: one command acquires the lock and one releases it. The driver's own `listCollections` does not count, and who takes
/// a lock again soon after its release looks whether others wait for it: at once, after 0.1, 0.3, 0.7 and 1.5 s, and then
/// once a second.
#[tokio::test]
async fn a_hold_costs_two_commands() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    commands.clear();
    let begun = Instant::now();
    for _ in 0..10 {
        acquire_and_release(&provider.lock("hot")).await;
    }
    let sent = commands.take();
    let purposes: Vec<Purpose> = sent.iter().filter_map(Purpose::of).collect();
    assert_eq!(purposes, [Purpose::Acquire, Purpose::Release].repeat(10));
    let (looks, own): (Vec<&str>, Vec<&str>) = names(&sent)
        .into_iter()
        .filter(|name| *name != "listCollections")
        .partition(|name| *name == "find");
    assert_eq!(own, ["findAndModify"; 20]);
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    assert!(looks.len() <= seconds + 4, "{} looks", looks.len());
}

/// A command of one claim is a `findAndModify`, whatever it does, and one of several claims is an `update`.
#[tokio::test]
async fn each_command_has_its_name_and_purpose() {
    use Purpose::{Acquire, Detach, Mark, Release, Renew, Resume};
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    assert_eq!(provider.admin().index_state().await, IndexState::Ready);
    let sent = || {
        let sent = commands.take().into_iter();
        let sent = sent.filter_map(|sent| {
            Some((
                names(std::slice::from_ref(&sent))[0].to_owned(),
                Purpose::of(&sent)?,
            ))
        });
        let (names, mut purposes): (Vec<String>, Vec<Purpose>) = sent.unzip();
        purposes.dedup();
        (names, purposes)
    };
    let often = renewing(&provider, Duration::from_millis(200));
    for (of_one, name) in [(true, "findAndModify"), (false, "update")] {
        let acquire = async |provider: &LockProvider| {
            let one = provider.lock("one").min_hold(Duration::from_millis(1));
            let acquired = if of_one {
                one.acquire().await
            } else {
                provider.lock_all(["a", "b"]).await
            };
            acquired.unwrap()
        };
        commands.clear();
        let guard = acquire(&often).await;
        commands.until_sent(Renew).await;
        let handle = guard.detach(AMPLE).await.unwrap();
        provider.extend(&handle, AMPLE * 2).await.unwrap();
        provider.resume(&handle).await.unwrap().release().await.unwrap();
        let (names, purposes) = sent();
        assert_eq!(purposes, [Acquire, Renew, Detach, Renew, Resume, Release]);
        assert!(names.iter().all(|sent| sent == name), "{names:?}");
        let handle = acquire(&provider).await.detach(AMPLE).await.unwrap();
        assert!(provider.release(&handle).await.unwrap());
        acquire(&provider).await.release().await.unwrap();
        let (names, purposes) = sent();
        assert_eq!(purposes, [Acquire, Detach, Release, Acquire, Release]);
        assert!(names.iter().all(|sent| sent == name), "{names:?}");
    }
    for once in [
        provider.lock("done").once(),
        provider.lock("period").once_per(AMPLE),
    ] {
        once.acquire().await.unwrap().done().await.unwrap();
        assert_eq!(sent(), (vec!["findAndModify".to_owned(); 2], vec![Acquire, Mark]));
    }
    let _held = fixture.rival().lock("forced").await.unwrap();
    assert!(provider.admin().force_release("forced").await.unwrap());
    assert_eq!(sent(), (vec!["findAndModify".to_owned()], vec![Release]));
}

/// S0.7, S1.17: a failed attempt leaves the document as it is, to the byte, and writes nothing to the oplog.
#[tokio::test]
async fn a_failed_attempt_changes_nothing() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    let _held = fixture.provider.lock("held").await.unwrap();
    let local = fixture.database().client().database("local");
    let (locks, oplog) = (fixture.locks(), local.collection::<Document>("oplog.rs"));
    let writes = doc! { "ns": locks.namespace().to_string(), "op": { "$in": ["i", "u", "d"] } };
    let raw = locks.clone_with_type::<RawDocumentBuf>();
    let stored = async || {
        let held = raw.find_one(doc! { "_id": "held" }).await.unwrap().unwrap();
        let entries = oplog.count_documents(writes.clone()).await.unwrap();
        (held.into_bytes(), entries)
    };
    let before = stored().await;
    let rival = fixture.rival().lock("held");
    for _ in 0..20 {
        assert!(rival.try_acquire().await.unwrap().is_none());
    }
    assert_eq!(stored().await, before);
}

/// S3.1, B12: the settings of the client have no effect. Every write has a limit at the server, where a foreign transaction may
/// block it.
#[tokio::test]
async fn majority_and_primary_are_set_on_every_command() {
    let fixture = Fixture::mongodb().await;
    let settings = ["w=1", "readPreference=secondary", "readConcernLevel=local"];
    let (database, commands) = recorded(fixture.db(), &settings).await;
    let provider = renewing(&LockProvider::new(&database), Duration::from_millis(200));
    let lock = provider.lock("safe");
    let guard = lock.acquire().await.unwrap();
    commands.until_sent(Purpose::Renew).await;
    guard.release().await.unwrap();
    drop(lock.acquire().await.unwrap());
    let released = async || lock.try_acquire().await.unwrap().map(drop);
    must(eventually(AMPLE, "the dropped guard is released", released).await);
    let both = provider.lock_all(["first", "second"]).await.unwrap();
    both.release().await.unwrap();
    let sent = commands.take();
    let concern = |command: &Document, kind, value| {
        let concern = command
            .get_document(kind)
            .and_then(|concern| concern.get_str(value));
        concern.map(str::to_owned).ok()
    };
    // The query of a set finds out which of its locks were acquired: a failover must not take that back.
    let is_read = |command: &&Document| command.get_str("find") == Ok("distributed_locks");
    let reads: Vec<_> = sent.iter().filter(is_read).collect();
    assert!(!reads.is_empty());
    for command in reads {
        let level = concern(command, "readConcern", "level");
        assert_eq!(level.as_deref(), Some("majority"), "{command}");
    }
    let is_write = |c: &&Document| c.contains_key("findAndModify") || c.contains_key("update");
    let writes: Vec<_> = sent.iter().filter(is_write).collect();
    assert!(writes.len() >= 7, "{writes:?}");
    for command in writes {
        let w = concern(command, "writeConcern", "w");
        assert_eq!(w.as_deref(), Some("majority"), "{command}");
        assert!(command.get_i64("maxTimeMS").unwrap() > 0, "{command}");
        let preference = command.get_document("$readPreference");
        assert!(preference.is_err() || preference == Ok(&doc! { "mode": "primary" }));
    }
}

/// B18: of fifty waiters in one process, only one at a time sends attempts.
#[tokio::test]
async fn waiters_of_one_process_send_one_attempt_at_a_time() {
    let fixture = Fixture::mongodb().await;
    let pause = Duration::from_millis(100);
    let (provider, commands) = fixture.recorded(|b| b.retry_interval(pause..=pause)).await;
    let held = fixture.rival().lock("crowded").await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let lock = provider.lock("crowded");
        waiters.spawn(async move { lock.acquire().await.unwrap().release().await });
    }
    sleep(pause * 10).await;
    let asked = commands.count(Purpose::Acquire);
    assert!((2..=11).contains(&asked), "{asked} attempts in ten pauses");
    held.release().await.unwrap();
    while let Some(done) = waiters.join_next().await {
        done.unwrap().unwrap();
    }
}

/// B19: the renewal of a hundred locks takes a few commands.
#[tokio::test]
async fn many_locks_are_renewed_together() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(|b| b.expiry(Duration::from_secs(3))).await;
    let guards = hold_all(&provider, 0..100).await;
    commands.clear();
    sleep(Duration::from_secs(5)).await;
    // Five intervals have passed.
    let renewals = commands.count(Purpose::Renew);
    assert!((4..=20).contains(&renewals), "{renewals}");
    for guard in guards {
        assert!(!guard.is_lost());
        guard.release().await.unwrap();
    }
}

/// The server has written the mark of finished work, and its reply is an error: the repetition finds the mark.
#[tokio::test]
async fn a_repeated_mark_is_found() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded(|builder| builder).await;
    let lock = provider.lock("tick").once();
    let guard = lock.acquire().await.unwrap();
    commands.clear();
    let point = FailPoint::on(&["findAndModify"]).write_concern_error(64, "injected");
    let _point = must(point.enable_for(fixture.db()).await);
    guard.done().await.expect("the repetition finds the mark");
    assert_eq!(commands.count(Purpose::Mark), 2);
    let next = lock.acquire().await;
    assert!(matches!(next, Err(LockError::Done { .. })), "{:?}", next.err());
}
