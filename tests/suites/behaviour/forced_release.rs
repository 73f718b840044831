//! Forced releases of what a wrong clock or another program has left: they match what was read, whatever its dates and types are.

use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Binary, Bson, DateTime, Document, Timestamp, doc, spec::BinarySubtype};
use mongolock::{LockGuard, LockState};
use mongolock_tests::{AMPLE, change_lock, claim};

use crate::fixture::{Fixture, acquire_and_release, in_time};
use crate::planted::GUID;

/// How far begins and ends lie ahead: no test lasts as long.
const AHEAD: i64 = 3_600_000;

/// The owner of the locks.
const OWNER: &str = "stuck";

/// The `_id` of the permit 0 of the semaphore `permit`.
const PERMIT: &str = "permit\u{1f}0";

/// Moves the hold in a document ahead, as if a clock that was ahead had granted it.
async fn put_ahead(fixture: &Fixture, id: &str) {
    let ahead = |field: &str| doc! { "$add": [field, AHEAD] };
    let set = doc! { "$set": { "acquiredAt": ahead("$acquiredAt"), "expiresAt": ahead("$expiresAt") } };
    change_lock(fixture.database(), id, set).await;
}

/// Locks of each kind whose holds begin in the future. The guards are kept, so that nothing releases them.
async fn locks_of_each_kind(fixture: &Fixture) -> Vec<LockGuard> {
    fixture.until_indexed().await;
    let provider = fixture.with(|options| options.owner(OWNER).expiry(AMPLE * 10).max_hold(Duration::ZERO));
    let held = provider.lock("held").await.unwrap();
    let set = provider.lock_all(["set:1", "set:2"]).await.unwrap();
    provider.lock("mark").once().await.unwrap().done().await.unwrap();
    acquire_and_release(&provider.lock("kept").min_hold(AMPLE * 10).max_hold(AMPLE * 10)).await;
    let permit = provider.semaphore("permit", 1).acquire().await.unwrap();
    permit.detach(AMPLE * 10).await.unwrap();
    provider
        .lock("detached")
        .await
        .unwrap()
        .detach(AMPLE * 10)
        .await
        .unwrap();
    let foreign = claim("foreign", GUID, AHEAD);
    fixture.locks().insert_one(foreign).await.unwrap();
    for id in [
        "held", "set:1", "set:2", "mark", "kept", PERMIT, "detached", "foreign",
    ] {
        put_ahead(fixture, id).await;
    }
    vec![held, set]
}

/// A hold, a mark or a minimum hold whose begin lies ahead is released by its name, by its token and as a permit.
#[tokio::test]
async fn what_begins_in_the_future_is_released_by_its_name() {
    for by_token in [false, true] {
        let fixture = Fixture::mongodb().await;
        let guards = locks_of_each_kind(&fixture).await;
        let admin = fixture.provider.admin();
        for name in [
            "held", "set:1", "set:2", "mark", "kept", "permit", "detached", "foreign",
        ] {
            let id = if name == "permit" { PERMIT } else { name };
            let token = fixture
                .document(id)
                .await
                .unwrap()
                .get_i64("fencingToken")
                .unwrap();
            let request = || match name {
                "permit" => admin.force_release(name).permit(0),
                _ => admin.force_release(name),
            };
            let request = || {
                if by_token {
                    request().only_if(token.into())
                } else {
                    request()
                }
            };
            assert!(request().await.unwrap(), "{name} by its token: {by_token}");
            assert!(!request().await.unwrap(), "{name} is free");
            match name {
                "permit" => drop(
                    fixture
                        .provider
                        .semaphore(name, 1)
                        .try_acquire()
                        .await
                        .unwrap()
                        .unwrap(),
                ),
                _ => assert!(fixture.is_free(name).await, "{name}"),
            }
        }
        drop(guards);
    }
}

/// The same by the owner. Its minimum holds end as well, and its marks stay.
#[tokio::test]
async fn what_begins_in_the_future_is_released_with_its_owner() {
    let fixture = Fixture::mongodb().await;
    let guards = locks_of_each_kind(&fixture).await;
    let admin = fixture.provider.admin();
    assert_eq!(admin.release_owner(OWNER).await.unwrap(), 6);
    assert_eq!(admin.release_owner(OWNER).await.unwrap(), 0);
    for name in ["held", "set:1", "set:2", "kept", "detached"] {
        assert!(fixture.is_free(name).await, "{name}");
    }
    assert_eq!(fixture.info("mark").await.state, LockState::Done);
    drop(guards);
}

/// Values that no field of a lock has.
fn wrong_values() -> Vec<Bson> {
    vec![
        Bson::Null,
        7.into(),
        f64::NAN.into(),
        true.into(),
        "$$NOW".into(),
        Bson::Array(vec!["a".into(), Bson::Null]),
        doc! { "$gt": "" }.into(),
        Bson::Binary(Binary {
            subtype: BinarySubtype::Generic,
            bytes: vec![1],
        }),
        ObjectId::new().into(),
        Bson::RegularExpression(mongodb::bson::Regex {
            pattern: "^a".into(),
            options: String::new(),
        }),
        Bson::Timestamp(Timestamp {
            time: 1,
            increment: 1,
        }),
        Bson::MinKey,
        Bson::MaxKey,
    ]
}

/// Releases a damaged document by force, and asserts that all is as in the document of a released lock.
async fn assert_set_right(fixture: &Fixture, damaged: &Document) {
    let name = damaged.get_str("_id").unwrap();
    let admin = fixture.provider.admin();
    assert!(admin.force_release(name).await.unwrap(), "{damaged}");
    let document = fixture.document(name).await.unwrap();
    assert_eq!(document.len(), 5, "{damaged}: {document}");
    assert_eq!(document.get_str("lockId"), Ok(""), "{damaged}: {document}");
    let at = document.get_datetime("acquiredAt").unwrap().timestamp_millis();
    assert_eq!(document.get_datetime("expiresAt").unwrap().timestamp_millis(), at);
    let token = document.get_i64("fencingToken").unwrap();
    match damaged.get_i64("fencingToken") {
        Ok(before) if before > at * 1000 => assert_eq!(token, before, "{damaged}"),
        _ => assert_eq!(token, at * 1000, "{damaged}"),
    }
    assert_eq!(fixture.info(name).await.state, LockState::Released);
    assert!(!admin.force_release(name).await.unwrap(), "{damaged}");
    let next = fixture
        .provider
        .lock(name)
        .try_acquire()
        .await
        .unwrap()
        .expect("it is free");
    assert!(next.fencing_token().get() > token, "{damaged}");
    next.release().await.unwrap();
    fixture.locks().delete_one(doc! { "_id": name }).await.unwrap();
}

/// A field of another type, or without a value, in a document that begins and ends in the future. The token rises if it can be read.
#[tokio::test]
async fn a_damaged_document_is_set_right() {
    let fixture = Fixture::mongodb().await;
    fixture.until_indexed().await;
    for token in [17, i64::MAX / 2] {
        let begin = DateTime::from_millis(DateTime::now().timestamp_millis() + AHEAD);
        let mut sound = claim("damaged", "anna#1", 2 * AHEAD);
        sound.extend(doc! { "acquiredAt": begin, "fencingToken": token });
        for field in ["lockId", "acquiredAt", "expiresAt", "fencingToken"] {
            let mut wrong = wrong_values();
            wrong.push(DateTime::from_millis(AHEAD).into());
            if field == "lockId" {
                // A text is an id of whatever program.
                wrong.retain(|value| value.as_str().is_none());
            }
            if field.ends_with("At") {
                wrong.retain(|value| value.as_datetime().is_none());
            }
            let values = wrong.into_iter().map(Some).chain([None]);
            for value in values {
                let mut damaged = sound.clone();
                match value {
                    Some(value) => drop(damaged.insert(field, value)),
                    None => drop(damaged.remove(field)),
                }
                fixture.locks().insert_one(&damaged).await.unwrap();
                assert_set_right(&fixture, &damaged).await;
            }
        }
    }
    for damaged in [
        doc! { "_id": "bare" },
        doc! { "_id": "bare", "lockId": 7, "expiresAt": "soon" },
    ] {
        fixture.locks().insert_one(&damaged).await.unwrap();
        assert_set_right(&fixture, &damaged).await;
    }
}

/// A clock that went back: the end of a released lock lies ahead, and the lock is free all the same, for each kind of call.
#[tokio::test]
async fn a_released_lock_is_free_whatever_its_end_is() {
    let fixture = Fixture::mongodb().await;
    let provider = fixture.with(|options| options.takeover_margin(AMPLE));
    let names = ["lock", "waits", "set:1", "set:2", "margin", "resumed"];
    for name in names {
        acquire_and_release(&fixture.provider.lock(name)).await;
    }
    let semaphore = fixture.provider.semaphore("permit", 1);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    for id in names.into_iter().chain([PERMIT]) {
        put_ahead(&fixture, id).await;
    }
    for name in names {
        let info = fixture.info(name).await;
        assert!(
            info.remaining.is_zero() && info.state == LockState::Released,
            "{info:?}"
        );
        assert!(
            !fixture.provider.admin().force_release(name).await.unwrap(),
            "it is free"
        );
    }
    assert_eq!(semaphore.available().await.unwrap(), 1);
    let try_lock = async |name: &str| fixture.provider.lock(name).try_acquire().await.unwrap();
    let first = try_lock("lock").await.expect("it is free");
    let set = fixture.provider.lock_all(["set:1", "set:2"]);
    let set = set.try_acquire().await.unwrap().expect("it is free");
    let permit = semaphore.try_acquire().await.unwrap().expect("it is free");
    let margin = provider.lock("margin").try_acquire().await.unwrap();
    let waited = in_time(fixture.provider.lock("waits")).await.unwrap();
    drop((
        first,
        set,
        permit,
        margin.expect("a released lock has no margin"),
        waited,
    ));
}
