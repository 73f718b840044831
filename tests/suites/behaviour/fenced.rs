//! Collections that refuse a holder who came too late (S1.20).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use mongodb::bson::{Bson, Document, bson, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{Collation, CollationStrength, Hint, IndexOptions, UpdateOptions, WriteConcern};
use mongodb::{Collection, IndexModel};
use mongolock::{FencedCollection, FencedExt, FencingToken, LockError};
use mongolock_tests::{TestDb, eventually, must, test_db};
use serde::{Deserialize, Serialize};

use crate::fixture::{AMPLE, names, recorded};

/// A collection with one document, written by the holder of token 10.
struct Scene {
    db: TestDb,
    reports: Collection<Document>,
}

impl Scene {
    async fn new() -> Self {
        let db = test_db().await;
        let reports = db.database().collection("reports");
        let written = doc! { "_id": 1, "title": "old", "fencingToken": 10_i64 };
        reports.insert_one(written).await.unwrap();
        Self { db, reports }
    }

    fn holder(&self, token: i64) -> FencedCollection<Document> {
        self.reports.fenced(FencingToken::from(token))
    }

    async fn all(&self) -> Vec<Document> {
        let mut all = Vec::new();
        let mut found = self.reports.find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
        while found.advance().await.unwrap() {
            all.push(found.deserialize_current().unwrap());
        }
        all
    }

    /// The write says that it came too late, and has changed nothing.
    async fn refuses<T: Debug>(&self, write: impl IntoFuture<Output = Result<T, LockError>>) {
        let before = self.all().await;
        let refused = write.await;
        assert!(
            matches!(&refused, Err(LockError::Stale { token, seen }) if token.get() == 9 && seen.get() == 10),
            "{refused:?}"
        );
        assert_eq!(self.all().await, before);
    }
}

fn first() -> Document {
    doc! { "_id": 1 }
}

fn retitle() -> Document {
    doc! { "$set": { "title": "new" } }
}

/// Documents without the field are not in it.
async fn unique_index(reports: &Collection<Document>, field: &str) {
    let unique = IndexOptions::builder().unique(true).sparse(true).build();
    let index = IndexModel::builder()
        .keys(doc! { field: 1 })
        .options(unique)
        .build();
    reports.create_index(index).await.unwrap();
}

fn is_duplicate_key<T: Debug>(result: &Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::Mongo(error)) if error.to_string().contains("E11000"))
}

#[tokio::test]
async fn every_write_carries_the_token() {
    let scene = Scene::new().await;
    let inserted = scene.holder(11).insert_one(doc! { "_id": 2 }).await.unwrap();
    assert_eq!(inserted.inserted_id, bson!(2));
    let updated = scene.holder(12).update_one(first(), retitle()).await.unwrap();
    assert_eq!(
        (updated.matched_count, updated.modified_count, updated.upserted_id),
        (1, 1, None)
    );
    assert_eq!(
        scene.all().await,
        [
            doc! { "_id": 1, "title": "new", "fencingToken": 12_i64 },
            doc! { "_id": 2, "fencingToken": 11_i64 },
        ]
    );
    let stages = vec![doc! { "$replaceWith": { "_id": "$_id", "shout": { "$toUpper": "$title" } } }];
    scene.holder(13).update_one(first(), stages).await.unwrap();
    assert_eq!(
        scene.all().await[0],
        doc! { "_id": 1, "shout": "NEW", "fencingToken": 13_i64 }
    );
    let replaced = scene
        .holder(14)
        .replace_one(first(), doc! { "a": 1 })
        .await
        .unwrap();
    assert_eq!((replaced.matched_count, replaced.modified_count), (1, 1));
    assert_eq!(
        scene.all().await[0],
        doc! { "_id": 1, "a": 1, "fencingToken": 14_i64 }
    );
    let deleted = scene.holder(14).delete_one(first()).await.unwrap();
    assert_eq!(deleted.deleted_count, 1);
    let upserted = scene
        .holder(15)
        .update_one(first(), retitle())
        .upsert(true)
        .await
        .unwrap();
    assert_eq!(
        (upserted.matched_count, upserted.upserted_id),
        (0, Some(bson!(1)))
    );
    assert_eq!(
        scene.all().await[0],
        doc! { "_id": 1, "title": "new", "fencingToken": 15_i64 }
    );
    let upserted = scene
        .holder(15)
        .replace_one(doc! { "_id": 3 }, doc! { "title": "third" })
        .upsert(true)
        .await
        .unwrap();
    assert_eq!(upserted.upserted_id, Some(bson!(3)));
    assert_eq!(
        scene.all().await[2],
        doc! { "_id": 3, "title": "third", "fencingToken": 15_i64 }
    );
}

/// S1.20: a smaller token is rejected, by every form of write.
#[tokio::test]
async fn a_late_holder_is_refused() {
    let scene = Scene::new().await;
    let late = scene.holder(9);
    scene
        .refuses(late.insert_one(doc! { "_id": 1, "title": "late" }))
        .await;
    scene.refuses(late.update_one(first(), retitle())).await;
    scene.refuses(late.update_one(first(), vec![retitle()])).await;
    scene
        .refuses(late.update_one(first(), retitle()).upsert(true))
        .await;
    scene
        .refuses(late.replace_one(first(), doc! { "title": "late" }))
        .await;
    scene
        .refuses(late.replace_one(first(), doc! { "title": "late" }).upsert(true))
        .await;
    scene.refuses(late.delete_one(first())).await;
    // The same number, of another type.
    for id in [bson!(1_i64), bson!(1.0)] {
        let query = || doc! { "_id": id.clone() };
        scene
            .refuses(late.replace_one(query(), doc! { "title": "late" }).upsert(true))
            .await;
        scene
            .refuses(late.update_one(query(), retitle()).upsert(true))
            .await;
    }
    // By another field, which has no index.
    let by_title = || doc! { "title": "old" };
    scene
        .refuses(late.update_one(by_title(), retitle()).upsert(true))
        .await;
    scene
        .refuses(
            late.replace_one(by_title(), doc! { "title": "late" })
                .upsert(true),
        )
        .await;
}

/// S1.20: the same token, a greater one, and a document that has seen none.
#[tokio::test]
async fn others_are_accepted() {
    let scene = Scene::new().await;
    scene.reports.insert_one(doc! { "_id": 2 }).await.unwrap();
    for token in [10, 11] {
        for id in [1, 2] {
            let written = scene
                .holder(token)
                .update_one(doc! { "_id": id }, retitle())
                .await
                .unwrap();
            assert_eq!(written.matched_count, 1, "document {id}, token {token}");
        }
    }
    let tokens: Vec<_> = scene
        .all()
        .await
        .iter()
        .map(|seen| seen.get_i64("fencingToken").unwrap())
        .collect();
    assert_eq!(tokens, [11, 11]);
}

#[tokio::test]
async fn nothing_found_is_not_stale() {
    let scene = Scene::new().await;
    let holder = scene.holder(9);
    let nobody = || doc! { "_id": 1, "title": "no such" };
    assert_eq!(
        holder
            .update_one(nobody(), retitle())
            .await
            .unwrap()
            .matched_count,
        0
    );
    assert_eq!(
        holder.replace_one(nobody(), doc! {}).await.unwrap().matched_count,
        0
    );
    assert_eq!(holder.delete_one(nobody()).await.unwrap().deleted_count, 0);
    assert_eq!(scene.all().await.len(), 1);
}

/// A collision with what the fence has nothing to do with is the driver's own error.
#[tokio::test]
async fn other_collisions_stay_what_they_are() {
    let scene = Scene::new().await;
    unique_index(&scene.reports, "title").await;
    scene
        .reports
        .insert_one(doc! { "_id": 2, "title": "other" })
        .await
        .unwrap();
    let before = scene.all().await;

    let holder = scene.holder(11);
    let taken = || doc! { "title": "other" };
    assert!(is_duplicate_key(&holder.insert_one(doc! { "_id": 1 }).await));
    assert!(is_duplicate_key(&holder.insert_one(taken()).await));
    assert!(is_duplicate_key(
        &holder.update_one(first(), doc! { "$set": taken() }).await
    ));
    let third = doc! { "_id": 3 };
    assert!(is_duplicate_key(
        &holder.replace_one(third.clone(), taken()).upsert(true).await
    ));
    assert!(is_duplicate_key(
        &holder
            .update_one(third, doc! { "$set": taken() })
            .upsert(true)
            .await
    ));
    assert_eq!(scene.all().await, before);

    // The document of this `_id` is there, and is not what the query wants.
    let open = || doc! { "_id": 1, "state": "open" };
    assert!(is_duplicate_key(
        &holder.update_one(open(), retitle()).upsert(true).await
    ));
    scene
        .refuses(scene.holder(9).update_one(open(), retitle()).upsert(true))
        .await;

    // By the field of the unique index it is the same document, which has seen a later holder.
    let late = scene.holder(9);
    scene
        .refuses(late.update_one(doc! { "title": "old" }, retitle()).upsert(true))
        .await;
}

/// A duplicate key of two upserts that meet is nobody's error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_that_meet_all_succeed() {
    let scene = Scene::new().await;
    for id in 100..110 {
        let mut writes = tokio::task::JoinSet::new();
        for task in 0..32 {
            let holder = scene.holder(10 + task);
            writes.spawn(async move {
                let update = doc! { "$addToSet": { "tasks": task } };
                holder.update_one(doc! { "_id": id }, update).upsert(true).await
            });
        }
        let mut made = 0;
        let mut written = 0;
        for write in writes.join_all().await {
            match write {
                Ok(result) => {
                    written += 1;
                    made += usize::from(result.upserted_id.is_some());
                }
                Err(LockError::Stale { token, seen }) => assert!(token < seen),
                Err(error) => panic!("{error}"),
            }
        }
        let document = scene.reports.find_one(doc! { "_id": id }).await.unwrap().unwrap();
        assert_eq!(document.get_array("tasks").unwrap().len(), written);
        assert_eq!(
            document.get_i64("fencingToken"),
            Ok(41),
            "the greatest is never refused"
        );
        assert_eq!(made, 1);
    }
}

/// What only a collation takes for the same `_id` does not collide: a late upsert must not make a second document.
#[tokio::test]
async fn a_collation_opens_no_gap() {
    let scene = Scene::new().await;
    let written = doc! { "_id": "A", "fencingToken": 10_i64 };
    scene.reports.insert_one(written).await.unwrap();
    let strength = CollationStrength::Secondary;
    let no_case = Collation::builder().locale("en").strength(strength).build();
    let late = scene
        .holder(9)
        .update_one(doc! { "_id": "a" }, retitle())
        .upsert(true);
    scene.refuses(late.collation(no_case)).await;
}

/// An upsert with a condition beside its key costs some commands if that is not met, not many.
#[tokio::test]
async fn a_condition_that_is_not_met_ends_an_upsert() {
    let scene = Scene::new().await;
    unique_index(&scene.reports, "slug").await;
    let published = doc! { "_id": 2, "slug": "a", "status": "published", "fencingToken": 10_i64 };
    scene.reports.insert_one(published).await.unwrap();
    let (database, commands) = recorded(&scene.db, &[]).await;
    let reports = database.collection::<Document>("reports");
    let draft = || doc! { "slug": "a", "status": "draft" };
    let upsert = |token: i64, query: Document, update: Document| {
        let holder = reports.fenced(FencingToken::from(token));
        holder.update_one(query, update).upsert(true).into_future()
    };
    assert!(is_duplicate_key(&upsert(11, draft(), retitle()).await));
    assert_eq!(
        names(&commands.take()),
        ["update", "find", "update", "find", "update"]
    );
    scene.refuses(upsert(9, draft(), retitle())).await;
    commands.take();
    // It collides with another document than the one it asks for.
    let other = upsert(9, doc! { "slug": "b" }, doc! { "$set": { "slug": "a" } });
    assert!(is_duplicate_key(&other.await));
    assert_eq!(names(&commands.take()), ["update", "find", "update"]);
}

/// Those who delete the document are in nobody's way for long: an upsert writes, or says why not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_and_deletions_go_together() {
    let scene = Scene::new().await;
    unique_index(&scene.reports, "key").await;
    for query in [doc! { "_id": 100 }, doc! { "key": 100 }] {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let (holder, query) = (scene.holder(10), query.clone());
            writers.spawn(async move {
                for _ in 0..50 {
                    if writer % 2 == 0 {
                        holder.delete_one(query.clone()).await.unwrap();
                    } else {
                        let wrote = holder
                            .update_one(query.clone(), retitle())
                            .upsert(true)
                            .await
                            .unwrap();
                        assert!(wrote.matched_count == 1 || wrote.upserted_id.is_some());
                    }
                }
            });
        }
        writers.join_all().await;
    }
}

/// A holder who claims the document before reading it keeps those before him from writing at all.
#[tokio::test]
async fn a_document_can_be_claimed() {
    let scene = Scene::new().await;
    let claimed = scene
        .holder(12)
        .update_one(first(), doc! { "$set": {} })
        .await
        .unwrap();
    assert_eq!(claimed.matched_count, 1);
    assert_eq!(
        scene.all().await,
        [doc! { "_id": 1, "title": "old", "fencingToken": 12_i64 }]
    );
    let late = scene.holder(11).update_one(first(), retitle()).await;
    assert!(matches!(late, Err(LockError::Stale { seen, .. }) if seen.get() == 12));
}

#[tokio::test]
async fn a_write_to_the_fence_field_is_refused() {
    let scene = Scene::new().await;
    let before = scene.all().await;
    let writes = [
        scene
            .holder(11)
            .update_one(first(), doc! { "$set": { "fencingToken": 1 } }),
        scene
            .holder(11)
            .update_one(first(), vec![doc! { "$unset": "fencingToken" }]),
        scene.holder(11).fence_field("a.b").update_one(first(), retitle()),
        scene.holder(11).fence_field("_id").update_one(first(), retitle()),
    ];
    for write in writes {
        let refused = write.await;
        let Err(error @ LockError::InvalidFence { .. }) = refused else {
            panic!("{refused:?}");
        };
        assert!(error.to_string().contains("fence field `"), "{error}");
    }
    assert_eq!(scene.all().await, before);
}

#[tokio::test]
async fn the_field_can_be_chosen() {
    let scene = Scene::new().await;
    let holder = scene.holder(9).fence_field("seen");
    assert_eq!(
        holder.update_one(first(), retitle()).await.unwrap().matched_count,
        1
    );
    let written = doc! { "_id": 1, "title": "new", "fencingToken": 10_i64, "seen": 9_i64 };
    assert_eq!(scene.all().await, [written]);
    let late = scene.holder(8).fence_field("seen").delete_one(first()).await;
    assert!(matches!(late, Err(LockError::Stale { seen, .. }) if seen.get() == 9));
}

/// What cannot be compared is refused, and said.
#[tokio::test]
async fn a_token_that_is_none_is_refused() {
    let scene = Scene::new().await;
    let foreign = [bson!("10"), bson!(null), bson!({ "at": 10 }), bson!([3, 20])];
    for (id, foreign) in (2..).zip(foreign) {
        scene
            .reports
            .insert_one(doc! { "_id": id, "fencingToken": foreign })
            .await
            .unwrap();
        let before = scene.all().await;
        for upsert in [false, true] {
            let refused = scene
                .holder(11)
                .update_one(doc! { "_id": id }, retitle())
                .upsert(upsert)
                .await;
            assert!(
                matches!(&refused, Err(LockError::InvalidFence { reason, .. }) if reason.contains(&format!("_id {id}"))),
                "{refused:?}"
            );
        }
        assert_eq!(scene.all().await, before);
    }
    // As a shell or JavaScript writes numbers.
    for (id, number) in [(7, bson!(10.0)), (8, bson!(10))] {
        scene
            .reports
            .insert_one(doc! { "_id": id, "fencingToken": number })
            .await
            .unwrap();
        let late = scene.holder(9).delete_one(doc! { "_id": id }).await;
        assert!(matches!(late, Err(LockError::Stale { seen, .. }) if seen.get() == 10));
        let next = scene
            .holder(10)
            .update_one(doc! { "_id": id }, retitle())
            .await
            .unwrap();
        assert_eq!(next.matched_count, 1);
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Report {
    #[serde(rename = "_id")]
    id: i32,
    title: String,
}

/// Read, change, write back: with a type of one's own, and with a document, which brings its token along.
#[tokio::test]
async fn what_was_read_can_be_written_back() {
    let scene = Scene::new().await;
    let reports: Collection<Report> = scene.reports.clone_with_type();
    let mut report = reports.find_one(first()).await.unwrap().unwrap();
    report.title.push_str("er");
    reports
        .fenced(FencingToken::from(11))
        .replace_one(first(), &report)
        .await
        .unwrap();
    assert_eq!(
        scene.all().await[0],
        doc! { "_id": 1, "title": "older", "fencingToken": 11_i64 }
    );

    let mut document = scene.reports.find_one(first()).await.unwrap().unwrap();
    document.insert("title", "oldest");
    scene.holder(12).replace_one(first(), &document).await.unwrap();
    assert_eq!(
        scene.all().await[0],
        doc! { "_id": 1, "title": "oldest", "fencingToken": 12_i64 }
    );
    assert!(matches!(
        scene.holder(11).replace_one(first(), scene.all().await.remove(0)).await,
        Err(LockError::Stale { token, seen }) if token.get() == 11 && seen.get() == 12
    ));

    reports
        .fenced(FencingToken::from(12))
        .insert_one(Report {
            id: 2,
            title: "two".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(
        reports.find_one(doc! { "_id": 2 }).await.unwrap().unwrap().title,
        "two"
    );
}

/// The options are the driver's, and a refusal is explained with the same collation and variables.
#[tokio::test]
async fn options_are_passed_through() {
    let scene = Scene::new().await;
    let (database, commands) = recorded(&scene.db, &["readConcernLevel=majority"]).await;
    let reports = database.collection::<Document>("reports");
    let tags = doc! { "$set": { "tags": ["a", "b"] } };
    reports.update_one(first(), tags).await.unwrap();
    commands.take();

    let no_case = Collation::builder()
        .locale("en")
        .strength(CollationStrength::Primary)
        .build();
    let wanted = || doc! { "title": "OLD", "$expr": { "$eq": ["$_id", "$$which"] } };
    let write = |token: i64| {
        reports
            .fenced(FencingToken::from(token))
            .update_one(wanted(), doc! { "$set": { "tags.$[one]": "c" } })
            .array_filters(vec![doc! { "one": "b" }])
            .collation(no_case.clone())
            .let_vars(doc! { "which": 1 })
            .hint(Hint::Keys(doc! { "_id": 1 }))
            .comment(bson!("by hand"))
    };
    assert_eq!(write(11).await.unwrap().modified_count, 1);
    let sent = commands.take();
    assert_eq!(names(&sent), ["update"], "one command");
    assert_eq!(sent[0].get_str("comment"), Ok("by hand"));
    assert_eq!(
        scene.all().await[0].get_array("tags").unwrap(),
        &[bson!("a"), bson!("c")]
    );
    assert!(matches!(write(9).await, Err(LockError::Stale { .. })));
    let sent = commands.take();
    assert_eq!(names(&sent), ["update", "find"]);
    assert_eq!(sent[1].get_document("hint"), Ok(&doc! { "_id": 1 }));
    let concern = sent[1].get_document("readConcern").unwrap();
    assert_eq!(concern.get_str("level"), Ok("local"), "whatever the client's is");

    let mut options = UpdateOptions::default();
    options.upsert = Some(true);
    options.comment = Some(bson!("all at once"));
    let holder = reports.fenced(FencingToken::from(12));
    let made = holder
        .update_one(doc! { "_id": 7 }, retitle())
        .with_options(options)
        .await
        .unwrap();
    assert_eq!(made.upserted_id, Some(bson!(7)));
    let sent = commands.take();
    assert_eq!(
        (names(&sent), sent[0].get_str("comment")),
        (vec!["update"], Ok("all at once"))
    );

    // By another field than the `_id`: first without inserting.
    holder
        .replace_one(doc! { "key": 8 }, doc! { "key": 8 })
        .upsert(true)
        .await
        .unwrap();
    assert_eq!(names(&commands.take()), ["update", "find", "update"]);
}

fn write_concerns(commands: &[Document]) -> Vec<Document> {
    let writes = commands.iter().filter(|command| !command.contains_key("find"));
    let concern = |command: &Document| command.get_document("writeConcern").cloned();
    writes
        .map(|command| concern(command).unwrap_or_default())
        .collect()
}

/// A write that only a part of the members has can be rolled back, together with its token.
#[tokio::test]
async fn writes_wait_for_the_majority_whatever_the_collection_says() {
    let scene = Scene::new().await;
    for (parameters, expected) in [
        ("w=1", doc! { "w": "majority" }),
        (
            "w=1&journal=true&wtimeoutMS=5000",
            doc! { "w": "majority", "wtimeout": 5000, "j": true },
        ),
        ("w=1&journal=false", doc! { "w": "majority" }),
    ] {
        let (database, commands) = recorded(&scene.db, &[parameters]).await;
        let holder = database
            .collection::<Document>("reports")
            .fenced(FencingToken::from(11));
        holder.insert_one(doc! { "_id": 2 }).await.unwrap();
        holder.update_one(first(), retitle()).await.unwrap();
        holder.replace_one(first(), doc! { "a": 1 }).await.unwrap();
        let upsert = holder.update_one(doc! { "_id": 3 }, retitle()).upsert(true);
        upsert.await.unwrap();
        holder.delete_one(doc! { "_id": 2 }).await.unwrap();
        let mut session = database.client().start_session().await.unwrap();
        let in_session = holder.delete_one(doc! { "_id": 3 }).session(&mut session);
        in_session.await.unwrap();
        let concerns = write_concerns(&commands.take());
        assert_eq!(concerns.len(), 6);
        assert!(
            concerns.iter().all(|concern| *concern == expected),
            "{concerns:?}"
        );
    }
}

#[tokio::test]
async fn the_write_concern_of_a_call_or_of_a_transaction_is_left_alone() {
    let scene = Scene::new().await;
    let (database, commands) = recorded(&scene.db, &["w=1"]).await;
    let holder = database
        .collection::<Document>("reports")
        .fenced(FencingToken::from(11));
    let one = || WriteConcern::nodes(1);
    let update = || holder.update_one(first(), retitle());
    update().write_concern(one()).await.unwrap();
    let mut options = UpdateOptions::default();
    options.write_concern = Some(one());
    update().with_options(options).await.unwrap();
    assert_eq!(
        write_concerns(&commands.take()),
        [doc! { "w": 1 }, doc! { "w": 1 }]
    );

    let mut session = database.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    update().session(&mut session).await.unwrap();
    let insert = holder.insert_one(doc! { "_id": 2 });
    insert.session(&mut session).await.unwrap();
    assert_eq!(write_concerns(&commands.take()), [doc! {}, doc! {}]);
    session.commit_transaction().await.unwrap();
    assert_eq!(scene.all().await.len(), 2);
}

/// In a transaction: all or nothing, and its own end is the caller's.
#[tokio::test]
async fn writes_can_be_part_of_a_transaction() {
    let scene = Scene::new().await;
    let mut session = scene.db.database().client().start_session().await.unwrap();
    let before = scene.all().await;

    session.start_transaction().await.unwrap();
    let holder = scene.holder(11);
    holder
        .update_one(first(), retitle())
        .session(&mut session)
        .await
        .unwrap();
    holder
        .insert_one(doc! { "_id": 2 })
        .session(&mut session)
        .await
        .unwrap();
    holder
        .replace_one(doc! { "_id": 3 }, doc! {})
        .upsert(true)
        .session(&mut session)
        .await
        .unwrap();
    assert_eq!(scene.all().await, before);
    session.commit_transaction().await.unwrap();
    let tokens: Vec<_> = scene
        .all()
        .await
        .iter()
        .map(|one| one.get_i64("fencingToken").unwrap())
        .collect();
    assert_eq!(tokens, [11, 11, 11]);

    session.start_transaction().await.unwrap();
    let late = scene.holder(10);
    assert_eq!(
        late.update_one(doc! { "_id": 4 }, retitle())
            .session(&mut session)
            .await
            .unwrap()
            .matched_count,
        0
    );
    for upsert in [false, true] {
        let refused = late
            .update_one(first(), retitle())
            .upsert(upsert)
            .session(&mut session)
            .await;
        assert!(matches!(refused, Err(LockError::Stale { .. })), "{refused:?}");
    }
    let refused = late.insert_one(first()).session(&mut session).await;
    assert!(
        is_duplicate_key(&refused),
        "it has ended the transaction: {refused:?}"
    );
    session.abort_transaction().await.unwrap();
}

/// An error that does not pass must not look like one that does: the driver would repeat the transaction.
#[tokio::test]
async fn a_collision_in_a_transaction_is_not_repeated() {
    let scene = Scene::new().await;
    unique_index(&scene.reports, "title").await;
    let (holder, mut made) = (scene.holder(11), 0);
    let mut session = scene.db.database().client().start_session().await.unwrap();
    let refused: mongodb::error::Result<()> = session
        .start_transaction()
        .and_run2(async |session| {
            made += 1;
            let taken = doc! { "$set": { "title": "old" } };
            let write = holder.update_one(doc! { "_id": 2 }, taken).upsert(true);
            write.session(session).await?;
            Ok(())
        })
        .await;
    assert!(is_duplicate_key(&refused.map_err(LockError::from)));
    assert_eq!(made, 1);
}

/// A caller that goes away does not cut the write off.
#[tokio::test]
async fn a_dropped_write_goes_on() {
    let scene = Scene::new().await;
    // A client without a connection: at the first poll nothing can have been sent.
    let reports = scene
        .db
        .connect_again()
        .await
        .unwrap()
        .collection::<Document>("reports");
    let write = reports
        .fenced(FencingToken::from(11))
        .update_one(first(), retitle())
        .into_future();
    assert!(tokio::time::timeout(Duration::ZERO, write).await.is_err());
    let written = async || {
        let document = scene.all().await.remove(0);
        (document.get_i64("fencingToken") == Ok(11)).then_some(())
    };
    must(eventually(AMPLE, "the write", written).await);
}

/// Errors of the server arrive as they are.
#[tokio::test]
async fn a_refused_command_is_the_drivers_error() {
    let scene = Scene::new().await;
    let bad = scene
        .holder(11)
        .update_one(first(), doc! { "$nonsense": { "a": 1 } })
        .await;
    assert!(matches!(bad, Err(LockError::Mongo(error)) if matches!(*error.kind, ErrorKind::Write(_))));
    let empty = scene.holder(11).update_one(first(), doc! {}).await;
    assert!(
        matches!(empty, Err(LockError::Mongo(error)) if matches!(*error.kind, ErrorKind::InvalidArgument { .. }))
    );
}

/// Any writes of any holders, in any order, against a model of three documents.
#[tokio::test]
async fn any_sequence_keeps_to_the_rule() {
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::TestRunner;

    let step = (0..5_u8, 0..3_i32, 1..6_i64);
    let scenes = proptest::collection::vec(step, 1..24);
    let mut runner = TestRunner::default();
    let scene = Scene::new().await;
    for _ in 0..40 {
        let steps = scenes.new_tree(&mut runner).unwrap().current();
        scene.reports.delete_many(doc! {}).await.unwrap();
        let mut model: BTreeMap<i32, (i64, i32)> = BTreeMap::new();
        for (number, (kind, id, token)) in (1..).zip(steps.iter().copied()) {
            let (holder, query) = (scene.holder(token), doc! { "_id": id });
            let value = doc! { "value": number };
            let set = doc! { "$set": value.clone() };
            let outcome = match kind {
                0 => holder
                    .insert_one(doc! { "_id": id, "value": number })
                    .await
                    .map(|_| true),
                1 => holder
                    .update_one(query, set)
                    .await
                    .map(|done| done.matched_count > 0),
                2 => holder.update_one(query, set).upsert(true).await.map(|_| true),
                3 => holder.replace_one(query, value).upsert(true).await.map(|_| true),
                _ => holder.delete_one(query).await.map(|done| done.deleted_count > 0),
            };
            let seen = model.get(&id).map(|(seen, _)| *seen);
            match seen {
                Some(seen) if seen > token => {
                    assert!(
                        matches!(outcome, Err(LockError::Stale { .. })),
                        "{steps:?}: {outcome:?}"
                    );
                    continue;
                }
                Some(_) if kind == 0 => {
                    assert!(is_duplicate_key(&outcome), "{steps:?}: {outcome:?}");
                    continue;
                }
                _ => assert_eq!(
                    outcome.unwrap(),
                    seen.is_some() || (kind != 1 && kind != 4),
                    "{steps:?}"
                ),
            }
            match kind {
                4 => drop(model.remove(&id)),
                1 if seen.is_none() => {}
                _ => drop(model.insert(id, (token, number))),
            }
        }
        let stored: BTreeMap<_, _> = scene.all().await.iter().map(entry).collect();
        assert_eq!(stored, model, "{steps:?}");
    }
}

fn entry(document: &Document) -> (i32, (i64, i32)) {
    let number = |field: &str| match document.get(field) {
        Some(Bson::Int32(number)) => *number,
        other => panic!("{field} is {other:?}"),
    };
    (
        number("_id"),
        (document.get_i64("fencingToken").unwrap(), number("value")),
    )
}
