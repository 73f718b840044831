//! The commands for several locks, on both stores.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::{Collection, Database};
use mongolock_tests::{AMPLE, names, recorded, test_db, transaction_on};
use tokio::task::JoinSet;

use crate::few::Few;
use crate::opaque::Opaque;
use crate::protocol::Kind;
use crate::store::{AcquireReply, AcquireRequest, LeaseId, MongoStore, ProviderMark, Store, driver_error};
use crate::timing::COMMAND_LIMIT;
use crate::{FencingToken, LockError};

/// Makes two tests of each function: one in memory, one on MongoDB.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test] async fn $name() {
                super::$name(crate::store::Store::Memory(std::sync::Arc::new(crate::store::MemoryStore::new()))).await;
            })*
        }
        mod on_mongodb {
            $(#[tokio::test] async fn $name() {
                let db = mongolock_tests::test_db().await;
                super::$name(super::mongodb(db.database())).await;
            })*
        }
    };
}

on_both_stores!(
    each_lock_has_a_reply_of_its_own,
    a_repeated_request_finds_its_own_claims,
    new_names_are_acquired_by_one_client_each,
    a_renewal_pairs_names_and_ids,
    a_release_of_a_set_says_whether_all_were_held,
);

fn mongodb(database: &Database) -> Store {
    Store::Mongo(Opaque::new(MongoStore::new(
        database,
        "distributed_locks",
        None,
        Arc::default(),
    )))
}

fn locks(database: &Database) -> Collection<Document> {
    database.collection("distributed_locks")
}

fn request() -> AcquireRequest {
    AcquireRequest {
        expiry: AMPLE,
        tokens: 1,
        takeover_margin: Duration::ZERO,
        wants_dates: false,
    }
}

fn keys(names: &[&str]) -> Vec<LeaseId> {
    let lock_id = ProviderMark::random().new_lock_id("owner", Kind::Set);
    let key = |name: &&str| LeaseId {
        name: Arc::from(*name),
        lock_id: Arc::clone(&lock_id),
    };
    names.iter().map(key).collect()
}

async fn claim(store: &Store, keys: &[LeaseId]) -> Few<AcquireReply> {
    let keys = Few::from(keys.to_vec());
    let claimed = store.claim_alone(&keys, request(), COMMAND_LIMIT).await.unwrap();
    claimed.unwrap()
}

/// The tokens of the locks that were acquired.
fn tokens(replies: &[AcquireReply]) -> Vec<Option<FencingToken>> {
    let token = |reply: &AcquireReply| match reply {
        AcquireReply::Acquired { last_token, .. } => Some(*last_token),
        AcquireReply::Held { .. } => None,
    };
    replies.iter().map(token).collect()
}

async fn each_lock_has_a_reply_of_its_own(store: Store) {
    let other = keys(&["b"]);
    claim(&store, &other[..1]).await;
    let ours = keys(&["a", "b", "c"]);
    match &claim(&store, &ours).await[..] {
        [
            AcquireReply::Acquired {
                remaining: Some(first),
                ..
            },
            AcquireReply::Held {
                holder: Some(holder),
                remaining: Some(rest),
                ..
            },
            AcquireReply::Acquired { .. },
        ] => {
            assert!(*first <= AMPLE && *first > AMPLE / 2, "{first:?}");
            assert!(*rest <= AMPLE && *rest > AMPLE / 2, "{rest:?}");
            assert_eq!(*holder, other[0].lock_id);
        }
        replies => panic!("{replies:?}"),
    }
}

async fn a_repeated_request_finds_its_own_claims(store: Store) {
    let ours = keys(&["a", "b"]);
    let first = tokens(&claim(&store, &ours).await);
    assert!(first.iter().all(Option::is_some), "{first:?}");
    assert_eq!(tokens(&claim(&store, &ours).await), first);
}

/// The first documents of several names, inserted by many clients at once.
async fn new_names_are_acquired_by_one_client_each(store: Store) {
    let store = Arc::new(store);
    for round in 0..10 {
        let names = [format!("{round}:a"), format!("{round}:b"), format!("{round}:c")];
        let mut clients = JoinSet::new();
        for _ in 0..16 {
            let keys = keys(&[&names[0], &names[1], &names[2]]);
            let store = Arc::clone(&store);
            clients.spawn(async move { tokens(&claim(&store, &keys).await) });
        }
        let mut acquired = [0; 3];
        while let Some(tokens) = clients.join_next().await {
            for (count, token) in acquired.iter_mut().zip(tokens.unwrap()) {
                *count += usize::from(token.is_some());
            }
        }
        assert_eq!(acquired, [1, 1, 1]);
    }
}

/// Both ids of the renewal are in documents of its names, and yet one of its claims is gone: `q` has the id of the set to
/// which `p` belongs.
async fn a_renewal_pairs_names_and_ids(store: Store) {
    let set = keys(&["p", "q"]);
    claim(&store, &set).await;
    let single = keys(&["q"]).remove(0);
    let reply = store
        // Each in a statement of its own.
        .renew(&[(set[0].clone(), AMPLE), (single.clone(), AMPLE * 2)], COMMAND_LIMIT)
        .await
        .unwrap();
    assert!(reply.includes(&set[0]) && !reply.includes(&single), "{reply:?}");

    let claims: Vec<_> = set.iter().map(|key| (key.clone(), AMPLE)).collect();
    let all = store.renew(&claims, COMMAND_LIMIT).await.unwrap();
    assert!(set.iter().all(|key| all.includes(key)));
    store
        .release_alone(&set[1..], Duration::ZERO, COMMAND_LIMIT)
        .await
        .unwrap();
    let rest = store.renew(&claims, COMMAND_LIMIT).await.unwrap();
    assert!(rest.includes(&set[0]) && !rest.includes(&set[1]), "{rest:?}");
}

async fn a_release_of_a_set_says_whether_all_were_held(store: Store) {
    let set = keys(&["a", "b"]);
    claim(&store, &set).await;
    assert!(
        store
            .release_alone(&set, Duration::ZERO, COMMAND_LIMIT)
            .await
            .unwrap()
    );
    assert!(
        !store
            .release_alone(&set, Duration::ZERO, COMMAND_LIMIT)
            .await
            .unwrap()
    );
    let next = keys(&["a", "b"]);
    claim(&store, &next).await;
    store
        .release_alone(&next[..1], Duration::ZERO, COMMAND_LIMIT)
        .await
        .unwrap();
    assert!(
        !store
            .release_alone(&next, Duration::ZERO, COMMAND_LIMIT)
            .await
            .unwrap()
    );
    assert!(tokens(&claim(&store, &set).await).iter().all(Option::is_some));
}

#[tokio::test]
async fn any_number_of_names_costs_two_commands() {
    let db = test_db().await;
    let (database, commands) = recorded(&db, &["w=1", "readConcernLevel=local"]).await;
    let store = mongodb(&database);
    for count in [2, 50] {
        let texts: Vec<String> = (0..count).map(|number| format!("{count}:{number}")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        commands.clear();
        claim(&store, &keys(&texts)).await;
        let sent = commands.take();
        assert_eq!(names(&sent), ["update", "find"]);
        let [update, find] = &sent[..] else { unreachable!() };
        assert_eq!(update.get_bool("ordered").ok(), Some(false));
        assert_eq!(
            update.get_document("writeConcern").ok(),
            Some(&doc! { "w": "majority" })
        );
        assert_eq!(
            find.get_document("readConcern").ok(),
            Some(&doc! { "level": "majority" })
        );
        let limit = i64::try_from(COMMAND_LIMIT.as_millis()).unwrap();
        assert_eq!(
            (update.get_i64("maxTimeMS").ok(), find.get_i64("maxTimeMS").ok()),
            (Some(limit), Some(limit))
        );
    }
}

#[tokio::test]
async fn a_damaged_document_is_named_and_stops_no_other_lock() {
    let db = test_db().await;
    let store = mongodb(db.database());
    for damaged in [
        doc! { "_id": "b", "expiresAt": mongodb::bson::DateTime::MIN, "fencingToken": "seven" },
        doc! { "_id": "b", "expiresAt": mongodb::bson::Bson::MaxKey },
    ] {
        locks(db.database()).insert_one(damaged).await.unwrap();
        let ours = keys(&["a", "b", "c"]);
        let all = Few::from(ours.clone());
        let claimed = store.claim_alone(&all, request(), COMMAND_LIMIT).await.flatten();
        assert!(
            matches!(&claimed, Err(LockError::CorruptDocument { name, .. }) if name == "b"),
            "{claimed:?}"
        );
        locks(db.database())
            .delete_one(doc! { "_id": "b" })
            .await
            .unwrap();
        assert!(tokens(&claim(&store, &ours).await).iter().all(Option::is_some));
        store
            .release_alone(&ours, Duration::ZERO, COMMAND_LIMIT)
            .await
            .unwrap();
        locks(db.database())
            .delete_one(doc! { "_id": "b" })
            .await
            .unwrap();
    }
}

/// A foreign transaction blocks one of the documents: the error names that lock, or at least says so.
#[tokio::test]
async fn a_blocked_document_ends_the_request_at_its_limit() {
    let db = test_db().await;
    let store = mongodb(db.database());
    store
        .release_alone(&keys(&["a"]), Duration::ZERO, COMMAND_LIMIT)
        .await
        .unwrap();
    let first = keys(&["a", "b"]);
    claim(&store, &first).await;
    store
        .release_alone(&first, Duration::ZERO, COMMAND_LIMIT)
        .await
        .unwrap();
    let mut foreign = transaction_on(db.database(), &["a"]).await;
    let ours = keys(&["a", "b"]);
    let limit = Duration::from_millis(300);
    let error = store
        .claim_alone(&Few::from(ours.clone()), request(), limit)
        .await
        .unwrap_err();
    assert!(driver_error::is_blocked_document(&error), "{error:?}");
    foreign.abort_transaction().await.unwrap();
    assert!(tokens(&claim(&store, &ours).await).iter().all(Option::is_some));
}
