//! Tests of a session on a real MongoDB server.

use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongolock::{LockError, LockProvider, LockState};
use mongolock_tests::{TestDb, eventually, must, test_db};

use crate::edit_session::{EditSession, Opened, Saved, end_session, item_of, lock_name};
use crate::items::{Item, Items};

struct Office {
    db: TestDb,
    items: Items,
    locks: LockProvider,
}

impl Office {
    /// With the items 1 and 2.
    async fn new() -> Self {
        let db = test_db().await;
        let items = Items::new(db.database());
        items.create(2).await.unwrap();
        let locks = LockProvider::new(db.database());
        Self { db, items, locks }
    }

    fn session(&self, person: &str) -> EditSession {
        EditSession::begin(&self.locks, &self.items, person).unwrap()
    }

    async fn id(&self, number: u32) -> ObjectId {
        self.items.id(number).await.unwrap()
    }

    async fn release(&self, id: ObjectId) {
        assert!(self.locks.admin().force_release(lock_name(id)).await.unwrap());
    }

    async fn raw(&self, id: ObjectId) -> RawDocumentBuf {
        let items = self.db.database().collection(Items::COLLECTION);
        items.find_one(doc! { "_id": id }).await.unwrap().unwrap()
    }
}

/// Opens an item that is free.
async fn yours(session: &mut EditSession, id: ObjectId) -> Item {
    match session.open(id).await.unwrap() {
        Opened::Yours(item) => item,
        Opened::Taken(lock) => panic!("{lock:?}"),
    }
}

/// The session that has an item.
async fn holder(session: &mut EditSession, id: ObjectId) -> String {
    match session.open(id).await.unwrap() {
        Opened::Yours(item) => panic!("{item:?}"),
        Opened::Taken(lock) => lock.owner.expect("each session is an owner"),
    }
}

async fn saves(session: &mut EditSession, id: ObjectId, text: &str) -> bool {
    matches!(session.save(id, text).await.unwrap(), Saved::Yes)
}

/// S2.4: the session that has the item, since when, and how long its lease is still valid.
#[tokio::test]
async fn an_open_item_shows_its_session() {
    let office = Office::new().await;
    let (mut anna, mut bert) = (office.session("anna#1"), office.session("anna#1"));
    let id = office.id(1).await;
    yours(&mut anna, id).await;
    let Opened::Taken(lock) = bert.open(id).await.unwrap() else {
        panic!("two sessions have it open");
    };
    assert_eq!(lock.owner.as_deref(), Some(anna.id()));
    assert_ne!(anna.id(), bert.id(), "two sessions of one user differ");
    assert_eq!(lock.state, LockState::Held);
    let expiry = Duration::from_secs(30);
    assert!(
        lock.remaining > expiry / 2 && lock.remaining <= expiry,
        "{lock:?}"
    );
    let lasts = lock.expires_at.timestamp_millis() - lock.acquired_at.timestamp_millis();
    assert!(lasts >= 30_000, "{lock:?}");

    assert!(saves(&mut anna, id, "hers").await);
    assert_eq!(yours(&mut bert, id).await.text, "hers");
    assert!(bert.close(id).await.unwrap());
    let item = yours(&mut anna, id).await;
    assert_eq!(item.saved_by.as_deref(), Some(anna.id()));
}

/// S2.5
#[tokio::test]
async fn one_of_many_gets_an_item() {
    let office = Office::new().await;
    let id = office.id(1).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let mut session = office.session(&format!("editor-{number}"));
        tasks.spawn(async move {
            let opened = session.open(id).await.unwrap();
            (session, opened)
        });
    }
    let all = tasks.join_all().await;
    let got = |opened: &Opened| matches!(opened, Opened::Yours(_));
    let (winners, others): (Vec<_>, Vec<_>) = all.iter().partition(|(_, opened)| got(opened));
    let [(winner, _)] = winners[..] else {
        panic!("{} sessions have it open", winners.len());
    };
    for (_, opened) in others {
        assert!(
            matches!(opened, Opened::Taken(lock) if lock.owner.as_deref() == Some(winner.id())),
            "{opened:?}"
        );
    }
}

/// S2.1, S2.2, S2.3
#[tokio::test]
async fn locking_does_not_change_the_item() {
    let office = Office::new().await;
    let id = office.id(1).await;
    let before = office.raw(id).await;
    let (mut anna, mut bert) = (office.session("anna"), office.session("bert"));
    yours(&mut anna, id).await;
    assert_eq!(office.raw(id).await, before);
    holder(&mut bert, id).await;
    office.release(id).await;
    yours(&mut bert, id).await;
    assert!(!anna.close(id).await.unwrap(), "Bert has it");
    assert!(bert.close(id).await.unwrap());
    assert_eq!(office.raw(id).await, before);

    let locks = office.db.database().collection::<Document>("distributed_locks");
    // The library uses names with a control character itself.
    let of_users = doc! { "_id": { "$not": { "$regex": "\\x1f" } } };
    let names = locks.distinct("_id", of_users).await.unwrap();
    assert_eq!(names, [format!("edit:{}", id.to_hex()).into()]);
    assert_eq!(item_of(&lock_name(id)), Some(id));
}

/// S2.6, S2.10: the fence rejects a stale text, which would replace that of the next session.
#[tokio::test]
async fn a_stale_text_is_rejected() {
    let office = Office::new().await;
    let id = office.id(1).await;
    let (mut anna, mut bert) = (office.session("anna"), office.session("bert"));
    yours(&mut anna, id).await;
    office.release(id).await;
    yours(&mut bert, id).await;
    assert!(saves(&mut bert, id, "his").await);
    match anna.save(id, "hers").await.unwrap() {
        Saved::Conflict {
            why: LockError::Stale { token, seen, .. },
            now,
            changed: true,
        } => {
            assert!(seen > token && now.fencing_token == Some(seen));
            assert_eq!(
                (now.text.as_str(), now.saved_by.as_deref()),
                ("his", Some(bert.id()))
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(anna.save(id, "hers").await.is_err(), "it is not open any more");
    assert_eq!(yours(&mut anna, id).await.text, "his");
    assert!(saves(&mut anna, id, "his and hers").await);
}

/// S2.10: no other session has saved, so the fence accepts the text; but the release finds the lock of another session.
#[tokio::test]
async fn saving_while_another_session_has_the_item_is_a_conflict() {
    let office = Office::new().await;
    let id = office.id(1).await;
    let (mut anna, mut bert) = (office.session("anna"), office.session("bert"));
    yours(&mut anna, id).await;
    office.release(id).await;
    yours(&mut bert, id).await;
    match anna.save(id, "hers").await.unwrap() {
        Saved::Conflict {
            why: LockError::Lost { .. },
            now,
            changed: true,
        } => assert_eq!(
            (now.text.as_str(), now.saved_by.as_deref()),
            ("hers", Some(anna.id()))
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        holder(&mut anna, id).await,
        bert.id(),
        "her release has not changed his lock"
    );
    assert!(saves(&mut bert, id, "his").await);
}

/// S2.7, S2.11
#[tokio::test]
async fn the_end_of_a_session_releases_its_items_and_no_others() {
    let office = Office::new().await;
    let (first, second) = (office.id(1).await, office.id(2).await);
    let (mut anna, mut bert) = (office.session("anna"), office.session("bert"));
    yours(&mut anna, first).await;
    yours(&mut anna, second).await;
    assert_eq!(anna.end().await, 2);
    yours(&mut bert, first).await;

    let mut cleo = office.session("cleo");
    yours(&mut cleo, second).await;
    assert_eq!(end_session(&office.locks, bert.id()).await.unwrap(), 1);
    assert_eq!(holder(&mut office.session("anna"), second).await, cleo.id());
    assert!(!bert.close(first).await.unwrap());
    assert!(cleo.close(second).await.unwrap());
    assert_eq!(end_session(&office.locks, cleo.id()).await.unwrap(), 0);
}

/// S2.9: the session still runs and renews its lease, which only `max_hold` ends.
#[tokio::test]
async fn an_item_that_is_left_open_is_free_after_a_time() {
    let office = Office::new().await;
    let id = office.id(1).await;
    let short = Duration::from_secs(2);
    let locks = office.locks.to_builder().expiry(short).max_hold(short);
    let mut anna = EditSession::begin(&locks.build().unwrap(), &office.items, "anna").unwrap();
    let before = yours(&mut anna, id).await;
    let expired = async || {
        let lock = office.locks.admin().get(lock_name(id)).await.unwrap().unwrap();
        (lock.state == LockState::Expired).then_some(())
    };
    must(eventually(Duration::from_secs(30), "end of the lease", expired).await);
    match anna.save(id, "hers").await.unwrap() {
        Saved::Conflict {
            why: LockError::Lost { .. },
            now,
            changed: false,
        } => assert_eq!(now, before),
        other => panic!("{other:?}"),
    }
    assert_eq!(yours(&mut anna, id).await, before);
    assert!(saves(&mut anna, id, "hers").await);
}

#[tokio::test]
async fn opening_an_item_twice_locks_it_once() {
    let office = Office::new().await;
    let id = office.id(1).await;
    let mut anna = office.session("anna");
    let first = yours(&mut anna, id).await;
    assert_eq!(yours(&mut anna, id).await, first);
    assert!(anna.close(id).await.unwrap());
    let error = anna.close(id).await.unwrap_err().to_string();
    assert!(error.contains("not open in this session"), "{error}");
}

#[tokio::test]
async fn saving_can_be_repeated_after_a_failed_write() {
    let office = Office::new().await;
    let id = office.id(1).await;
    let rule = doc! { "collMod": Items::COLLECTION, "validator": { "text": { "$ne": "bad" } } };
    office.db.database().run_command(rule).await.unwrap();
    let mut anna = office.session("anna");
    yours(&mut anna, id).await;
    let error = anna.save(id, "bad").await.unwrap_err().to_string();
    assert!(error.contains("stays open"), "{error}");
    assert_eq!(holder(&mut office.session("bert"), id).await, anna.id());
    assert!(saves(&mut anna, id, "good").await);
}

#[tokio::test]
async fn a_deleted_item_is_an_error() {
    let office = Office::new().await;
    let id = office.id(1).await;
    let mut anna = office.session("anna");
    yours(&mut anna, id).await;
    let deleted = office.items.collection().delete_one(doc! { "_id": id }).await;
    assert_eq!(deleted.unwrap().deleted_count, 1);
    let error = anna.save(id, "hers").await.unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
    let error = anna.open(id).await.unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
}
