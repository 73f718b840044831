//! Tests of a session on a real MongoDB server. The scenes of the program check more of it.

use std::time::Duration;

use mongodb::bson::doc;
use mongodb::bson::oid::ObjectId;
use mongolock::{LockError, LockProvider, LockState};
use mongolock_tests::{TestDb, eventually, must, test_db};

use crate::edit_session::{EditSession, Opened, Saved, lock_name};
use crate::items::{Item, Items};

/// A database with one item.
struct Office {
    db: TestDb,
    items: Items,
    locks: LockProvider,
    item: ObjectId,
}

impl Office {
    async fn new() -> Self {
        let db = test_db().await;
        let items = Items::new(db.database());
        items.create(1).await.unwrap();
        Self {
            locks: LockProvider::new(db.database()),
            item: items.id(1).await.unwrap(),
            items,
            db,
        }
    }

    fn session(&self, user: &str) -> EditSession {
        EditSession::begin(&self.locks, &self.items, user).unwrap()
    }

    async fn open(&self, session: &mut EditSession) -> Opened {
        session.open(self.item).await.unwrap()
    }

    /// Opens the item while it is free.
    async fn lock(&self, session: &mut EditSession) -> Item {
        match self.open(session).await {
            Opened::Yours(item) => item,
            Opened::Taken(lock) => panic!("{lock:?}"),
        }
    }

    async fn saves(&self, session: &mut EditSession, text: &str) -> bool {
        matches!(session.save(self.item, text).await.unwrap(), Saved::Yes)
    }

    /// Tries to save the item after the loss of its lock: the item after that, and whether it has changed since it was
    /// opened.
    async fn lost(&self, session: &mut EditSession, text: &str) -> (Item, bool) {
        match session.save(self.item, text).await.unwrap() {
            Saved::Conflict {
                why: LockError::Lost { .. },
                now,
                changed,
            } => (now, changed),
            other => panic!("{other:?}"),
        }
    }
}

/// S2.4: the session that has the item, since when, and how long its lease is still valid.
#[tokio::test]
async fn an_open_item_shows_its_session() {
    let office = Office::new().await;
    let (mut anna, mut bert) = (office.session("anna#1"), office.session("anna#1"));
    office.lock(&mut anna).await;
    let Opened::Taken(lock) = office.open(&mut bert).await else {
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
    let lease = lock.expires_at.timestamp_millis() - lock.acquired_at.timestamp_millis();
    assert!(lease >= 30_000, "{lock:?}");

    assert!(office.saves(&mut anna, "hers").await);
    assert_eq!(office.lock(&mut bert).await.text, "hers");
    assert!(bert.close(office.item).await.unwrap());
    let item = office.lock(&mut anna).await;
    assert_eq!(item.saved_by.as_deref(), Some(anna.id()));
}

/// S2.10: no other session has saved, so the fence accepts the text; but the release finds the lock of another session.
#[tokio::test]
async fn saving_while_another_session_has_the_item_is_a_conflict() {
    let office = Office::new().await;
    let (mut anna, mut bert) = (office.session("anna"), office.session("bert"));
    office.lock(&mut anna).await;
    let released = office.locks.admin().force_release(lock_name(office.item)).await;
    assert!(released.unwrap());
    office.lock(&mut bert).await;
    let (now, changed) = office.lost(&mut anna, "hers").await;
    let saved_by = now.saved_by.as_deref();
    assert_eq!(
        (now.text.as_str(), saved_by, changed),
        ("hers", Some(anna.id()), true)
    );
    // Her release has not changed his lock.
    assert!(
        matches!(office.open(&mut anna).await, Opened::Taken(lock) if lock.owner.as_deref() == Some(bert.id()))
    );
    assert!(office.saves(&mut bert, "his").await);
}

/// S2.9: the session still runs and renews its lease, which only `max_hold` ends.
#[tokio::test]
async fn an_item_that_is_left_open_is_free_after_a_time() {
    let office = Office::new().await;
    let short = Duration::from_secs(2);
    let locks = office.locks.to_builder().expiry(short).max_hold(short);
    let mut anna = EditSession::begin(&locks.build().unwrap(), &office.items, "anna").unwrap();
    let before = office.lock(&mut anna).await;
    let expired = async || {
        let lock = office.locks.admin().get(lock_name(office.item)).await;
        (lock.unwrap().unwrap().state == LockState::Expired).then_some(())
    };
    must(eventually(Duration::from_secs(30), "end of the lease", expired).await);
    assert_eq!(office.lost(&mut anna, "hers").await, (before.clone(), false));
    assert_eq!(office.lock(&mut anna).await, before);
    assert!(office.saves(&mut anna, "hers").await);
}

#[tokio::test]
async fn opening_an_item_twice_locks_it_once() {
    let office = Office::new().await;
    let mut anna = office.session("anna");
    let first = office.lock(&mut anna).await;
    assert_eq!(office.lock(&mut anna).await, first);
    assert!(anna.close(office.item).await.unwrap());
    let error = anna.close(office.item).await.unwrap_err().to_string();
    assert!(error.contains("not open in this session"), "{error}");
}

#[tokio::test]
async fn saving_can_be_repeated_after_a_failed_write() {
    let office = Office::new().await;
    let rule = doc! { "collMod": Items::COLLECTION, "validator": { "text": { "$ne": "bad" } } };
    office.db.database().run_command(rule).await.unwrap();
    let mut anna = office.session("anna");
    office.lock(&mut anna).await;
    let error = anna.save(office.item, "bad").await.unwrap_err().to_string();
    assert!(error.contains("stays open"), "{error}");
    assert!(matches!(
        office.open(&mut office.session("bert")).await,
        Opened::Taken(_)
    ));
    assert!(office.saves(&mut anna, "good").await);
}

#[tokio::test]
async fn a_deleted_item_is_an_error() {
    let office = Office::new().await;
    let mut anna = office.session("anna");
    office.lock(&mut anna).await;
    let same = doc! { "_id": office.item };
    let deleted = office.items.collection().delete_one(same).await;
    assert_eq!(deleted.unwrap().deleted_count, 1);
    let saved = anna.save(office.item, "hers").await.map(drop);
    let opened = anna.open(office.item).await.map(drop);
    for error in [saved.unwrap_err(), opened.unwrap_err()] {
        assert!(error.to_string().contains("does not exist"), "{error}");
    }
}
