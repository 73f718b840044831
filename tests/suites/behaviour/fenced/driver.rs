//! The driver's options, write concerns, cancellation and errors in fenced writes.

use futures_util::FutureExt;
use mongodb::ClientSession;
use mongodb::bson::{Document, bson, doc};
use mongodb::options::{Collation, CollationStrength, Hint, UpdateOptions, WriteConcern};
use mongolock::{FencedCollection, FencedExt, FencingToken, LockError};
use mongolock_tests::{Commands, must, names, recorded, until};

use super::{Scene, first, retitle};

const MAJORITY: &str = "readConcernLevel=majority";

/// The reports of a holder of this token through a client whose commands are recorded, with these settings of the client.
async fn recorded_holder(
    scene: &Scene,
    token: i64,
    settings: &str,
) -> (FencedCollection<Document>, ClientSession, Commands) {
    let (database, commands) = recorded(&scene.db, &[settings]).await;
    let reports = database.collection::<Document>("reports");
    let session = database.client().start_session().await.unwrap();
    (reports.fenced(FencingToken::from(token)), session, commands)
}

/// The driver's options are passed on, and the read that explains a refused write uses the same collation and
/// variables.
#[tokio::test]
async fn options_are_passed_through() {
    let scene = Scene::new().await;
    let (holder, _, commands) = recorded_holder(&scene, 11, MAJORITY).await;
    let (late, _, refused) = recorded_holder(&scene, 9, MAJORITY).await;
    let tags = doc! { "$set": { "tags": ["a", "b"] } };
    scene.reports.update_one(first(), tags).await.unwrap();

    let strength = CollationStrength::Primary;
    let no_case = Collation::builder().locale("en").strength(strength).build();
    let options = UpdateOptions::builder()
        .array_filters(vec![doc! { "one": "b" }])
        .collation(no_case)
        .let_vars(doc! { "which": 1 })
        .hint(Hint::Keys(doc! { "_id": 1 }))
        .comment(bson!("by hand"))
        .build();
    let wanted = || doc! { "title": "OLD", "$expr": { "$eq": ["$_id", "$$which"] } };
    let change = || doc! { "$set": { "tags.$[one]": "c" } };
    let write = holder
        .update_one(wanted(), change())
        .with_options(options.clone());
    assert_eq!(write.await.unwrap().modified_count, 1);
    let sent = commands.take();
    assert_eq!(names(&sent), ["update"], "one command");
    assert_eq!(sent[0].get_str("comment"), Ok("by hand"));
    let stored = scene.all().await.remove(0);
    assert_eq!(stored.get_array("tags").unwrap(), &[bson!("a"), bson!("c")]);
    let write = late.update_one(wanted(), change()).with_options(options);
    assert!(matches!(write.await, Err(LockError::Stale { .. })));
    let sent = refused.take();
    assert_eq!(names(&sent), ["update", "find"]);
    assert_eq!(sent[1].get_document("hint"), Ok(&doc! { "_id": 1 }));
    let concern = sent[1].get_document("readConcern").unwrap();
    assert_eq!(concern.get_str("level"), Ok("local"), "not that of the client");
}

fn write_concerns(commands: &[Document]) -> Vec<Document> {
    let writes = commands.iter().filter(|command| !command.contains_key("find"));
    let concern = |command: &Document| command.get_document("writeConcern").cloned();
    writes
        .map(|command| concern(command).unwrap_or_default())
        .collect()
}

/// A failover can roll back a write that only a minority of the members has, together with its token.
#[tokio::test]
async fn writes_wait_for_the_majority_despite_the_concern_of_the_collection() {
    let scene = Scene::new().await;
    let all = "w=1&journal=true&wtimeoutMS=5000";
    for (parameters, expected) in [
        ("w=1&journal=false", doc! { "w": "majority" }),
        (all, doc! { "w": "majority", "wtimeout": 5000, "j": true }),
    ] {
        let (holder, mut session, commands) = recorded_holder(&scene, 11, parameters).await;
        holder.insert_one(doc! { "_id": 2 }).await.unwrap();
        holder.update_one(first(), retitle()).await.unwrap();
        holder.replace_one(first(), doc! { "a": 1 }).await.unwrap();
        let upsert = holder.update_one(doc! { "_id": 3 }, retitle()).upsert(true);
        upsert.await.unwrap();
        holder.delete_one(doc! { "_id": 2 }).await.unwrap();
        let in_session = holder.delete_one(doc! { "_id": 3 }).session(&mut session);
        in_session.await.unwrap();
        let concerns = write_concerns(&commands.take());
        assert_eq!(concerns, vec![expected; 6]);
    }
}

#[tokio::test]
async fn the_write_concern_of_a_call_or_of_a_transaction_is_kept() {
    let scene = Scene::new().await;
    let (holder, mut session, commands) = recorded_holder(&scene, 11, "w=1").await;
    let update = || holder.update_one(first(), retitle());
    let mut options = UpdateOptions::default();
    options.write_concern = Some(WriteConcern::nodes(1));
    update().with_options(options).await.unwrap();
    assert_eq!(write_concerns(&commands.take()), [doc! { "w": 1 }]);

    session.start_transaction().await.unwrap();
    update().session(&mut session).await.unwrap();
    let insert = holder.insert_one(doc! { "_id": 2 });
    insert.session(&mut session).await.unwrap();
    assert_eq!(write_concerns(&commands.take()), [doc! {}, doc! {}]);
    session.commit_transaction().await.unwrap();
    assert_eq!(scene.all().await.len(), 2);
}

/// A write continues when its caller drops the future.
#[tokio::test]
async fn a_write_whose_future_is_dropped_goes_on() {
    let scene = Scene::new().await;
    // A client without a connection: at the first poll nothing can have been sent.
    let database = must(scene.db.connect_again().await);
    let holder = database.collection::<Document>("reports").fenced(11.into());
    let write = holder.update_one(first(), retitle()).into_future();
    assert!(write.now_or_never().is_none());
    let token = async || scene.all().await[0].get_i64("fencingToken");
    until("the write", async || token().await == Ok(11)).await;
}
