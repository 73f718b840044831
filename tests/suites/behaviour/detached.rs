//! Detached leases on a server: their commands and documents, and what others see of them. What becomes of a lock in both
//! stores: `conformance/detached.rs`.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use mongolock::{LockError, LockState, LossReason};
use mongolock_tests::{Commands, FailPoint, must, names};

use crate::conformance::detached::{HOUR, detached};
use crate::conformance::kind::CALLS;
use crate::fixture::{Fixture, acquire_and_release, assert_lost};

/// The names of the collection's own commands since the last call.
fn sent(commands: &Commands) -> Vec<String> {
    let sent = commands.take();
    let of_locks = |command: &&Document| {
        let collection = command.values().next().and_then(Bson::as_str);
        collection == Some("distributed_locks")
    };
    let sent: Vec<Document> = sent.iter().filter(of_locks).cloned().collect();
    for command in &sent {
        assert!(command.get_i64("maxTimeMS").is_ok(), "{command}");
        let concern = command.get_document("writeConcern").ok();
        let is_majority = concern.is_some_and(|concern| concern.get_str("w") == Ok("majority"));
        assert!(is_majority || command.contains_key("find"), "{command}");
    }
    names(&sent).into_iter().map(str::to_owned).collect()
}

/// A detached lease costs one command for each step; the resumption and the extension of a set also a query.
#[tokio::test]
async fn each_change_of_hands_is_one_command() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    for kind in CALLS {
        let (target, expected) = (kind.of(&provider, None), kind.expects());
        let hold = target.acquire().await.unwrap();
        commands.clear();
        let handle = hold.detach(HOUR).await.unwrap();
        assert_eq!(sent(&commands), expected.detach, "{kind:?}");
        target.extend(&handle, HOUR).await.unwrap();
        assert_eq!(sent(&commands), expected.resume, "{kind:?}");
        let hold = target.resume(&handle).await.unwrap();
        assert_eq!(sent(&commands), expected.resume, "{kind:?}");
        let handle = hold.detach(HOUR).await.unwrap();
        commands.clear();
        assert!(target.release(&handle).await.unwrap());
        assert_eq!(sent(&commands), expected.release, "{kind:?}");
        assert!(target.resume(&handle).await.is_err());
        assert_eq!(sent(&commands), expected.resume, "a loser sends nothing more");
    }
}

/// S0.7: the document keeps its five fields with their types, so that DistributedLock.MongoDB finds the lock taken throughout.
#[tokio::test]
async fn a_detached_lock_keeps_its_five_fields() {
    let fixture = Fixture::mongodb().await;
    let guard = fixture.provider.lock("n").await.unwrap();
    let held = fixture.document("n").await.unwrap();
    let handle = guard.detach(HOUR).owner("session:1").await.unwrap();
    let detached = fixture.document("n").await.unwrap();
    let resumed = fixture.rival().resume(&handle).await.unwrap();
    let again = fixture.document("n").await.unwrap();
    for document in [&detached, &again] {
        assert!(held.keys().eq(document.keys()));
        let types = |document: &Document| document.values().map(Bson::element_type).collect::<Vec<_>>();
        assert_eq!(types(&held), types(document));
        assert_eq!(held.get("acquiredAt"), document.get("acquiredAt"));
    }
    let id = detached.get_str("lockId").unwrap();
    let (owner, uuid) = id.rsplit_once('#').unwrap();
    assert_eq!(owner, "session:1");
    assert_eq!(uuid.as_bytes()[14], b'8', "the version says that it is detached");
    assert!(again.get_str("lockId").unwrap().starts_with("session:1#"));
    assert_eq!(held.get("fencingToken"), detached.get("fencingToken"));
    assert_eq!(again.get_i64("fencingToken"), Ok(resumed.fencing_token().get()));
}

/// Whoever reads the collection or a stream of it, or the commands, finds no handle and nothing to make one from.
#[tokio::test]
async fn the_text_of_a_handle_is_not_on_the_server() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let mut stream = fixture.locks().watch().await.unwrap();
    let mut texts = Vec::new();
    for names in [vec!["n"], vec!["a", "b"]] {
        let set = provider.lock_all(names).await.unwrap();
        let handle = set.detach(HOUR).await.unwrap();
        texts.push(handle.text().trim_start_matches("mlh1.").to_owned());
        provider.extend(&handle, HOUR).await.unwrap();
        let set = provider.resume(&handle).await.unwrap();
        let handle = set.detach(HOUR).await.unwrap();
        texts.push(handle.text().trim_start_matches("mlh1.").to_owned());
        provider.release(&handle).await.unwrap();
    }
    let mut seen: Vec<String> = commands.take().iter().map(ToString::to_string).collect();
    while let Some(event) = stream.next_if_any().await.unwrap() {
        seen.push(format!("{event:?}"));
    }
    assert!(seen.len() > 10, "{seen:?}");
    for text in texts {
        // Not even a part of it.
        let shows = |seen: &String| seen.contains(&text[..40]) || seen.contains("mlh1");
        assert!(!seen.iter().any(shows));
    }
}

/// Sends a recorded command once more.
async fn resend(fixture: &Fixture, command: &Document) {
    let mut command = command.clone();
    for added in [
        "lsid",
        "$db",
        "$clusterTime",
        "$readPreference",
        "apiVersion",
        "apiStrict",
        "apiDeprecationErrors",
    ] {
        command.remove(added);
    }
    fixture.database().run_command(command).await.unwrap();
}

/// A late acquire request gives the free lock to the id of an earlier hold. The late request that detached that hold must not make
/// its handle good again.
#[tokio::test]
async fn a_handle_is_never_good_twice() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    for is_set in [false, true] {
        let write = || {
            let mut sent = commands.take().into_iter();
            sent.find(|command| !command.contains_key("find")).unwrap()
        };
        let guard = if is_set {
            provider.lock_all(["a", "b"]).await.unwrap()
        } else {
            provider.lock("n").await.unwrap()
        };
        let (name, acquiring) = (guard.name().to_owned(), write());
        let handle = guard.detach(HOUR).await.unwrap();
        let detaching = write();
        let resumed = provider.resume(&handle).await.unwrap();
        resumed.release().await.unwrap();
        resend(&fixture, &acquiring).await;
        resend(&fixture, &detaching).await;
        let info = fixture.info(&name).await;
        assert!(info.state == LockState::Held && !info.detached, "{info:?}");
        for _ in 0..2 {
            assert_lost(provider.resume(&handle).await, LossReason::Gone);
        }
        commands.clear();
    }
}

/// The clock of an earlier primary was ahead by more than a detached lease can last.
#[tokio::test]
async fn an_extension_corrects_an_end_from_a_clock_that_was_ahead() {
    let fixture = Fixture::mongodb().await;
    let handle = detached(&fixture.provider, "n").await;
    let ahead = DateTime::from_millis(DateTime::now().timestamp_millis() + 30 * 24 * 3_600_000);
    let set = doc! { "$set": { "expiresAt": ahead } };
    fixture
        .locks()
        .update_one(doc! { "_id": "n" }, set)
        .await
        .unwrap();
    let end = fixture.provider.extend(&handle, HOUR).await.unwrap();
    let left = end.timestamp_millis() - DateTime::now().timestamp_millis();
    let week = 7 * 24 * 3_600_000;
    assert!((week..=week + 61_000).contains(&left), "{left}");
}

/// Every command of an earlier holder that arrives once more changes nothing.
#[tokio::test]
async fn late_commands_of_earlier_holders_change_nothing() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let raw = fixture.locks().clone_with_type::<RawDocumentBuf>();
    let document = async || raw.find_one(doc! { "_id": "n" }).await.unwrap().unwrap();
    let lock = provider.lock("n").expiry(Duration::from_secs(600));
    let (mut guard, mut late) = (lock.acquire().await.unwrap(), Vec::new());
    let resend_all = async |late: &[Document]| {
        let present = document().await;
        for command in late {
            resend(&fixture, command).await;
            assert_eq!(document().await.as_bytes(), present.as_bytes(), "{command}");
        }
    };
    for _ in 0..3 {
        let handle = guard.detach(HOUR).await.unwrap();
        late.extend(commands.take());
        resend_all(&late).await;
        guard = provider.resume(&handle).await.unwrap();
        late.extend(commands.take());
        resend_all(&late).await;
        assert!(!provider.release(&handle).await.unwrap());
    }
    assert!(late.len() > 6, "{late:?}");
    guard.release().await.unwrap();
    acquire_and_release(&provider.lock("n")).await;
}

/// A request that the server refuses says so, and the lease is what it was.
#[tokio::test]
async fn a_refused_request_leaves_the_lease_as_it_was() {
    const UNAUTHORIZED: i32 = 13;
    let fixture = Fixture::mongodb().await;
    let handle = detached(&fixture.provider, "n").await;
    let rival = fixture.rival();
    let refused = |error: LockError| assert!(matches!(error, LockError::Mongo(_)), "{error:?}");
    let point = FailPoint::on(&["findAndModify", "update"])
        .always()
        .error_code(UNAUTHORIZED);
    let refusing = must(point.enable_for(fixture.db()).await);
    refused(rival.resume(&handle).await.unwrap_err());
    refused(rival.extend(&handle, HOUR).await.unwrap_err());
    refused(rival.release(&handle).await.unwrap_err());
    must(refusing.clear().await);
    rival.resume(&handle).await.unwrap().release().await.unwrap();
}

/// A detached lease blocks nobody for longer than its time, whatever becomes of the process that has detached it.
#[tokio::test]
async fn the_end_of_a_process_does_not_end_its_detached_leases() {
    let fixture = Fixture::mongodb().await;
    let handle = fixture.in_crashing_process(async |provider| detached(&provider, "n").await);
    let handle = handle.await;
    assert!(!fixture.is_free("n").await);
    let resumed = fixture.provider.resume(&handle).await.unwrap();
    resumed.release().await.unwrap();
}
